/* SPDX-License-Identifier: Apache-2.0
 *
 * A task begins when the one before it should have ended, or when its input is there if that is later, and ends its
 * duration after that. So a thread that the system wakes up late shortens its next wait, and lateness does not add up.
 * What a message takes longer than the hop that was asked for is not made good: it is what is to be seen.
 */
#include "kernels/delay/delay.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "core/base/clock.h"
#include "core/job/process.h"

enum {
    LATE_NS = 5000000,     /* a worker that comes later than this after its last task was not woken up late: it did
                               something else */
    SLACK_NS = 1000,       /* the system may not round the ends of waits more than that; it does by 50 us */
    REFERENCE_NS = 1000000 /* a wait whose lateness tells how well this machine keeps time */
};

struct pp_device {
    int64_t free_ns; /* when the last task should have ended */
    bool prompt;     /* the system lets its thread run before those of others */
};

/* Of this thread, which sleeps nearly always: on a busy machine it would be woken up milliseconds late. A refusal costs
 * precision only. */
static bool set_policy(int policy)
{
    const struct sched_param parameters = {.sched_priority = sched_get_priority_min(policy)};
    return pthread_setschedparam(pthread_self(), policy, &parameters) == 0;
}

static pp_status delay_open(const struct pp_device_spec *spec, struct pp_device **out)
{
    (void)spec;
    PP_TRY(PP_NEW(out, 1));
    prctl(PR_SET_TIMERSLACK, SLACK_NS);
    (*out)->prompt = set_policy(SCHED_RR);
    return PP_OK;
}

/* Not always by the thread that opened it, but then that one has ended. */
static void delay_close(struct pp_device *device)
{
    prctl(PR_SET_TIMERSLACK, 0);
    set_policy(SCHED_OTHER);
    free(device);
}

/* Nothing computes in it, so most of it is never touched; and what is not touched takes no memory. */
static pp_status delay_alloc(struct pp_device *device, int64_t bytes, void **out)
{
    (void)device;
    const size_t size = (size_t)pp_arena_whole_bytes(bytes);
    *out = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*out == MAP_FAILED) {
        *out = NULL;
        return pp_fail(PP_NOMEM, "cannot reserve %zu bytes for a worker: use fewer rows, or a smaller model", size);
    }
    madvise(*out, size, MADV_NOHUGEPAGE); /* a refusal costs memory only */
    return PP_OK;
}

static void delay_release(struct pp_device *device, void *memory, int64_t bytes)
{
    (void)device;
    if (memory) munmap(memory, (size_t)pp_arena_whole_bytes(bytes));
}

static pp_status delay_copy(struct pp_device *device, void *to, const void *from, int64_t bytes)
{
    (void)device;
    memcpy(to, from, (size_t)bytes);
    return PP_OK;
}

static void wait_until(int64_t ns, const struct pp_progress *progress)
{
    const struct timespec until = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    if (progress)
        progress->wait(progress->arg, ns);
    else
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* When the input is there: its first bytes say when it was sent. It leaves when there is a buffer for it. */
static int64_t arrival_ns(const struct pp_frame *frame)
{
    int64_t sent_ns;
    if (frame->wait.hop_ns < 0) return 0;
    memcpy(&sent_ns, frame->base[PP_MEM_IN], sizeof sent_ns);
    const int64_t ready_ns = sent_ns - frame->wait.clock_offset_ns, posted_ns = frame->wait.posted_ns;
    return (ready_ns > posted_ns ? ready_ns : posted_ns) + frame->wait.hop_ns;
}

/* now_ns: the worker has come to the task. */
static int64_t start_ns(const struct pp_device *device, const struct pp_frame *frame, int64_t now_ns)
{
    const bool follows = !frame->wait.waited && now_ns - device->free_ns < LATE_NS;
    const int64_t start = follows ? device->free_ns : now_ns, arrival = arrival_ns(frame);
    return arrival > start ? arrival : start;
}

static pp_status delay_run(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                           const struct pp_progress *progress, int64_t *kernel_ns)
{
    const int64_t now = pp_now_ns(), start = start_ns(device, frame, now), end = start + frame->wait.duration_ns;
    const int64_t sent_ns = end + frame->wait.clock_offset_ns;
    if (start > now) wait_until(start, progress);
    if (frame->wait.begun_ns) *frame->wait.begun_ns = start > now ? pp_now_ns() : now;
    wait_until(end, progress);
    device->free_ns = end;
    if (frame->base[PP_MEM_OUT]) memcpy(frame->base[PP_MEM_OUT], &sent_ns, sizeof sent_ns);
    if (kernel_ns) memset(kernel_ns, 0, (size_t)program->ncalls * sizeof *kernel_ns);
    return PP_OK;
}

static void delay_add(struct pp_device *device, float *to, const float *a, const float *b, int64_t n)
{
    (void)device;
    for (int64_t i = 0; i < n; i++) to[i] = a[i] + b[i];
}

static const char *delay_describe(struct pp_device *device)
{
    return device->prompt ? "timed waits at real-time priority: nothing is computed or learned"
                          : "timed waits at ordinary priority: nothing is computed or learned";
}

static int64_t delay_reference_ns(struct pp_device *device)
{
    (void)device;
    const int64_t start = pp_now_ns();
    wait_until(start + REFERENCE_NS, NULL);
    return pp_now_ns() - start;
}

const struct pp_backend pp_backend_delay = {
    .name = "delay",
    .summary = "computes nothing, waits as long as --times or a profile says",
    .waits = true,
    .open = delay_open,
    .close = delay_close,
    .alloc = delay_alloc,
    .release = delay_release,
    .upload = delay_copy,
    .download = delay_copy,
    .run = delay_run,
    .add = delay_add,
    .describe = delay_describe,
    .reference_ns = delay_reference_ns,
};
