/* SPDX-License-Identifier: Apache-2.0
 *
 * A job: one configuration with everything that follows from it: model, plans, programs and memory layout. All four
 * programs make it with the same function, so they agree about it. core/ may not include schedules/ or kernels/;
 * programs hand them in as structs of functions.
 *
 * The letters P, V, M, D, T and C are those of core/plan/plan.h.
 */
#ifndef PP_CORE_JOB_JOB_H
#define PP_CORE_JOB_JOB_H

#include "core/base/json.h"
#include "core/job/given_times.h"
#include "core/model/layout.h"
#include "core/model/model.h"
#include "core/options/config.h"
#include "core/plan/plan.h"
#include "core/plan/plan_spec.h"

/* What a schedule's name stands for. */
struct pp_schedule_found {
    const char *name;   /* as the registry spells it; for a schedule file its path */
    int number;         /* N of NAME:N, else 0 */
    int virtual_stages; /* default of V */
    const char *leaner; /* a schedule that takes no more time and holds fewer microbatches, if it takes so many at all;
                         * NULL: none is known */
    /* P and M of a schedule file, which has no others; else 0. */
    int ranks, microbatches;
};

enum { PP_MOST_NUMBER = 1 << 24 }; /* N of NAME:N */

/* What schedules/ offers (schedules/schedule.h defines one). */
struct pp_schedules {
    pp_status (*build)(const struct pp_plan_spec *spec, struct pp_plan **out);
    /* PP_USAGE if the shape is impossible in training, with a message that names shapes that work. */
    pp_status (*check)(const char *schedule, int ranks, int virtual_stages, int microbatches);
    /* PP_USAGE if there is no schedule of that name; PP_INPUT if it is a file that holds no schedule. */
    pp_status (*find)(const char *name, struct pp_schedule_found *out);
    bool (*timed)(const char *name); /* does it decide by pp_plan_spec.costs? */
    /* Writes the rank of each stage to stage_rank[ranks * virtual_stages]. `name` is one that find() accepts. For
     * shapes that check() refuses the result is arbitrary. */
    pp_status (*place)(const char *name, int ranks, int virtual_stages, int *stage_rank);
    json_t *(*list)(void);      /* their rows for --list (core/options/listing.h) */
    const char *(*names)(void); /* "gpipe|1f1b|..." */
};

/* One configuration of a sweep. */
struct pp_point {
    const char *schedule;      /* as pp_schedules.find() takes it */
    int ranks, virtual_stages; /* P, V */
    int chunks;                /* as asked for; M may be smaller (pp_chunk_rows()) */
    bool file_chunks;          /* asked for by a schedule file, and not by the user or a preset */
    int checkpoint;            /* enum pp_checkpoint */
    int tensor;                /* T; 0 means 1 */
    int sum_pieces;            /* pp_shape.sum_pieces; 1 if T = 1 */
    int exchange_pieces;       /* pp_shape.exchange_pieces; 0 without expert parallelism */
    int zero;                  /* ZeRO stage; 0 if there is only one replica */
    int shard_degree;          /* of the D replicas so many shard among each other; 0: all (or no ZeRO) */
};

/* T. */
static inline int pp_point_tensor(const struct pp_point *point) { return point->tensor > 1 ? point->tensor : 1; }

/* P D T C, the number of workers; also where it is more than PP_MOST_WORKERS. */
int64_t pp_point_workers(const struct pp_config *config, const struct pp_point *point);

enum { PP_MOST_WORKERS = 1 << 24, PP_MOST_POINTS = 1 << 24 };

/* Phases of a run. The tails are the last batches of the training, validation and test data, if their rows have fewer
 * tokens than others; an equal tail of test and validation data is one phase, PP_VALID_TAIL. */
enum pp_phase_id { PP_TRAIN, PP_TRAIN_TAIL, PP_EVAL, PP_VALID_TAIL, PP_TEST_TAIL, PP_PHASES };

/* Tokens per row of the last batch of the training, validation and test data; 0: as many as in other batches. */
struct pp_tails {
    int train, valid, test;
};

/* Room for the longest accumulation key. A key that was cut off could equal another one. */
enum {
    PP_ACCUMULATION_KEY = sizeof "D2147483647/2147483647 M2147483647 summed each bf16 sums "
                                 "T2147483647/2147483647 sequence experts/2147483647 context/2147483647 "
                                 "all_gather threads 2147483647 fp32 logits 2147483647 flash rows "
                                 "2147483647x2147483647 1x2147483647 batch-w 2147483647 order 01234567"
};

struct pp_cost;

/* The job of the same point with another cut, and what it costs. */
struct pp_job_lender {
    const struct pp_job *job;
    const struct pp_cost *cost; /* NULL: some of its times were measured, and it lends none */
};

struct pp_job {
    const struct pp_config *config;
    const struct pp_model_ops *model_ops;
    struct pp_point point;
    struct pp_model *model;
    struct pp_plan *train, *eval;     /* eval: NULL if the run does not evaluate */
    struct pp_phase phase[PP_PHASES]; /* phase[i].plan is NULL if the run does not have the phase */
    int phase_layout[PP_PHASES];      /* index into layout->slot_offset for the phase */
    struct pp_layout *layout;
    /* Set behind pp_job_begin() for a job of which only costs by a data sheet and memory of arenas are asked: see
     * pp_program_spec.once. It is never run, looked up in a database, or asked for memory of processes. */
    bool once;
    bool borrows; /* model and times are those of another job, which outlives this one */
    int sharers;  /* workers that share a device; 0, 1: each has one to itself. The program, which knows, sets it */
    const struct pp_job_lender *lender; /* of pp_job_train(); else NULL */
    /* From the config. The program may set times.measured, which is freed with the job. */
    struct pp_given_times times;
    /* Names all that losses and weights depend on to the bit, apart from model, options and data: M, D, order and
     * batching of W, kernel variant, ... Runs with equal keys have the same bits (ARCHITECTURE.md). */
    char accumulation_key[PP_ACCUMULATION_KEY];
};

/* The arena of a worker, with the slots of one phase. */
struct pp_arena {
    char *base;
    int rank;
    const int64_t *slot_offset; /* [nslots] pp_layout.slot_offset of the phase's plan */
};
/* The memory of a slot; NULL if slot is -1. */
static inline void *pp_arena_slot(const struct pp_arena *arena, int32_t slot)
{
    return slot < 0 ? NULL : arena->base + arena->slot_offset[slot];
}
/* Sets what of `frame` depends on where the task's memory lies: base[]. If the task has a microbatch, also act_row; and
 * the microbatch's first row is added to first_row. The caller sets all other fields before. */
void pp_frame_place(const struct pp_job *job, const struct pp_phase *phase, const struct pp_arena *arena,
                    const struct pp_task *task, struct pp_frame *frame);

/* Text for messages: ", zero 3 in groups of 8", or "" without ZeRO. Returns buf. */
const char *pp_sharing_text(int zero, int degree, char *buf, size_t size);
/* ", sums in up to 4 pieces, exchanges in up to 2 pieces": what stands beside products; "" if nothing does. Returns
 * buf. */
enum { PP_BESIDE_TEXT = 88 };
const char *pp_beside_text(const struct pp_shape *shape, char buf[PP_BESIDE_TEXT]);

/* Text for messages: "1f1b, 4 stages x 2, 8 chunks, checkpoint always". V = 1 and "checkpoint never" are left out.
 * Returns buf; the path of a schedule file is cut off after 150 characters. */
enum { PP_POINT_TEXT = 400 };
const char *pp_point_text(const struct pp_point *point, char buf[PP_POINT_TEXT]);

/* The points of a sweep: all combinations of the lists of the config. From the slowest to the fastest, the loops are:
 * schedule, T, pieces of sums (if T > 1), P, V (the schedule's default if it was not given), ZeRO stage and shard
 * degree (if there are several replicas), chunks, checkpoint mode. A schedule file also says P (not with --workers) and
 * chunks, where the user did not. The caller frees *points. PP_USAGE for unknown
 * schedules, and for more than PP_MOST_POINTS points. */
pp_status pp_points(const struct pp_config *config, const struct pp_schedules *schedules, struct pp_point **points,
                    int *n) PP_MUST_CHECK;

/* pp_point.sum_pieces for a value of --overlap-tensor-sums: this, or if it is 0 what suits the microbatches. */
int pp_point_sum_pieces(const struct pp_config *config, int pieces, int chunks);

/* Sets the ZeRO stage and shard degree of a point for these values of --zero and --shard-degree: groups of one replica
 * share nothing, and a group of all replicas is degree 0. */
void pp_point_share(const struct pp_config *config, int zero, int degree, struct pp_point *point);

/* Schedule, P, V, chunks and checkpoint mode of the first of these points; the rest of *out is 0. */
pp_status pp_points_first(const struct pp_config *config, const struct pp_schedules *schedules,
                          struct pp_point *out) PP_MUST_CHECK;

/* PP_USAGE for what no schedule makes possible, such as:
 *   - more stages (P V) than layers; unless --split is uniform, embedding and decoder count as two layers;
 *   - more chunks than rows;
 *   - P D T C above PP_MOST_WORKERS;
 *   - batched W with sequence parallelism. */
pp_status pp_point_check(const struct pp_config *config, const struct pp_point *point) PP_MUST_CHECK;

/* Makes the job of one point. evaluate: the run evaluates, so there is an eval plan. tails: NULL if no batch is shorter
 * than others. The job borrows config, ops and the point's texts. PP_USAGE if the configuration is impossible
 * (pp_point_check(), the schedule refuses it, sizes beyond 64 bits). */
pp_status pp_job_create(const struct pp_config *config, const struct pp_point *point,
                        const struct pp_schedules *schedules, const struct pp_model_ops *ops, bool evaluate,
                        const struct pp_tails *tails, struct pp_job **out) PP_MUST_CHECK;
/* The same in two steps, for those who look at the model before they make all the rest, which takes long: the job with
 * its model alone, and what is left. A job that pp_job_complete() could not complete is of no use but to be freed. */
pp_status pp_job_begin(const struct pp_config *config, const struct pp_point *point,
                       const struct pp_schedules *schedules, const struct pp_model_ops *ops,
                       struct pp_job **out) PP_MUST_CHECK;
pp_status pp_job_complete(struct pp_job *job, const struct pp_schedules *schedules, bool evaluate,
                          const struct pp_tails *tails) PP_MUST_CHECK;
/* The first part of pp_job_complete(), for those who only ask whether the schedule is possible: plans alone. */
pp_status pp_job_plan(struct pp_job *job, const struct pp_schedules *schedules, bool evaluate) PP_MUST_CHECK;
/* In place of pp_job_complete(), for those who only ask what a step costs: the job has its training plan, unchecked,
 * and the programs of PP_TRAIN, but no layout and no key. Where stages are alike, programs are the lender's, and costs
 * may be; it must outlive the job. */
pp_status pp_job_train(struct pp_job *job, const struct pp_schedules *schedules,
                       const struct pp_job_lender *lender) PP_MUST_CHECK;
void pp_job_free(struct pp_job *job);

/* Number of pieces into which sums over tensor ranks are cut in the largest microbatch (pp_sum_pieces()). */
int pp_job_sum_pieces(const struct pp_job *job);

/* Builds job->train from `spec`, of which `costs` is ignored. A schedule that decides by times gets those of the job's
 * stages: --times if given, else the model's floating-point operations (core/job/stage_costs.h). */
pp_status pp_job_build_train(struct pp_job *job, const struct pp_schedules *schedules,
                             const struct pp_plan_spec *spec) PP_MUST_CHECK;

/* Room for the longest context: a schedule's name, checkpoint mode and share. A context that was cut off could equal
 * that of another share. */
enum { PP_CONTEXT_SIZE = PP_SCHEDULE_NAME + sizeof " layers:65536 share 1/2147483647" };

/* The context of measured task times: what the duration of a task depends on besides its own work. Schedule and
 * checkpoint mode ("1f1b never") decide how many activation slots are in use, and so how much of them the caches hold.
 * If `sharers` > 1 workers share a GPU, the context also has the part of it that a worker has ("1f1b never share 1/4").
 * Writes to buf, of PP_CONTEXT_SIZE bytes, and returns it. */
const char *pp_job_context(const struct pp_job *job, int sharers, char *buf, size_t size);

/* The model in words for people: "1041444974 parameters: 8 layers, d 4096, 16 heads, ...; bf16, adamw". Returns buf. */
enum { PP_MODEL_TEXT = 1000 };
const char *pp_model_text(const struct pp_model *model, char *buf, size_t size);

#endif
