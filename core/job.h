/* SPDX-License-Identifier: Apache-2.0
 *
 * A job: one configuration made concrete: model, plans, programs and memory layout. All programs make it with the same
 * function, so all speak of the same thing. core/ may not include schedules/ or kernels/; the program hands them in.
 */
#ifndef PP_CORE_JOB_H
#define PP_CORE_JOB_H

#include <stdio.h>

#include "core/config.h"
#include "core/given_times.h"
#include "core/layout.h"
#include "core/plan.h"
#include "core/program.h"

/* name: as the registry spells it; of a file its path. number: N of NAME:N, else 0. virtual_stages: of a rank, unless
 * something else is asked. */
struct pp_schedule_found {
    const char *name;
    int number, virtual_stages;
};

enum { PP_MOST_NUMBER = 1 << 24 }; /* N of NAME:N */

/* schedules/schedule.h */
struct pp_schedules {
    pp_status (*build)(const struct pp_plan_spec *spec, struct pp_plan **out);
    /* Is the shape possible in training? PP_USAGE with a message that names what works. */
    pp_status (*check)(const char *schedule, int ranks, int virtual_stages, int microbatches);
    /* PP_USAGE where nothing has that name; PP_INPUT where it is of a file that holds no schedule. */
    pp_status (*find)(const char *name, struct pp_schedule_found *out);
    bool (*timed)(const char *name); /* it decides by pp_plan_spec.costs */
    /* The rank of each stage, into stage_rank[ranks * virtual_stages]. Of names that find() takes; what check() refuses
     * may have any. */
    pp_status (*place)(const char *name, int ranks, int virtual_stages, int *stage_rank);
    void (*list)(FILE *out);
    const char *(*names)(void); /* "gpipe|1f1b|..." */
};

/* One configuration of a sweep. */
struct pp_point {
    const char *schedule;               /* as pp_schedules.find() takes it */
    int stages, virtual_stages, chunks; /* P, V, chunks as asked */
    int checkpoint;                     /* enum pp_checkpoint */
    int tensor;                         /* T; 0: 1 */
    int sum_pieces;                     /* pp_shape.sum_pieces; without T > 1: 1 */
    int zero;                           /* stage of ZeRO; without several replicas 0 */
    int shard_degree;                   /* so many replicas share; 0: all, or none */
};

static inline int pp_point_tensor(const struct pp_point *point) { return point->tensor > 1 ? point->tensor : 1; }

enum { PP_MOST_WORKERS = 1 << 24, PP_MOST_POINTS = 1 << 24 };

enum pp_phase_id { PP_TRAIN, PP_TRAIN_TAIL, PP_EVAL, PP_VALID_TAIL, PP_TEST_TAIL, PP_PHASES };

/* Tokens of the last batch of each part, where it is shorter than others; 0: none is. */
struct pp_tails {
    int train, valid, test;
};

/* Holds the longest key: what is cut off would make unequal keys look equal. */
enum {
    PP_ACCUMULATION_KEY = sizeof "D2147483647/2147483647 M2147483647 summed each bf16 sums "
                                 "T2147483647/2147483647 sequence experts/2147483647 context/2147483647 "
                                 "all_gather threads 2147483647 fp32 logits 2147483647 flash rows "
                                 "2147483647x2147483647 1x2147483647 batch-w 2147483647 order 01234567"
};

struct pp_job {
    const struct pp_config *config;
    const struct pp_model_ops *model_ops;
    struct pp_point point;
    struct pp_model *model;
    struct pp_plan *train, *eval;     /* eval may be NULL */
    struct pp_phase phase[PP_PHASES]; /* phase[i].plan NULL: not part of the run */
    int phase_layout[PP_PHASES];      /* which slot_offset table of the layout the phase uses */
    struct pp_layout *layout;
    struct pp_given_times times; /* of the config; its `measured` is set by the program, and freed with the job */
    /* equal keys: equal bits (design: M, D, order and batching of W, kernel variant) */
    char accumulation_key[PP_ACCUMULATION_KEY];
};

/* A worker's arena in the steps of a phase. */
struct pp_arena {
    char *base;
    int rank;
    const int64_t *slot_offset; /* of the phase's plan (struct pp_layout) */
};
/* The memory of a slot; NULL: slot is -1. */
static inline void *pp_arena_slot(const struct pp_arena *arena, int32_t slot)
{
    return slot < 0 ? NULL : arena->base + arena->slot_offset[slot];
}
/* Sets where the task finds everything there (frame->base), and whether it adds to gradients; of a microbatch also its
 * rows in the slot (act_row), and first_row is counted on to its first one. The rest is the caller's. */
void pp_frame_place(const struct pp_job *job, const struct pp_phase *phase, const struct pp_arena *arena,
                    const struct pp_task *task, struct pp_frame *frame);

/* For messages: ", zero 3 in groups of 8", or "" where nothing is shared. Returns buf. */
const char *pp_sharing_text(int zero, int degree, char *buf, size_t size);

/* For messages: "1f1b, 4 stages x 2, 8 chunks, checkpoint always"; neither one stage a rank is told nor that there are
 * no checkpoints. Returns buf, of PP_POINT_TEXT bytes; a longer path of a schedule is cut off. */
enum { PP_POINT_TEXT = 352 };
const char *pp_point_text(const struct pp_point *point, char buf[PP_POINT_TEXT]);

/* All combinations of the lists, in the order schedule, tensor, pieces of sums (where T > 1), stages, virtual, ZeRO
 * (where there are several replicas), chunks, checkpoint (the last changes fastest); V, where it was not asked for, as
 * the schedule has it. *points is the caller's to free. PP_USAGE where they are more than PP_MOST_POINTS. */
pp_status pp_points(const struct pp_config *config, const struct pp_schedules *schedules, struct pp_point **points,
                    int *n) PP_MUST_CHECK;

/* What is impossible whatever the schedule: P*V above the layers (and, unless --split is uniform, embedding and
 * decoder), chunks above the rows, P*D*T*C above PP_MOST_WORKERS, batched W of parts of the tokens. PP_USAGE. */
pp_status pp_point_check(const struct pp_config *config, const struct pp_point *point) PP_MUST_CHECK;

/* tails: NULL: no batch is shorter. evaluate: the run evaluates (eval plan). PP_USAGE where the configuration is
 * impossible (pp_point_check(), the schedule refuses, sizes beyond 64 bits). */
pp_status pp_job_create(const struct pp_config *config, const struct pp_point *point,
                        const struct pp_schedules *schedules, const struct pp_model_ops *ops, bool evaluate,
                        const struct pp_tails *tails, struct pp_job **out) PP_MUST_CHECK;
void pp_job_free(struct pp_job *job);

/* Pieces that sums over tensor ranks have in the largest microbatch: as asked, or fewer, as divide its tokens. */
int pp_job_sum_pieces(const struct pp_job *job);

/* Sets job->train. The schedule is told the times of the job's stages, if it decides by them: --times, else the
 * operations of the model; spec->costs does not count. */
pp_status pp_job_build_train(struct pp_job *job, const struct pp_schedules *schedules,
                             const struct pp_plan_spec *spec) PP_MUST_CHECK;

/* Holds the longest pp_job_context(): a schedule's name as a plan keeps it, " except_last share 1/", and any int. What
 * is cut off would be taken for the time of another share. */
enum { PP_CONTEXT_SIZE = PP_SCHEDULE_NAME + sizeof " layers:65536 share 1/2147483647" };

/* What surrounds a task in the job's steps, as far as its duration depends on it: schedule and checkpoint mode ("1f1b
 * never") say how many activation slots are in use, so how cold they are; where several workers share a GPU, which part
 * of it the task has ("1f1b never share 1/4"). sharers: of one GPU; 1: none share. Into buf of PP_CONTEXT_SIZE bytes;
 * returns buf. */
const char *pp_job_context(const struct pp_job *job, int sharers, char *buf, size_t size);

/* "1041444974 parameters: 8 layers, d 4096, 16 heads, ...; bf16, adamw", for people. Returns buf. */
enum { PP_MODEL_TEXT = 400 };
const char *pp_model_text(const struct pp_model *model, char *buf, size_t size);

#endif
