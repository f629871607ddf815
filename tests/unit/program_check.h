/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs checked by the table of operands: each lies within its region and is aligned, is written before it is read,
 * and all who use a buffer agree on its elements.
 */
#ifndef PP_TESTS_PROGRAM_CHECK_H
#define PP_TESTS_PROGRAM_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/model.h"
#include "tests/unit/call_names.h"
#include "tests/unit/program_bias.h"
#include "tests/unit/program_optimizer.h"
#include "tests/unit/program_regions.h"
#include "tests/unit/program_sums.h"

enum { BUFFERS = 512 };

/* What a buffer holds that means something: of the tokens of all tensor ranks, the rank's own part alone, or all. */
enum held { NOTHING, OWN_PART, ALL };

/* Memory that operands use. */
struct buffer {
    int region;
    int64_t offset, bytes;
    int element_bytes;
    enum held held;
    bool old; /* scratch of an earlier part of the task */
};

/* One way to run a stage: its programs in order, over one set of buffers. */
struct check {
    const struct pp_model *model;
    int stage;
    struct pp_program_spec spec;
    int rows; /* of the class */
    int part, parts;
    struct buffer buffers[BUFFERS];
    int nbuffers;
    bool summed;                          /* over the tensor ranks */
    int64_t region_bytes[PP_MEM_REGIONS]; /* counted once for each program */
    /* the call in question */
    const struct pp_call *call;
    const char *kind;
};

#define require(c, condition, i)                                                                                       \
    do {                                                                                                               \
        char require_text[96];                                                                                         \
        if (!(condition))                                                                                              \
            fail_msg("stage %d, %s, %s, operand %d: not so: %s", (c)->stage, (c)->kind,                                \
                     pp_call_text((c)->call, require_text, sizeof require_text), i, #condition);                       \
    } while (0)

/* Is it of the places of experts, or a number for each of these? A slot has them once, whatever its rows. */
static inline bool is_of_places(const struct check *c, const struct pp_operand *o)
{
    const struct pp_shape *shape = &c->model->shape;
    if (!shape->experts) return false;
    const int64_t capacity = pp_expert_capacity(shape, (int64_t)c->rows * pp_own_tokens(shape, SEQ));
    return !strcmp(o->name, "counts") || o->elements % (c->model->local.experts * capacity) == 0;
}

/* Where it lies: in its region, aligned, in activation slots as many rows of it as the slot has. Parts of what all
 * tensor ranks have are equal, and there is room for that of the last one. */
static inline void check_place(const struct check *c, const struct pp_operand *o, int i)
{
    const struct pp_ref *ref = &c->call->ref[i];
    const int64_t bytes = o->elements * o->element_bytes, others = pp_shape_tensor(&c->model->shape) - 1;
    require(c, ref->offset >= 0 && ref->offset % alignment_of(ref->region, o) == 0, i);
    if (ref->row_bytes || !is_of_places(c, o))
        require(c, ref->row_bytes == (in_slot(ref->region) ? bytes / c->rows : 0), i);
    require(c, ref->part_bytes == 0 || (ref->region == PP_MEM_WORK && ref->part_bytes == bytes && others > 0), i);
    const int64_t before = (c->spec.slot_rows - c->rows) * ref->row_bytes + others * ref->part_bytes;
    require(c, ref->offset + before + bytes <= c->region_bytes[ref->region], i);
}

/* Regions hold one type each, but for activation slots and scratch; only norm and step see parameters as numbers. */
static inline void check_type(const struct check *c, const struct pp_operand *o, int i)
{
    const int region = c->call->ref[i].region;
    const bool step = is_step(c->call->kernel);
    const int state = state_type(&c->model->shape);
    const int wanted[PP_MEM_REGIONS] = {
        [PP_MEM_CKPT] = PP_TYPE_ACTIVATION, [PP_MEM_IN] = PP_TYPE_ACTIVATION,      [PP_MEM_OUT] = PP_TYPE_ACTIVATION,
        [PP_MEM_PARAM] = PP_TYPE_FLOAT,     [PP_MEM_GRAD] = PP_TYPE_FLOAT,         [PP_MEM_TOKENS] = PP_TYPE_INT32,
        [PP_MEM_TARGETS] = PP_TYPE_INT32,   [PP_MEM_PARAM16] = PP_TYPE_ACTIVATION, [PP_MEM_STATE] = state};
    if (region == PP_MEM_PARAM16 && step)
        require(c, o->type == PP_TYPE_BF16 && o->element_bytes == 2, i);
    else if (region == PP_MEM_PARAM && o->type == PP_TYPE_ACTIVATION)
        require(c, o->element_bytes == sizeof(float), i); /* products of fp32 and tf32 */
    else if (!in_slot(region) && region != PP_MEM_WORK)
        require(c, o->type == wanted[region], i);
    if (region == PP_MEM_PARAM || region == PP_MEM_PARAM16) require(c, step || o->use == PP_USE_READ, i);
    if (region == PP_MEM_TOKENS || region == PP_MEM_TARGETS || region == PP_MEM_IN)
        require(c, o->use == PP_USE_READ, i);
}

/* Such gradients that lie side by side; they are summed once, in the first of NORM and STEP that there is. */
static inline void check_gradient_sum(const struct check *c, const struct pp_operand *o)
{
    const struct pp_stage *stage = &c->model->stages[c->stage];
    const int64_t first = c->call->at.join.memory.offset, end = first + o->elements * o->element_bytes;
    const enum pp_join_group group = (enum pp_join_group)c->call->join.group;
    bool begins = false;
    require(c, !c->summed && o->element_bytes == 4, 0);
    require(c, !strcmp(c->kind, c->spec.clip ? "NORM" : "STEP"), 0);
    for (int k = stage->first_tensor; k < stage->first_tensor + stage->tensors; k++) {
        const struct pp_tensor *t = &c->model->tensors[k];
        begins |= t->offset == first && is_partial(c->model, t, group);
        if (t->offset >= end || t->offset < first) continue;
        require(c, is_partial(c->model, t, group) && t->offset + t->local_elements * 4 <= end, 0);
    }
    require(c, begins, 0);
}

/* All of the stage's, in the program that does it. */
static inline void check_gradient_sums(struct check *c, const struct pp_program *program)
{
    const int partial = partial_sums(c->model, c->stage);
    if (!partial) return;
    const bool here = !strcmp(c->kind, c->spec.clip ? "NORM" : "STEP");
    if (!strcmp(c->kind, "NORM") || !strcmp(c->kind, "STEP"))
        assert_int_equal(tensors_in_sums(c->model, c->stage, program), here ? partial : 0);
    c->summed |= here;
}

/* In regions of parameters: a whole tensor, with or without the padding; of learnt positions those of the tokens. */
static inline void check_tensor(const struct check *c, const struct pp_operand *o, int i)
{
    const struct pp_stage *stage = &c->model->stages[c->stage];
    const struct pp_ref *ref = &c->call->ref[i];
    const int rows = c->model->local.vocab, padded = pp_padded_vocab(&c->model->local);
    if (c->call->kernel == PP_KERNEL_ALL_REDUCE) {
        check_gradient_sum(c, o);
        return;
    }
    for (int k = stage->first_tensor; k < stage->first_tensor + stage->tensors; k++) {
        const struct pp_tensor *t = &c->model->tensors[k];
        const int64_t offset = ref->region == PP_MEM_PARAM ? t->value_offset : t->offset;
        if ((ref->region == PP_MEM_PARAM16 ? t->offset16 : offset) != ref->offset) continue;
        const int parts = c->call->kernel == PP_KERNEL_EMBED && i == PP_OPERAND(embed, positions)
                              ? pp_shape_context(&c->model->shape)
                              : 1;
        require(c, o->elements * parts == t->local_elements || o->elements == t->local_elements / rows * padded, i);
        return;
    }
    require(c, !"an operand that is no tensor", i);
}

/* What the optimizer keeps lies as the weights of the same call do, one stage's worth further for each further one. */
static inline void check_state(const struct check *c, int i)
{
    const struct pp_ref *ref = &c->call->ref[i], *weights = &c->call->at.step.w;
    require(c, is_step(c->call->kernel) && weights->region == PP_MEM_PARAM, i);
    const int64_t number = i - (int)PP_OPERAND(step, m), bytes = pp_call_operand(c->call, i).element_bytes;
    require(c, ref->offset == (weights->offset + number * c->model->stages[c->stage].param_bytes) * bytes / 4, i);
}

/* Bytes of the buffer that an operand is in: in a slot the rows of all microbatches, in scratch for the tokens of all
 * tensor ranks (those that they scatter or gather) as many for each of them. */
static inline int64_t buffer_bytes(const struct check *c, const struct pp_operand *o, int i,
                                   const struct pp_program *program)
{
    const struct pp_ref *ref = &c->call->ref[i];
    const bool meets = ref->region == PP_MEM_WORK && pp_shape_parts_tokens(&c->model->shape);
    if (in_slot(ref->region) && ref->row_bytes) return c->spec.slot_rows * ref->row_bytes;
    for (int k = 0; k < program->ncalls && meets; k++) {
        const struct pp_call *join = &program->calls[k];
        if (join->kernel != PP_KERNEL_REDUCE_SCATTER && join->kernel != PP_KERNEL_ALL_GATHER) continue;
        if (join->at.join.memory.offset == ref->offset) return pp_call_join(join).bytes;
    }
    return o->elements * o->element_bytes;
}

/* Scratch of pieces, which has in turn what attention reads and what it makes: written as a whole, from the start. */
static inline bool begins_anew(const struct check *c, const struct pp_operand *o, int i, const struct buffer *b)
{
    const struct pp_ref *ref = &c->call->ref[i];
    const bool pieces = ref->region == PP_MEM_WORK && pp_shape_context(&c->model->shape) > 1;
    return pieces && o->use == PP_USE_WRITE && b->offset == ref->offset && b->element_bytes == o->element_bytes;
}

/* Scratch of all layers, and of evaluation the slot, where layers are of two kinds: the feed-forward of one writes over
 * what that of the other has left, whatever its borders. */
static inline bool is_of_other_kind(const struct check *c, const struct pp_operand *o, int i)
{
    const int region = c->call->ref[i].region;
    const bool two = pp_layers_of_kind(&c->model->shape, PP_LAYER_DENSE) > 0 && c->model->shape.experts;
    return two && o->use == PP_USE_WRITE && (region == PP_MEM_WORK || in_slot(region));
}

/* The buffer at this place; its users must agree on borders and elements. */
static inline struct buffer *find_buffer(struct check *c, const struct pp_operand *o, int i,
                                         const struct pp_program *program)
{
    const struct pp_ref *ref = &c->call->ref[i];
    const int64_t bytes = buffer_bytes(c, o, i, program);
    for (int k = 0; k < c->nbuffers; k++) {
        struct buffer *b = &c->buffers[k];
        if (b->region != ref->region || b->offset >= ref->offset + bytes || ref->offset >= b->offset + b->bytes)
            continue;
        const bool same = b->offset == ref->offset && b->bytes == bytes && b->element_bytes == o->element_bytes;
        if (!same && (b->old || begins_anew(c, o, i, b) || is_of_other_kind(c, o, i))) {
            *b = c->buffers[--c->nbuffers];
            k--;
            continue;
        }
        require(c, same, i);
        return b;
    }
    require(c, c->nbuffers < BUFFERS, i);
    c->buffers[c->nbuffers] = (struct buffer){ref->region, ref->offset, bytes, o->element_bytes, NOTHING, false};
    return &c->buffers[c->nbuffers++];
}

/* What there is of a buffer is what its operand reads; and what there is of it behind the call. A scattered sum is of
 * what each rank has of all tokens, and leaves a part; a gathering makes all of parts, that were there. */
static inline void check_held(const struct check *c, struct buffer *b, const struct pp_operand *o, int i)
{
    const int kernel = c->call->kernel;
    const enum held wanted = kernel == PP_KERNEL_ALL_GATHER || c->call->ref[i].part_bytes ? OWN_PART : ALL;
    require(c, !(o->use & PP_USE_READ) || b->held >= wanted, i);
    if (kernel == PP_KERNEL_ALL_GATHER)
        require(c, b->held == OWN_PART, i);
    else if (!(o->use & PP_USE_WRITE))
        return;
    b->held = kernel == PP_KERNEL_ALL_GATHER ? ALL : kernel == PP_KERNEL_REDUCE_SCATTER ? OWN_PART : wanted;
}

/* Tokens: those of all tensor ranks have room where they meet, and norms and residuals know which are theirs. */
static inline void check_tokens(const struct check *c)
{
    const struct pp_shape *shape = &c->model->shape;
    const int kernel = c->call->kernel;
    const struct pp_join_dims *join = &c->call->join;
    const struct pp_norm_dims *norm = &c->call->norm;
    const int tensor = pp_shape_tensor(shape), own = pp_own_tokens(shape, SEQ), part = (own + tensor - 1) / tensor;
    const bool parts = pp_shape_parts_tokens(shape);
    if (kernel == PP_KERNEL_REDUCE_SCATTER || kernel == PP_KERNEL_ALL_GATHER)
        require(c, parts && join->rows == tensor * c->rows * part && join->width == shape->d_model && !join->wide, 0);
    if (pp_kernel_is_norm(kernel) || kernel == PP_KERNEL_RESIDUAL || kernel == PP_KERNEL_RESIDUAL_GRAD)
        require(
            c, norm->rows == c->rows && norm->seq == (parts ? part : own) && norm->whole == (parts ? c->rows * own : 0),
            0);
}

/* Does it weigh rows by a gate of each, what is beside experts? */
static inline bool is_beside_experts(const struct check *c)
{
    const struct pp_places_dims *n = &c->call->places;
    return c->model->shape.shared_gate && n->width == c->model->local.shared_ff && n->places == n->tokens &&
           n->chosen == 1;
}

/* The copy of weights, what only norms that come first have, and the output of a layer that is made again. */
static inline bool may_be_missing(const struct check *c, int i)
{
    const int kernel = c->call->kernel;
    const bool again = (c->spec.checkpoint_layers || c->spec.again) && *c->kind == 'B';
    if (is_step(kernel)) return i == PP_OPERAND(step, copy);
    if (pp_shape_expert_parallel(&c->model->shape) > 1 || is_beside_experts(c)) /* gates have come with their places */
        if ((kernel == PP_KERNEL_WEIGH && i == PP_OPERAND(weigh, holds)) ||
            (kernel == PP_KERNEL_WEIGH_GRAD && i == PP_OPERAND(weigh_grad, places)))
            return true;
    return pp_kernel_is_norm(kernel) && (i == PP_OPERAND(norm, sum) || (i == PP_OPERAND(norm, y) && again));
}

/* Is it memory that the programs of the check write before they read it? */
static inline bool written_by_us(const struct check *c, int region)
{
    return in_slot(region) || region == PP_MEM_WORK || (region == PP_MEM_CKPT && c->spec.checkpoint_layers);
}

static inline void check_operand(struct check *c, int i, const struct pp_program *program)
{
    const struct pp_operand o = pp_call_operand(c->call, i);
    const int region = c->call->ref[i].region;
    if (!o.name) require(c, region == PP_MEM_NONE, i);
    if (!o.name || (may_be_missing(c, i) && region == PP_MEM_NONE)) return;
    const bool again = c->spec.activation_again && *c->kind != 'F';
    const bool bare = strcmp(o.name, "bias") == 0 && has_no_bias(&c->model->shape, c->call, again);
    require(c, bare == (region == PP_MEM_NONE), i);
    if (bare) return;
    check_place(c, &o, i);
    check_type(c, &o, i);
    require(c, c->part == 0 || region != PP_MEM_IN, i);
    require(c, c->part + 1 == c->parts || region != PP_MEM_OUT, i);
    if (region == PP_MEM_PARAM || region == PP_MEM_GRAD || region == PP_MEM_PARAM16) check_tensor(c, &o, i);
    if (region == PP_MEM_STATE) check_state(c, i);
    if (!written_by_us(c, region)) return;
    check_held(c, find_buffer(c, &o, i, program), &o, i);
}

/* Gates, or their gradients, on the way to other workers' experts or back: float32, whatever the precision. */
static inline bool moves_gates(const struct check *c)
{
    const int kernel = c->call->kernel;
    return pp_shape_expert_parallel(&c->model->shape) > 1 && c->call->places.width == 1 &&
           (kernel == PP_KERNEL_DISPATCH || kernel == PP_KERNEL_COMBINE);
}

static inline void check_part(struct check *c, int kind)
{
    struct pp_program program;
    const int rows = kind == PP_NORM || kind == PP_STEP ? 0 : c->rows;
    const struct pp_class cls = {kind, c->stage, rows, c->part, c->parts};
    if (pp_model_program(c->model, &cls, &c->spec, &program) != PP_OK) fail_msg("%s", pp_message());
    c->kind = pp_kinds[kind].name;
    count_regions(c->model, c->stage, &c->spec, c->rows, &program, c->region_bytes);
    for (int i = 0; i < program.ncalls; i++) {
        c->call = &program.calls[i];
        assert_int_equal(c->call->precision, moves_gates(c) ? PP_FP32 : c->model->shape.precision);
        check_tokens(c);
        for (int k = 0; k < PP_CALL_REFS; k++) check_operand(c, k, &program);
    }
    check_gradient_sums(c, &program);
    int kept = 0; /* scratch does not outlive its task */
    for (int k = 0; k < c->nbuffers; k++) {
        c->buffers[k].old = c->buffers[k].region == PP_MEM_WORK;
        if (!c->buffers[k].old || c->part + 1 < c->parts) c->buffers[kept++] = c->buffers[k];
    }
    c->nbuffers = kept;
    pp_program_free(&program);
}

/* F, B and W in so many parts, or as many as there are layers. */
static inline void check_program(struct check *c, int kind, int parts)
{
    const int layers = c->model->stages[c->stage].layers;
    c->parts = kind != PP_F && kind != PP_B && kind != PP_W ? 1 : parts < layers ? parts : layers;
    for (c->part = 0; c->part < c->parts; c->part++) check_part(c, kind);
}

/* Kinds in the order in which a microbatch meets them; the programs are those of a slot of slot_rows rows, in a third
 * as many parts. */
static inline void check_kinds(const struct pp_model *model, const struct pp_program_spec *spec, int rows,
                               const int *kinds, int n)
{
    for (int stage = 0; stage < model->nstages; stage++) {
        struct check c = {.model = model, .stage = stage, .spec = *spec, .rows = rows};
        for (int i = 0; i < n; i++) check_program(&c, kinds[i], spec->slot_rows / 3);
    }
}

/* All kinds of tasks, in slots of their microbatch and of three. Of every second model all stages are on one rank, so
 * that slots have parts. */
static inline void check_model(const struct pp_shape *shape, int stages)
{
    static int turn, one_rank[16];
    const struct pp_cut cut = {
        .stages = stages, .stage_rank = turn++ % 2 ? one_rank : NULL, .way = {.even = PP_EVEN_STAGES}};
    const int fused[] = {PP_F, PP_B, PP_NORM, PP_STEP}, split[] = {PP_F, PP_I, PP_W}, again[] = {PP_R, PP_B};
    struct pp_model *model;
    assert_true(stages <= (int)(sizeof one_rank / sizeof *one_rank));
    if (pp_model_create_cut(shape, &cut, &model) != PP_OK) fail_msg("%s", pp_message());
    check_names(model, SEQ);
    for (int slot_rows = 3; slot_rows <= 9; slot_rows += 6) {
        check_kinds(model, &(struct pp_program_spec){SEQ, slot_rows, true, false}, 3, fused, 4);
        check_kinds(model, &(struct pp_program_spec){SEQ, slot_rows, true, false}, 3, again, 2);
        check_kinds(model, &(struct pp_program_spec){SEQ, slot_rows, true, true}, 3, split, 3);
        check_kinds(model, &(struct pp_program_spec){SEQ, slot_rows, true, true}, 3, fused, 2); /* both in a plan */
        check_kinds(model, &(struct pp_program_spec){SEQ, slot_rows, true, false, .clip = true}, 3, fused, 4);
        check_kinds(model, &(struct pp_program_spec){SEQ, slot_rows, true, false, true}, 3, fused, 2);
        const int ways = shape->activation == PP_RELU ? 0 : shape->activation == PP_SWIGLU ? 1 : 3;
        for (int k = 0; k < ways && slot_rows == 3; k++)
            check_kinds(model, &(struct pp_program_spec){SEQ, slot_rows, true, k > 0, .activation_again = true}, 3,
                        k == 1 ? split : fused, k == 1 ? 3 : 2);
        for (int some = 1; some <= 4 && slot_rows == 3; some += 3)
            check_kinds(model, &(struct pp_program_spec){SEQ, slot_rows, true, false, .again = some}, 3, fused, 2);
        check_kinds(model, &(struct pp_program_spec){SEQ, slot_rows, false, false}, 3, fused, 1);
    }
    if (!pp_shape_parts_tokens(shape)) /* W of several microbatches gathers none */
        check_kinds(model, &(struct pp_program_spec){SEQ, 9, true, true}, 9, split, 3);
    pp_model_free(model);
}

#endif
