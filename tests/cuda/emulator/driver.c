/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's functions that cudaGetDriverEntryPointByVersion hands out: green contexts. As on compute capability 9.0,
 * parts have 8 multiprocessors or a multiple of 8.
 */
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

enum { PART = 8, MAGIC = 0x5d, PUSHED = 8 /* contexts of a thread */ };

struct CUctx_st {
    int device;
    CUgreenCtx green; /* NULL: the primary one */
};

struct CUgreenCtx_st {
    struct CUctx_st context;
    CUdevResource resource;
    struct pp_emu_pool *pool;
};

struct CUdevResourceDesc_st {
    CUdevResource resource;
};

static struct CUctx_st primary[PP_EMU_DEVICES];
static _Thread_local CUcontext current; /* NULL: the primary one of the runtime's device */
/* What was current before each push that no pop has undone. */
static _Thread_local struct {
    CUcontext context;
    int device;
} pushed[PUSHED];
static _Thread_local int npushed;

CUgreenCtx pp_emu_current_green(void) { return current ? current->green : NULL; }
void pp_emu_reset_green(void) { current = NULL; }
struct pp_emu_pool *pp_emu_green_pool(CUgreenCtx green) { return green->pool; }

static CUresult enter(const char *function)
{
    const cudaError_t error = pp_emu_enter(function);
    return error == cudaErrorMemoryAllocation ? CUDA_ERROR_OUT_OF_MEMORY : (CUresult)error;
}

static CUdevResource resource_of(int device, unsigned sms)
{
    CUdevResource r;
    memset(&r, 0, sizeof(r));
    r.type = CU_DEV_RESOURCE_TYPE_SM;
    r._internal_padding[0] = MAGIC;
    r._internal_padding[1] = (unsigned char)device;
    r.sm = (CUdevSmResource){.smCount = sms, .minSmPartitionSize = PART, .smCoscheduledAlignment = PART};
    return r;
}

static bool is_resource(const CUdevResource *r)
{
    return r && r->type == CU_DEV_RESOURCE_TYPE_SM && r->_internal_padding[0] == MAGIC;
}

static CUresult get_whole(CUdevice device, CUdevResource *out, CUdevResourceType type)
{
    if (enter("cuDeviceGetDevResource") != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN;
    if (device < 0 || device >= pp_emu_settings()->devices) return CUDA_ERROR_INVALID_DEVICE;
    if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *out = resource_of(device, PP_EMU_SMS);
    return CUDA_SUCCESS;
}

static CUresult split(CUdevResource *result, unsigned *groups, const CUdevResource *input, CUdevResource *rest,
                      unsigned flags, unsigned least)
{
    const unsigned step = flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING ? 2 : PART;
    if (enter("cuDevSmResourceSplitByCount") != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN;
    if (!groups || !is_resource(input)) return CUDA_ERROR_INVALID_VALUE;
    if (input->_internal_padding[2]) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION; /* a part without a context */
    if (least > input->sm.smCount) return CUDA_ERROR_INVALID_VALUE;
    const unsigned size = least ? (least + step - 1) / step * step : step;
    unsigned n = input->sm.smCount / size;
    if (!n) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (result && *groups < n) n = *groups;
    const int device = input->_internal_padding[1];
    const unsigned all = input->sm.smCount; /* the input may be one of the results */
    for (unsigned i = 0; result && i < n; i++) {
        result[i] = resource_of(device, size);
        result[i]._internal_padding[2] = 1;
    }
    if (rest) {
        *rest = resource_of(device, all - n * size);
        if (all == n * size) rest->type = CU_DEV_RESOURCE_TYPE_INVALID;
    }
    *groups = n;
    return CUDA_SUCCESS;
}

static CUresult describe(CUdevResourceDesc *out, CUdevResource *resources, unsigned n)
{
    if (enter("cuDevResourceGenerateDesc") != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN;
    if (!out || n != 1 || !is_resource(resources)) return CUDA_ERROR_INVALID_VALUE;
    *out = malloc(sizeof(**out)); /* CUDA has no call that frees it: the green context takes it over */
    if (!*out) return CUDA_ERROR_OUT_OF_MEMORY;
    (*out)->resource = *resources;
    return CUDA_SUCCESS;
}

static CUresult create(CUgreenCtx *out, CUdevResourceDesc desc, CUdevice device, unsigned flags)
{
    const CUresult entered = enter("cuGreenCtxCreate");
    if (entered != CUDA_SUCCESS) {
        free(desc); /* nobody else will */
        return entered;
    }
    if (!out || !desc || flags != CU_GREEN_CTX_DEFAULT_STREAM || desc->resource._internal_padding[1] != device)
        return CUDA_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof(**out));
    if (!*out) return CUDA_ERROR_OUT_OF_MEMORY;
    (*out)->resource = desc->resource;
    (*out)->resource._internal_padding[2] = 0;
    (*out)->context = (struct CUctx_st){.device = device, .green = *out};
    (*out)->pool = pp_emu_pool_take((int)desc->resource.sm.smCount);
    free(desc);
    pp_emu_count(PP_EMU_LIVE_CONTEXTS, 1);
    return CUDA_SUCCESS;
}

/* Streams may then stay, also those of other devices: in a thread that has the failed one as its current device,
 * cudaStreamDestroy fails. */
static bool a_device_failed(void)
{
    for (int d = 0; d < PP_EMU_DEVICES; d++)
        if (pp_emu_fault(d) != cudaSuccess) return true;
    return false;
}

static CUresult destroy(CUgreenCtx green)
{
    if (!green) return CUDA_ERROR_INVALID_CONTEXT;
    if (!a_device_failed() && pp_emu_has_streams(green)) pp_emu_complain("cuGreenCtxDestroy: the context has streams");
    if (current == &green->context) current = NULL;
    pp_emu_pool_return(green->pool);
    pp_emu_count(PP_EMU_LIVE_CONTEXTS, -1);
    free(green);
    return CUDA_SUCCESS;
}

static CUresult get_own(CUgreenCtx green, CUdevResource *out, CUdevResourceType type)
{
    if (enter("cuGreenCtxGetDevResource") != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN;
    if (!green) return CUDA_ERROR_INVALID_CONTEXT;
    if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *out = green->resource;
    return CUDA_SUCCESS;
}

static CUresult create_stream(CUstream *out, CUgreenCtx green, unsigned flags, int priority)
{
    const CUresult entered = enter("cuGreenCtxStreamCreate");
    if (entered != CUDA_SUCCESS) return entered;
    if (!green) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    (void)priority; /* no stream goes before another */
    return (CUresult)pp_emu_stream_open(green->context.device, flags, green, out);
}

static CUresult to_context(CUcontext *out, CUgreenCtx green)
{
    if (enter("cuCtxFromGreenCtx") != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN;
    if (!out || !green) return CUDA_ERROR_INVALID_VALUE;
    *out = &green->context;
    return CUDA_SUCCESS;
}

static CUresult stream_green(CUstream stream, CUgreenCtx *out)
{
    const cudaStream_t s = pp_emu_stream(stream);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    *out = s->green;
    return CUDA_SUCCESS;
}

static CUresult device_get(CUdevice *out, int ordinal)
{
    if (ordinal < 0 || ordinal >= pp_emu_settings()->devices) return CUDA_ERROR_INVALID_DEVICE;
    *out = ordinal;
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *out)
{
    CUcontext own = &primary[pp_emu_current()];
    own->device = pp_emu_current();
    *out = current ? current : own;
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context)
{
    if (context && cudaSetDevice(context->device) != cudaSuccess) return CUDA_ERROR_INVALID_CONTEXT;
    current = context && context->green ? context : NULL;
    return CUDA_SUCCESS;
}

static CUresult push_current(CUcontext context)
{
    if (enter("cuCtxPushCurrent") != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN;
    if (!context || npushed == PUSHED) return CUDA_ERROR_INVALID_CONTEXT;
    pushed[npushed].context = current;
    pushed[npushed++].device = pp_emu_current();
    return set_current(context);
}

static CUresult pop_current(CUcontext *out)
{
    if (!npushed) return CUDA_ERROR_INVALID_CONTEXT;
    (void)get_current(out);
    npushed--;
    (void)cudaSetDevice(pushed[npushed].device);
    current = pushed[npushed].context;
    return CUDA_SUCCESS;
}

static CUresult driver_version(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

static const struct {
    const char *name;
    unsigned version; /* of CUDA, that brought it */
    void *function;
} entries[] = {
    {"cuDriverGetVersion", 2020, (void *)driver_version},
    {"cuDeviceGet", 2000, (void *)device_get},
    {"cuCtxGetCurrent", 4000, (void *)get_current},
    {"cuCtxSetCurrent", 4000, (void *)set_current},
    {"cuCtxPushCurrent", 4000, (void *)push_current},
    {"cuCtxPopCurrent", 4000, (void *)pop_current},
    {"cuDeviceGetDevResource", 12040, (void *)get_whole},
    {"cuDevSmResourceSplitByCount", 12040, (void *)split},
    {"cuDevResourceGenerateDesc", 12040, (void *)describe},
    {"cuGreenCtxCreate", 12040, (void *)create},
    {"cuGreenCtxDestroy", 12040, (void *)destroy},
    {"cuCtxFromGreenCtx", 12040, (void *)to_context},
    {"cuGreenCtxGetDevResource", 12040, (void *)get_own},
    {"cuStreamGetGreenCtx", 12040, (void *)stream_green},
    {"cuGreenCtxStreamCreate", 12050, (void *)create_stream},
};

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *result)
{
    PP_EMU_ENTER();
    (void)flags;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    *function = NULL;
    for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
        if (strcmp(entries[i].name, symbol) != 0) continue;
        const bool old = version < entries[i].version;
        found = old ? cudaDriverEntryPointVersionNotSufficent : cudaDriverEntryPointSuccess;
        if (!old) *function = entries[i].function;
    }
    if (result) *result = found;
    return cudaSuccess;
}
