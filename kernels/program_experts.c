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
 */
#include "kernels/model_program.h"

static bool is_apart(const struct pp_writer *w) { return pp_shape_expert_parallel(&w->model->local) > 1; }

/* Experts whose matrices the worker has, and rows of each. */
static int own_experts(const struct pp_writer *w)
{
    return w->model->local.experts / pp_shape_expert_parallel(&w->model->local);
}

static int expert_rows(const struct pp_writer *w)
{
    return (int)w->capacity * pp_shape_expert_parallel(&w->model->local);
}

/* A product for each of the worker's experts. */
static struct pp_call *write_products(struct pp_writer *w, enum pp_kernel kernel, const int mnk[3],
                                      enum pp_gemm_mode mode, struct pp_ref c, struct pp_ref a, struct pp_ref b)
{
    return pp_writer_linear(w, &(struct pp_linear){.kernel = kernel,
                                                   .mode = mode,
                                                   .mnk = {mnk[0], mnk[1], mnk[2]},
                                                   .times = own_experts(w),
                                                   .c = c,
                                                   .a = a,
                                                   .b = b});
}

/* Rows of `width` numbers, of all places, to the workers that have their experts, or back. wide: float32 whatever the
 * precision. */
static void write_all_to_all(struct pp_writer *w, bool back, struct pp_ref to, struct pp_ref from, int width, bool wide)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_ALL_TO_ALL);
    call->exchange = (struct pp_exchange_dims){.rows = (int)pp_writer_place_rows(w),
                                               .width = width,
                                               .each = own_experts(w),
                                               .back = back,
                                               .wide = wide,
                                               .group = PP_JOIN_EXPERT_RANKS};
    call->at.exchange = (struct pp_exchange_refs){.to = to, .from = from};
}

/* What places hold of `from`, of all tokens. */
static void write_dispatch(struct pp_writer *w, int l, struct pp_ref to, struct pp_ref from)
{
    const struct pp_shape *shape = &w->model->local;
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_DISPATCH);
    call->places = (struct pp_places_dims){.places = (int)pp_writer_place_rows(w),
                                           .width = shape->d_model,
                                           .tokens = (int)w->tokens,
                                           .chosen = shape->experts_per_token};
    call->at.dispatch = (struct pp_dispatch_refs){.to = to, .from = from, .holds = pp_ref_act(w, l, w->slot.holds)};
}

/* The same where the experts are. */
static void write_sending(struct pp_writer *w, int l, struct pp_ref to, struct pp_ref from,
                          const struct pp_expert_places *at)
{
    write_dispatch(w, l, is_apart(w) ? at->sent : to, from);
    if (is_apart(w)) write_all_to_all(w, false, to, at->sent, w->model->local.d_model, false);
}

static int choices_of(const struct pp_writer *w) { return (int)w->tokens * w->model->local.experts_per_token; }

/* A number of each choice to its place, as if each choice were a token that has no other. */
static void write_numbers_to_places(struct pp_writer *w, int l, struct pp_ref to, struct pp_ref from)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_DISPATCH);
    call->places = (struct pp_places_dims){
        .places = (int)pp_writer_place_rows(w), .width = 1, .tokens = choices_of(w), .chosen = 1};
    call->precision = PP_FP32;
    call->at.dispatch = (struct pp_dispatch_refs){.to = to, .from = from, .holds = pp_ref_act(w, l, w->slot.holds)};
}

/* The other way. */
static void write_numbers_from_places(struct pp_writer *w, int l, struct pp_ref to, struct pp_ref from)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_COMBINE);
    call->combine = (struct pp_combine_dims){
        .tokens = choices_of(w), .width = 1, .places = (int)pp_writer_place_rows(w), .chosen = 1};
    call->precision = PP_FP32;
    call->at.combine = (struct pp_combine_refs){.to = to, .from = from, .places = pp_ref_act(w, l, w->slot.places)};
}

/* The sum of what a token's places hold. */
static void write_combine(struct pp_writer *w, int l, enum pp_gemm_mode mode, struct pp_ref to, struct pp_ref from)
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

/* Over the places of what the activation made, or of its gradient; apart: with a gate for each of these. */
static struct pp_call *write_weighing(struct pp_writer *w, enum pp_kernel kernel)
{
    const struct pp_shape *shape = &w->model->local;
    const int places = (int)pp_writer_place_rows(w);
    struct pp_call *call = pp_writer_call(w, kernel);
    call->places = (struct pp_places_dims){.places = places,
                                           .width = shape->d_ff,
                                           .tokens = is_apart(w) ? places : (int)w->tokens,
                                           .chosen = is_apart(w) ? 1 : shape->experts_per_token};
    return call;
}

static struct pp_ref gates_of(const struct pp_writer *w, int l)
{
    return pp_ref_act(w, l, is_apart(w) ? w->slot.received_gates : w->slot.gates);
}

void pp_write_weighing(struct pp_writer *w, int l)
{
    struct pp_call *weigh = write_weighing(w, PP_KERNEL_WEIGH);
    weigh->at.weigh = (struct pp_weigh_refs){.u = pp_ref_u(w, l), .gates = gates_of(w, l)};
    if (!is_apart(w)) weigh->at.weigh.holds = pp_ref_act(w, l, w->slot.holds);
}

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
                                         .rules = rules_of(shape)};
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
    return is_apart(w) ? pp_ref_act(w, l, w->slot.received) : at->places;
}

static void write_inputs(struct pp_writer *w, int l, struct pp_ref x, const struct pp_expert_places *at)
{
    write_sending(w, l, inputs_of(w, l, at), x, at);
    if (!is_apart(w)) return;
    write_numbers_to_places(w, l, at->gates, pp_ref_act(w, l, w->slot.gates));
    write_all_to_all(w, false, pp_ref_act(w, l, w->slot.received_gates), at->gates, 1, true);
}

/* What experts have made in at->places, or its gradient, back to the tokens. */
static void write_outputs(struct pp_writer *w, int l, enum pp_gemm_mode mode, struct pp_ref to,
                          const struct pp_expert_places *at)
{
    if (is_apart(w)) write_all_to_all(w, true, at->sent, at->places, w->model->local.d_model, false);
    write_combine(w, l, mode, to, is_apart(w) ? at->sent : at->places);
}

void pp_write_experts(struct pp_writer *w, int l, struct pp_ref x, struct pp_ref z, const struct pp_expert_places *at)
{
    const struct pp_shape *shape = &w->model->local;
    const int rows = expert_rows(w), d = shape->d_model;
    const struct pp_inner inner = pp_inner_of(w, l);
    const struct pp_ref to = w->by_tokens ? w->full[0] : z;
    x = pp_writer_gather(w, 0, x);
    write_route(w, l, x);
    write_inputs(w, l, x, at);
    write_products(w, PP_KERNEL_GEMM_NT, (const int[]){rows, pp_linear1_width(shape), d}, PP_GEMM_WRITE, inner.a,
                   inputs_of(w, l, at), pp_ref_weight(w, l, PP_LINEAR1_WEIGHT));
    pp_write_inner(w, l, false);
    pp_write_shared_up(w, l, x); /* before something takes the place of what was gathered */
    if (z.region == PP_MEM_NONE) return;
    write_products(w, PP_KERNEL_GEMM_NT, (const int[]){rows, d, shape->d_ff}, PP_GEMM_WRITE, at->places, inner.u,
                   pp_ref_weight(w, l, PP_LINEAR2_WEIGHT));
    write_outputs(w, l, PP_GEMM_WRITE, to, at);
    pp_write_shared_down(w, l, to);
    pp_write_sum(w, z);
}

static struct pp_ref numbers_of_places(struct pp_writer *w)
{
    return pp_writer_scratch(w, pp_writer_place_rows(w) * (int64_t)sizeof(float));
}

struct pp_expert_places pp_writer_expert_places(struct pp_writer *w)
{
    struct pp_expert_places at = {.places = pp_writer_places(w)};
    if (!w->capacity || !is_apart(w)) return at;
    at.sent = pp_writer_places(w);
    at.gates = numbers_of_places(w);
    return at;
}

/* Where workers share the experts, gradients in places come from others: a split backward keeps them in the slot. */
static struct pp_expert_scratch scratch_apart(struct pp_writer *w, bool input_grads)
{
    struct pp_expert_scratch scratch = {0};
    if (!w->split) scratch.dy = pp_writer_places(w);
    if (!input_grads) return scratch;
    scratch.at = pp_writer_expert_places(w);
    scratch.there = numbers_of_places(w);
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
    struct pp_expert_scratch scratch = is_apart(w) ? scratch_apart(w, input_grads) : scratch_of_all(w);
    if (!input_grads) return scratch;
    pp_writer_shared_scratch(w, &scratch);
    scratch.dgates = pp_writer_scratch(w, w->tokens * w->model->local.experts_per_token * (int64_t)sizeof(float));
    if (!w->split) scratch.droute = pp_writer_activations(w, w->model->shape.experts);
    return scratch;
}

/* The gradient at linear2's output, in places: of a split backward, where it has come from others, W needs it again. */
static struct pp_ref dy_of(const struct pp_writer *w, int l, const struct pp_expert_scratch *scratch)
{
    return is_apart(w) && w->split ? pp_ref_act(w, l, w->slot.received_dy) : scratch->dy;
}

/* The gradient at the router's output. */
static struct pp_ref droute_of(const struct pp_writer *w, int l, const struct pp_expert_scratch *scratch)
{
    return w->split ? pp_ref_act(w, l, w->slot.droute) : scratch->droute;
}

/* From the gradient at what the gates have weighed, du, to that at the router's output. */
static void write_route_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch, struct pp_ref du)
{
    const struct pp_shape *shape = &w->model->local;
    const struct pp_slot *slot = &w->slot;
    struct pp_call *weigh = write_weighing(w, PP_KERNEL_WEIGH_GRAD);
    weigh->at.weigh_grad = (struct pp_weigh_grad_refs){.du = du,
                                                       .dgates = is_apart(w) ? scratch->there : scratch->dgates,
                                                       .u = pp_ref_u(w, l),
                                                       .gates = gates_of(w, l)};
    if (is_apart(w)) {
        write_all_to_all(w, true, scratch->at.gates, scratch->there, 1, true);
        write_numbers_from_places(w, l, scratch->dgates, scratch->at.gates);
    } else {
        weigh->at.weigh_grad.places = pp_ref_act(w, l, slot->places);
    }
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

struct pp_ref pp_write_experts_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch,
                                    struct pp_ref dz, const struct pp_ref du_dh[2], enum pp_gemm_mode mode,
                                    struct pp_ref out)
{
    const struct pp_shape *shape = &w->model->local;
    const int rows = expert_rows(w), d = shape->d_model;
    const bool shared = pp_shape_tensor(shape) > 1;
    const struct pp_inner inner = pp_inner_of(w, l);
    const struct pp_ref to = w->by_tokens ? w->full[PP_FULL_OTHERS] : out;
    write_sending(w, l, dy_of(w, l, scratch), dz, &scratch->at);
    write_products(w, PP_KERNEL_GEMM_NN, (const int[]){rows, shape->d_ff, d}, PP_GEMM_WRITE, du_dh[0],
                   dy_of(w, l, scratch), pp_ref_weight(w, l, PP_LINEAR2_WEIGHT));
    write_route_grad(w, l, scratch, du_dh[0]);
    pp_write_activation_grad(w, l, &inner, du_dh[0], du_dh[1]);
    write_products(w, PP_KERNEL_GEMM_NN, (const int[]){rows, d, pp_linear1_width(shape)}, PP_GEMM_WRITE,
                   scratch->at.places, du_dh[1], pp_ref_weight(w, l, PP_LINEAR1_WEIGHT));
    pp_writer_gemm(w, PP_KERNEL_GEMM_NN, (const int[]){(int)w->tokens, d, w->model->shape.experts},
                   w->by_tokens ? PP_GEMM_WRITE : mode, to, droute_of(w, l, scratch),
                   pp_ref_weight(w, l, PP_ROUTER_WEIGHT));
    pp_write_shared_grad(w, l, scratch, dz, to);
    write_outputs(w, l, shared ? PP_GEMM_ADD_ONCE : PP_GEMM_ADD, to, &scratch->at);
    pp_write_shared_input_grad(w, l, scratch, to);
    return pp_write_gradient_sum(w, mode, out, false);
}

/* Of a weight [m, n] of each of the worker's experts, from the gradient at its output [k, m] and its input [k, n]. */
static void write_weight_grads(struct pp_writer *w, int l, enum pp_layer_tensor tensor, const int mnk[3],
                               struct pp_ref dy, struct pp_ref x)
{
    const struct pp_ref to = pp_ref_layer(w, PP_MEM_GRAD, l, tensor);
    write_products(w, PP_KERNEL_GEMM_TN, mnk, PP_GEMM_BY_FRAME, to, dy, x)->gemm.wide = true;
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

void pp_write_expert_weights(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch, bool left,
                             struct pp_ref dz, struct pp_ref dh, struct pp_ref x)
{
    const struct pp_shape *shape = &w->model->local;
    const int rows = expert_rows(w), d = shape->d_model;
    const struct pp_ref inputs = inputs_of(w, l, &scratch->at);
    if (!left && !is_apart(w)) write_dispatch(w, l, scratch->dy, dz);
    write_weight_grads(w, l, PP_LINEAR2_WEIGHT, (const int[]){d, shape->d_ff, rows}, dy_of(w, l, scratch),
                       pp_ref_u(w, l));
    if (!is_apart(w)) write_dispatch(w, l, inputs, x);
    write_weight_grads(w, l, PP_LINEAR1_WEIGHT, (const int[]){pp_linear1_width(shape), d, rows}, dh, inputs);
    pp_write_plain_weight_grads(w, pp_ref_layer(w, PP_MEM_GRAD, l, PP_ROUTER_WEIGHT), (struct pp_ref){0},
                                droute_of(w, l, scratch), w->model->shape.experts, x, d);
    if (shape->expert_bias) write_loads(w, l);
    pp_write_shared_weights(w, l, scratch, dz, x);
}
