/* SPDX-License-Identifier: Apache-2.0
 *
 * A device of known durations and sessions of ppprof with it, for the tests of profiling.
 */
#ifndef PP_TESTS_PROFILE_CASE_H
#define PP_TESTS_PROFILE_CASE_H

#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/base/stats.h"
#include "core/model/queue.h"
#include "kernels/kernels.h"
#include "kernels/model.h"
#include "kernels/profile.h"
#include "schedules/schedule.h"

/* A device on which every call takes 10 us, and which complains about frames that lack memory. */
enum { CALL_NS = 10000 };
static const int64_t longest_wait_ns = 20000000000;

struct pp_device {
    int worker, workers;
};

static struct pp_config config;

static inline int config_gpus(void) { return config.gpus > 0 ? config.gpus : 1; }

static atomic_int open_devices, open_blocks, bad_frames, runs, interrupt_after;
static atomic_int running, together;  /* tasks under way; the most of them at one time */
static atomic_int last_worker, again; /* who ran last; how often the same worker ran twice in a row */
static atomic_bool await_another;     /* the first task goes on until another one is under way, which must come */

static inline pp_status fake_open(const struct pp_device_spec *spec, struct pp_device **out)
{
    assert_int_equal(spec->threads, 1);
    PP_TRY(PP_NEW(out, 1));
    (*out)->worker = spec->worker;
    (*out)->workers = spec->workers;
    open_devices++;
    return PP_OK;
}

static inline void fake_close(struct pp_device *device)
{
    open_devices--;
    free(device);
}

static inline pp_status fake_alloc(struct pp_device *device, int64_t bytes, void **out)
{
    (void)device;
    open_blocks++;
    return pp_alloc_bytes(out, (size_t)bytes, 1);
}

static inline void fake_release(struct pp_device *device, void *memory, int64_t bytes)
{
    (void)device;
    (void)bytes;
    open_blocks--;
    free(memory);
}

static inline pp_status fake_copy(struct pp_device *device, void *to, const void *from, int64_t bytes)
{
    (void)device;
    memcpy(to, from, (size_t)bytes);
    return PP_OK;
}

/* Every region that a call names is there, apart from copies that are skipped and the output of a recomputed stage. */
static inline bool has_memory(const struct pp_program *program, const struct pp_frame *frame)
{
    for (int i = 0; i < program->ncalls; i++)
        for (int r = 0; r < PP_CALL_REFS && program->calls[i].kernel != PP_KERNEL_COPY; r++) {
            int region = program->calls[i].ref[r].region;
            bool unsent = region == PP_MEM_OUT && program->signature[0] == 'R';
            if (region != PP_MEM_NONE && !frame->base[region] && !unsent) return false;
        }
    return frame->training && frame->loss && frame->sums && frame->loss_scale > 0;
}

/* Whatever cores the system has for us; in vain once at most. */
static inline void meet_another(void)
{
    const int64_t until = pp_now_ns() + longest_wait_ns;
    while (await_another && together < 2) {
        sched_yield();
        if (pp_now_ns() > until) await_another = false;
    }
}

static inline pp_status fake_run(struct pp_device *device, const struct pp_program *program,
                                 const struct pp_frame *frame, const struct pp_progress *progress, int64_t *kernel_ns)
{
    (void)progress;
    runs++;
    int now = ++running;
    for (int most = together; now > most && !atomic_compare_exchange_weak(&together, &most, now);) continue;
    meet_another();
    if (atomic_exchange(&last_worker, device->worker) == device->worker) again++;
    if (!has_memory(program, frame)) bad_frames++;
    int64_t end = pp_now_ns() + (int64_t)CALL_NS * program->ncalls;
    while (pp_now_ns() < end) continue;
    for (int i = 0; kernel_ns && i < program->ncalls; i++) kernel_ns[i] = CALL_NS;
    running--;
    return PP_OK;
}

static inline const char *fake_describe(struct pp_device *device)
{
    (void)device;
    return "a device for tests";
}

static inline int64_t fake_reference(struct pp_device *device)
{
    (void)device;
    return 1000;
}

static const struct pp_backend fake = {
    .name = "fake",
    .summary = "fixed durations",
    .open = fake_open,
    .close = fake_close,
    .alloc = fake_alloc,
    .release = fake_release,
    .upload = fake_copy,
    .download = fake_copy,
    .run = fake_run,
    .describe = fake_describe,
    .reference_ns = fake_reference,
};

static inline bool interrupted(void) { return interrupt_after > 0 && runs > interrupt_after; }

/* Options as one string, separated by blanks. */
static inline struct pp_profile_setup configure(const char *options, int cores)
{
    static char text[512];
    static char *argv[64];
    int argc = 0;
    argv[argc++] = (char *)"ppprof";
    strncpy(text, options, sizeof text - 1);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    if (pp_config_parse(PP_PPPROF, argc, argv, &config, NULL) != PP_OK) fail_msg("%s", pp_message());
    runs = bad_frames = interrupt_after = together = again = 0;
    last_worker = -1;
    return (struct pp_profile_setup){.config = &config,
                                     .schedules = &pp_schedules,
                                     .ops = &pp_model_ops,
                                     .backend = &fake,
                                     .cores = cores,
                                     .interrupted = interrupted};
}

static inline struct pp_profile *create(const char *options, int cores)
{
    struct pp_profile_setup setup = configure(options, cores);
    struct pp_profile *profile;
    if (pp_profile_create(&setup, &profile) != PP_OK) fail_msg("%s: %s", options, pp_message());
    return profile;
}

/* Every class of every plan has its shape, with a sample alone and under the plan's load. */
static inline void check_plan(const struct pp_profile *profile, const struct pp_job *job, bool measured)
{
    const struct pp_plan *plan = job->train;
    int load = pp_profile_load(profile, plan);
    char context[PP_CONTEXT_SIZE];
    assert_int_equal(profile->loads[load], pp_profile_at_once(&profile->setup, plan));
    for (int c = 0; c < plan->nclasses; c++) {
        if (!pp_kinds[plan->classes[c].kind].computes) continue;
        const char *signature = job->phase[PP_TRAIN].programs[c].signature;
        int shape = -1;
        pp_profile_context(&profile->setup, job, context, sizeof context);
        shape = pp_profile_find(profile, signature, context);
        if (shape < 0) fail_msg("%s is missing", signature);
        const struct pp_profile_cell *alone = &profile->shapes[shape].cell[0],
                                     *loaded = &profile->shapes[shape].cell[load];
        assert_int_equal(alone->load, 1);
        assert_int_equal(loaded->load, profile->loads[load]);
        if (measured && (alone->ns.count == 0 || loaded->ns.count == 0)) fail_msg("%s was not measured", signature);
    }
}

static inline void check_all(const struct pp_profile *profile, bool measured)
{
    for (int i = 0; i < profile->npoints; i++) {
        struct pp_job *job;
        if (pp_job_create(&config, &profile->points[i], &pp_schedules, &pp_model_ops, false, NULL, &job) != PP_OK)
            fail_msg("%s", pp_message());
        check_plan(profile, job, measured);
        pp_job_free(job);
    }
}

#endif
