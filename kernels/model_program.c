/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/model_program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SCRATCH_ALIGNMENT = 64 };

/* Behind the tensors of so many layers; NULL: place is -1. */
static const struct pp_tensor *tensor_at(const struct pp_writer *w, int layers, int place)
{
    const int first = w->stage->first_tensor + w->stage->layer_at[layers];
    return place < 0 ? NULL : &w->model->tensors[first + place];
}

const struct pp_tensor *pp_writer_layer_tensor(const struct pp_writer *w, int l, enum pp_layer_tensor tensor)
{
    return tensor_at(w, l, pp_shape_layer_place(pp_writer_shape(w, l), (int)tensor));
}

const struct pp_tensor *pp_writer_last_tensor(const struct pp_writer *w, enum pp_last_tensor tensor)
{
    return tensor_at(w, w->stage->layers, pp_shape_last_place(&w->model->local, (int)tensor));
}

struct pp_ref pp_ref_tensor(enum pp_region region, const struct pp_tensor *t)
{
    if (!t) return pp_ref_to(PP_MEM_NONE, 0);
    return pp_ref_to(region, region == PP_MEM_PARAM ? t->value_offset : t->offset);
}

struct pp_ref pp_ref_layer(const struct pp_writer *w, enum pp_region region, int l, enum pp_layer_tensor tensor)
{
    return pp_ref_tensor(region, pp_writer_layer_tensor(w, l, tensor));
}

struct pp_ref pp_ref_copy(const struct pp_tensor *t)
{
    return t->offset16 < 0 ? pp_ref_to(PP_MEM_NONE, 0) : pp_ref_to(PP_MEM_PARAM16, t->offset16);
}

/* As products read it. */
static struct pp_ref weight_of(const struct pp_tensor *t)
{
    return t->offset16 < 0 ? pp_ref_tensor(PP_MEM_PARAM, t) : pp_ref_copy(t);
}

struct pp_ref pp_ref_weight(const struct pp_writer *w, int l, enum pp_layer_tensor tensor)
{
    return weight_of(pp_writer_layer_tensor(w, l, tensor));
}

struct pp_ref pp_ref_embedding(const struct pp_writer *w, enum pp_region region)
{
    return pp_ref_tensor(region, &w->model->tensors[w->stage->first_tensor]);
}

struct pp_ref pp_ref_positions(const struct pp_writer *w, enum pp_region region)
{
    const bool learned = w->model->shape.positions == PP_POSITIONS_LEARNED;
    return pp_ref_tensor(region, learned ? &w->model->tensors[w->stage->first_tensor + 1] : NULL);
}

struct pp_ref pp_ref_last(const struct pp_writer *w, enum pp_region region, enum pp_last_tensor tensor)
{
    return pp_ref_tensor(region, pp_writer_last_tensor(w, tensor));
}

struct pp_ref pp_ref_decoder_weight(const struct pp_writer *w)
{
    return weight_of(pp_writer_last_tensor(w, PP_DECODER_WEIGHT));
}

struct pp_ref pp_writer_scratch(struct pp_writer *w, int64_t bytes)
{
    const int64_t at = w->out->work_bytes;
    w->out->work_bytes += (bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
    return pp_ref_to(PP_MEM_WORK, at);
}

struct pp_ref pp_writer_activations(struct pp_writer *w, int width)
{
    return pp_writer_scratch(w, w->tokens * width * pp_element_bytes(w->model->local.precision));
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

struct pp_ref pp_writer_inner(struct pp_writer *w)
{
    const struct pp_shape *kinds = w->model->local_kind;
    const bool dense = pp_stage_layers_with_experts(w->model, w->stage, w->stage->layers) < w->stage->layers;
    const int64_t of_dense = dense ? w->tokens * kinds[PP_LAYER_DENSE].d_ff : 0;
    const int64_t numbers = larger(of_dense, pp_writer_place_rows(w) * kinds[PP_LAYER_EXPERTS].d_ff);
    return pp_writer_scratch(w, numbers * pp_element_bytes(kinds->precision));
}

struct pp_ref pp_writer_shared_inner(struct pp_writer *w)
{
    const int ff = w->capacity ? w->model->local.shared_ff : 0;
    return ff ? pp_writer_activations(w, ff) : pp_ref_to(PP_MEM_NONE, 0);
}

static struct pp_ref hidden(struct pp_writer *w, int64_t tokens)
{
    const struct pp_shape *shape = &w->model->local;
    return pp_writer_scratch(w, tokens * shape->d_model * pp_element_bytes(shape->precision));
}

struct pp_ref pp_writer_places(struct pp_writer *w)
{
    return w->capacity ? hidden(w, pp_writer_place_rows(w)) : pp_ref_to(PP_MEM_NONE, 0);
}

struct pp_ref pp_writer_stream(struct pp_writer *w) { return hidden(w, w->part_tokens); }

void pp_writer_take_again(struct pp_writer *w, bool reads_u)
{
    const int64_t *bytes = w->slot.layer_bytes;
    if (w->slot.again) w->again = pp_writer_scratch(w, larger(bytes[PP_LAYER_DENSE], bytes[PP_LAYER_EXPERTS]));
    if (!w->slot.activation_again || !reads_u) return;
    w->u = pp_writer_inner(w);
    w->shared_u = pp_writer_shared_inner(w);
}

struct pp_call *pp_writer_call(struct pp_writer *w, enum pp_kernel kernel)
{
    const int at = w->out->ncalls++;
    struct pp_call *call = &w->out->calls[at < w->room ? at : 0];
    const int precision = w->model->local.precision;
    *call = (struct pp_call){.kernel = kernel, .precision = precision == PP_FP8 ? PP_BF16 : precision, .adds = w->adds};
    return call;
}

struct pp_call *pp_writer_pass(struct pp_writer *w, enum pp_kernel kernel, bool plain)
{
    struct pp_call *call = pp_writer_call(w, kernel);
    call->norm =
        (struct pp_norm_dims){.rows = w->rows, .seq = w->part_seq, .d = w->model->local.d_model, .plain = plain};
    if (w->by_tokens) call->norm.whole = (int)w->tokens;
    if (w->by_tokens && w->sum_pieces > 1) call->norm.pieces = w->sum_pieces;
    return call;
}

void pp_writer_copy(struct pp_writer *w, struct pp_ref to, struct pp_ref from)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_COPY);
    call->matrix = (struct pp_matrix_dims){.rows = (int)w->part_tokens, .width = w->model->local.d_model};
    call->at.copy = (struct pp_copy_refs){.to = to, .from = from};
}

struct pp_call *pp_writer_gemm(struct pp_writer *w, enum pp_kernel kernel, const int mnk[3], enum pp_gemm_mode mode,
                               struct pp_ref c, struct pp_ref a, struct pp_ref b)
{
    struct pp_call *call = pp_writer_call(w, kernel);
    call->gemm = (struct pp_gemm_dims){.m = mnk[0], .n = mnk[1], .k = mnk[2], .mode = (int)mode};
    call->at.gemm = (struct pp_gemm_refs){.c = c, .a = a, .b = b};
    return call;
}

void pp_writer_dropout(const struct pp_writer *w, struct pp_call *call, int l, enum pp_dropout_place place)
{
    const bool residual = place == PP_DROP_RESIDUAL1 || place == PP_DROP_RESIDUAL2;
    if (!pp_writer_drops(w) || (w->model->local.residual_only && !residual)) return;
    /* site 0 means none, 1 is the embedding */
    call->site = 2 + (w->stage->first_layer + l) * PP_DROP_PLACES + (int)place;
    call->p = (float)w->model->local.dropout;
}

void pp_writer_embedding(const struct pp_writer *w, struct pp_call *call)
{
    const struct pp_shape *shape = &w->model->local;
    call->scale = shape->scale_embedding ? (float)sqrt(shape->d_model) : 1;
    if (!pp_writer_drops(w) || shape->residual_only) return;
    call->site = 1;
    call->p = (float)shape->dropout;
}

static void write_calls(struct pp_writer *w, const struct pp_class *cls)
{
    switch (cls->kind) {
    case PP_F:
        pp_write_forward(w, false);
        break;
    case PP_R:
        pp_write_forward(w, true);
        break;
    case PP_B:
        pp_write_clear(w, cls);
        pp_write_backward(w, true, true);
        break;
    case PP_I:
        pp_write_backward(w, true, false);
        break;
    case PP_W:
        pp_write_backward(w, false, true);
        break;
    case PP_NORM:
        pp_write_norm(w);
        break;
    case PP_STEP:
        pp_write_step(w);
        break;
    case PP_PUT_PARAM:
        pp_write_put(w, cls);
        break;
    case PP_ADD_GRAD:
        pp_write_take(w, cls);
        break;
    default:
        break; /* transfers and reductions move data, they call no kernels */
    }
}

/* Of most programs, and more than of most. */
enum { CALLS_OF_LAYER = 64 };

/* Writes into memory for so many calls; what is beyond is only counted. */
static pp_status write_into(struct pp_writer *w, const struct pp_class *cls, int room)
{
    *w->out = (struct pp_program){.calls = malloc((size_t)room * sizeof *w->out->calls)};
    if (!w->out->calls) return pp_fail(PP_NOMEM, "cannot allocate the %d kernel calls of a task", room);
    w->room = room;
    write_calls(w, cls);
    return pp_writer_end_layers(w);
}

/* Writes a second time if there were more calls than room, or if there is FP8 scratch, which lies behind all other. */
static pp_status write_program(struct pp_writer *w, const struct pp_class *cls)
{
    const struct pp_writer blank = *w;
    struct pp_program *out = w->out;
    struct pp_fp8_scratch fp8;
    PP_TRY(write_into(w, cls, CALLS_OF_LAYER * (w->stage->layers + 2)));
    pp_writer_take_fp8(w, &fp8);
    const struct pp_program counted = *out;
    if (counted.ncalls > w->room || w->fp8.buffers[PP_FP8_A].bytes > 0) {
        pp_program_free(out);
        *w = blank;
        w->fp8 = fp8;
        PP_TRY(write_into(w, cls, counted.ncalls));
        out->work_bytes = counted.work_bytes;
    }
    const size_t kept = out->ncalls > 0 ? (size_t)out->ncalls : 1;
    struct pp_call *calls = realloc(out->calls, kept * sizeof *calls);
    if (calls) out->calls = calls;
    return PP_OK;
}

static pp_status describe(struct pp_writer *w, const struct pp_class *cls)
{
    for (int i = 0; i < w->out->ncalls; i++) w->out->flops += pp_call_flops(&w->out->calls[i]);
    return pp_write_signature(w, cls->kind);
}

/* Each task that multiplies by weights, or, of workers that have FP8 copies of these, the first F. */
static bool rounds_weights(const struct pp_shape *shape, const struct pp_class *cls)
{
    const bool multiplies = cls->kind == PP_F || cls->kind == PP_R || cls->kind == PP_B || cls->kind == PP_I;
    if (pp_shape_keeps_fp8(shape)) return cls->rounds;
    return shape->precision == PP_FP8 && multiplies;
}

pp_status pp_model_program(const struct pp_model *model, const struct pp_class *cls, const struct pp_program_spec *spec,
                           struct pp_program *out)
{
    *out = (struct pp_program){0};
    if (!pp_kinds[cls->kind].computes) return PP_OK;
    PP_TRY(pp_model_check_size(model, cls, spec->seq));
    const int seq = pp_own_tokens(&model->shape, spec->seq);
    const int part_seq = pp_part_tokens(&model->shape, spec->seq);
    const int64_t tokens = (int64_t)cls->rows * seq;
    const struct pp_stage *stage = &model->stages[cls->stage];
    const bool experts = pp_stage_layers_with_experts(model, stage, stage->layers) > 0;
    struct pp_writer w = {.model = model,
                          .stage = stage,
                          .part = pp_stage_part_of(stage, cls),
                          .rows = cls->rows,
                          .seq = seq,
                          .row_seq = spec->seq,
                          .tokens = tokens,
                          .capacity = experts ? pp_expert_capacity(&model->shape, tokens) : 0,
                          .part_seq = part_seq,
                          .part_tokens = (int64_t)cls->rows * part_seq,
                          .by_tokens = pp_shape_parts_tokens(&model->shape),
                          .sum_pieces = pp_sum_pieces(&model->shape, (int64_t)cls->rows * part_seq),
                          .training = spec->training,
                          .clip = spec->clip,
                          .split = spec->split_backward && spec->training,
                          .checkpoints = spec->checkpoint_layers && spec->training,
                          .rounds = rounds_weights(&model->local, cls),
                          .layers = {.once = spec->once},
                          .adds = cls->adds,
                          .out = out};
    pp_slot_layout(model, cls->stage, spec, &w.slot);
    if (w.slot.bytes >= PP_SLOT_ENDLESS)
        return pp_fail(
            PP_USAGE,
            "the activations of a microbatch of %d row%s of %d token%s are too large to be counted: use more "
            "chunks, fewer --tokens or more stages",
            spec->slot_rows, pp_plural(spec->slot_rows), spec->seq, pp_plural(spec->seq));
    pp_status status = write_program(&w, cls);
    if (status == PP_OK && !spec->once) status = describe(&w, cls);
    if (status != PP_OK) pp_program_free(out);
    return status;
}
