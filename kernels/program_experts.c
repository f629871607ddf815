/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed-forward part of layers with experts, forward and backward. Tokens go to the places of their experts
 * (dispatch), all experts of a worker multiply by their matrices in one call, and what they make comes back (combine).
 * Gates weigh what the activation makes, before linear2: so combine is a plain sum, and so is its gradient.
 *
 * A token's choices may be other workers' experts: each worker routes all tokens, adds what its own experts make, and
 * the sum over workers that ends a row-parallel product ends this as well. The router's part of the gradient at the
 * input is the same in all of them, as that of the gate beside experts is, so both count once: combine adds to them in
 * the first one, and writes over them in the others.
 *
 * Where workers with tokens of their own share the experts (expert parallelism), each gives places to its own tokens,
 * and all to all brings what places hold, and the gates of that, to the workers that have the experts, and what these
 * make back. What has come is kept, so that gradients of weights need nobody else.
 *
 * A worker's experts may be cut into parts (pp_exchange_pieces()), so that one part is exchanged beside the products of
 * another. Experts are as they were, in another order (kernels/expert_order.h), so results have the same bits. Beside
 * the first and the last exchange stands what all tokens go through, and on the way back gradients of weights.
 */
#include "kernels/model_program.h"

static struct pp_inner inner_of(const struct pp_writer *w, int l, struct pp_expert_part part)
{
    struct pp_inner inner = pp_inner_of(w, l);
    inner.rows = pp_part_rows(w, part);
    inner.a = pp_part_ref(w, part, inner.a, pp_linear1_width(&w->model->local), false);
    inner.u = pp_part_ref(w, part, inner.u, inner.width, false);
    return inner;
}

/* A product by the weight of each of a part's experts: c, n columns wide, from a, k columns. */
static void write_products(struct pp_writer *w, int l, struct pp_expert_part part, enum pp_kernel kernel,
                           enum pp_layer_tensor weight, const int nk[2], struct pp_ref c, struct pp_ref a)
{
    const int times = pp_writer_own_experts(w) / part.of;
    pp_writer_linear(w, &(struct pp_linear){.kernel = kernel,
                                            .mnk = {pp_writer_expert_rows(w), nk[0], nk[1]},
                                            .times = times,
                                            .skips = times * part.index,
                                            .c = c,
                                            .a = a,
                                            .b = pp_ref_weight(w, l, weight)});
}

/* What is under way to a part's experts: rows of d columns, and a number for each of them (0: done). */
struct coming {
    int rows, numbers;
};

/* Over a part's places of what the activation made, or of its gradient; apart: with a gate for each of these. */
static struct pp_call *write_weighing(struct pp_writer *w, struct pp_expert_part part, enum pp_kernel kernel)
{
    const struct pp_shape *shape = &w->model->local;
    const int places = pp_part_rows(w, part);
    struct pp_call *call = pp_writer_call(w, kernel);
    call->places = (struct pp_places_dims){.places = places,
                                           .width = shape->d_ff,
                                           .tokens = pp_writer_is_apart(w) ? places : (int)w->tokens,
                                           .chosen = pp_writer_is_apart(w) ? 1 : shape->experts_per_token};
    return call;
}

static struct pp_ref gates_of(const struct pp_writer *w, int l, struct pp_expert_part part)
{
    if (!pp_writer_is_apart(w)) return pp_ref_act(w, l, w->slot.gates);
    return pp_part_ref(w, part, pp_ref_act(w, l, w->slot.received_gates), 1, true);
}

static void write_inner(struct pp_writer *w, int l, struct pp_expert_part part, bool again)
{
    const struct pp_inner inner = inner_of(w, l, part);
    pp_write_activation(w, l, &inner, again);
    struct pp_call *weigh = write_weighing(w, part, PP_KERNEL_WEIGH);
    weigh->at.weigh = (struct pp_weigh_refs){.u = inner.u, .gates = gates_of(w, l, part)};
    if (!pp_writer_is_apart(w)) weigh->at.weigh.holds = pp_ref_act(w, l, w->slot.holds);
}

void pp_write_experts_inner_again(struct pp_writer *w, int l) { write_inner(w, l, pp_whole_part(), true); }

static int rules_of(const struct pp_shape *shape)
{
    return (shape->gates_of_all ? PP_ROUTE_OF_ALL : 0) | (shape->sigmoid_scores ? PP_ROUTE_SIGMOID : 0) |
           (pp_shape_expert_groups(shape) && shape->group_by_best ? PP_ROUTE_GROUP_BY_BEST : 0);
}

/* x: all tokens. The router is whole in all workers. */
static void write_route(struct pp_writer *w, int l, struct pp_ref x)
{
    const struct pp_shape *shape = &w->model->local;
    const int experts = w->model->shape.experts;
    const struct pp_slot *slot = &w->slot;
    const struct pp_ref logits = pp_ref_act(w, l, slot->probabilities);
    pp_writer_gemm(w, PP_KERNEL_GEMM_NT, (const int[]){(int)w->tokens, experts, shape->d_model}, PP_GEMM_WRITE, logits,
                   x, pp_ref_weight(w, l, PP_ROUTER_WEIGHT))
        ->gemm.wide = true;
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_ROUTE);
    call->route = (struct pp_route_dims){.rows = w->rows,
                                         .seq = w->seq,
                                         .experts = experts,
                                         .chosen = shape->experts_per_token,
                                         .capacity = (int)w->capacity,
                                         .local = shape->experts,
                                         .rules = rules_of(shape),
                                         .workers = pp_shape_expert_parallel(shape),
                                         .pieces = pp_writer_parts(w)};
    call->routing = (struct pp_route_scalars){.gate_scale = (float)pp_gate_scale(shape),
                                              .groups = pp_shape_expert_groups(shape),
                                              .picked = pp_shape_expert_groups(shape) ? shape->groups_per_token : 0};
    call->at.route = (struct pp_route_refs){.probabilities = logits,
                                            .choices = pp_ref_act(w, l, slot->choices),
                                            .gates = pp_ref_act(w, l, slot->gates),
                                            .places = pp_ref_act(w, l, slot->places),
                                            .holds = pp_ref_act(w, l, slot->holds),
                                            .counts = pp_ref_act(w, l, slot->counts),
                                            .bias = pp_ref_layer(w, PP_MEM_PARAM, l, PP_ROUTER_EXPERT_BIAS)};
}

/* What linear1 reads. */
static struct pp_ref inputs_of(const struct pp_writer *w, int l, const struct pp_expert_places *at)
{
    return pp_writer_is_apart(w) ? pp_ref_act(w, l, w->slot.received) : at->places;
}

/* What places hold of x, and the gates of that, to the experts. */
static void write_inputs(struct pp_writer *w, int l, struct pp_ref x, const struct pp_expert_places *at,
                         struct coming coming[PP_EXCHANGE_PIECES_MAX])
{
    const struct pp_ref received = inputs_of(w, l, at), gates = pp_ref_act(w, l, w->slot.received_gates);
    pp_write_dispatch(w, l, pp_writer_is_apart(w) ? at->sent : received, x);
    if (!pp_writer_is_apart(w)) return;
    pp_write_numbers_to_places(w, l, at->gates, pp_ref_act(w, l, w->slot.gates));
    for (int i = 0; i < pp_writer_parts(w); i++) {
        const struct pp_expert_part part = pp_writer_part(w, i);
        coming[i].numbers = pp_write_exchange_numbers(w, part, PP_TO_EXPERTS, gates, at->gates);
        coming[i].rows = pp_write_exchange_rows(w, part, PP_TO_EXPERTS, received, at->sent);
    }
}

/* What a part's experts have made in at->places, or its gradient, to where the tokens are. */
static void write_return(struct pp_writer *w, struct pp_expert_part part, const struct pp_expert_places *at)
{
    if (pp_writer_is_apart(w)) pp_write_exchange_rows(w, part, PP_TO_TOKENS, at->sent, at->places);
}

/* All that, to the tokens. */
static void write_outputs(struct pp_writer *w, int l, enum pp_gemm_mode mode, struct pp_ref to,
                          const struct pp_expert_places *at)
{
    pp_write_await_last(w);
    pp_write_combine(w, l, mode, to, pp_writer_is_apart(w) ? at->sent : at->places);
}

/* Up to linear2's input. */
static void write_up(struct pp_writer *w, int l, struct pp_expert_part part, const struct pp_expert_places *at)
{
    const int d = w->model->local.d_model, wide = pp_linear1_width(&w->model->local);
    write_products(w, l, part, PP_KERNEL_GEMM_NT, PP_LINEAR1_WEIGHT, (const int[]){wide, d}, inner_of(w, l, part).a,
                   pp_part_ref(w, part, inputs_of(w, l, at), d, false));
    write_inner(w, l, part, false);
}

static void write_down(struct pp_writer *w, int l, struct pp_expert_part part, const struct pp_expert_places *at)
{
    const int d = w->model->local.d_model, ff = w->model->local.d_ff;
    write_products(w, l, part, PP_KERNEL_GEMM_NT, PP_LINEAR2_WEIGHT, (const int[]){d, ff},
                   pp_part_ref(w, part, at->places, d, false), inner_of(w, l, part).u);
    write_return(w, part, at);
}

void pp_write_experts(struct pp_writer *w, int l, struct pp_ref x, struct pp_ref z, const struct pp_expert_places *at)
{
    struct coming coming[PP_EXCHANGE_PIECES_MAX] = {0};
    const struct pp_ref to = w->by_tokens ? w->full[0] : z;
    x = pp_writer_gather(w, 0, x);
    write_route(w, l, x);
    write_inputs(w, l, x, at, coming);
    pp_write_shared_up(w, l, x); /* before something takes the place of what was gathered */
    for (int i = 0; i < pp_writer_parts(w); i++) {
        pp_write_await(w, coming[i].numbers);
        pp_write_await(w, coming[i].rows);
        write_up(w, l, pp_writer_part(w, i), at);
        if (z.region != PP_MEM_NONE) write_down(w, l, pp_writer_part(w, i), at);
    }
    if (z.region == PP_MEM_NONE) {
        w->beside = 0; /* all have come */
        return;
    }
    const bool shared = pp_write_shared_down(w, l, to);
    write_outputs(w, l, shared ? PP_GEMM_ADD : PP_GEMM_WRITE, to, at);
    pp_write_sum(w, z);
}

/* Where workers share the experts, gradients in places come from others: a split backward keeps them in the slot. */
static struct pp_expert_scratch scratch_apart(struct pp_writer *w, bool input_grads)
{
    struct pp_expert_scratch scratch = {0};
    if (!w->split) scratch.dy = pp_writer_places(w);
    if (!input_grads) return scratch;
    scratch.at = pp_writer_expert_places(w);
    scratch.there = pp_writer_place_numbers(w);
    return scratch;
}

static struct pp_expert_scratch scratch_of_all(struct pp_writer *w)
{
    struct pp_expert_scratch scratch = {.dy = pp_writer_places(w)};
    if (w->split)
        scratch.at.places = scratch.dy;
    else
        scratch.at = pp_writer_expert_places(w);
    return scratch;
}

struct pp_expert_scratch pp_writer_expert_scratch(struct pp_writer *w, bool input_grads)
{
    struct pp_expert_scratch scratch = pp_writer_is_apart(w) ? scratch_apart(w, input_grads) : scratch_of_all(w);
    if (!input_grads) return scratch;
    pp_writer_shared_scratch(w, &scratch);
    scratch.dgates = pp_writer_scratch(w, w->tokens * w->model->local.experts_per_token * (int64_t)sizeof(float));
    if (!w->split) scratch.droute = pp_writer_activations(w, w->model->shape.experts);
    return scratch;
}

/* The gradient at linear2's output, in places: of a split backward, where it has come from others, W needs it again. */
static struct pp_ref dy_of(const struct pp_writer *w, int l, const struct pp_expert_scratch *scratch)
{
    return pp_writer_is_apart(w) && w->split ? pp_ref_act(w, l, w->slot.received_dy) : scratch->dy;
}

/* The gradient at the router's output. */
static struct pp_ref droute_of(const struct pp_writer *w, int l, const struct pp_expert_scratch *scratch)
{
    return w->split ? pp_ref_act(w, l, w->slot.droute) : scratch->droute;
}

/* Of a part, from the gradient at what the gates have weighed, du, to those at the gates, and at what they weigh. */
static void write_gates_grad(struct pp_writer *w, int l, struct pp_expert_part part,
                             const struct pp_expert_scratch *scratch, struct pp_ref du, struct coming *coming)
{
    struct pp_call *weigh = write_weighing(w, part, PP_KERNEL_WEIGH_GRAD);
    weigh->at.weigh_grad = (struct pp_weigh_grad_refs){
        .du = du,
        .dgates = pp_writer_is_apart(w) ? pp_part_ref(w, part, scratch->there, 1, true) : scratch->dgates,
        .u = inner_of(w, l, part).u,
        .gates = gates_of(w, l, part)};
    if (pp_writer_is_apart(w))
        coming->numbers = pp_write_exchange_numbers(w, part, PP_TO_TOKENS, scratch->at.gates, scratch->there);
    else
        weigh->at.weigh_grad.places = pp_ref_act(w, l, w->slot.places);
}

/* From the gradients at the gates to that at the router's output. */
static void write_route_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch)
{
    const struct pp_shape *shape = &w->model->local;
    const struct pp_slot *slot = &w->slot;
    if (pp_writer_is_apart(w)) pp_write_numbers_from_places(w, l, scratch->dgates, scratch->at.gates);
    pp_writer_all_reduce(w, scratch->dgates, w->tokens, shape->experts_per_token, true);
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_ROUTE_GRAD);
    call->route_grad = (struct pp_route_grad_dims){.rows = w->rows,
                                                   .seq = w->seq,
                                                   .experts = w->model->shape.experts,
                                                   .chosen = shape->experts_per_token,
                                                   .rules = rules_of(shape)};
    call->routing = (struct pp_route_scalars){.gate_scale = (float)pp_gate_scale(shape), .aux = (float)shape->aux_loss};
    call->at.route_grad = (struct pp_route_grad_refs){.dlogits = droute_of(w, l, scratch),
                                                      .dgates = scratch->dgates,
                                                      .probabilities = pp_ref_act(w, l, slot->probabilities),
                                                      .choices = pp_ref_act(w, l, slot->choices),
                                                      .gates = pp_ref_act(w, l, slot->gates),
                                                      .counts = pp_ref_act(w, l, slot->counts)};
}

/* The gradient at the experts' outputs, of all tokens, to the experts. */
static void write_output_grads(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch, struct pp_ref dz,
                               struct coming coming[PP_EXCHANGE_PIECES_MAX])
{
    const struct pp_ref dy = dy_of(w, l, scratch), sent = scratch->at.sent;
    pp_write_dispatch(w, l, pp_writer_is_apart(w) ? sent : dy, dz);
    for (int i = 0; i < pp_writer_parts(w) && pp_writer_is_apart(w); i++)
        coming[i].rows = pp_write_exchange_rows(w, pp_writer_part(w, i), PP_TO_EXPERTS, dy, sent);
}

/* The gradients at linear2's input, at linear1's output, and at its input. */
static void write_part_grad(struct pp_writer *w, int l, struct pp_expert_part part,
                            const struct pp_expert_scratch *scratch, const struct pp_experts_grad *g,
                            struct coming *coming)
{
    const int d = w->model->local.d_model, ff = w->model->local.d_ff, wide = pp_linear1_width(&w->model->local);
    const struct pp_inner inner = inner_of(w, l, part);
    const struct pp_ref du = pp_part_ref(w, part, g->du, ff, false), dh = pp_part_ref(w, part, g->dh, wide, false);
    write_products(w, l, part, PP_KERNEL_GEMM_NN, PP_LINEAR2_WEIGHT, (const int[]){ff, d}, du,
                   pp_part_ref(w, part, dy_of(w, l, scratch), d, false));
    write_gates_grad(w, l, part, scratch, du, coming);
    pp_write_activation_grad(w, l, &inner, du, dh);
    write_products(w, l, part, PP_KERNEL_GEMM_NN, PP_LINEAR1_WEIGHT, (const int[]){d, wide},
                   pp_part_ref(w, part, scratch->at.places, d, false), dh);
    write_return(w, part, &scratch->at);
}

/* Of a weight [m, n] of each of a part's experts, from the gradient at its output [k, m] and its input [k, n]. */
static void write_weight_grads(struct pp_writer *w, int l, struct pp_expert_part part, enum pp_layer_tensor tensor,
                               const int mn[2], struct pp_ref dy, struct pp_ref x)
{
    const int times = pp_writer_own_experts(w) / part.of;
    const int64_t bytes = (int64_t)mn[0] * mn[1] * times * (int64_t)sizeof(float);
    const struct pp_linear product = {.kernel = PP_KERNEL_GEMM_TN,
                                      .mode = PP_GEMM_GRADIENT,
                                      .mnk = {mn[0], mn[1], pp_writer_expert_rows(w)},
                                      .times = times,
                                      .c = pp_ref_further(pp_ref_layer(w, PP_MEM_GRAD, l, tensor), part.index * bytes),
                                      .a = pp_part_ref(w, part, dy, mn[0], false),
                                      .b = pp_part_ref(w, part, x, mn[1], false)};
    pp_writer_linear(w, &product)->gemm.wide = true;
}

/* Of both, where what both have read is there: apart. */
static void write_all_weight_grads(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch,
                                   struct pp_ref dh)
{
    const int d = w->model->local.d_model, ff = w->model->local.d_ff, wide = pp_linear1_width(&w->model->local);
    for (int i = 0; i < pp_writer_parts(w); i++) {
        const struct pp_expert_part part = pp_writer_part(w, i);
        write_weight_grads(w, l, part, PP_LINEAR2_WEIGHT, (const int[]){d, ff}, dy_of(w, l, scratch), pp_ref_u(w, l));
        write_weight_grads(w, l, part, PP_LINEAR1_WEIGHT, (const int[]){wide, d}, dh,
                           pp_ref_act(w, l, w->slot.received));
    }
}

struct pp_ref pp_write_experts_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch,
                                    const struct pp_experts_grad *g)
{
    const struct pp_shape *shape = &w->model->local;
    const struct pp_ref to = w->by_tokens ? w->full[PP_FULL_OTHERS] : g->out;
    const enum pp_gemm_mode add = pp_shape_tensor(shape) > 1 ? PP_GEMM_ADD_ONCE : PP_GEMM_ADD;
    struct coming coming[PP_EXCHANGE_PIECES_MAX] = {0};
    int last = 0;
    write_output_grads(w, l, scratch, g->dz, coming);
    pp_write_shared_inner_grad(w, l, scratch, g->dz);
    for (int i = 0; i < pp_writer_parts(w); i++) {
        pp_write_await(w, coming[i].rows);
        write_part_grad(w, l, pp_writer_part(w, i), scratch, g, &coming[i]);
        last = coming[i].numbers;
    }
    if (g->weights && pp_writer_is_apart(w)) write_all_weight_grads(w, l, scratch, g->dh);
    pp_write_await(w, last);
    write_route_grad(w, l, scratch);
    pp_writer_gemm(w, PP_KERNEL_GEMM_NN, (const int[]){(int)w->tokens, shape->d_model, w->model->shape.experts},
                   w->by_tokens ? PP_GEMM_WRITE : g->mode, to, droute_of(w, l, scratch),
                   pp_ref_weight(w, l, PP_ROUTER_WEIGHT));
    pp_write_shared_grad(w, l, scratch, to);
    const bool added = pp_write_shared_input_grad(w, l, scratch, add, to);
    write_outputs(w, l, added ? PP_GEMM_ADD : add, to, &scratch->at);
    return pp_write_gradient_sum(w, g->mode, g->out, false);
}

/* Adds the microbatch's tokens to the loads of the experts, which lie where a gradient of their biases would. */
static void write_loads(struct pp_writer *w, int l)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_TAKE);
    call->matrix = (struct pp_matrix_dims){.rows = 1, .width = w->model->shape.experts};
    call->precision = PP_FP32;
    call->at.take = (struct pp_take_refs){.grad = pp_ref_layer(w, PP_MEM_GRAD, l, PP_ROUTER_EXPERT_BIAS),
                                          .in = pp_ref_act(w, l, w->slot.counts)};
}

/* Not apart: what experts have read, and the gradient at what they have made, are dispatched once more. */
static void write_weight_grads_here(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch,
                                    const struct pp_expert_weights_grad *g)
{
    /* A B between Is and Ws has one scratch as they do, in which the gradients of inputs leave others. */
    const bool left = g->inputs && !w->split;
    const int d = w->model->local.d_model, ff = w->model->local.d_ff, wide = pp_linear1_width(&w->model->local);
    const struct pp_ref inputs = inputs_of(w, l, &scratch->at);
    if (!left) pp_write_dispatch(w, l, scratch->dy, g->dz);
    write_weight_grads(w, l, pp_whole_part(), PP_LINEAR2_WEIGHT, (const int[]){d, ff}, scratch->dy, pp_ref_u(w, l));
    pp_write_dispatch(w, l, inputs, g->x);
    write_weight_grads(w, l, pp_whole_part(), PP_LINEAR1_WEIGHT, (const int[]){wide, d}, g->dh, inputs);
}

void pp_write_expert_weights(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch,
                             const struct pp_expert_weights_grad *g)
{
    const struct pp_shape *shape = &w->model->local;
    if (!pp_writer_is_apart(w))
        write_weight_grads_here(w, l, scratch, g);
    else if (!g->inputs)
        write_all_weight_grads(w, l, scratch, g->dh);
    pp_write_weight_grads(w, &(struct pp_weight_grads){.weight = pp_ref_layer(w, PP_MEM_GRAD, l, PP_ROUTER_WEIGHT),
                                                       .dy = droute_of(w, l, scratch),
                                                       .m = w->model->shape.experts,
                                                       .input = g->x,
                                                       .n = shape->d_model,
                                                       .plain = true});
    if (shape->expert_bias) write_loads(w, l);
    pp_write_shared_weights(w, l, scratch, g->dz, g->x);
}
