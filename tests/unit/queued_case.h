/* SPDX-License-Identifier: Apache-2.0
 *
 * A device with queues, of known durations, and sessions of ppprof with it.
 */
#ifndef PP_TESTS_QUEUED_CASE_H
#define PP_TESTS_QUEUED_CASE_H

#include "tests/unit/profile_case.h"

#include <unistd.h>

/* The same with queues: measuring takes no time, issuing a tenth of running. There are config_gpus(), shared by as
 * many workers as it takes. */
enum { ISSUE_NS = CALL_NS / 10 };

static atomic_int probes, strangers, prepared;
static bool cannot_share, first_is_shorter, last_rank_is_slow;
static atomic_int slow_runs; /* of the last rank's programs, while it is slow */
static bool grouping;        /* norms and steps take as long as a call, but for times of calls */
static _Thread_local const struct pp_device *used;

static inline pp_status queued_use(struct pp_device *device)
{
    used = device;
    return PP_OK;
}

static inline struct pp_queue *queued_compute(struct pp_device *device)
{
    (void)device;
    return NULL;
}

static inline pp_status queued_copy(struct pp_device *device, struct pp_queue *queue, void *to, const void *from,
                                    int64_t bytes)
{
    (void)queue;
    return fake_copy(device, to, from, bytes);
}

static inline pp_status queued_prepare(struct pp_device *device, const struct pp_program *program)
{
    (void)program;
    strangers += used != device;
    prepared++;
    return PP_OK;
}

/* Programs that have begun and not ended, of the calling thread's device, and whether they write gradients. */
static _Thread_local int under_way, next_end;
static _Thread_local bool writes[PP_MEASURED];
static _Thread_local const struct pp_program *begun[PP_MEASURED];
static atomic_int overlaps, disorders;
static atomic_int forwards, backwards, mixed; /* programs that are under way anywhere; begins beside the other kind */

/* A forward or a backward begins or ends. */
static inline void count_kind(const struct pp_program *program, int more)
{
    const bool forward = program->signature[0] == 'F', backward = program->signature[0] == 'B';
    if (forward) forwards += more;
    if (backward) backwards += more;
    mixed += more > 0 && ((forward && backwards > 0) || (backward && forwards > 0));
}

static inline pp_status queued_begin(struct pp_device *device, const struct pp_program *program,
                                     const struct pp_frame *frame, int slot, bool each)
{
    (void)each;
    runs++;
    strangers += used != device;
    if (!has_memory(program, frame)) bad_frames++;
    if (under_way == 0) next_end = slot;
    disorders += begun[slot] != NULL;
    overlaps += under_way++ > 0;
    count_kind(program, 1);
    begun[slot] = program;
    writes[slot] = strstr(program->signature, " writes") != NULL;
    return PP_OK;
}

/* A device that has a part of a GPU takes twice as long, and a call that writes gradients half as long. */
static inline pp_status queued_end(struct pp_device *device, const struct pp_program *program, int slot,
                                   struct pp_run_time *out, int64_t *kernel_ns)
{
    int64_t call_ns = device->workers > config_gpus() ? 2 * CALL_NS : CALL_NS;
    if (last_rank_is_slow && strstr(program->signature, "+dec")) {
        slow_runs++;
        usleep(1000);
    }
    if (writes[slot] && first_is_shorter) call_ns /= 2;
    disorders += begun[slot] != program || slot != next_end;
    begun[slot] = NULL;
    next_end = (slot + 1) % PP_MEASURED;
    under_way--;
    count_kind(program, -1);
    out->device_ns = call_ns * program->ncalls;
    out->host_ns = (int64_t)ISSUE_NS * program->ncalls;
    if (grouping && program->calls->kernel >= PP_KERNEL_SUMSQ) out->device_ns = call_ns;
    for (int i = 0; kernel_ns && i < program->ncalls; i++) kernel_ns[i] = call_ns;
    return PP_OK;
}

static inline pp_status queued_probe(struct pp_device *device)
{
    (void)device;
    probes++;
    return cannot_share ? pp_fail(PP_UNSUPPORTED, "workers do not overlap") : PP_OK;
}

/* Chooses once for each program, in a line of its own. */
static inline pp_status queued_tune(struct pp_device *device, const struct pp_program *program, FILE *out, int *added)
{
    strangers += used != device;
    fprintf(out, "%s\n", program->signature);
    ++*added;
    return PP_OK;
}

static inline int queued_sharers(const struct pp_device_spec *spec)
{
    int gpus = config_gpus();
    return spec->workers > gpus ? spec->workers / gpus : 1;
}

static const struct pp_queue_ops queued_ops = {.use = queued_use,
                                               .compute = queued_compute,
                                               .copy = queued_copy,
                                               .prepare = queued_prepare,
                                               .measure_begin = queued_begin,
                                               .measure_end = queued_end,
                                               .tune = queued_tune,
                                               .probe = queued_probe};

static inline struct pp_backend queued_backend(void)
{
    struct pp_backend backend = fake;
    backend.name = "queued";
    backend.run = NULL;
    backend.queue = &queued_ops;
    backend.sharers = queued_sharers;
    return backend;
}

static inline struct pp_profile *queued_profile(const char *options, const struct pp_backend *backend)
{
    struct pp_profile_setup setup = configure(options, 64);
    struct pp_profile *profile;
    probes = strangers = prepared = overlaps = disorders = mixed = 0;
    setup.backend = backend;
    if (pp_profile_create(&setup, &profile) != PP_OK) fail_msg("%s: %s", options, pp_message());
    return profile;
}

#endif
