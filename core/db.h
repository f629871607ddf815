/* SPDX-License-Identifier: Apache-2.0
 *
 * The database: one SQLite file that all programs share (schema: core/schema.sql, views: core/views.sql, both embedded
 * at build time; documented in docs/DATABASE.md). Several processes may write one file (WAL, busy timeout); a killed
 * run leaves what was committed.
 *
 * Rows that are added in quick succession share a transaction, which is committed once it is 0.1 s old; a row that
 * comes alone is committed at once. pp_db_flush() commits what is open, and so do run_begin, run_end, add_tasks,
 * add_events, add_epoch and close: flush after a burst of rows that is followed by long work, for other writers wait
 * meanwhile. What SQLite fails at has a message that names the file: PP_INPUT where it is no database of ppkit or
 * damaged, PP_IO where the system cannot read or write it, else PP_NOMEM, PP_INTERRUPTED or PP_INTERNAL. A connection
 * is used by one thread at a time.
 */
#ifndef PP_CORE_DB_H
#define PP_CORE_DB_H

#include <stdbool.h>
#include <stdint.h>

#include "core/config.h"
#include "core/job.h"
#include "core/stats.h"
#include "core/status.h"
#include "core/trace.h"

struct pp_db;

enum pp_db_mode { PP_DB_READ, PP_DB_WRITE }; /* WRITE creates the file and brings an older schema up to date */

pp_status pp_db_open(const char *path, enum pp_db_mode mode, struct pp_db **out) PP_MUST_CHECK;
pp_status pp_db_flush(struct pp_db *db) PP_MUST_CHECK;
pp_status pp_db_close(struct pp_db *db); /* NULL is fine; commits */

/* What a run is. Text fields may be NULL. */
struct pp_run {
    const char *tool;        /* "ppsim", "ppexec", "ppprof" */
    const char *device;      /* "cpu": what it ran on, or what it was predicted for */
    const char *device_text; /* backend's describe(), or the machine's name */
    const char *transport;
    const char *cost_source; /* ppsim */
    int processes, cores;
};

/* One row in run, and its options in run_config. job NULL: a run without a plan (ppprof). */
pp_status pp_db_run_begin(struct pp_db *db, const struct pp_run *run, const struct pp_config *config,
                          const struct pp_job *job, int64_t *run_id) PP_MUST_CHECK;
/* The run's results; NAN where there is none. status: "ok", "failed: ...", "interrupted". */
struct pp_run_result {
    double ms_per_batch, makespan_ms, span_ms, bubble, bubble_span, lower_bound_ms, test_loss, trace_overhead,
        reference_ns;
    const char *status;
};
extern const struct pp_run_result pp_result_none; /* no figures, no status */
pp_status pp_db_run_end(struct pp_db *db, int64_t run_id, const struct pp_run_result *result) PP_MUST_CHECK;

/* The tasks of a plan, once per plan hash and workload (does nothing if they are there). job NULL: their bytes are not
 * known. */
pp_status pp_db_add_tasks(struct pp_db *db, const struct pp_job *job, const struct pp_plan *plan) PP_MUST_CHECK;
/* Of each step all events in one call: `start` of a transfer is set to the later of its two posts. */
pp_status pp_db_add_events(struct pp_db *db, int64_t run_id, const struct pp_plan *plan,
                           const struct pp_trace *trace) PP_MUST_CHECK;
/* One training step. loss, valid_loss: NAN if unknown. */
pp_status pp_db_add_step(struct pp_db *db, int64_t run_id, int step, int epoch, int64_t ns, double loss, int64_t tokens,
                         bool traced) PP_MUST_CHECK;
pp_status pp_db_add_epoch(struct pp_db *db, int64_t run_id, int epoch, double valid_loss, int64_t ns) PP_MUST_CHECK;
/* kind: pp_memory_names[], "arena", "live_peak", "process" (resident bytes). */
pp_status pp_db_add_memory(struct pp_db *db, int64_t run_id, int worker, const char *kind, int64_t bytes) PP_MUST_CHECK;
/* All kinds of a worker: what the layout has for its rank, and the resident bytes of its process, if there are any. */
pp_status pp_db_add_worker_memory(struct pp_db *db, int64_t run_id, int worker, const struct pp_layout *layout,
                                  int64_t process_bytes) PP_MUST_CHECK;

/* One measured thing: a kernel, a whole task, or a link, under one load. Quantiles in ns. */
struct pp_sample {
    const char *name; /* kernel: call_name; task: program signature; link: "inproc p2p", "mpi p2p", "... allreduce" */
    /* kernel: signature of the task it ran in, and its share of a GPU; task: pp_job_context(); link: state of the
     * buffers */
    const char *context;
    int load;      /* workers busy in the domain while it ran */
    int64_t bytes; /* links: message size; else 0 */
    int64_t count, median_ns, p5_ns, p95_ns, min_ns;
    int64_t mean_ns; /* winsorised (core/stats.h); 0: not known */
    double flops, moved_bytes;
};
/* bytes is 0, flops and moved_bytes are not known. name, context: borrowed. */
struct pp_sample pp_sample_of(const char *name, const char *context, int load, const struct pp_quantiles *ns);
/* Name of the kernel row that holds what issuing a task takes the host (queue devices). */
#define PP_SAMPLE_ISSUE "issue"
/* ... that holds what a task takes besides its kernels, for each of them: the median over the tasks of a profile (its
 * context is the share of a GPU, if any). May be negative: timing kernels one by one takes time too. */
#define PP_SAMPLE_GAP "gap"
enum pp_sample_kind { PP_SAMPLE_KERNEL, PP_SAMPLE_TASK, PP_SAMPLE_LINK };
pp_status pp_db_add_sample(struct pp_db *db, int64_t run_id, enum pp_sample_kind kind,
                           const struct pp_sample *sample) PP_MUST_CHECK;

/* Of the link "worker" in a profile: pp_taken_remark() tells what it means. */
#define PP_WORKER_TAKEN "taken"
/* Fitted parameters of a link ("latency_ns", "send_overhead_ns", "recv_overhead_ns", "ns_per_byte", "task_overhead_ns",
 * ...). */
pp_status pp_db_add_link(struct pp_db *db, int64_t run_id, const char *link, const char *parameter,
                         double value) PP_MUST_CHECK;

/* Look-ups in the newest matching profile, of those that ended well before others; *found tells. Times are means, or
 * medians where no mean is known. device, threads: those of the profile's run. Of a task the time in this context
 * (pp_job_context) is better than a newer one in another; times in another share of a GPU do not count. */
pp_status pp_db_find_task(struct pp_db *db, const char *device, int threads, const char *signature, const char *context,
                          int load, int64_t *ns, bool *found) PP_MUST_CHECK;
/* What issuing the task takes the host: in the context's share of a GPU and under this load, if it was measured so. */
pp_status pp_db_find_issue(struct pp_db *db, const char *device, int threads, const char *signature,
                           const char *context, int load, int64_t *ns, bool *found) PP_MUST_CHECK;
/* A kernel's mean under the highest load that it was measured with, over all tasks that it ran in. */
pp_status pp_db_find_kernel(struct pp_db *db, const char *device, int threads, const char *name, int64_t *ns,
                            bool *found) PP_MUST_CHECK;
/* A kernel's mean under this load, or that of PP_SAMPLE_GAP, over all tasks that it ran in with the context's share
 * of a GPU: of the newest profile that has it. */
pp_status pp_db_find_kernel_mean(struct pp_db *db, const char *device, int threads, const char *name,
                                 const char *context, int load, int64_t *ns, bool *found) PP_MUST_CHECK;
/* A figure of a link or of processes, of config->device. A profile of the model and data shape of config (run.workload)
 * is better than one that ended well or is newer, then one with as many threads of a worker, then one of a number of
 * processes that is nearer to `processes` (0: any will do). */
pp_status pp_db_find_link(struct pp_db *db, const struct pp_config *config, int processes, const char *link,
                          const char *parameter, double *value, bool *found) PP_MUST_CHECK;
/* The device of the newest profile that ended well, else of the newest, into buf; "" if there is none. */
pp_status pp_db_newest_device(struct pp_db *db, char *buf, size_t size) PP_MUST_CHECK;
/* True if the database holds any profile of the device. *cores: of the machine of the best one, as above. */
pp_status pp_db_has_profile(struct pp_db *db, const char *device, int *cores, bool *found) PP_MUST_CHECK;
/* Was any task of the device measured with so many threads of a worker? */
pp_status pp_db_has_threads(struct pp_db *db, const char *device, int threads, bool *found) PP_MUST_CHECK;
/* Calls back for each task sample of the device whose signature starts with `prefix`, in the context's share of a GPU
 * (one for each signature and load: that of the best profile). */
typedef void (*pp_db_task_fn)(void *arg, const char *signature, int load, int64_t ns);
pp_status pp_db_each_task(struct pp_db *db, const char *device, int threads, const char *prefix, const char *context,
                          pp_db_task_fn fn, void *arg) PP_MUST_CHECK;

#endif
