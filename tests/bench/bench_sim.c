/* SPDX-License-Identifier: Apache-2.0
 *
 * Speed and memory of the simulator: bench_sim PPSIM [LARGEST_RANKS]
 *
 * 1. Plans of 1F1B that grow by doubling ranks and microbatches, up to 1024 and 8192 (33.5 million tasks, a transfer
 *    counted once): a forward of 1 ms, a backward of 2 ms, hops of 10 us. Each round is a process of its own that
 *    builds, checks, simulates and prints; times are its processor's, so that other work on the machine counts little;
 *    memory is the most it had, less what an empty process has.
 * 2. The program PPSIM on the same plan of 256 ranks, and on sweeps of a thousand configurations, from its start to
 *    its end.
 * Fewer LARGEST_RANKS make all of it smaller; with a few it only shows that it works.
 * Medians; spread = (largest - smallest) / median.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "schedules/builder.h"
#include "sim/output.h"

enum {
    FIRST_RANKS = 64,
    LARGEST_RANKS = 1024,
    PROGRAM_RANKS = 256,
    SWEEP_RANKS = 16,
    MICROBATCHES_OF_RANK = 8,
    ROUNDS = 5
};

enum part { BUILD, CHECK, SIMULATE, PRINT, PARTS };

/* What one process found out. */
struct round {
    int64_t cpu_ns[PARTS], wall_ns;
    int64_t tasks, makespan_ns;
};

struct child {
    double wall_ms, user_ms, system_ms, peak_bytes;
};

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static pp_status print_row(const struct pp_prediction *prediction, FILE *out)
{
    const struct pp_config json = {.format = PP_FORMAT_JSON};
    const struct pp_predictor predictor = {.config = prediction->job->config};
    struct pp_row row;
    PP_TRY(pp_row_create(&predictor, prediction, &row));
    pp_status status = pp_rows_print(&row, 1, &json, out);
    pp_row_free(&row);
    return status;
}

static pp_status run_round(int ranks, FILE *out, struct round *r)
{
    const struct pp_plan_spec spec = {.schedule = "1f1b",
                                      .ranks = ranks,
                                      .virtual_stages = 1,
                                      .microbatches = MICROBATCHES_OF_RANK * ranks,
                                      .replicas = 1,
                                      .training = true};
    const struct pp_given_times times = {1, 1, 1, 0.01};
    const struct pp_sim_options options = {0};
    const struct pp_config config = {.times = "1,1,1,0.01"};
    struct pp_job job = {.config = &config, .point = {"1f1b", ranks, 1, spec.microbatches}};
    struct pp_prediction prediction = {.job = &job};
    int64_t at[PARTS + 1] = {cpu_ns()}, begin = pp_now_ns();
    PP_TRY(pp_plan_build(&spec, &job.train));
    at[CHECK] = cpu_ns();
    PP_TRY(pp_plan_check(job.train));
    at[SIMULATE] = cpu_ns();
    PP_TRY(pp_cost_from_times(job.train, &times, &prediction.cost));
    PP_TRY(pp_sim_run(job.train, prediction.cost, &options, &prediction.result));
    at[PRINT] = cpu_ns();
    PP_TRY(print_row(&prediction, out));
    at[PARTS] = cpu_ns();
    r->wall_ns = pp_now_ns() - begin;
    for (int i = 0; i < PARTS; i++) r->cpu_ns[i] = at[i + 1] - at[i];
    r->tasks = job.train->ntasks;
    r->makespan_ns = prediction.result.metrics.makespan_ns;
    pp_sim_result_free(&prediction.result);
    pp_cost_free(prediction.cost);
    pp_plan_free(job.train);
    return PP_OK;
}

static double ms(const struct timeval *t) { return (double)t->tv_sec * 1e3 + (double)t->tv_usec / 1e3; }

/* Waits for the process; false if it failed. */
static bool wait_for(pid_t process, int64_t begin_ns, struct child *out)
{
    struct rusage usage;
    int status;
    if (wait4(process, &status, 0, &usage) != process || status != 0) return false;
    out->wall_ms = (double)(pp_now_ns() - begin_ns) / 1e6;
    out->user_ms = ms(&usage.ru_utime);
    out->system_ms = ms(&usage.ru_stime);
    out->peak_bytes = (double)usage.ru_maxrss * 1024;
    return true;
}

/* A round in a process of its own; with 0 ranks one that does nothing. */
static bool fork_round(int ranks, struct round *r, struct child *child)
{
    int ends[2];
    if (pipe(ends) != 0) return false;
    fflush(stdout);
    int64_t begin = pp_now_ns();
    pid_t process = fork();
    if (process == 0) {
        FILE *nowhere = fopen("/dev/null", "w");
        bool fine = nowhere && (ranks == 0 || run_round(ranks, nowhere, r) == PP_OK);
        if (!fine) fprintf(stderr, "bench_sim: %s\n", pp_message());
        fine = fine && write(ends[1], r, sizeof *r) == (ssize_t)sizeof *r;
        _exit(!fine);
    }
    close(ends[1]);
    bool fine = process > 0 && read(ends[0], r, sizeof *r) == (ssize_t)sizeof *r;
    close(ends[0]);
    return process > 0 && wait_for(process, begin, child) && fine;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of ROUNDS values, which it sorts. */
static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, ascending);
    return values[ROUNDS / 2];
}

static double least(double *values)
{
    median(values);
    return values[0];
}

static double spread_percent(double *values)
{
    const double middle = median(values);
    return 100 * (values[ROUNDS - 1] - values[0]) / middle;
}

/* One line of the table: the medians of the rounds. */
static bool measure_plan(int ranks, double empty_bytes)
{
    double part_ms[PARTS][ROUNDS], all[ROUNDS], system[ROUNDS], wall[ROUNDS], bytes[ROUNDS], tasks = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct round r = {0};
        struct child child;
        if (!fork_round(ranks, &r, &child)) return false;
        all[i] = 0;
        for (int part = 0; part < PARTS; part++) {
            part_ms[part][i] = (double)r.cpu_ns[part] / 1e6;
            all[i] += part_ms[part][i];
        }
        system[i] = child.system_ms;
        wall[i] = (double)r.wall_ns / 1e6;
        tasks = (double)r.tasks;
        bytes[i] = (child.peak_bytes - empty_bytes) / tasks;
    }
    printf("| %d, %d | %.0f |", ranks, MICROBATCHES_OF_RANK * ranks, tasks);
    for (int part = 0; part < PARTS; part++) printf(" %.1f |", median(part_ms[part]));
    printf(" %.1f | %.1f | %.1f | %.1f | %.1f |", median(all), median(system), least(all), least(system), median(wall));
    printf(" %.1f | %.1f | %.1f |\n", tasks / 1e3 / median(part_ms[SIMULATE]), tasks / 1e3 / median(all),
           median(bytes));
    fflush(stdout);
    return true;
}

static bool spawn(char *const *arguments, struct child *child)
{
    fflush(stdout);
    int64_t begin = pp_now_ns();
    pid_t process = fork();
    if (process == 0) {
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(1);
        execv(arguments[0], arguments);
        _exit(127);
    }
    return process > 0 && wait_for(process, begin, child);
}

/* "first,first+step,..." up to last, into text. */
static char *numbers(int first, int last, int step, char *text, size_t size)
{
    size_t used = 0;
    for (int n = first; n <= last && used + 8 < size; n += step)
        used += (size_t)snprintf(text + used, size - used, "%s%d", used ? "," : "", n);
    return text;
}

static bool measure_program(const char *name, char *const *arguments, double tasks)
{
    double wall[ROUNDS], cpu[ROUNDS], peak[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        struct child child;
        if (!spawn(arguments, &child)) return false;
        wall[i] = child.wall_ms;
        cpu[i] = child.user_ms + child.system_ms;
        peak[i] = child.peak_bytes / 1048576;
    }
    printf("| %s | %.1f | %.1f | %.1f | %.1f |", name, median(wall), spread_percent(wall), median(cpu), median(peak));
    if (tasks > 0)
        printf(" %.1f |\n", tasks / 1e3 / median(cpu));
    else
        printf(" |\n");
    fflush(stdout);
    return true;
}

static int at_most(int n, int limit) { return n < limit ? n : limit; }

/* Of 1F1B without checkpoints: F and B of each rank, a transfer of each between two ranks. */
static double tasks_of(int ranks, int microbatches) { return 2.0 * microbatches * (2 * ranks - 1); }

static bool measure_programs(char *ppsim, int largest)
{
    enum { SWEEP_CHUNKS = 21, SCHEDULES = 3 };
    const int ranks = at_most(PROGRAM_RANKS, largest), microbatches = MICROBATCHES_OF_RANK * ranks;
    const int sweep = at_most(SWEEP_RANKS, largest), points = SCHEDULES * SWEEP_CHUNKS * sweep;
    char stages[128], chunks[256], plan_stages[16], plan_chunks[16], names[3][64];
    numbers(1, sweep, 1, stages, sizeof stages);
    numbers(3, 3 * SWEEP_CHUNKS, 3, chunks, sizeof chunks);
    snprintf(plan_stages, sizeof plan_stages, "%d", ranks);
    snprintf(plan_chunks, sizeof plan_chunks, "%d", microbatches);
    snprintf(names[0], sizeof names[0], "ppsim, 1F1B %d, %d", ranks, microbatches);
    snprintf(names[1], sizeof names[1], "ppsim, %d points, --times", points);
    snprintf(names[2], sizeof names[2], "ppsim, %d points, --machine cpu", points);
    char *const plan[] = {ppsim,       "--schedule", "1f1b",       "--stages", plan_stages, "--chunks",
                          plan_chunks, "--times",    "1,1,1,0.01", "--format", "json",      NULL};
    char *const given[] = {ppsim,      "--schedule", "gpipe,1f1b,interleaved",
                           "--stages", stages,       "--chunks",
                           chunks,     "--times",    "1,1,1,0.01",
                           "--format", "json",       NULL};
    char *const machine[] = {ppsim,      "--schedule", "gpipe,1f1b,interleaved",
                             "--stages", stages,       "--chunks",
                             chunks,     "--layers",   "32",
                             "--rows",   "64",         "--machine",
                             "cpu",      "--format",   "json",
                             NULL};
    puts("\n| program | wall ms | spread % | processor ms | peak MiB | M tasks/s |");
    puts("| --- | ---: | ---: | ---: | ---: | ---: |");
    return measure_program(names[0], plan, tasks_of(ranks, microbatches)) && measure_program(names[1], given, 0) &&
           measure_program(names[2], machine, 0);
}

int main(int argc, char **argv)
{
    struct round none = {0};
    struct child empty;
    const int largest = argc > 2 ? atoi(argv[2]) : LARGEST_RANKS;
    if (argc < 2 || largest < 1) {
        fprintf(stderr, "usage: bench_sim PPSIM [LARGEST_RANKS]\n");
        return 2;
    }
    puts("| P, M | tasks | build ms | check ms | simulate ms | print ms | all ms | of it kernel ms | least all ms | "
         "least kernel ms | wall ms | engine M/s | all M/s | bytes a task |");
    puts("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    bool fine = fork_round(0, &none, &empty);
    for (int ranks = at_most(FIRST_RANKS, largest); fine && ranks <= largest; ranks *= 2)
        fine = measure_plan(ranks, empty.peak_bytes);
    return fine && measure_programs(argv[1], largest) ? 0 : 1;
}
