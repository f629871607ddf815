/* SPDX-License-Identifier: Apache-2.0
 *
 * What the workers that share the tensors do together, and the products beside which it stands.
 *
 * Rows of products are tokens. Behind those over a part of the weight's columns the workers' results are summed; where
 * each worker has a part of the tokens, the sums are scattered, and gathered before products that need all of them. In
 * several pieces of the tokens (pp_sum_pieces) the sum of one piece may run beside the product of the next, and the
 * product of one piece beside the gathering of the next, as Megatron-LM's --tp-comm-overlap and Transformer Engine
 * have it. Each worker's part is then a part of each piece, so that a piece is contiguous wherever it is whole.
 */
#include "kernels/model_program.h"

static int64_t row_bytes(const struct pp_writer *w, int width)
{
    return (int64_t)width * pp_element_bytes(w->model->local.precision);
}

/* Tokens of a piece: the worker's own. */
static int64_t own_rows(const struct pp_writer *w) { return w->part_tokens / w->sum_pieces; }

/* ... of all workers, with room for tokens that are not there at the end of the last piece. */
static int64_t piece_rows(const struct pp_writer *w)
{
    return w->by_tokens ? own_rows(w) * pp_shape_tensor(&w->model->local) : w->tokens / w->sum_pieces;
}

/* Of a piece of w->full[full]: the worker's own part. */
static struct pp_ref own_part(const struct pp_writer *w, int full, int piece)
{
    const int64_t bytes = row_bytes(w, w->model->local.d_model);
    struct pp_ref ref = pp_ref_further(w->full[full], piece * piece_rows(w) * bytes);
    ref.part_bytes = own_rows(w) * bytes;
    return ref;
}

static struct pp_ref own_piece(const struct pp_writer *w, struct pp_ref own, int piece)
{
    return pp_ref_further(own, piece * own_rows(w) * row_bytes(w, w->model->local.d_model));
}

static void copy_own(struct pp_writer *w, struct pp_ref to, struct pp_ref from)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_COPY);
    call->matrix = (struct pp_matrix_dims){.rows = (int)own_rows(w), .width = w->model->local.d_model};
    call->at.copy = (struct pp_copy_refs){.to = to, .from = from};
}

/* Of a piece of memory [T,d], if there are several workers: beside what comes next, if there are several pieces. */
static void start_join(struct pp_writer *w, enum pp_kernel kernel, struct pp_ref memory, int piece)
{
    const int d = w->model->local.d_model, beside = w->sum_pieces > 1 ? piece + 1 : 0;
    if (pp_shape_tensor(&w->model->local) == 1) return;
    struct pp_call *call = pp_writer_call(w, kernel);
    call->join = (struct pp_join_dims){.rows = (int)piece_rows(w), .width = d, .beside = beside};
    call->at.join.memory = pp_ref_further(memory, piece * piece_rows(w) * row_bytes(w, d));
}

static void await(struct pp_writer *w, int piece)
{
    if (w->sum_pieces > 1) pp_writer_call(w, PP_KERNEL_AWAIT)->join.beside = piece + 1;
}

void pp_writer_take_full(struct pp_writer *w, int n)
{
    const int64_t own = w->part_tokens * row_bytes(w, w->model->local.d_model);
    if (!w->by_tokens) return;
    for (int i = 0; i < n; i++) w->full[i] = pp_writer_scratch(w, own * pp_shape_tensor(&w->model->local));
    if (n > PP_FULL_OTHERS && w->sum_pieces > 1) w->own = pp_writer_stream(w);
}

void pp_writer_all_reduce(struct pp_writer *w, struct pp_ref memory, int64_t rows, int width, bool wide)
{
    if (pp_shape_tensor(&w->model->local) == 1) return;
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_ALL_REDUCE);
    call->join = (struct pp_join_dims){.rows = (int)rows, .width = width, .wide = wide};
    call->at.join.memory = memory;
}

static void start_gathering(struct pp_writer *w, int full, struct pp_ref x)
{
    for (int piece = 0; piece < w->sum_pieces; piece++) {
        copy_own(w, own_part(w, full, piece), own_piece(w, x, piece));
        start_join(w, PP_KERNEL_ALL_GATHER, w->full[full], piece);
    }
}

struct pp_ref pp_writer_start_gather(struct pp_writer *w, int full, struct pp_ref x)
{
    if (!w->by_tokens) return x;
    start_gathering(w, full, x);
    return w->full[full];
}

void pp_writer_end_gather(struct pp_writer *w)
{
    if (w->by_tokens) await(w, w->sum_pieces - 1);
}

struct pp_ref pp_writer_gather(struct pp_writer *w, int full, struct pp_ref x)
{
    const struct pp_ref all = pp_writer_start_gather(w, full, x);
    pp_writer_end_gather(w);
    return all;
}

/* The worker's part of what was scattered, one piece behind the other: in `to`, or where there is none in scratch.
 * awaits: sums of the pieces are on their way. */
static struct pp_ref collect(struct pp_writer *w, int full, struct pp_ref to, bool awaits)
{
    const bool anywhere = to.region == PP_MEM_NONE;
    if (anywhere && w->sum_pieces == 1) return own_part(w, full, 0);
    if (anywhere) to = w->own;
    for (int piece = 0; piece < w->sum_pieces; piece++) {
        if (awaits) await(w, piece);
        copy_own(w, own_piece(w, to, piece), own_part(w, full, piece));
    }
    return to;
}

/* Rows of it, as far as there are tokens: n from `begin` on. */
static void write_rows(struct pp_writer *w, const struct pp_token_product *p, struct pp_ref c, struct pp_ref a,
                       int64_t begin, int64_t n)
{
    const int64_t rows = n < w->tokens - begin ? n : w->tokens - begin;
    const int64_t wide = p->wide ? p->n * (int64_t)sizeof(float) : row_bytes(w, p->n);
    if (rows <= 0) return;
    const struct pp_linear product = {.kernel = p->kernel,
                                      .mode = p->mode,
                                      .mnk = {(int)rows, p->n, p->k},
                                      .c = pp_ref_further(c, begin * wide),
                                      .a = pp_ref_further(a, begin * row_bytes(w, p->k)),
                                      .b = p->weight,
                                      .plain = p->plain};
    pp_writer_linear(w, &product)->gemm.wide = p->wide;
}

void pp_write_gathered_product(struct pp_writer *w, int full, const struct pp_token_product *p)
{
    if (!w->by_tokens) {
        write_rows(w, p, p->c, p->a, 0, w->tokens);
        return;
    }
    start_gathering(w, full, p->a);
    for (int piece = 0; piece < w->sum_pieces; piece++) {
        await(w, piece);
        write_rows(w, p, p->c, w->full[full], piece * piece_rows(w), piece_rows(w));
    }
}

struct pp_ref pp_write_summed_product(struct pp_writer *w, int full, const struct pp_token_product *p, struct pp_ref to)
{
    const struct pp_ref c = w->by_tokens ? w->full[full] : p->c;
    const enum pp_kernel kernel = w->by_tokens ? PP_KERNEL_REDUCE_SCATTER : PP_KERNEL_ALL_REDUCE;
    for (int piece = 0; piece < w->sum_pieces; piece++) {
        write_rows(w, p, c, p->a, piece * piece_rows(w), piece_rows(w));
        start_join(w, kernel, c, piece);
    }
    if (w->by_tokens) return collect(w, full, to, true);
    await(w, w->sum_pieces - 1);
    return c;
}

static struct pp_ref scatter(struct pp_writer *w, int full, struct pp_ref to)
{
    for (int piece = 0; piece < w->sum_pieces; piece++) start_join(w, PP_KERNEL_REDUCE_SCATTER, w->full[full], piece);
    return collect(w, full, to, true);
}

void pp_write_sum(struct pp_writer *w, struct pp_ref x)
{
    if (w->by_tokens)
        scatter(w, 0, x);
    else
        pp_writer_all_reduce(w, x, w->tokens, w->model->local.d_model, false);
}

/* part: the worker's of what a product made. */
static struct pp_ref add_part(struct pp_writer *w, enum pp_gemm_mode mode, struct pp_ref c, struct pp_ref part)
{
    if (mode != PP_GEMM_ADD) return part;
    struct pp_call *add = pp_writer_pass(w, PP_KERNEL_RESIDUAL, false);
    add->at.residual = (struct pp_residual_refs){.y = c, .z = part, .x = c};
    return c;
}

struct pp_ref pp_write_gradient_sum(struct pp_writer *w, enum pp_gemm_mode mode, struct pp_ref c, bool alike)
{
    const struct pp_ref anywhere = {0};
    if (alike) return w->by_tokens ? add_part(w, mode, c, collect(w, PP_FULL_OTHERS, anywhere, false)) : c;
    if (w->by_tokens) return add_part(w, mode, c, scatter(w, PP_FULL_OTHERS, anywhere));
    pp_writer_all_reduce(w, c, w->tokens, w->model->local.d_model, false);
    return c;
}

struct pp_ref pp_write_summed_gradient(struct pp_writer *w, const struct pp_token_product *p)
{
    const bool shared = pp_shape_tensor(&w->model->local) > 1;
    struct pp_token_product here = *p;
    if (w->by_tokens) here.mode = PP_GEMM_WRITE;
    if (!w->by_tokens && shared && p->mode == PP_GEMM_ADD) here.mode = PP_GEMM_ADD_ONCE;
    const struct pp_ref made = pp_write_summed_product(w, PP_FULL_OTHERS, &here, (struct pp_ref){0});
    return w->by_tokens ? add_part(w, p->mode, p->c, made) : made;
}
