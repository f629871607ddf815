/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs one training step of a model on one thread, stage after stage, microbatch after microbatch: the least that can
 * run programs. Every region is an allocation of its own, of exactly its size, so that a sanitizer sees every step
 * beyond its border.
 */
#ifndef PP_TESTS_MODEL_RUNNER_H
#define PP_TESTS_MODEL_RUNNER_H

#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/model.h"

enum { RUNNER_STAGES = 8, RUNNER_CHUNKS = 32 };

struct runner {
    struct pp_shape shape;
    int stages, rows, seq, chunks;
    bool split, recompute; /* backward as I and W; forward once more before each backward */
    bool layers;           /* checkpoints are the inputs of layers */
    int again;             /* so are those of so many first layers of each stage, in the slot */
    bool inner_again;      /* what activation functions make is made again */
    bool evaluate;         /* forward only, without dropout */
    int slot_chunks;       /* microbatches in an activation slot, one behind the other; 0: one */
    bool batch_w;          /* W of all microbatches of a slot at once */
    int parts;             /* in which F, B and W are done, if not 0; at most as many as there are layers */
    const struct pp_cpu_isa *isa;

    struct pp_model *model;
    int chunk_rows[RUNNER_CHUNKS], first_row[RUNNER_CHUNKS];
    void *param[RUNNER_STAGES], *grad[RUNNER_STAGES];
    void *act[RUNNER_STAGES][RUNNER_CHUNKS], *checkpoint[RUNNER_STAGES][RUNNER_CHUNKS];
    void *activation[RUNNER_STAGES + 1][RUNNER_CHUNKS], *gradient[RUNNER_STAGES + 1][RUNNER_CHUNKS];
    int32_t *tokens, *targets;
    struct pp_frame frame; /* seed, step, training, learning rate: the test's to set */
    double loss;           /* sum over all tokens of the last step */
};

#define RUNNER_OK(expression)                                                                                          \
    do {                                                                                                               \
        pp_status runner_status = (expression);                                                                        \
        if (runner_status != PP_OK) fail_msg("%s", pp_message());                                                      \
    } while (0)

static inline void *runner_memory(int64_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? (size_t)bytes : 1);
    assert_non_null(memory);
    return memory;
}

/* Fixed tokens that look random. */
static inline void runner_tokens(struct runner *r)
{
    const int n = r->rows * r->seq;
    uint32_t x = 12345;
    r->tokens = runner_memory(n * (int64_t)sizeof *r->tokens);
    r->targets = runner_memory(n * (int64_t)sizeof *r->targets);
    for (int i = 0; i < 2 * n; i++) {
        x = x * 1664525u + 1013904223u;
        (i < n ? r->tokens : r->targets)[i % n] = (int32_t)((x >> 8) % (uint32_t)r->shape.vocab);
    }
}

static inline void runner_weights(struct runner *r, uint64_t seed)
{
    for (int i = 0; i < r->model->ntensors; i++) {
        const struct pp_tensor *t = &r->model->tensors[i];
        pp_model_init_tensor(r->model, i, seed, (float *)((char *)r->param[t->stage] + t->offset));
    }
}

/* The first microbatch of the slot that holds m, and the rows of the slot's microbatches from it on. */
static inline int runner_slot(const struct runner *r, int m) { return m - m % r->slot_chunks; }
static inline int runner_slot_rows(const struct runner *r, int m)
{
    int rows = 0;
    for (int i = runner_slot(r, m); i < r->chunks && runner_slot(r, i) == runner_slot(r, m); i++)
        rows += r->chunk_rows[i];
    return rows;
}

static inline struct pp_program_spec runner_spec(const struct runner *r)
{
    return (struct pp_program_spec){.seq = r->seq,
                                    .slot_rows = runner_slot_rows(r, 0),
                                    .training = !r->evaluate,
                                    .split_backward = r->split,
                                    .checkpoint_layers = r->layers,
                                    .again = r->again,
                                    .activation_again = r->inner_again};
}

/* Whoever makes activations anew finds none of before. */
static inline void runner_forget(struct runner *r, int stage, int m)
{
    const struct pp_program_spec spec = runner_spec(r);
    memset(r->act[stage][m], 0xff, (size_t)pp_model_act_bytes(r->model, stage, &spec)); /* NaN */
}

/* Fields up to isa are set by the caller. */
static inline void runner_open(struct runner *r)
{
    if (!r->isa) r->isa = pp_cpu_isa_best();
    if (r->slot_chunks < 1) r->slot_chunks = 1;
    RUNNER_OK(pp_gemm_open(1));
    RUNNER_OK(pp_model_create(&r->shape, r->stages, "uniform", NULL, &r->model));
    const int piece = (r->rows + r->chunks - 1) / r->chunks;
    r->chunks = (r->rows + piece - 1) / piece;
    for (int m = 0; m < r->chunks; m++) {
        r->first_row[m] = m * piece;
        r->chunk_rows[m] = r->rows - m * piece < piece ? r->rows - m * piece : piece;
    }
    for (int s = 0; s < r->stages; s++) {
        r->param[s] = runner_memory(r->model->stages[s].param_bytes);
        r->grad[s] = runner_memory(r->model->stages[s].param_bytes);
        const struct pp_program_spec spec = runner_spec(r);
        for (int m = 0; m < r->chunks; m += r->slot_chunks)
            r->act[s][m] = runner_memory(pp_model_act_bytes(r->model, s, &spec));
        for (int m = 0; r->layers && m < r->chunks; m++)
            r->checkpoint[s][m] =
                runner_memory(r->model->stages[s].layers * pp_checkpoint_bytes(&r->shape, r->chunk_rows[m], r->seq));
    }
    for (int s = 1; s < r->stages; s++)
        for (int m = 0; m < r->chunks; m++) {
            const int64_t bytes = (int64_t)sizeof(float) * r->chunk_rows[m] * r->seq * r->shape.d_model;
            r->activation[s][m] = runner_memory(bytes);
            r->gradient[s][m] = runner_memory(bytes);
        }
    runner_tokens(r);
    runner_weights(r, 1);
    r->frame.seed = 99;
    r->frame.training = !r->evaluate;
    r->frame.clip_factor = 1;
    r->frame.loss_scale = 1.f / (float)(r->rows * r->seq);
}

static inline void runner_close(struct runner *r)
{
    for (int s = 0; s < r->stages; s++) {
        free(r->param[s]);
        free(r->grad[s]);
        for (int m = 0; m < r->chunks; m++) {
            free(r->act[s][m]);
            free(r->checkpoint[s][m]);
            free(r->activation[s][m]);
            free(r->gradient[s][m]);
        }
    }
    free(r->tokens);
    free(r->targets);
    pp_model_free(r->model);
}

/* The parts of a task: scratch is empty before the first; the first one has the input, the last one the output. */
static inline void runner_parts(struct runner *r, struct pp_class cls, const struct pp_frame *frame)
{
    const struct pp_program_spec spec = runner_spec(r);
    struct pp_program program[RUNNER_STAGES];
    struct pp_frame part = *frame;
    int64_t work_bytes = 0;
    const int parts = cls.parts > 1 ? cls.parts : 1;
    for (cls.part = 0; cls.part < parts; cls.part++) {
        RUNNER_OK(pp_model_program(r->model, &cls, &spec, &program[cls.part]));
        if (program[cls.part].work_bytes > work_bytes) work_bytes = program[cls.part].work_bytes;
    }
    void *work = part.base[PP_MEM_WORK] = runner_memory(work_bytes);
    if (parts > 1) memset(work, 0xff, (size_t)work_bytes); /* NaN */
    for (int i = 0; i < parts; i++) {
        if (i > 0) part.base[PP_MEM_IN] = NULL;
        part.base[PP_MEM_OUT] = i + 1 < parts ? NULL : frame->base[PP_MEM_OUT];
        pp_cpu_run(r->isa, &program[i], &part, NULL, NULL);
        pp_program_free(&program[i]);
    }
    free(work);
}

static inline void runner_task(struct runner *r, int kind, int stage, int m, struct pp_frame *frame)
{
    const bool update = kind == PP_NORM || kind == PP_STEP, several = kind == PP_W && r->batch_w;
    struct pp_class cls = {kind, stage, update ? 0 : several ? runner_slot_rows(r, m) : r->chunk_rows[m]};
    cls.adds = m > 0;
    if (kind == PP_F || kind == PP_B || kind == PP_W) cls.parts = r->parts;
    if (cls.parts > r->model->stages[stage].layers) cls.parts = r->model->stages[stage].layers;
    frame->base[PP_MEM_PARAM] = r->param[stage];
    frame->base[PP_MEM_GRAD] = r->grad[stage];
    frame->base[PP_MEM_ACT] = r->act[stage][runner_slot(r, m)];
    frame->act_row = r->first_row[m] - r->first_row[runner_slot(r, m)];
    if (r->layers) frame->base[PP_MEM_CKPT] = r->checkpoint[stage][m];
    frame->base[PP_MEM_TOKENS] = r->tokens + r->first_row[m] * r->seq;
    frame->base[PP_MEM_TARGETS] = r->targets + r->first_row[m] * r->seq;
    frame->first_row = r->first_row[m];
    runner_parts(r, cls, frame);
}

static inline void runner_forward(struct runner *r, int stage, int m, bool again)
{
    struct pp_frame frame = r->frame;
    double loss = 0;
    frame.loss = &loss;
    frame.base[PP_MEM_IN] = again ? NULL : r->activation[stage][m];
    frame.base[PP_MEM_CKPT] = again ? r->activation[stage][m] : NULL;
    frame.base[PP_MEM_OUT] = stage + 1 < r->stages && !again ? r->activation[stage + 1][m] : NULL;
    runner_task(r, again ? PP_R : PP_F, stage, m, &frame);
    if (!again) r->loss += loss;
}

static inline void runner_backward(struct runner *r, int kind, int stage, int m)
{
    struct pp_frame frame = r->frame;
    frame.base[PP_MEM_IN] = stage + 1 < r->stages ? r->gradient[stage + 1][m] : NULL;
    frame.base[PP_MEM_OUT] = stage ? r->gradient[stage][m] : NULL;
    runner_task(r, kind, stage, m, &frame);
}

/* Loss only. */
static inline double runner_loss(struct runner *r)
{
    r->loss = 0;
    for (int m = 0; m < r->chunks; m++)
        for (int s = 0; s < r->stages; s++) runner_forward(r, s, m, false);
    return r->loss / (r->rows * r->seq);
}

/* Loss and gradients; weights stay. */
static inline double runner_gradients(struct runner *r)
{
    const double loss = runner_loss(r);
    for (int s = r->stages - 1; s >= 0; s--) {
        for (int m = 0; m < r->chunks; m++) {
            if (r->recompute) runner_forward(r, s, m, true);
            if (r->layers) runner_forget(r, s, m);
            runner_backward(r, r->split ? PP_I : PP_B, s, m);
        }
        for (int m = 0; r->split && m < r->chunks; m += r->batch_w ? r->slot_chunks : 1) runner_backward(r, PP_W, s, m);
    }
    return loss;
}

static inline float *runner_tensor(struct runner *r, void *const *region, int tensor)
{
    const struct pp_tensor *t = &r->model->tensors[tensor];
    return (float *)((char *)region[t->stage] + t->offset);
}

#endif
