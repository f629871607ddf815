/* SPDX-License-Identifier: Apache-2.0 */
#include <cudaTypedefs.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/device.h"

/* Functions of the driver API; the suffix of a type is the CUDA version in which the function got this signature.
 * Written once, under the lock and before any share is open: afterwards workers read it without the lock. */
static struct driver {
    PFN_cuDeviceGetDevResource_v12040 get;
    PFN_cuDevSmResourceSplitByCount_v12040 split;
    PFN_cuDevResourceGenerateDesc_v12040 describe;
    PFN_cuGreenCtxCreate_v12040 create;
    PFN_cuGreenCtxDestroy_v12040 destroy;
    PFN_cuGreenCtxGetDevResource_v12040 get_own;
    PFN_cuGreenCtxStreamCreate_v12050 stream;
    PFN_cuCtxFromGreenCtx_v12040 inside;
    PFN_cuCtxPushCurrent_v4000 push;
    PFN_cuCtxPopCurrent_v4000 pop;
} driver;

/* How each GPU is divided: part[0 .. shares-1] are its parts. Valid while `open`, the number of shares in use, is not
 * 0. */
static struct division {
    int shares, open;
    CUdevResource part[PP_CUDA_SHARES];
} divisions[PP_CUDA_GPUS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `driver` while it is written, and `divisions` */

static pp_status load_driver(void)
{
    struct driver loaded = {0};
    const struct {
        const char *name;
        unsigned version;
        void *to;
    } functions[] = {
        {"cuDeviceGetDevResource", 12040, &loaded.get},
        {"cuDevSmResourceSplitByCount", 12040, &loaded.split},
        {"cuDevResourceGenerateDesc", 12040, &loaded.describe},
        {"cuGreenCtxCreate", 12040, &loaded.create},
        {"cuGreenCtxDestroy", 12040, &loaded.destroy},
        {"cuGreenCtxGetDevResource", 12040, &loaded.get_own},
        {"cuGreenCtxStreamCreate", 12050, &loaded.stream},
        {"cuCtxFromGreenCtx", 12040, &loaded.inside},
        {"cuCtxPushCurrent", 4000, &loaded.push},
        {"cuCtxPopCurrent", 4000, &loaded.pop},
    };
    if (driver.stream) return PP_OK;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
        void *entry = NULL;
        const cudaError_t error = cudaGetDriverEntryPointByVersion(functions[i].name, &entry, functions[i].version,
                                                                   cudaEnableDefault, &found);
        PP_CUDA(error, functions[i].name);
        if (found != cudaDriverEntryPointSuccess || !entry)
            return pp_fail(PP_UNSUPPORTED, "the driver has no %s: green contexts need one for CUDA 12.5 or later",
                           functions[i].name);
        memcpy(functions[i].to, &entry, sizeof entry);
    }
    driver = loaded;
    return PP_OK;
}

/* Divides the GPU in place->sharing equal parts, as large as the driver allows: it rounds sizes up to a multiple of 8
 * multiprocessors on compute capability 9.0, so of 132 four parts get 32 each. Sizes are tried from the largest down;
 * with no array for the parts the driver only says how many there would be. */
static pp_status divide(const struct pp_cuda_place *place, struct division *division)
{
    if (division->open > 0) return PP_OK;
    CUdevResource whole;
    memset(&whole, 0, sizeof whole);
    PP_CUDA_DRIVER(driver.get(place->gpu, &whole, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
    unsigned parts = 0, size = whole.sm.smCount / (unsigned)place->sharing;
    for (; size > 0; size--) {
        parts = (unsigned)place->sharing;
        const CUresult result = driver.split(NULL, &parts, &whole, NULL, 0, size);
        if (result == CUDA_SUCCESS && parts >= (unsigned)place->sharing) break;
    }
    parts = (unsigned)place->sharing;
    if (size > 0)
        PP_CUDA_DRIVER(driver.split(division->part, &parts, &whole, NULL, 0, size), "cuDevSmResourceSplitByCount");
    if (size == 0 || parts < (unsigned)place->sharing)
        return pp_fail(PP_UNSUPPORTED, "the %u multiprocessors of GPU %d cannot be divided in %d", whole.sm.smCount,
                       place->gpu, place->sharing);
    division->shares = place->sharing;
    return PP_OK;
}

static pp_status make_context(const struct pp_cuda_place *place, struct division *division, struct pp_cuda_share *out)
{
    CUdevResourceDesc descriptor;
    CUdevResource got;
    PP_TRY(load_driver());
    PP_TRY(divide(place, division));
    PP_CUDA_DRIVER(driver.describe(&descriptor, &division->part[place->index], 1), "cuDevResourceGenerateDesc");
    PP_CUDA_DRIVER(driver.create(&out->context, descriptor, place->gpu, CU_GREEN_CTX_DEFAULT_STREAM),
                   "cuGreenCtxCreate");
    memset(&got, 0, sizeof got);
    PP_CUDA_DRIVER(driver.get_own(out->context, &got, CU_DEV_RESOURCE_TYPE_SM), "cuGreenCtxGetDevResource");
    out->sms = (int)got.sm.smCount;
    if (driver.inside(&out->inside, out->context) != CUDA_SUCCESS) out->inside = NULL;
    return PP_OK;
}

/* Gives out->context a part of the GPU. If that fails, out stays the whole GPU, and out->none says why. */
static void take_part(const struct pp_cuda_place *place, struct division *division, struct pp_cuda_share *out)
{
    const int gpu_sms = out->sms;
    if (make_context(place, division, out) == PP_OK) {
        division->open++;
        return;
    }
    snprintf(out->none, sizeof out->none, "%s", pp_message());
    if (out->context) (void)driver.destroy(out->context);
    out->context = NULL;
    out->sms = gpu_sms;
}

pp_status pp_cuda_share_open(const struct pp_cuda_place *place, int gpu_sms, struct pp_cuda_share *out)
{
    struct division *division = &divisions[place->gpu];
    *out = (struct pp_cuda_share){.sms = gpu_sms};
    if (place->workers == 1) return PP_OK;
    if (place->sharing < place->workers) {
        snprintf(out->none, sizeof out->none, "%d workers in several processes use GPU %d, which serves one at a time",
                 place->workers, place->gpu);
        return PP_OK;
    }
    pthread_mutex_lock(&lock);
    const int shares = division->open > 0 ? division->shares : place->sharing;
    if (shares == place->sharing) take_part(place, division, out);
    pthread_mutex_unlock(&lock);
    if (shares == place->sharing) return PP_OK;
    return pp_fail(PP_INTERNAL, "GPU %d is divided in %d already", place->gpu, shares);
}

void pp_cuda_share_close(const struct pp_cuda_place *place, struct pp_cuda_share *share)
{
    if (!share->context) return;
    pthread_mutex_lock(&lock);
    (void)driver.destroy(share->context);
    divisions[place->gpu].open--;
    pthread_mutex_unlock(&lock);
    share->context = NULL;
    share->inside = NULL;
}

void pp_cuda_share_refuse_events(const struct pp_cuda_place *place, int gpu_sms, struct pp_cuda_share *share)
{
    if (share->inside) {
        share->inside = NULL;
        return;
    }
    snprintf(share->none, sizeof share->none, "%s", pp_message());
    pp_cuda_share_close(place, share);
    share->sms = gpu_sms;
}

pp_status pp_cuda_stream(const struct pp_cuda_share *share, bool urgent, cudaStream_t *out)
{
    int least = 0, greatest = 0;
    *out = NULL;
    PP_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for the priorities of streams");
    const int priority = urgent ? greatest : least;
    if (!share->context)
        return pp_cuda_check(cudaStreamCreateWithPriority(out, cudaStreamNonBlocking, priority), "making a stream");
    PP_CUDA_DRIVER(driver.stream(out, share->context, CU_STREAM_NON_BLOCKING, priority), "cuGreenCtxStreamCreate");
    return PP_OK;
}

pp_status pp_cuda_event(const struct pp_cuda_share *share, unsigned flags, cudaEvent_t *out)
{
    static const char doing[] = "making an event";
    CUcontext popped;
    if (!share->inside) return pp_cuda_check(cudaEventCreateWithFlags(out, flags), doing);
    PP_CUDA_DRIVER(driver.push(share->inside), "cuCtxPushCurrent");
    const cudaError_t error = cudaEventCreateWithFlags(out, flags);
    (void)driver.pop(&popped);
    return pp_cuda_check(error, doing);
}
