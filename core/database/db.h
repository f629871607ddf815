/* SPDX-License-Identifier: Apache-2.0
 *
 * The database: one SQLite file that all programs share. Its tables are made by core/database/schema.sql and the
 * upgrades schema_2.sql, schema_3.sql, ..., its views by core/database/views.sql; all are embedded at build time, and
 * documented in docs/DATABASE.md. Several processes may write one file (WAL, busy timeout). A killed run leaves what
 * was committed.
 *
 * Transactions. Rows that are added in quick succession share a transaction, which is committed once it is 0.1 s old. A
 * row that comes alone is committed at once. pp_db_flush() commits the open transaction, and so do pp_db_run_begin(),
 * pp_db_run_end(), pp_db_add_tasks(), pp_db_add_events(), pp_db_add_epoch() and pp_db_close(). Other writers wait while
 * a transaction is open: call pp_db_flush() where many rows are followed by long work.
 *
 * Errors. Every function that returns pp_status can fail, with a message that names the file: PP_INPUT if the file is
 * no database of ppkit or is damaged, PP_IO if the system cannot read or write it, else PP_NOMEM, PP_INTERRUPTED or
 * PP_INTERNAL.
 *
 * A struct pp_db is used by one thread at a time.
 */
#ifndef PP_CORE_DATABASE_DB_H
#define PP_CORE_DATABASE_DB_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/stats.h"
#include "core/base/status.h"
#include "core/job/job.h"
#include "core/options/config.h"
#include "core/plan/trace.h"

struct pp_db;

/* PP_DB_WRITE creates the file if it is not there, and brings an older schema up to date. PP_DB_READ refuses a file
 * with an older schema. A file that may not be written, or whose folder may not, is read without locks: who reads it
 * while another user's program writes to it may see wrong rows. */
enum pp_db_mode { PP_DB_READ, PP_DB_WRITE };

pp_status pp_db_open(const char *path, enum pp_db_mode mode, struct pp_db **out) PP_MUST_CHECK;
/* Opens for reading a file that the program may write to: an older schema is brought up to date first, by whoever comes
 * first. */
pp_status pp_db_open_updated(const char *path, struct pp_db **out) PP_MUST_CHECK;
/* What has to be stored waits for another process that writes, for up to half a minute. From now on for a moment only
 * (0.3 s) once hurries() is true: it asks whether the program is to end. */
void pp_db_hurry(struct pp_db *db, bool (*hurries)(void));
pp_status pp_db_flush(struct pp_db *db) PP_MUST_CHECK;
pp_status pp_db_close(struct pp_db *db); /* commits and frees, also where it fails; NULL is fine */
/* The same at the end of work that ended with `status`: if that is a failure, it stays the last one and is returned. */
pp_status pp_db_close_after(struct pp_db *db, pp_status status) PP_MUST_CHECK;
/* The same as pp_db_close(), but frees nothing: for a process that ends while other threads wait for the lock of
 * pp_db_share(), which the caller has. */
pp_status pp_db_end(struct pp_db *db);

/* One run of a program, before it has results. Texts may be NULL; they are borrowed during the call. */
struct pp_run {
    const char *tool;        /* "ppsim", "ppexec", "ppprof" */
    const char *device;      /* what it ran on, or what it was predicted for: "cpu", "cuda", a machine */
    const char *device_text; /* describe() of the backend, or the name of the machine */
    const char *transport;
    const char *cost_source; /* of ppsim: the least certain source of its times */
    int processes, cores;
};

/* Column preset of runs whose tasks take given times (--times): each microbatch takes as long, whatever the batch. */
#define PP_GIVEN_PRESET "times"

/* Adds a row of table run and the options of the run, as rows of run_config. job NULL: the run has no plan (ppprof).
 * *run_id: the key of the run in all tables. */
pp_status pp_db_run_begin(struct pp_db *db, const struct pp_run *run, const struct pp_config *config,
                          const struct pp_job *job, int64_t *run_id) PP_MUST_CHECK;
/* The results of a run. A figure that is not known is NAN. status: "ok", "failed: ..." or "interrupted"; borrowed. */
struct pp_run_result {
    double ms_per_batch, makespan_ms, span_ms, bubble, bubble_span, lower_bound_ms, test_loss, trace_overhead,
        reference_ns;
    const char *status;
};
extern const struct pp_run_result pp_result_none; /* no figures, no status */
pp_status pp_db_run_end(struct pp_db *db, int64_t run_id, const struct pp_run_result *result) PP_MUST_CHECK;

/* The tasks of a plan and all that they wait for. Does nothing if the plan (by hash and workload) is there; if an older
 * ppkit stored it without what its tasks wait for, that is added. job NULL: the bytes of tasks are stored as 0. */
pp_status pp_db_add_tasks(struct pp_db *db, const struct pp_job *job, const struct pp_plan *plan) PP_MUST_CHECK;
/* All events of one or several whole steps: events of one step must come in one call, because the start of a transfer
 * or collective is stored as the last of its posts. Adds the sums of table busy, too. */
pp_status pp_db_add_events(struct pp_db *db, int64_t run_id, const struct pp_plan *plan,
                           const struct pp_trace *trace) PP_MUST_CHECK;
/* One training step. */
struct pp_db_step {
    int step, epoch;
    int64_t ns, tokens;
    double loss; /* NAN: it is not known */
    bool traced;
};
pp_status pp_db_add_step(struct pp_db *db, int64_t run_id, const struct pp_db_step *step) PP_MUST_CHECK;
/* One epoch. valid_loss: NAN if it is not known. */
pp_status pp_db_add_epoch(struct pp_db *db, int64_t run_id, int epoch, double valid_loss, int64_t ns) PP_MUST_CHECK;
/* Bytes of one kind of a worker. kind: one of pp_memory_names[], "arena", "live_peak", or "process" (resident
 * bytes). */
pp_status pp_db_add_memory(struct pp_db *db, int64_t run_id, int worker, const char *kind, int64_t bytes) PP_MUST_CHECK;
/* All kinds of a worker: those that the layout has for the worker's rank, and, if process_bytes > 0, "process". */
pp_status pp_db_add_worker_memory(struct pp_db *db, int64_t run_id, int worker, const struct pp_layout *layout,
                                  int64_t process_bytes) PP_MUST_CHECK;

/* What was measured of a kernel, of a whole task, or of a link, under one load. Texts are borrowed. */
struct pp_sample {
    /* kernel: its name and shape; task: the signature of its program; link: "inproc p2p", "mpi p2p", "mpi allreduce" */
    const char *name;
    /* kernel: the signature of the task in which it ran, and its share of a GPU; task: pp_job_context(); link: the
     * state of the buffers. NULL: "" */
    const char *context;
    int load;      /* workers that were busy while it ran, of those that share cores or a GPU */
    int64_t bytes; /* link: size of the message; else 0 */
    int64_t count; /* how often it was measured */
    int64_t median_ns, p5_ns, p95_ns, min_ns;
    int64_t mean_ns;           /* winsorised (core/base/stats.h); 0: not known */
    double flops, moved_bytes; /* NAN: not known */
};
/* A sample with these times. bytes is 0, flops and moved_bytes are not known. name, context: borrowed. */
struct pp_sample pp_sample_of(const char *name, const char *context, int load, const struct pp_quantiles *ns);
/* Name of the kernel sample with the time that the host needs to issue a whole task to a queue device (a GPU). */
#define PP_SAMPLE_ISSUE "issue"
/* Name of the kernel sample with the time that a task takes beyond the sum of its kernels, divided by their number: the
 * median over the tasks of a profile. Its context is the share of a GPU, if any. May be negative, because timing
 * kernels one by one takes time, too. */
#define PP_SAMPLE_GAP "gap"
enum pp_sample_kind { PP_SAMPLE_KERNEL, PP_SAMPLE_TASK, PP_SAMPLE_LINK };
pp_status pp_db_add_sample(struct pp_db *db, int64_t run_id, enum pp_sample_kind kind,
                           const struct pp_sample *sample) PP_MUST_CHECK;

/* Parameter of the link "worker", and, of a run of ppexec, of the link "run": the part of the time in which other
 * programs had the core while the profile, or the run's trace, was measured. pp_taken_remark() puts it into words. */
#define PP_WORKER_TAKEN "taken"
/* A fitted parameter of a link: "latency_ns", "send_overhead_ns", "recv_overhead_ns", "ns_per_byte", ..., or of the
 * link "worker": "task_overhead_ns", ... */
pp_status pp_db_add_link(struct pp_db *db, int64_t run_id, const char *link, const char *parameter,
                         double value) PP_MUST_CHECK;

/* Several threads look up times through one connection: each look-up takes the lock, which is borrowed. Who writes
 * through it meanwhile must hold the lock. */
void pp_db_share(struct pp_db *db, pthread_mutex_t *lock);

/* The setting in which a time was measured. Borrowed. */
struct pp_db_setting {
    const char *device;
    int threads;         /* of a worker */
    const char *context; /* pp_job_context() */
};

/* Look-ups. Each takes the newest profile that has what is asked for; profiles that ended well go before all others.
 * *found is false, and the result is left alone, if no profile has it. Times are means, or medians where no mean is
 * known. Only profiles of the setting's device and threads count, and only times that were measured in the same share
 * of a GPU as that of its context (but see pp_db_find_issue()). */

/* The time of a whole task under this load. A time in this context goes before a newer one in another context; of
 * equally new ones those of this schedule go before others. */
pp_status pp_db_find_task(struct pp_db *db, const struct pp_db_setting *setting, const char *signature, int load,
                          int64_t *ns, bool *found) PP_MUST_CHECK;
/* Is there a task whose name has these words in it? */
pp_status pp_db_knows_words(struct pp_db *db, const char *device, int threads, const char *words,
                            bool *found) PP_MUST_CHECK;
/* The time that the host needs to issue the task, of any share of a GPU; but a time in the context's goes before
 * others, then one under this load. */
pp_status pp_db_find_issue(struct pp_db *db, const struct pp_db_setting *setting, const char *signature, int load,
                           int64_t *ns, bool *found) PP_MUST_CHECK;
/* The mean time of a kernel, over all tasks in which it ran, under the highest load with which it was measured, of any
 * context. */
pp_status pp_db_find_kernel(struct pp_db *db, const char *device, int threads, const char *name, int64_t *ns,
                            bool *found) PP_MUST_CHECK;
/* The mean time of a kernel under this load, over all tasks in which it ran. name may be PP_SAMPLE_GAP. Only profiles
 * that have gaps count. */
pp_status pp_db_find_kernel_mean(struct pp_db *db, const struct pp_db_setting *setting, const char *name, int load,
                                 int64_t *ns, bool *found) PP_MUST_CHECK;
/* A parameter of a link or of processes, of config->device. Goes before others, in this order: a profile of the model
 * and data shape of config (run.workload); one with as many threads of a worker; one whose number of processes is
 * nearest to `processes` (0: any will do); one that ended well; the newest. */
pp_status pp_db_find_link(struct pp_db *db, const struct pp_config *config, int processes, const char *link,
                          const char *parameter, double *value, bool *found) PP_MUST_CHECK;
/* Writes the device of the newest profile that ended well, else of the newest, to buf; "" if there is no profile. */
pp_status pp_db_newest_device(struct pp_db *db, char *buf, size_t size) PP_MUST_CHECK;
/* Is there any profile of the device? *cores: of the machine on which the one was measured that a look-up takes. */
pp_status pp_db_has_profile(struct pp_db *db, const char *device, int *cores, bool *found) PP_MUST_CHECK;
/* Was any task measured on the device with so many threads of a worker? */
pp_status pp_db_has_threads(struct pp_db *db, const char *device, int threads, bool *found) PP_MUST_CHECK;
/* Calls fn for each task whose signature starts with `prefix` and for each load under which it was measured, with the
 * time of the profile that a look-up takes. signature: borrowed during the call. */
typedef void (*pp_db_task_fn)(void *arg, const char *signature, int load, int64_t ns);
pp_status pp_db_each_task(struct pp_db *db, const struct pp_db_setting *setting, const char *prefix, pp_db_task_fn fn,
                          void *arg) PP_MUST_CHECK;

#endif
