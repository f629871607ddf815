/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#define X(ID, name, dims, named, flops)                                                                                \
    static double flops_of_##name(const union pp_call_reals *reals, bool bare)                                         \
    {                                                                                                                  \
        const struct pp_##dims##_reals *n = &reals->dims;                                                              \
        return (void)n, (void)bare, flops;                                                                             \
    }
PP_KERNEL_LIST(X)
#undef X

static double (*const flops_of[PP_KERNELS])(const union pp_call_reals *reals, bool bare) = {
#define X(ID, name, dims, named, flops) [PP_KERNEL_##ID] = flops_of_##name,
    PP_KERNEL_LIST(X)
#undef X
};

const struct pp_kernel_info pp_kernel_table[PP_KERNELS] = {
#define X(ID, name, dims, named, flops) [PP_KERNEL_##ID] = {#name, named},
    PP_KERNEL_LIST(X)
#undef X
};

double pp_call_flops(const struct pp_call *call)
{
    union pp_call_reals reals;
    for (int i = 0; i < PP_CALL_DIMS; i++) reals.n[i] = call->n[i];
    return flops_of[call->kernel](&reals, pp_call_lacks_bias(call));
}

/* Products, and what takes gradients, read what they add to; the gradient of the embedding is not cleared; that of
 * positions is read as far as there are tokens, and not cleared beyond. */
double pp_call_again_bytes(const struct pp_call *call)
{
    const double bytes = sizeof(float);
    switch (call->kernel) {
    case PP_KERNEL_GEMM_NT:
    case PP_KERNEL_GEMM_NN:
    case PP_KERNEL_GEMM_TN:
    case PP_KERNEL_GEMM_FP8: {
        const struct pp_gemm_dims *n = &call->gemm;
        const double c = (double)pp_element_bytes(n->wide ? PP_FP32 : call->precision) * n->m * n->n;
        return n->mode == PP_GEMM_GRADIENT ? PP_TIMES(n) * c : 0;
    }
    case PP_KERNEL_TAKE:
        return bytes * call->matrix.rows * call->matrix.width;
    case PP_KERNEL_POSITIONS_GRAD:
        return bytes * call->positions.d * (2.0 * call->positions.seq - call->positions.places);
    case PP_KERNEL_EMBED_GRAD:
        return -bytes * call->embed.d * call->embed.vocab;
    default:
        return 0;
    }
}

double pp_call_bytes(const struct pp_call *call)
{
    double bytes = call->adds ? pp_call_again_bytes(call) : 0;
    for (int i = 0; i < PP_CALL_REFS; i++) {
        const struct pp_operand operand = pp_call_operand(call, i);
        if (call->ref[i].region != PP_MEM_NONE) bytes += (double)operand.moved * operand.element_bytes;
    }
    return bytes;
}

/* Other kernels join nothing. */
static const struct {
    enum pp_join_op op;
    int rounds;
} joins[PP_KERNELS] = {
    [PP_KERNEL_ALL_REDUCE] = {PP_JOIN_ALL_REDUCE, 2}, [PP_KERNEL_REDUCE_SCATTER] = {PP_JOIN_REDUCE_SCATTER, 1},
    [PP_KERNEL_ALL_GATHER] = {PP_JOIN_ALL_GATHER, 1}, [PP_KERNEL_AWAIT] = {PP_JOIN_AWAIT, 0},
    [PP_KERNEL_ALL_TO_ALL] = {PP_JOIN_ALL_TO_ALL, 1}, [PP_KERNEL_SHIFT] = {PP_JOIN_SHIFT, 1}};

static int sum_type(const struct pp_call *call, bool wide)
{
    return call->precision == PP_BF16 && !wide ? PP_SUM_BF16 : PP_SUM_FLOAT;
}

struct pp_join_work pp_call_join(const struct pp_call *call)
{
    const enum pp_join_op op = joins[call->kernel].op;
    if (op == PP_JOIN_NONE) return (struct pp_join_work){0};
    const struct pp_operand memory = pp_call_operand(call, 0);
    struct pp_join_work work = {
        .op = op, .bytes = memory.elements * memory.element_bytes, .rounds = joins[call->kernel].rounds};
    if (pp_join_exchanges(op)) {
        work.type = sum_type(call, call->exchange.wide);
        work.group = (enum pp_join_group)call->exchange.group;
        work.pieces = op == PP_JOIN_SHIFT ? 1 : call->exchange.each;
        work.beside = call->exchange.beside;
    } else {
        work.type = sum_type(call, call->join.wide);
        work.group = (enum pp_join_group)call->join.group;
        work.beside = call->join.beside;
    }
    return work;
}

static struct pp_join_call exchange_of(const struct pp_call *call, const struct pp_frame *frame)
{
    const struct pp_exchange_dims *n = &call->exchange;
    return (struct pp_join_call){.op = joins[call->kernel].op,
                                 .group = (enum pp_join_group)n->group,
                                 .memory = pp_ref_address(&call->at.exchange.to, frame),
                                 .from = pp_ref_address(&call->at.exchange.from, frame),
                                 .elements = (int64_t)n->rows * n->width,
                                 .type = sum_type(call, n->wide),
                                 .each = n->each,
                                 .back = n->back,
                                 .halves = n->halves,
                                 .beside = n->beside};
}

static struct pp_join_call join_of(const struct pp_call *call, const struct pp_frame *frame)
{
    const struct pp_join_dims *n = &call->join;
    return (struct pp_join_call){.op = joins[call->kernel].op,
                                 .group = (enum pp_join_group)n->group,
                                 .memory = pp_ref_address(&call->at.join.memory, frame),
                                 .elements = (int64_t)n->rows * n->width,
                                 .type = sum_type(call, n->wide),
                                 .beside = n->beside};
}

void pp_call_meet(const struct pp_call *call, const struct pp_frame *frame)
{
    const struct pp_join *join = frame->join;
    const bool exchanges = pp_join_exchanges(joins[call->kernel].op);
    const struct pp_join_call what = exchanges ? exchange_of(call, frame) : join_of(call, frame);
    if (join) join->run(join->arg, &what);
}
