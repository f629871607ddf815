/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens go to the places of their experts, and what these have made goes back. Where workers with tokens of their own
 * share the experts, places of a part of them lie together (kernels/expert_order.h), so that all that is exchanged of
 * it is contiguous.
 */
#include "kernels/model_program.h"

bool pp_writer_is_apart(const struct pp_writer *w) { return pp_shape_expert_parallel(&w->model->local) > 1; }

int pp_writer_own_experts(const struct pp_writer *w)
{
    return w->model->local.experts / pp_shape_expert_parallel(&w->model->local);
}

int pp_writer_expert_rows(const struct pp_writer *w)
{
    return (int)w->capacity * pp_shape_expert_parallel(&w->model->local);
}

int pp_writer_parts(const struct pp_writer *w) { return pp_exchange_pieces(&w->model->shape); }

struct pp_expert_part pp_writer_part(const struct pp_writer *w, int index)
{
    return (struct pp_expert_part){index, pp_writer_parts(w)};
}

struct pp_expert_part pp_whole_part(void) { return (struct pp_expert_part){0, 1}; }

int pp_part_rows(const struct pp_writer *w, struct pp_expert_part part)
{
    return (int)pp_writer_place_rows(w) / part.of;
}

struct pp_ref pp_part_ref(const struct pp_writer *w, struct pp_expert_part part, struct pp_ref all, int width,
                          bool wide)
{
    const int bytes = wide ? (int)sizeof(float) : pp_element_bytes(w->model->local.precision);
    return pp_ref_further(all, (int64_t)part.index * pp_part_rows(w, part) * width * bytes);
}

struct pp_ref pp_writer_place_numbers(struct pp_writer *w)
{
    return pp_writer_scratch(w, pp_writer_place_rows(w) * (int64_t)sizeof(float));
}

struct pp_expert_places pp_writer_expert_places(struct pp_writer *w)
{
    struct pp_expert_places at = {.places = pp_writer_places(w)};
    if (!w->capacity || !pp_writer_is_apart(w)) return at;
    at.sent = pp_writer_places(w);
    at.gates = pp_writer_place_numbers(w);
    return at;
}

void pp_write_dispatch(struct pp_writer *w, int l, struct pp_ref to, struct pp_ref from)
{
    const struct pp_shape *shape = &w->model->local;
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_DISPATCH);
    call->places = (struct pp_places_dims){.places = (int)pp_writer_place_rows(w),
                                           .width = shape->d_model,
                                           .tokens = (int)w->tokens,
                                           .chosen = shape->experts_per_token};
    call->at.dispatch = (struct pp_dispatch_refs){.to = to, .from = from, .holds = pp_ref_act(w, l, w->slot.holds)};
}

void pp_write_combine(struct pp_writer *w, int l, enum pp_gemm_mode mode, struct pp_ref to, struct pp_ref from)
{
    const struct pp_shape *shape = &w->model->local;
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_COMBINE);
    call->combine = (struct pp_combine_dims){.tokens = (int)w->tokens,
                                             .width = shape->d_model,
                                             .places = (int)pp_writer_place_rows(w),
                                             .chosen = shape->experts_per_token,
                                             .mode = (int)mode};
    call->at.combine = (struct pp_combine_refs){.to = to, .from = from, .places = pp_ref_act(w, l, w->slot.places)};
}

static int choices_of(const struct pp_writer *w) { return (int)w->tokens * w->model->local.experts_per_token; }

/* As if each choice were a token that has no other. */
void pp_write_numbers_to_places(struct pp_writer *w, int l, struct pp_ref to, struct pp_ref from)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_DISPATCH);
    call->places = (struct pp_places_dims){
        .places = (int)pp_writer_place_rows(w), .width = 1, .tokens = choices_of(w), .chosen = 1};
    call->precision = PP_FP32;
    call->at.dispatch = (struct pp_dispatch_refs){.to = to, .from = from, .holds = pp_ref_act(w, l, w->slot.holds)};
}

void pp_write_numbers_from_places(struct pp_writer *w, int l, struct pp_ref to, struct pp_ref from)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_COMBINE);
    call->combine = (struct pp_combine_dims){
        .tokens = choices_of(w), .width = 1, .places = (int)pp_writer_place_rows(w), .chosen = 1};
    call->precision = PP_FP32;
    call->at.combine = (struct pp_combine_refs){.to = to, .from = from, .places = pp_ref_act(w, l, w->slot.places)};
}

/* wide: float32 whatever the precision. */
static struct pp_call *write_exchange(struct pp_writer *w, struct pp_expert_part part, enum pp_exchange_way way,
                                      int width, bool wide)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_ALL_TO_ALL);
    if (pp_shape_exchange_pieces(&w->model->shape)) w->beside++;
    call->exchange = (struct pp_exchange_dims){.rows = pp_part_rows(w, part),
                                               .width = width,
                                               .each = pp_writer_own_experts(w) / part.of,
                                               .back = way == PP_TO_TOKENS,
                                               .wide = wide,
                                               .group = PP_JOIN_EXPERT_RANKS,
                                               .beside = w->beside};
    return call;
}

int pp_write_exchange_rows(struct pp_writer *w, struct pp_expert_part part, enum pp_exchange_way way, struct pp_ref to,
                           struct pp_ref from)
{
    const int d = w->model->local.d_model;
    write_exchange(w, part, way, d, false)->at.exchange = (struct pp_exchange_refs){
        .to = pp_part_ref(w, part, to, d, false), .from = pp_part_ref(w, part, from, d, false)};
    return w->beside;
}

int pp_write_exchange_numbers(struct pp_writer *w, struct pp_expert_part part, enum pp_exchange_way way,
                              struct pp_ref to, struct pp_ref from)
{
    write_exchange(w, part, way, 1, true)->at.exchange =
        (struct pp_exchange_refs){.to = pp_part_ref(w, part, to, 1, true), .from = pp_part_ref(w, part, from, 1, true)};
    return w->beside;
}

void pp_write_await(struct pp_writer *w, int number)
{
    if (number) pp_writer_call(w, PP_KERNEL_AWAIT)->join.beside = number;
}

void pp_write_await_last(struct pp_writer *w)
{
    pp_write_await(w, w->beside);
    w->beside = 0;
}
