/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/clock.h"
#include "core/base/memory_left.h"
#include "core/job/process.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"

/* Address space that OpenBLAS takes for each thread that multiplies, 128 MiB, and some more. Where a limit (ulimit -v)
 * refuses it, OpenBLAS tries again without end, and no signal but SIGKILL stops it. */
enum { PRODUCTS_BYTES = 132 << 20 };

struct pp_device {
    const struct pp_cpu_isa *isa;
    bool (*interrupted)(void);
    void *room; /* of room_bytes, until OpenBLAS takes it; NULL: it may have */
    size_t room_bytes;
    char text[128];
};

/* All workers do so before any of them multiplies. */
static pp_status keep_room(struct pp_device *device, int threads)
{
    device->room_bytes = (size_t)(threads > 0 ? threads : 1) * PRODUCTS_BYTES;
    device->room = mmap(NULL, device->room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (device->room != MAP_FAILED) return PP_OK;
    device->room = NULL;
    return pp_fail(
        PP_NOMEM,
        "no %zu MiB of address space for a worker's products (%s): is there a limit (ulimit -v)? Raise it, or "
        "have fewer workers in a process",
        device->room_bytes >> 20, strerror(errno));
}

static void leave_room(struct pp_device *device)
{
    if (device->room) munmap(device->room, device->room_bytes);
    device->room = NULL;
}

static void cpu_close(struct pp_device *device)
{
    leave_room(device);
    free(device);
}

static pp_status cpu_open(const struct pp_device_spec *spec, struct pp_device **out)
{
    *out = NULL;
    if (spec->precision != PP_FP32)
        return pp_fail(PP_USAGE, "--precision %s: the cpu device computes in fp32 only",
                       pp_precision_names[spec->precision]);
    PP_TRY(pp_gemm_open(spec->threads));
    PP_TRY(PP_NEW(out, 1));
    (*out)->isa = pp_cpu_isa_best();
    (*out)->interrupted = spec->interrupted;
    snprintf((*out)->text, sizeof(*out)->text, "%s, %s kernels", pp_gemm_describe(), (*out)->isa->name);
    const pp_status status = keep_room(*out, spec->threads);
    if (status == PP_OK) return PP_OK;
    cpu_close(*out);
    *out = NULL;
    return status;
}

static int64_t available_bytes(const struct pp_device_spec *spec)
{
    (void)spec;
    return pp_memory_left("");
}

/* Reserves `bytes` (whole pages) on a huge page's border; NULL if refused. */
static char *reserve(int64_t bytes)
{
    char *memory =
        mmap(NULL, (size_t)bytes + PP_ARENA_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    const size_t head = (PP_ARENA_PAGE_BYTES - (size_t)memory % PP_ARENA_PAGE_BYTES) % PP_ARENA_PAGE_BYTES;
    if (head) munmap(memory, head);
    if (PP_ARENA_PAGE_BYTES - head) munmap(memory + head + bytes, PP_ARENA_PAGE_BYTES - head);
    return memory + head;
}

/* Takes seconds for tens of gigabytes. */
static pp_status touch(const struct pp_device *device, char *memory, int64_t size)
{
    for (int64_t at = 0; at < size; at += PP_ARENA_SMALL_PAGE_BYTES) {
        if (at % PP_ARENA_PAGE_BYTES == 0 && device->interrupted && device->interrupted())
            return pp_fail(PP_INTERRUPTED, PP_BY_SIGNAL);
        *(volatile char *)(memory + at) = 0;
    }
    return PP_OK;
}

/* Looks, reserves and touches: the next to look sees what is left. */
static pp_status take_memory(const struct pp_device *device, int64_t bytes, void **out)
{
    const double gib = 1 << 30;
    const int64_t size = pp_arena_whole_bytes(bytes), available = available_bytes(NULL);
    *out = NULL;
    if (available >= 0 && size > available) /* the system would promise it, and then kill the process that uses it */
        return pp_fail(PP_NOMEM,
                       "a worker needs %.2f GiB, the machine has %.2f GiB left: use more stages, more chunks, "
                       "fewer rows or a smaller model",
                       (double)size / gib, (double)available / gib);
    char *memory = reserve(size);
    if (!memory) return pp_fail(PP_NOMEM, "cannot reserve %.2f GiB: %s", (double)size / gib, strerror(errno));
    /* Clearing a huge page takes longer than what a small model does with it. A refusal costs speed only. */
    madvise(memory, (size_t)size, size < PP_ARENA_PAGE_BYTES ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    pp_status status = touch(device, memory, size);
    if (status == PP_OK)
        *out = memory;
    else
        munmap(memory, (size_t)size);
    return status;
}

/* One worker of the process after the other: together they might be promised more than there is. */
static pp_status cpu_alloc(struct pp_device *device, int64_t bytes, void **out)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one_at_a_time);
    pp_status status = take_memory(device, bytes, out);
    pthread_mutex_unlock(&one_at_a_time);
    return status;
}

static void cpu_release(struct pp_device *device, void *memory, int64_t bytes)
{
    (void)device;
    if (memory) munmap(memory, (size_t)pp_arena_whole_bytes(bytes));
}

static pp_status cpu_copy(struct pp_device *device, void *to, const void *from, int64_t bytes)
{
    (void)device;
    memcpy(to, from, (size_t)bytes);
    return PP_OK;
}

static void run_call(const struct pp_cpu_isa *isa, const struct pp_call *call, const struct pp_frame *frame)
{
    struct pp_cpu_call c = {.call = call, .frame = frame};
    for (int i = 0; i < PP_CALL_REFS; i++) c.p[i] = pp_ref_address(&call->ref[i], frame);
    isa->run[call->kernel](&c);
}

void pp_cpu_run(const struct pp_cpu_isa *isa, const struct pp_program *program, const struct pp_frame *frame,
                const struct pp_progress *progress, int64_t *kernel_ns)
{
    int64_t before = kernel_ns ? pp_now_ns() : 0;
    for (int i = 0; i < program->ncalls && !(frame->join && frame->join->failed); i++) {
        run_call(isa, &program->calls[i], frame);
        if (kernel_ns) {
            const int64_t now = pp_now_ns();
            kernel_ns[i] = now - before;
            before = now;
        }
        if (progress) progress->poll(progress->arg);
    }
}

static pp_status cpu_run(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                         const struct pp_progress *progress, int64_t *kernel_ns)
{
    leave_room(device);
    pp_cpu_run(device->isa, program, frame, progress, kernel_ns);
    return PP_OK;
}

static void cpu_add(struct pp_device *device, float *to, const float *a, const float *b, int64_t n)
{
    device->isa->add(to, a, b, n);
}

static const char *cpu_describe(struct pp_device *device) { return device->text; }

static int64_t cpu_reference_ns(struct pp_device *device)
{
    const int64_t start = pp_now_ns();
    volatile float result = device->isa->spin();
    (void)result;
    return pp_now_ns() - start;
}

const struct pp_backend pp_backend_cpu = {
    .name = "cpu",
    .summary = "the processor's cores; products by OpenBLAS",
    .prepare = pp_gemm_load,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .available_bytes = available_bytes,
    .release = cpu_release,
    .upload = cpu_copy,
    .download = cpu_copy,
    .run = cpu_run,
    .add = cpu_add,
    .describe = cpu_describe,
    .reference_ns = cpu_reference_ns,
};
