/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/profile_team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "core/clock.h"
#include "core/queue.h"
#include "kernels/profile_arena.h"

enum {
    FEW = 2,                  /* samples that each wanted class must have */
    MANY = 200,               /* samples of each wanted class make a worker content early */
    KERNELS_EVERY = 4,        /* of so many runs of a class one is timed kernel by kernel */
    KERNELS_FROM = 2,         /* ... so early that no shape goes without */
    KERNELS_PATIENCE = 48,    /* runs of a class after which it may go without: others waited each time */
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
    atomic_int arrived;   /* at the optimizer step, summed over steps */
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
    const struct pp_task **tasks; /* the rank's computations in order */
    int ntasks;
    int steps; /* meetings so far */
    int turns; /* that were this worker's */
    int64_t deadline;
    bool content;
    int64_t *kernel_ns; /* room for the longest program */
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

/* What one run of a task cost. */
struct run {
    int64_t wall_ns, cpu_ns;
    long preemptions;
};

static void stamp(struct run *run)
{
    struct rusage usage; /* its times are as old as the system's last tick */
    struct timespec cpu;
    getrusage(RUSAGE_THREAD, &usage);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    run->cpu_ns = (int64_t)cpu.tv_sec * 1000000000 + cpu.tv_nsec;
    run->preemptions = usage.ru_nivcsw;
    run->wall_ns = pp_now_ns();
}

static struct run between(const struct run *before, const struct run *after)
{
    return (struct run){.wall_ns = after->wall_ns - before->wall_ns,
                        .cpu_ns = after->cpu_ns - before->cpu_ns,
                        .preemptions = after->preemptions - before->preemptions};
}

/* The core was taken away for more than 2 % of the time. */
static bool disturbed(const struct run *run)
{
    return run->preemptions != 0 && run->wall_ns - run->cpu_ns > run->wall_ns / 50 + 20000;
}

static pp_status record(struct worker *w, struct pp_tally *tally, const struct pp_program *program,
                        const int64_t *kernel_ns, const struct pp_run_time *time, int64_t cpu_ns)
{
    bool queues = w->team->setup->backend->queue != NULL;
    if (!kernel_ns) PP_TRY(pp_times_add(queues ? &tally->host : &tally->cpu, queues ? time->host_ns : cpu_ns));
    if (!kernel_ns) return pp_times_add(&tally->task, time->device_ns);
    if (!tally->call) PP_TRY(PP_NEW(&tally->call, program->ncalls));
    for (int i = 0; i < program->ncalls; i++) PP_TRY(pp_times_add(&tally->call[i], w->kernel_ns[i]));
    return PP_OK;
}

/* A device that computes in this thread is timed from here, and the system may take the core away meanwhile; one with
 * queues times itself. */
static pp_status time_program(struct worker *w, const struct pp_program *program, const struct pp_frame *frame,
                              int64_t *kernel_ns, struct pp_run_time *out, struct run *run)
{
    const struct pp_backend *backend = w->team->setup->backend;
    struct run before, after;
    *run = (struct run){0};
    if (backend->queue) return backend->queue->measure(w->arena.device, program, frame, out, kernel_ns);
    stamp(&before);
    int64_t start = pp_now_ns();
    PP_TRY(backend->run(w->arena.device, program, frame, NULL, kernel_ns));
    out->device_ns = pp_now_ns() - start;
    stamp(&after);
    *run = between(&before, &after);
    return PP_OK;
}

/* Runs one task; keeps its duration unless it is the class's first (caches, BLAS set-up), or others waited, or was
 * disturbed. */
static pp_status run_task(struct worker *w, const struct pp_task *task)
{
    struct team *team = w->team;
    const struct pp_program *program = &team->job->phase[PP_TRAIN].programs[task->cls];
    struct pp_tally *tally = &w->member->tally[task->cls];
    int64_t *kernel_ns = tally->seen % KERNELS_EVERY == KERNELS_FROM ? w->kernel_ns : NULL;
    struct pp_frame frame;
    struct pp_run_time time = {0};
    struct run run;
    bool full = atomic_load(&team->waiting) == 0;
    pp_profile_arena_frame(&w->arena, task, &frame);

    PP_TRY(time_program(w, program, &frame, kernel_ns, &time, &run));
    full = full && atomic_load(&team->waiting) == 0 && !atomic_load(&team->stop);

    bool late = pp_now_ns() > w->deadline; /* better a disturbed sample than none */
    if (tally->seen++ == 0 || !full || (disturbed(&run) && !late)) return PP_OK;
    return record(w, tally, program, kernel_ns, &time, run.cpu_ns);
}

/* Enough samples, and one kernel by kernel: tasks that were not measured as a whole are predicted from such. */
static bool is_known(const struct worker *w, int class, int enough)
{
    const struct pp_tally *tally = &w->member->tally[class];
    if (!tally->wanted) return true;
    if (tally->task.n < enough) return false;
    return tally->call || tally->seen >= KERNELS_PATIENCE || w->team->job->phase[PP_TRAIN].programs[class].ncalls == 0;
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
    PP_TRY(run_task(w, w->tasks[i]));
    atomic_fetch_add(&team->turn, 1);
    look_around(w);
    return PP_OK;
}

/* All start the optimizer step together. Who comes early goes on with forward and backward tasks, so that the
 * others' load stays. */
static pp_status meet(struct worker *w, int first_step)
{
    struct team *team = w->team;
    int target = team->n * ++w->steps;
    atomic_fetch_add(&team->arrived, 1);
    for (int i = 0; atomic_load(&team->arrived) < target && !atomic_load(&team->stop); i = (i + 1) % first_step)
        PP_TRY(run_and_look(w, i));
    atomic_fetch_add(&team->gathered, 1);
    wait_for(team, &team->gathered, target);
    return PP_OK;
}

static pp_status run_steps(struct worker *w)
{
    struct team *team = w->team;
    int first_step = w->ntasks; /* the first STEP: all that come after it are STEPs too */
    while (first_step > 0 && w->tasks[first_step - 1]->kind == PP_STEP) first_step--;
    while (!atomic_load(&team->stop)) {
        for (int i = 0; i < w->ntasks && !atomic_load(&team->stop); i++) {
            if (i == first_step && i > 0 && !team->in_turns) PP_TRY(meet(w, first_step));
            PP_TRY(run_and_look(w, i));
        }
    }
    return PP_OK;
}

static pp_status list_tasks(struct worker *w)
{
    const struct pp_plan *plan = w->team->job->train;
    int longest = 0;
    PP_TRY(PP_NEW(&w->tasks, plan->ntasks));
    for (int64_t i = 0; i < plan->ntasks; i++) {
        const struct pp_task *t = &plan->tasks[i];
        if (!pp_kinds[t->kind].computes || pp_task_rank(t) != w->member->rank) continue;
        w->tasks[w->ntasks++] = t;
        int ncalls = w->team->job->phase[PP_TRAIN].programs[t->cls].ncalls;
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
    free(w->tasks);
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
