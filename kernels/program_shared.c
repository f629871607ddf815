/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed-forward beside experts, which all tokens go through. Its two products are those of a layer without experts,
 * but that their inputs are gathered for experts too, and that sums over the workers of a rank are those of experts:
 * what these make is added to what it has made.
 */
#include "kernels/model_program.h"

struct pp_inner pp_shared_inner_of(const struct pp_writer *w, int l)
{
    const struct pp_slot *slot = &w->slot;
    const struct pp_ref u = slot->activation_again ? w->shared_u : pp_ref_act(w, l, slot->shared_u);
    return (struct pp_inner){.rows = w->rows,
                             .seq = w->seq,
                             .width = w->model->local.shared_ff,
                             .a = w->model->local.activation == PP_RELU ? u : pp_ref_act(w, l, slot->shared_a),
                             .u = u};
}

static bool is_there(const struct pp_writer *w, int l) { return pp_writer_shape(w, l)->shared_ff > 0; }
static int width(const struct pp_writer *w) { return pp_gated_width(&w->model->local, w->model->local.shared_ff); }

/* Of T rows with a gate each. */
static struct pp_call *write_weighing(struct pp_writer *w, enum pp_kernel kernel)
{
    const int tokens = (int)w->tokens;
    struct pp_call *call = pp_writer_call(w, kernel);
    call->places =
        (struct pp_places_dims){.places = tokens, .width = w->model->local.shared_ff, .tokens = tokens, .chosen = 1};
    return call;
}

static void write_inner(struct pp_writer *w, int l, bool again)
{
    const struct pp_inner inner = pp_shared_inner_of(w, l);
    pp_write_activation(w, l, &inner, again);
    if (!w->model->shape.shared_gate) return;
    write_weighing(w, PP_KERNEL_WEIGH)->at.weigh =
        (struct pp_weigh_refs){.u = inner.u, .gates = pp_ref_act(w, l, w->slot.shared_gate)};
}

/* The gate is whole in all workers of a rank. */
static void write_gate(struct pp_writer *w, int l, struct pp_ref x)
{
    const struct pp_ref gate = pp_ref_act(w, l, w->slot.shared_gate);
    pp_writer_gemm(w, PP_KERNEL_GEMM_NT, (const int[]){(int)w->tokens, 1, w->model->local.d_model}, PP_GEMM_WRITE, gate,
                   x, pp_ref_weight(w, l, PP_SHARED_GATE_WEIGHT))
        ->gemm.wide = true;
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_SIGMOID);
    call->sigmoid.tokens = (int)w->tokens;
    call->at.sigmoid.x = gate;
}

void pp_write_shared_up(struct pp_writer *w, int l, struct pp_ref x)
{
    if (!is_there(w, l)) return;
    if (w->model->shape.shared_gate) write_gate(w, l, x);
    pp_writer_linear(w, &(struct pp_linear){.kernel = PP_KERNEL_GEMM_NT,
                                            .mnk = {(int)w->tokens, width(w), w->model->local.d_model},
                                            .c = pp_shared_inner_of(w, l).a,
                                            .a = x,
                                            .b = pp_ref_weight(w, l, PP_SHARED1_WEIGHT)});
    write_inner(w, l, false);
}

void pp_write_shared_again(struct pp_writer *w, int l)
{
    if (is_there(w, l)) write_inner(w, l, true);
}

bool pp_write_shared_down(struct pp_writer *w, int l, struct pp_ref z)
{
    if (!is_there(w, l)) return false;
    const struct pp_inner inner = pp_shared_inner_of(w, l);
    pp_writer_linear(w, &(struct pp_linear){.kernel = PP_KERNEL_GEMM_NT,
                                            .mnk = {(int)w->tokens, w->model->local.d_model, inner.width},
                                            .c = z,
                                            .a = inner.u,
                                            .b = pp_ref_weight(w, l, PP_SHARED2_WEIGHT)});
    return true;
}

void pp_writer_shared_scratch(struct pp_writer *w, struct pp_expert_scratch *scratch)
{
    if (!w->split || pp_writer_swiglu(w)) scratch->shared_du = pp_writer_shared_inner(w);
    if (!w->model->shape.shared_gate) return;
    scratch->shared_dgate = pp_writer_scratch(w, w->tokens * (int64_t)sizeof(float));
    if (!w->split) scratch->shared_dlogit = pp_writer_activations(w, 1);
}

/* The gradients at u, at the first linear's output, as those of a feed-forward alone (program_backward.c), and at the
 * gate's. */
static struct pp_ref du_of(const struct pp_writer *w, int l, const struct pp_expert_scratch *scratch)
{
    return w->split && !pp_writer_swiglu(w) ? pp_ref_act(w, l, w->slot.shared_dh) : scratch->shared_du;
}

static struct pp_ref dh_of(const struct pp_writer *w, int l, const struct pp_expert_scratch *scratch)
{
    return pp_writer_swiglu(w) ? pp_ref_act(w, l, w->slot.shared_a) : du_of(w, l, scratch);
}

static struct pp_ref dlogit_of(const struct pp_writer *w, int l, const struct pp_expert_scratch *scratch)
{
    return w->split ? pp_ref_act(w, l, w->slot.shared_dlogit) : scratch->shared_dlogit;
}

/* du, at what the gate has weighed, becomes that before. */
static void write_gate_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch, struct pp_ref du,
                            struct pp_ref dx)
{
    const int tokens = (int)w->tokens;
    const struct pp_ref dlogit = dlogit_of(w, l, scratch);
    const struct pp_ref gate = pp_ref_act(w, l, w->slot.shared_gate), dgate = scratch->shared_dgate;
    write_weighing(w, PP_KERNEL_WEIGH_GRAD)->at.weigh_grad =
        (struct pp_weigh_grad_refs){.du = du, .dgates = dgate, .u = pp_shared_inner_of(w, l).u, .gates = gate};
    pp_writer_all_reduce(w, dgate, tokens, 1, true);
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_SIGMOID_GRAD);
    call->sigmoid.tokens = tokens;
    call->at.sigmoid_grad = (struct pp_sigmoid_grad_refs){.dx = dlogit, .dy = dgate, .y = gate};
    pp_writer_gemm(w, PP_KERNEL_GEMM_NN, (const int[]){tokens, w->model->local.d_model, 1}, PP_GEMM_ADD, dx, dlogit,
                   pp_ref_weight(w, l, PP_SHARED_GATE_WEIGHT));
}

void pp_write_shared_inner_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch, struct pp_ref dz)
{
    if (!is_there(w, l)) return;
    pp_writer_linear(w, &(struct pp_linear){.kernel = PP_KERNEL_GEMM_NN,
                                            .mnk = {(int)w->tokens, w->model->local.shared_ff, w->model->local.d_model},
                                            .c = du_of(w, l, scratch),
                                            .a = dz,
                                            .b = pp_ref_weight(w, l, PP_SHARED2_WEIGHT)});
}

void pp_write_shared_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch, struct pp_ref dx)
{
    if (!is_there(w, l)) return;
    const struct pp_inner inner = pp_shared_inner_of(w, l);
    const struct pp_ref du = du_of(w, l, scratch);
    if (w->model->shape.shared_gate) write_gate_grad(w, l, scratch, du, dx);
    pp_write_activation_grad(w, l, &inner, du, dh_of(w, l, scratch));
}

bool pp_write_shared_input_grad(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch,
                                enum pp_gemm_mode mode, struct pp_ref dx)
{
    if (!is_there(w, l)) return false;
    pp_writer_linear(w, &(struct pp_linear){.kernel = PP_KERNEL_GEMM_NN,
                                            .mode = mode,
                                            .mnk = {(int)w->tokens, w->model->local.d_model, width(w)},
                                            .c = dx,
                                            .a = dh_of(w, l, scratch),
                                            .b = pp_ref_weight(w, l, PP_SHARED1_WEIGHT)});
    return true;
}

void pp_write_shared_weights(struct pp_writer *w, int l, const struct pp_expert_scratch *scratch, struct pp_ref dz,
                             struct pp_ref x)
{
    if (!is_there(w, l)) return;
    const struct pp_inner inner = pp_shared_inner_of(w, l);
    const int d = w->model->local.d_model;
    const struct pp_weight_grads second = {.weight = pp_ref_layer(w, PP_MEM_GRAD, l, PP_SHARED2_WEIGHT),
                                           .dy = dz,
                                           .m = d,
                                           .input = inner.u,
                                           .n = inner.width};
    const struct pp_weight_grads first = {.weight = pp_ref_layer(w, PP_MEM_GRAD, l, PP_SHARED1_WEIGHT),
                                          .dy = dh_of(w, l, scratch),
                                          .m = width(w),
                                          .input = x,
                                          .n = d};
    const struct pp_weight_grads gate = {.weight = pp_ref_layer(w, PP_MEM_GRAD, l, PP_SHARED_GATE_WEIGHT),
                                         .dy = dlogit_of(w, l, scratch),
                                         .m = 1,
                                         .input = x,
                                         .n = d,
                                         .plain = true};
    pp_write_weight_grads(w, &second);
    pp_write_weight_grads(w, &first);
    if (w->model->shape.shared_gate) pp_write_weight_grads(w, &gate);
}
