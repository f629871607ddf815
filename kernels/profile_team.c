/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/profile_team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/model/queue.h"
#include "kernels/profile_arena.h"
#include "kernels/profile_stamp.h"
#include "kernels/profile_stretches.h"

enum {
    FEW = 2,                  /* samples that each wanted class must have */
    MANY = 200,               /* samples of each wanted class make a worker content early */
    KERNELS_EVERY = 4,        /* of so many runs of a class one is timed kernel by kernel */
    KERNELS_FROM = 2,         /* ... so early that no shape goes without */
    PATIENCE = 48,            /* runs of a class during which others waited each time: then those have to do, or none */
    YIELD_AFTER_NS = 20000000 /* of waiting */
};

/* Counters only grow: the k-th meeting of n workers is complete at k*n. */
struct team {
    const struct pp_profile_setup *setup;
    const struct pp_job *job;
    int n;
    bool in_turns;        /* one task of one worker at a time */
    atomic_int turn;      /* tasks run so far: in turns, the next is that of worker turn % n */
    atomic_int opened;    /* workers that are ready, or failed */
    atomic_int probed;    /* ... and know that they compute at the same time */
    atomic_int contented; /* workers that have what they want */
    atomic_int arrived;   /* where a stretch begins, summed over stretches and steps */
    atomic_int gathered;  /* ... and wait there */
    atomic_int waiting;   /* how many wait now: the others do not run under full load */
    atomic_bool stop;
};

struct worker {
    struct team *team;
    struct pp_team_member *member;
    int index;
    pthread_t thread;
    struct pp_profile_arena arena;
    struct pp_stretches stretches;
    int meetings; /* so far */
    int turns;    /* that were this worker's */
    int64_t deadline;
    bool content;
    struct under_way {
        const struct pp_task *task; /* NULL: none is under way */
        int slot;
        bool each, full; /* call by call; nobody waited when it began */
        bool counts;     /* it is not the first of its class */
    } under_way;
    int64_t *kernel_ns; /* room for the longest program */
    int most;           /* tasks of one class in a step */
    int64_t reference_ns;
    pp_status status;
    char message[PP_MESSAGE_BYTES];
};

static bool interrupted(const struct team *team) { return team->setup->interrupted && team->setup->interrupted(); }

/* Between two looks of a worker that waits. It has a core of its own and must not be late when the wait ends; only
 * after long it lets others have the core, should there be any. */
static void pause_since(int64_t start_ns)
{
    if (pp_now_ns() - start_ns > YIELD_AFTER_NS) sched_yield();
}

/* Waits until the counter has reached `target`, or the team stops. */
static void wait_until(struct team *team, atomic_int *counter, int target)
{
    int64_t start = pp_now_ns();
    while (atomic_load(counter) < target && !atomic_load(&team->stop)) {
        if (interrupted(team)) atomic_store(&team->stop, true);
        pause_since(start);
    }
}

/* ... and until all that waited for it have seen it. Then they must not wait again before all have worked. */
static void wait_for(struct team *team, atomic_int *counter, int target)
{
    int64_t start = pp_now_ns();
    atomic_fetch_add(&team->waiting, 1);
    wait_until(team, counter, target);
    atomic_fetch_sub(&team->waiting, 1);
    while (atomic_load(&team->waiting) > 0 && !atomic_load(&team->stop)) pause_since(start);
}

static const struct pp_program *program_of(const struct team *team, const struct pp_task *task)
{
    return &team->job->phase[PP_TRAIN].programs[task->cls];
}

static pp_status record(struct worker *w, const struct pp_task *task, const int64_t *kernel_ns,
                        const struct pp_run_time *time, int64_t cpu_ns)
{
    const int ncalls = program_of(w->team, task)->ncalls;
    const bool queues = w->team->setup->backend->queue != NULL;
    struct pp_tally *tally = &w->member->tally[task->cls];
    if (!kernel_ns) PP_TRY(pp_times_add(queues ? &tally->host : &tally->cpu, queues ? time->host_ns : cpu_ns));
    if (!kernel_ns) return pp_times_add(&tally->task, time->device_ns);
    if (!tally->call) PP_TRY(PP_NEW(&tally->call, ncalls));
    for (int i = 0; i < ncalls; i++) PP_TRY(pp_times_add(&tally->call[i], kernel_ns[i]));
    return PP_OK;
}

/* What is to be known of a task that begins. The first of a class does not count: caches, BLAS set-up. */
static struct under_way begin(struct worker *w, const struct pp_task *task)
{
    int *seen = &w->member->tally[task->cls].seen;
    const struct under_way run = {.task = task,
                                  .slot = (w->under_way.slot + 1) % PP_MEASURED,
                                  .each = *seen % KERNELS_EVERY == KERNELS_FROM,
                                  .full = atomic_load(&w->team->waiting) == 0,
                                  .counts = *seen > 0};
    ++*seen;
    return run;
}

/* Did it run under full load? Where a class never does, the team must come to an end nevertheless. */
static bool was_full(const struct worker *w, const struct under_way *run)
{
    const struct pp_tally *tally = &w->member->tally[run->task->cls];
    if (atomic_load(&w->team->stop)) return false;
    if (run->full && atomic_load(&w->team->waiting) == 0) return true;
    return tally->seen > PATIENCE && tally->task.n < FEW && pp_now_ns() > w->deadline;
}

/* A device that computes in this thread is timed from here, and the system may take the core away meanwhile. */
static pp_status run_here(struct worker *w, const struct pp_task *task, const struct pp_frame *frame)
{
    const struct under_way run = begin(w, task);
    int64_t *kernel_ns = run.each ? w->kernel_ns : NULL;
    const struct pp_stamp before = pp_stamp_now();
    const int64_t start = pp_now_ns();
    PP_TRY(w->team->setup->backend->run(w->arena.device, program_of(w->team, task), frame, NULL, kernel_ns));
    const struct pp_run_time time = {.device_ns = pp_now_ns() - start};
    const struct pp_stamp taken = pp_stamp_since(&before);
    const bool late = pp_now_ns() > w->deadline; /* better a disturbed sample than none */
    if (!run.counts || !was_full(w, &run) || (pp_stamp_disturbed(&taken) && !late)) return PP_OK;
    return record(w, task, kernel_ns, &time, taken.cpu_ns);
}

/* Ends a task that a queue device, which times itself, has begun. */
static pp_status end(struct worker *w, const struct under_way *run)
{
    const struct pp_queue_ops *queue = w->team->setup->backend->queue;
    int64_t *kernel_ns = run->each ? w->kernel_ns : NULL;
    struct pp_run_time time;
    if (!run->task) return PP_OK;
    PP_TRY(queue->measure_end(w->arena.device, program_of(w->team, run->task), run->slot, &time, kernel_ns));
    return run->counts && was_full(w, run) ? record(w, run->task, kernel_ns, &time, 0) : PP_OK;
}

/* The task that is under way. */
static pp_status finish(struct worker *w)
{
    const struct under_way run = w->under_way;
    w->under_way.task = NULL;
    return end(w, &run);
}

/* Begins a task before the one before it ends, so that the workers that share the device find it busy; but where they
 * take turns, it runs by itself. */
static pp_status run_queued(struct worker *w, const struct pp_task *task, const struct pp_frame *frame)
{
    const struct pp_queue_ops *queue = w->team->setup->backend->queue;
    const struct under_way before = w->under_way;
    w->under_way = begin(w, task);
    PP_TRY(
        queue->measure_begin(w->arena.device, program_of(w->team, task), frame, w->under_way.slot, w->under_way.each));
    PP_TRY(end(w, &before));
    return w->team->in_turns || w->team->n == 1 ? finish(w) : PP_OK;
}

static pp_status run_task(struct worker *w, const struct pp_task *task)
{
    struct pp_frame frame;
    pp_profile_arena_frame(&w->arena, task, &frame);
    return w->team->setup->backend->queue ? run_queued(w, task, &frame) : run_here(w, task, &frame);
}

/* Enough samples, and one kernel by kernel, since tasks that were not measured as a whole are predicted from such.
 * enough: of the class of which a step has most; of others in proportion, but not fewer than FEW. */
static bool is_known(const struct worker *w, int class, int enough)
{
    const struct pp_tally *tally = &w->member->tally[class];
    if (!tally->wanted) return true;
    const int share = (int)((int64_t)enough * tally->tasks / w->most);
    if (tally->task.n < (share > FEW ? share : FEW)) return false;
    return tally->call || tally->seen >= PATIENCE || w->team->job->phase[PP_TRAIN].programs[class].ncalls == 0;
}

/* Content: a few samples of each wanted class and no time left, or many of each. The last to be content stops
 * the team. */
static void look_around(struct worker *w)
{
    struct team *team = w->team;
    if (interrupted(team)) atomic_store(&team->stop, true);
    if (w->content) return;
    int enough = pp_now_ns() > w->deadline ? FEW : MANY;
    for (int c = 0; c < team->job->train->nclasses; c++)
        if (!is_known(w, c, enough)) return;
    w->content = true;
    if (atomic_fetch_add(&team->contented, 1) + 1 == team->n) atomic_store(&team->stop, true);
}

static pp_status run_and_look(struct worker *w, int i)
{
    struct team *team = w->team;
    if (team->in_turns) wait_until(team, &team->turn, team->n * w->turns++ + w->index);
    if (atomic_load(&team->stop)) return PP_OK;
    PP_TRY(run_task(w, w->stretches.tasks[i]));
    atomic_fetch_add(&team->turn, 1);
    look_around(w);
    return PP_OK;
}

/* All start a stretch together: the optimizer step, for one. Who comes early goes on with tasks of the one before it,
 * so that the others' load stays. A queue device's worker has arrived when the next of these has begun, and thereby its
 * own last task has ended: else that of the slowest would end while all others wait, in each step, and never count. */
static pp_status meet(struct worker *w, int stretch)
{
    struct team *team = w->team;
    const int first = w->stretches.begin[stretch - 1], end = w->stretches.begin[stretch],
              target = team->n * ++w->meetings;
    bool arrived = w->under_way.task == NULL;
    if (arrived) atomic_fetch_add(&team->arrived, 1);
    for (int i = first; atomic_load(&team->arrived) < target && !atomic_load(&team->stop);
         i = i + 1 < end ? i + 1 : first) {
        PP_TRY(run_and_look(w, i));
        if (!arrived) atomic_fetch_add(&team->arrived, 1);
        arrived = true;
    }
    PP_TRY(finish(w));
    atomic_fetch_add(&team->gathered, 1);
    wait_for(team, &team->gathered, target);
    return PP_OK;
}

static pp_status run_stretch(struct worker *w, int stretch)
{
    struct team *team = w->team;
    if (stretch > 0 && !team->in_turns) PP_TRY(meet(w, stretch));
    for (int i = w->stretches.begin[stretch]; i < w->stretches.begin[stretch + 1] && !atomic_load(&team->stop); i++)
        PP_TRY(run_and_look(w, i));
    return PP_OK;
}

static pp_status run_steps(struct worker *w)
{
    while (!atomic_load(&w->team->stop))
        for (int stretch = 0; stretch < w->stretches.n && !atomic_load(&w->team->stop); stretch++)
            PP_TRY(run_stretch(w, stretch));
    return finish(w);
}

/* Which tasks it runs, how many of each class, and room for the longest. */
static pp_status list_tasks(struct worker *w)
{
    const bool split = w->team->setup->backend->queue != NULL; /* of cores nobody has seen that it matters */
    int longest = 0;
    PP_TRY(pp_stretches_of(w->team->job->train, w->member->rank, split, &w->stretches));
    for (int i = 0; i < w->stretches.begin[w->stretches.n]; i++) {
        const struct pp_task *task = w->stretches.tasks[i];
        const int ncalls = program_of(w->team, task)->ncalls, tasks = ++w->member->tally[task->cls].tasks;
        w->most = tasks > w->most ? tasks : w->most;
        longest = ncalls > longest ? ncalls : longest;
    }
    return PP_NEW(&w->kernel_ns, longest);
}

/* Makes the device this thread's, and lets it choose how it will run the rank's programs. */
static pp_status prepare(struct worker *w, struct pp_device *device)
{
    const struct pp_queue_ops *queue = w->team->setup->backend->queue;
    const struct pp_job *job = w->team->job;
    if (!queue) return PP_OK;
    PP_TRY(queue->use(device));
    for (int c = 0; c < job->train->nclasses; c++) {
        const struct pp_class *cls = &job->train->classes[c];
        bool mine = pp_kinds[cls->kind].computes && job->train->stage_rank[cls->stage] == w->member->rank;
        if (mine) PP_TRY(queue->prepare(device, &job->phase[PP_TRAIN].programs[c]));
    }
    return PP_OK;
}

/* All are there. One asks whether they can compute at the same time, while nobody does. */
static pp_status gather(struct worker *w, struct pp_device *device)
{
    struct team *team = w->team;
    const struct pp_queue_ops *queue = team->setup->backend->queue;
    atomic_fetch_add(&team->opened, 1);
    wait_until(team, &team->opened, team->n);
    if (queue && team->n > 1 && w->index == 0 && !atomic_load(&team->stop)) PP_TRY(queue->probe(device));
    atomic_fetch_add(&team->probed, 1);
    wait_for(team, &team->probed, team->n);
    return PP_OK;
}

static pp_status measure_tasks(struct worker *w, struct pp_device *device)
{
    const struct pp_profile_setup *setup = w->team->setup;
    PP_TRY(prepare(w, device));
    PP_TRY(pp_profile_arena_open(w->team->job, setup->backend, device, w->member->rank, &w->arena));
    pp_status status = gather(w, device);
    if (status == PP_OK) {
        w->reference_ns = setup->backend->reference_ns(device);
        w->deadline = pp_now_ns() + w->member->budget_ns;
        status = run_steps(w);
    }
    pp_profile_arena_close(&w->arena);
    return status;
}

/* Members of a team on a queue device are workers of the job, with a share of the device each; else the team is all
 * there is. */
static pp_status measure(struct worker *w)
{
    struct team *team = w->team;
    const struct pp_profile_setup *setup = team->setup;
    const struct pp_plan *plan = team->job->train;
    struct pp_device *device;
    if (setup->pin) PP_TRY(setup->pin(setup->pin_arg, w->index));
    PP_TRY(list_tasks(w));
    int workers = setup->backend->queue ? pp_plan_workers(plan) : team->n;
    struct pp_device_spec spec = pp_profile_device(setup->config, w->index, workers);
    spec.interrupted = setup->interrupted;
    PP_TRY(setup->backend->open(&spec, &device));
    pp_status status = measure_tasks(w, device);
    setup->backend->close(device);
    return status;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    w->status = measure(w);
    if (w->status != PP_OK) {
        snprintf(w->message, sizeof w->message, "%s", pp_message());
        atomic_store(&w->team->stop, true);
    }
    free(w->stretches.tasks);
    free(w->kernel_ns);
    return NULL;
}

static pp_status start(struct team *team, struct worker *workers, struct pp_team_member *members, int *started)
{
    for (int i = 0; i < team->n; i++, ++*started) {
        workers[i] = (struct worker){.team = team, .member = &members[i], .index = i};
        int error = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
        if (!error) continue;
        atomic_store(&team->stop, true);
        return pp_fail(PP_IO, "cannot start thread %d of %d for profiling: %s", i + 1, team->n, strerror(error));
    }
    return PP_OK;
}

pp_status pp_team_run(const struct pp_profile_setup *setup, const struct pp_job *job, struct pp_team_member *members,
                      int n, bool in_turns, int64_t *reference_ns)
{
    struct team team = {.setup = setup, .job = job, .n = n, .in_turns = in_turns && n > 1};
    struct worker *workers;
    PP_TRY(PP_NEW(&workers, n));
    int started = 0;
    pp_status status = start(&team, workers, members, &started);
    *reference_ns = 0;
    for (int i = 0; i < started; i++) {
        struct worker *w = &workers[i];
        pthread_join(w->thread, NULL);
        *reference_ns += w->reference_ns / n;
        if (status == PP_OK && w->status != PP_OK)
            status = pp_fail(w->status, "profiling rank %d: %s", w->member->rank, w->message);
    }
    free(workers);
    if (status == PP_OK && interrupted(&team)) status = pp_fail(PP_INTERRUPTED, "profiling was interrupted");
    return status;
}
