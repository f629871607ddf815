/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call puts into its queue, which the emulator counts, is what the backend says of it (pp_cuda_launches()): of
 * attention that stores no scores exactly, of others no more. A call that is said to be less would fill a queue whose
 * host believes that there is room.
 */
#include "parity.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cuda/emulated.h"

typedef int64_t (*counter)(void);

/* NULL on a GPU. The emulator came with the backend, for which alone its names are. */
static counter emulated_counter(void)
{
    static counter found;
    if (found || !is_emulated()) return found;
    void *const emulator = dlopen("libpp-cuda-emulator.so", RTLD_NOW | RTLD_NOLOAD);
    if (!emulator) fail_msg("%s", dlerror());
    found = (counter)dlsym(emulator, "pp_emu_queued");
    assert_true(found);
    return found;
}

/* Wide heads go another way on a GPU with little shared memory, which the shape does not say. */
static bool is_exact(const struct pp_call *call)
{
    return (call->kernel == PP_KERNEL_FLASH || call->kernel == PP_KERNEL_FLASH_GRAD) &&
           !getenv("PP_EMULATE_SHARED_KIB");
}

/* Its operands lie where tensor cores cannot read them, which no program does. */
static bool goes_another_way(const struct pp_call *call, bool shifted)
{
    return shifted && call->kernel == PP_KERNEL_FLASH_GRAD && call->precision == PP_BF16;
}

pp_status parity_run(const struct parity_device *d, const struct pp_call *call, const struct pp_frame *frame,
                     bool shifted)
{
    struct pp_call mine = *call;
    const struct pp_program program = {.calls = &mine, .ncalls = 1};
    const counter queued = emulated_counter();
    const int64_t before = queued ? queued() : 0;
    PP_TRY(d->backend->run(d->device, &program, frame, NULL, NULL));
    const int64_t n = queued ? queued() - before : 0;
    const int said = d->backend->queue->launches(d->device, &program);
    if (goes_another_way(call, shifted)) return PP_OK;
    char text[96];
    if (n > said || (queued && n < said && is_exact(call)))
        fail_msg("%s: %lld launches, not %d", pp_call_text(call, text, sizeof text), (long long)n, said);
    return PP_OK;
}
