/* SPDX-License-Identifier: Apache-2.0
 *
 * All programs of a model, checked by the table of operands: each lies within its region and is aligned, is written
 * before it is read, and all who use a buffer agree on its elements. It needs no device, so it holds for precisions
 * that the cpu does not have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/model.h"

enum { SEQ = 5, BUFFERS = 512, BUFFER_ALIGNMENT = 64 };

/* Memory that operands use. */
struct buffer {
    int region;
    int64_t offset, bytes;
    int element_bytes;
    bool written;
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

static int64_t region_bytes(const struct check *c, int region, const struct pp_program *program)
{
    const struct pp_shape *shape = &c->model->shape;
    const struct pp_stage *stage = &c->model->stages[c->stage];
    const int64_t tokens = (int64_t)c->rows * SEQ, ids = tokens * (int64_t)sizeof(int32_t);
    const int64_t hidden = pp_hidden_bytes(shape, c->rows, SEQ);
    const int64_t bytes[PP_MEM_REGIONS] = {
        [PP_MEM_PARAM] = stage->param_bytes,
        [PP_MEM_GRAD] = stage->param_bytes,
        [PP_MEM_ACT] = pp_model_act_bytes(c->model, c->stage, &c->spec),
        [PP_MEM_CKPT] = c->spec.checkpoint_layers ? stage->layers * pp_checkpoint_bytes(shape, c->rows, SEQ) : hidden,
        [PP_MEM_IN] = hidden,
        [PP_MEM_OUT] = hidden,
        [PP_MEM_WORK] = program->work_bytes,
        [PP_MEM_TOKENS] = ids,
        [PP_MEM_TARGETS] = ids,
        [PP_MEM_PARAM16] = stage->param16_bytes,
        [PP_MEM_STATE] = pp_optimizers[shape->optimizer].states * stage->param_bytes};
    return bytes[region];
}

/* Where it lies: in its region, aligned, in activation slots as many rows of it as the slot has. */
static void check_place(const struct check *c, const struct pp_operand *o, int i, const struct pp_program *program)
{
    const struct pp_ref *ref = &c->call->ref[i];
    const int64_t bytes = o->elements * o->element_bytes;
    require(c, ref->offset >= 0 && ref->offset % BUFFER_ALIGNMENT == 0, i);
    require(c, ref->row_bytes == (ref->region == PP_MEM_ACT ? bytes / c->rows : 0), i);
    const int64_t before = (c->spec.slot_rows - c->rows) * ref->row_bytes;
    require(c, ref->offset + before + bytes <= region_bytes(c, ref->region, program), i);
}

static bool is_step(int kernel) { return kernel == PP_KERNEL_SGD || kernel == PP_KERNEL_ADAMW; }

/* Regions hold one type each, but for activation slots and scratch; only norm and step see parameters as numbers. */
static void check_type(const struct check *c, const struct pp_operand *o, int i)
{
    const int region = c->call->ref[i].region;
    const bool step = is_step(c->call->kernel);
    const int wanted[PP_MEM_REGIONS] = {
        [PP_MEM_CKPT] = PP_TYPE_ACTIVATION, [PP_MEM_IN] = PP_TYPE_ACTIVATION,      [PP_MEM_OUT] = PP_TYPE_ACTIVATION,
        [PP_MEM_PARAM] = PP_TYPE_FLOAT,     [PP_MEM_GRAD] = PP_TYPE_FLOAT,         [PP_MEM_TOKENS] = PP_TYPE_INT32,
        [PP_MEM_TARGETS] = PP_TYPE_INT32,   [PP_MEM_PARAM16] = PP_TYPE_ACTIVATION, [PP_MEM_STATE] = PP_TYPE_FLOAT};
    if (region == PP_MEM_PARAM16 && step)
        require(c, o->type == PP_TYPE_BF16 && o->element_bytes == 2, i);
    else if (region == PP_MEM_PARAM && o->type == PP_TYPE_ACTIVATION)
        require(c, o->element_bytes == sizeof(float), i); /* products of fp32 and tf32 */
    else if (region != PP_MEM_ACT && region != PP_MEM_WORK)
        require(c, o->type == wanted[region], i);
    if (region == PP_MEM_PARAM || region == PP_MEM_PARAM16) require(c, step || o->use == PP_USE_READ, i);
    if (region == PP_MEM_TOKENS || region == PP_MEM_TARGETS || region == PP_MEM_IN)
        require(c, o->use == PP_USE_READ, i);
}

/* In regions of parameters: a whole tensor, with or without the padding. */
static void check_tensor(const struct check *c, const struct pp_operand *o, int i)
{
    const struct pp_stage *stage = &c->model->stages[c->stage];
    const struct pp_ref *ref = &c->call->ref[i];
    const int rows = c->model->local.vocab, padded = pp_padded_vocab(&c->model->local);
    for (int k = stage->first_tensor; k < stage->first_tensor + stage->tensors; k++) {
        const struct pp_tensor *t = &c->model->tensors[k];
        if ((ref->region == PP_MEM_PARAM16 ? t->offset16 : t->offset) != ref->offset) continue;
        require(c, o->elements == t->local_elements || o->elements == t->local_elements / rows * padded, i);
        return;
    }
    require(c, !"an operand that is no tensor", i);
}

/* What the optimizer keeps lies as the weights of the same call do, one stage's worth further for each further one. */
static void check_state(const struct check *c, int i)
{
    const struct pp_ref *ref = &c->call->ref[i], *weights = &c->call->ref[0];
    require(c, is_step(c->call->kernel) && weights->region == PP_MEM_PARAM, i);
    require(c, ref->offset == weights->offset + (i - 3) * c->model->stages[c->stage].param_bytes, i);
}

/* The buffer at this place, in a slot with the rows of all microbatches; its users must agree on borders and
 * elements. */
static struct buffer *find_buffer(struct check *c, const struct pp_operand *o, int i)
{
    const struct pp_ref *ref = &c->call->ref[i];
    const bool slot = ref->region == PP_MEM_ACT;
    const int64_t bytes = slot ? c->spec.slot_rows * ref->row_bytes : o->elements * o->element_bytes;
    for (int k = 0; k < c->nbuffers; k++) {
        struct buffer *b = &c->buffers[k];
        if (b->region != ref->region || b->offset >= ref->offset + bytes || ref->offset >= b->offset + b->bytes)
            continue;
        if (b->old && (b->offset != ref->offset || b->bytes != bytes)) {
            *b = c->buffers[--c->nbuffers];
            k--;
            continue;
        }
        require(c, b->offset == ref->offset && b->bytes == bytes && b->element_bytes == o->element_bytes, i);
        return b;
    }
    require(c, c->nbuffers < BUFFERS, i);
    c->buffers[c->nbuffers] = (struct buffer){ref->region, ref->offset, bytes, o->element_bytes, false, false};
    return &c->buffers[c->nbuffers++];
}

/* The copy of weights, what only norms that come first have, and the output of a layer that is made again. */
static bool may_be_missing(const struct check *c, int i)
{
    const int kernel = c->call->kernel;
    const bool again = c->spec.checkpoint_layers && *c->kind == 'B';
    if (is_step(kernel)) return i == 2;
    return pp_kernel_is_norm(kernel) && (i == 7 || (i == 0 && again));
}

/* Is it memory that the programs of the check write before they read it? */
static bool written_by_us(const struct check *c, int region)
{
    return region == PP_MEM_ACT || region == PP_MEM_WORK || (region == PP_MEM_CKPT && c->spec.checkpoint_layers);
}

/* A linear layer without one, or attention behind the rotation, which has taken it over. */
static bool has_no_bias(const struct check *c)
{
    const struct pp_shape *shape = &c->model->shape;
    const bool attends = c->call->kernel == PP_KERNEL_ATTENTION || c->call->kernel == PP_KERNEL_FLASH;
    return shape->bias == PP_NO_BIAS || (attends && shape->positions == PP_POSITIONS_ROPE);
}

static void check_operand(struct check *c, int i, const struct pp_program *program)
{
    const struct pp_operand o = pp_call_operand(c->call, i);
    const int region = c->call->ref[i].region;
    if (!o.name) require(c, region == PP_MEM_NONE, i);
    if (!o.name || (may_be_missing(c, i) && region == PP_MEM_NONE)) return;
    const bool bare = strcmp(o.name, "bias") == 0 && has_no_bias(c);
    require(c, bare == (region == PP_MEM_NONE), i);
    if (bare) return;
    check_place(c, &o, i, program);
    check_type(c, &o, i);
    require(c, c->part == 0 || region != PP_MEM_IN, i);
    require(c, c->part + 1 == c->parts || region != PP_MEM_OUT, i);
    if (region == PP_MEM_PARAM || region == PP_MEM_GRAD || region == PP_MEM_PARAM16) check_tensor(c, &o, i);
    if (region == PP_MEM_STATE) check_state(c, i);
    if (!written_by_us(c, region)) return;
    struct buffer *b = find_buffer(c, &o, i);
    require(c, b->written || !(o.use & PP_USE_READ), i);
    b->written |= (o.use & PP_USE_WRITE) != 0;
}

static void check_part(struct check *c, int kind)
{
    struct pp_program program;
    const int rows = kind == PP_NORM || kind == PP_STEP ? 0 : c->rows;
    const struct pp_class cls = {kind, c->stage, rows, c->part, c->parts};
    if (pp_model_program(c->model, &cls, &c->spec, &program) != PP_OK) fail_msg("%s", pp_message());
    c->kind = pp_kinds[kind].name;
    for (int i = 0; i < program.ncalls; i++) {
        c->call = &program.calls[i];
        assert_int_equal(c->call->precision, c->model->shape.precision);
        for (int k = 0; k < PP_CALL_REFS; k++) check_operand(c, k, &program);
    }
    int kept = 0; /* scratch does not outlive its task */
    for (int k = 0; k < c->nbuffers; k++) {
        c->buffers[k].old = c->buffers[k].region == PP_MEM_WORK;
        if (!c->buffers[k].old || c->part + 1 < c->parts) c->buffers[kept++] = c->buffers[k];
    }
    c->nbuffers = kept;
    pp_program_free(&program);
}

/* F, B and W in so many parts, or as many as there are layers. */
static void check_program(struct check *c, int kind, int parts)
{
    const int layers = c->model->stages[c->stage].layers;
    c->parts = kind != PP_F && kind != PP_B && kind != PP_W ? 1 : parts < layers ? parts : layers;
    for (c->part = 0; c->part < c->parts; c->part++) check_part(c, kind);
}

/* Kinds in the order in which a microbatch meets them; the programs are those of a slot of slot_rows rows, in a third
 * as many parts. */
static void check_kinds(const struct pp_model *model, const struct pp_program_spec *spec, int rows, const int *kinds,
                        int n)
{
    for (int stage = 0; stage < model->nstages; stage++) {
        struct check c = {.model = model, .stage = stage, .spec = *spec, .rows = rows};
        for (int i = 0; i < n; i++) check_program(&c, kinds[i], spec->slot_rows / 3);
    }
}

static void check_model(const struct pp_shape *shape, int stages)
{
    const int fused[] = {PP_F, PP_B, PP_NORM, PP_STEP}, split[] = {PP_F, PP_I, PP_W}, again[] = {PP_R, PP_B},
              forward[] = {PP_F};
    struct pp_model *model;
    if (pp_model_create(shape, stages, NULL, NULL, &model) != PP_OK) fail_msg("%s", pp_message());
    for (int slot_rows = 3; slot_rows <= 9; slot_rows += 6) {
        check_kinds(model, &(struct pp_program_spec){SEQ, slot_rows, true, false}, 3, fused, 4);
        check_kinds(model, &(struct pp_program_spec){SEQ, slot_rows, true, false}, 3, again, 2);
        check_kinds(model, &(struct pp_program_spec){SEQ, slot_rows, true, true}, 3, split, 3);
        check_kinds(model, &(struct pp_program_spec){SEQ, slot_rows, true, false, true}, 3, fused, 2);
        check_kinds(model, &(struct pp_program_spec){SEQ, slot_rows, false, false}, 3, forward, 1);
    }
    check_kinds(model, &(struct pp_program_spec){SEQ, 9, true, true}, 9, split, 3);
    pp_model_free(model);
}

static void test_all_programs(void **state)
{
    (void)state;
    for (int precision = PP_FP32; precision <= PP_BF16; precision++)
        for (int multiple = 1; multiple <= 128; multiple *= 128)
            for (int style = 0; style < 16; style++)
                for (int stages = 1; stages <= 3; stages++) {
                    const struct pp_shape shape = {.d_model = 12,
                                                   .heads = 3,
                                                   .kv_heads = style / 4 % 2,
                                                   .head_dim = 6 * (style / 2 % 3 == 2),
                                                   .positions = stages == 3,
                                                   .rope_theta = 10000,
                                                   .d_ff = 20,
                                                   .norm = style / 2 % 2,
                                                   .activation = style / 4 % 3,
                                                   .normalization = style / 8,
                                                   .bias = style / 8 ? PP_NO_BIAS : PP_BIAS,
                                                   .layers = 4,
                                                   .vocab = 101,
                                                   .dropout = 0.1,
                                                   .residual_only = style % 2,
                                                   .lab_init = style % 2,
                                                   .precision = precision,
                                                   .optimizer = stages % 2 ? PP_ADAMW : PP_SGD,
                                                   .vocab_multiple = multiple};
                    struct pp_shape flash = shape;
                    flash.attention = PP_ATTENTION_FLASH;
                    check_model(&shape, stages);
                    check_model(&flash, stages);
                    flash.tensor = 2; /* of twice the heads and columns */
                    flash.heads = 2 * shape.heads;
                    flash.kv_heads = 2 * shape.kv_heads;
                    flash.d_ff = 2 * shape.d_ff;
                    check_model(&flash, stages);
                }
}

/* What products read has a copy that the step renews; nothing else has one. Only the embedding's gradient is sparse. */
static void test_copies_of_weights(void **state)
{
    (void)state;
    const struct pp_shape shape = {
        .d_model = 12, .heads = 3, .d_ff = 20, .layers = 2, .vocab = 101, .precision = PP_BF16, .vocab_multiple = 128};
    struct pp_model *model;
    if (pp_model_create(&shape, 2, NULL, NULL, &model) != PP_OK) fail_msg("%s", pp_message());
    for (int s = 0; s < 2; s++) {
        const struct pp_stage *stage = &model->stages[s];
        struct pp_program step;
        const struct pp_class cls = {PP_STEP, s, 0};
        if (pp_model_program(model, &cls, &(struct pp_program_spec){SEQ, 1, true, false}, &step) != PP_OK)
            fail_msg("%s", pp_message());
        int64_t end = 0;
        for (int i = 0; i < stage->tensors; i++) {
            const struct pp_tensor *t = &model->tensors[stage->first_tensor + i];
            const struct pp_ref *copy = &step.calls[i].ref[2];
            const bool embedding = strcmp(t->name, "embedding.weight") == 0, product = t->ndim == 2 && !embedding;
            assert_int_equal(step.calls[i].n[2], embedding);
            assert_int_equal(copy->region, product ? PP_MEM_PARAM16 : PP_MEM_NONE);
            assert_int_equal(t->offset16, product ? copy->offset : -1);
            if (!product) continue;
            assert_true(copy->offset >= end);
            end = copy->offset + 2 * t->elements;
        }
        assert_true(end <= stage->param16_bytes);
        pp_program_free(&step);
    }
    pp_model_free(model);
}

/* Bytes of a slot by the formula of docs/METRICS.md, where alignment adds nothing. */
static int64_t slot_formula(const struct pp_shape *s, const struct pp_stage *stage, bool split, int64_t tokens, int seq)
{
    const int64_t d = s->d_model, ff = s->d_ff, columns = pp_padded_vocab(s), e = pp_element_bytes(s->precision);
    const int64_t kept = s->attention == PP_ATTENTION_FLASH ? 4 * s->heads : s->heads * seq * e;
    const int64_t keys = (s->kv_heads ? s->kv_heads : s->heads) * (d / s->heads);
    int64_t per_token = stage->layers * ((6 * d + 2 * keys + ff) * e + kept + 8);
    if (split && s->activation != PP_SWIGLU) per_token += stage->layers * ff * e;
    if (s->activation != PP_RELU) per_token += stage->layers * (s->activation == PP_SWIGLU ? 2 : 1) * ff * e;
    if (s->norm == PP_NORM_FIRST) per_token += (split ? stage->layers * d * e : 0) + (stage->decode ? d * e + 4 : 0);
    if (stage->decode) per_token += d * e + columns * 4 + (s->precision == PP_BF16 ? columns * e : 0);
    if (stage->embed && split) per_token += d * e;
    return tokens * per_token;
}

static void test_memory_formula(void **state)
{
    (void)state;
    struct pp_shape shape = {.d_model = 4096, .heads = 16, .d_ff = 4096, .layers = 8, .vocab = 28782};
    shape.vocab_multiple = 128;
    for (int precision = PP_FP32; precision <= PP_BF16; precision++)
        for (int turn = 0; turn < 24; turn++) {
            const int split = turn % 2;
            struct pp_model *model;
            shape.norm = turn / 2 % 2;
            shape.activation = turn / 4 % 3;
            shape.normalization = shape.bias = shape.activation == PP_SWIGLU;
            shape.kv_heads = turn / 4 % 2 ? 4 : 0;
            shape.precision = precision;
            shape.attention = turn / 12 ? PP_ATTENTION_FLASH : PP_ATTENTION_MATH;
            if (pp_model_create(&shape, 2, NULL, NULL, &model) != PP_OK) fail_msg("%s", pp_message());
            for (int stage = 0; stage < 2; stage++) {
                const struct pp_program_spec spec = {35, 16, true, split};
                assert_int_equal(pp_model_act_bytes(model, stage, &spec),
                                 slot_formula(&shape, &model->stages[stage], split, 16 * 35, 35));
                const struct pp_program_spec layers = {35, 16, true, false, true};
                struct pp_stage one = model->stages[stage];
                one.layers = 1;
                const int64_t x = shape.norm == PP_NORM_LAST ? 16 * 35 * 4096 * pp_element_bytes(precision) : 0;
                assert_int_equal(pp_model_act_bytes(model, stage, &layers),
                                 slot_formula(&shape, &one, false, 16 * 35, 35) - x);
            }
            const int64_t keys = shape.kv_heads ? 1024 : 4096, gates = shape.activation == PP_SWIGLU ? 4096 : 0;
            const int64_t weights = 4 * (4 * 4096 + 2 * keys + gates) * 4096LL + 28800 * 4096LL; /* of stage 1 */
            assert_int_equal(model->stages[1].param16_bytes, precision == PP_BF16 ? 2 * weights : 0);
            pp_model_free(model);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_programs),
        cmocka_unit_test(test_copies_of_weights),
        cmocka_unit_test(test_memory_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
