/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device does for a call. Products have the arithmetic of their precision, all else plain float. Of attention
 * that depends on the device and on the shape, and so does how much of it is done: what is masked counts as far as it
 * is computed, as do the borders of tiles.
 */
#include "core/shape/heads.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/kernels.h"

static int64_t up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

static bool is_gradient(const struct pp_call *call)
{
    return call->kernel == PP_KERNEL_ATTENTION_GRAD || call->kernel == PP_KERNEL_FLASH_GRAD;
}

static bool is_flash(const struct pp_call *call)
{
    return call->kernel == PP_KERNEL_FLASH || call->kernel == PP_KERNEL_FLASH_GRAD;
}

/* Tiles in which a head's scores are computed. All three numbers divide PERIOD. */
struct tiles {
    int64_t queries, keys; /* of a tile */
    int64_t first;         /* the first key that the first query of a tile sees is rounded down to a multiple of this */
    bool filled;           /* the last tile of a row counts as many queries as all others */
};
enum { PERIOD = 64 };

/* Are the call's queries two chunks of the row whose keys it has? Those of one chunk have as many keys. */
static bool two_chunks(const struct pp_attention_dims *n) { return n->keys > n->seq; }

/* Place in the row of the call's query t. If the call has two chunks of a row (pp_row_places), it is the place of one
 * worker's query. Without a window that is the first worker's: all workers have equally many scores, but for tiles in
 * which chunks end. With a window it is the last worker's, whose two chunks are neighbours: it has the most scores,
 * because the first queries of a row, which see fewer keys than a window has, are other workers'. */
static int64_t place_of(const struct pp_attention_dims *n, int64_t t)
{
    if (two_chunks(n) && n->window) return t + (n->keys - n->seq) / 2;
    return two_chunks(n) && t >= n->seq / 2 ? t + n->keys - n->seq : t;
}

/* Scores of tiles of a head's queries begin .. end - 1. */
static double scores_between(const struct pp_attention_dims *n, struct tiles t, int64_t begin, int64_t end)
{
    double sum = 0;
    for (int64_t i = begin; i < end; i += t.queries) {
        const int64_t left = end - i < t.queries ? end - i : t.queries, before = place_of(n, i) + 1 - n->window;
        const int64_t seen = n->causal ? place_of(n, i + left - 1) + 1 : PP_ROW_KEYS(n);
        const int64_t hidden = n->window && before > 0 ? before / t.first * t.first : 0;
        sum += (double)(t.filled ? t.queries : left) * (double)(up(seen, t.keys) - hidden);
    }
    return sum;
}

/* The same, where successive queries have successive places. Scores of a PERIOD of queries are more than those of the
 * PERIOD before by a constant; with a window that is so from the query on before which a whole window fits. */
static double scores_of_run(const struct pp_attention_dims *n, struct tiles t, int64_t begin, int64_t end)
{
    const int64_t regular = begin + up(n->window, PERIOD), periods = (end - regular) / PERIOD;
    if (regular + 2 * PERIOD > end) return scores_between(n, t, begin, end);
    const double first = scores_between(n, t, regular, regular + PERIOD),
                 second = scores_between(n, t, regular + PERIOD, regular + 2 * PERIOD), count = (double)periods;
    return scores_between(n, t, begin, regular) + count * first + (second - first) * count * (count - 1) / 2 +
           scores_between(n, t, regular + periods * PERIOD, end);
}

/* Scores of a head that are computed in tiles of queries x keys, one a multiple of the other. With a mask a tile is
 * left out where none of its queries sees any of its keys. */
static double scores(const struct pp_attention_dims *n, int64_t queries, int64_t keys)
{
    const int64_t first = queries == PP_TILE_SIDE ? PP_TILE_SIDE : keys; /* attention_tile.cuh */
    const struct tiles t = {queries, keys, first, true};
    const bool chunks = two_chunks(n) && !n->window; /* whose places do not follow each other (place_of()) */
    return chunks ? scores_between(n, t, 0, n->seq) : scores_of_run(n, t, 0, n->seq);
}

/* Products of a kernel. */
struct part {
    double scores;       /* of a head */
    int64_t columns;     /* for each score, of all products together */
    double shared_bytes; /* for each score */
};

/* At most two. */
struct parts {
    struct part of[2];
};

/* attention_short.cu, whether a GPU has shared memory for the shape or not: else the long way skips one tile of four,
 * and that only in rows of more than PP_TILE_SIDE. Or attention_short_mma.cu and attention_short_tf32.cu, where they
 * multiply. Scores, or gradients of P, and what is made of them, as in long rows. */
static struct parts short_rows(const struct pp_call *call, bool gradient)
{
    const struct pp_attention_dims *n = &call->attention;
    const bool multiplies = pp_short_multiplies(call);
    const int64_t side = up(n->seq, multiplies ? PP_SHORT_SIDE : PP_SHORT_QUAD),
                  terms = multiplies && call->precision == PP_TF32 ? up(n->seq, PP_SHORT_TF32_TERMS) : side,
                  keys = up(n->dh, PP_SHORT_QUAD), values = up(PP_VALUE_COLUMNS(n), PP_SHORT_QUAD);
    return (struct parts){{{(double)(side * side), gradient ? values : keys, 0},
                           {(double)(side * terms), gradient ? values + 2 * keys : values, 0}}};
}

/* attention_long.cu: scores, or gradients of P, and what is made of them: ctx, or gradients of queries, keys and
 * values. */
static struct parts long_rows(const struct pp_attention_dims *n, bool gradient)
{
    const int values = PP_VALUE_COLUMNS(n);
    const int64_t made = up(values, PP_TILE_SIDE) + (gradient ? 2 * up(n->dh, PP_TILE_SIDE) : 0);
    return (struct parts){{{scores(n, PP_TILE_SIDE, PP_TILE_SIDE), up(gradient ? values : n->dh, PP_TILE_TERMS), 0},
                           {scores(n, PP_TILE_SIDE, PP_TILE_TERMS), made, 0}}};
}

/* attention_flash.cu: both kernels of the gradient make P and its gradient, and so do all blocks that share a head's
 * columns. */
static struct parts flash_in_float(const struct pp_attention_dims *n, bool gradient)
{
    const int widest = PP_WIDEST_COLUMNS(n), of_block = pp_flash_columns(widest);
    const int64_t columns = up(widest, of_block), blocks = columns / of_block, keys = up(n->dh, PP_TILE_TERMS),
                  terms = gradient ? 2 * (keys + up(PP_VALUE_COLUMNS(n), PP_TILE_TERMS)) : keys;
    return (struct parts){{{scores(n, PP_TILE_SIDE, PP_TILE_SIDE), blocks * terms, 0},
                           {scores(n, PP_TILE_SIDE, PP_TILE_TERMS), (gradient ? 3 : 1) * columns, 0}}};
}

/* attention_mma.cu, attention_mma_grad.cu. Shared memory, for each score and column: a fragment of 512 bytes is read
 * for two products of 16 x 8 x 16. Forward, where a warp has twice as many queries, it is read for four, but there the
 * scores read another one, of queries, for the keys of a tile. Of wide heads two of the four products that the kernel
 * of keys and values makes read half as much again, of the other factor, and two that the kernel of queries makes. Two
 * matrices of a tile are written once for all warps of a block. Two blocks have the keys and values of wide heads,
 * which both make all scores. */
enum { FRAGMENT = 512, OF = 2 * 16 * 8 * 16, MATRICES = 2 * 2 /* bytes of two numbers */ };
static const double fragment_read = (double)FRAGMENT / OF;

static struct parts flash_forward(const struct pp_attention_dims *n)
{
    const int64_t width = pp_mma_width(PP_WIDEST_COLUMNS(n)), groups = pp_mma_groups((int)width),
                  keys = width > PP_MMA_NARROW ? PP_MMA_WIDE_KEYS : PP_MMA_KEYS;
    const double written = (double)MATRICES / (PP_MMA_WARPS * PP_MMA_TOKENS),
                 of_queries = groups > 1 ? fragment_read * PP_MMA_TOKENS / (double)keys : 0;
    return (struct parts){{{scores(n, groups * PP_MMA_TOKENS, keys), 2 * width,
                            (double)width * (2 * fragment_read / (double)groups + of_queries + written)}}};
}

static struct parts flash_backward(const struct pp_attention_dims *n)
{
    const int64_t width = pp_mma_width(PP_WIDEST_COLUMNS(n));
    const bool wide = width > PP_MMA_NARROW;
    const int blocks = wide ? 2 : 1;
    const double w = (double)width, written = (double)MATRICES / (PP_MMA_GRAD_WARPS * PP_MMA_TOKENS),
                 again = wide ? 1.5 : 1; /* reads of a product whose other factor is read, too */
    return (struct parts){
        {{scores(n, PP_MMA_TOKENS, PP_MMA_OVER), 3 * width, w * ((2 * again + 1) * fragment_read + written)},
         {scores(n, wide ? PP_MMA_OVER : PP_MMA_TOKENS, PP_MMA_TOKENS), (2 * blocks + 2) * width,
          w * ((blocks * 2 * again + 2) * fragment_read + blocks * written)}}};
}

/* On a processor all scores are made, by flash those of blocks of queries up to the last key that they see, and with a
 * window from the first one that they see on. Blocks begin with chunks. */
static double processor_scores(const struct pp_attention_dims *n, bool flash)
{
    static const struct tiles blocks = {PP_FLASH_QUERIES, 1, PP_WINDOW_STEP, false};
    const int64_t run = two_chunks(n) ? n->seq / 2 : n->seq;
    if (!n->window && (!flash || !n->causal)) return (double)n->seq * PP_ROW_KEYS(n);
    return scores_of_run(n, blocks, 0, run) + scores_of_run(n, blocks, run, n->seq);
}

static struct parts on_processor(const struct pp_call *call)
{
    const struct pp_attention_dims *n = &call->attention;
    const double made = processor_scores(n, is_flash(call));
    const int pair = PP_PAIR_COLUMNS(n), again = is_flash(call) ? n->dh : 0; /* flash makes scores again */
    return (struct parts){{{made, is_gradient(call) ? 2 * pair + again : pair, 0}}};
}

static struct parts parts_of(const struct pp_call *call, bool gpu)
{
    const struct pp_attention_dims *n = &call->attention;
    const bool gradient = is_gradient(call);
    if (!gpu) return on_processor(call);
    if (is_flash(call))
        return !pp_flash_multiplies(call) ? flash_in_float(n, gradient)
               : gradient                 ? flash_backward(n)
                                          : flash_forward(n);
    return n->seq <= PP_SHORT_SEQ ? short_rows(call, gradient) : long_rows(n, gradient);
}

/* Has a call of attention the arithmetic of its precision? */
static bool has_own_arithmetic(const struct pp_call *call, bool gpu)
{
    return !gpu || (is_flash(call) ? pp_flash_multiplies(call) : pp_short_multiplies(call));
}

/* Clocks of a multiprocessor for a score of flash on tensor cores: a warp's next products wait for what it makes of
 * scores. Of each kernel that makes them; wide heads' scores are made by two blocks of the second. Fitted to an H200's,
 * of heads of 64 and 128 columns (docs/results/h200-findings.md). */
static const double clocks_forward = 0.21, clocks_backward = 0.5;

static double clocks_of(const struct parts *p, bool gradient, bool wide)
{
    return gradient ? clocks_backward * (p->of[0].scores + (wide ? 2 : 1) * p->of[1].scores)
                    : clocks_forward * p->of[0].scores;
}

/* Columns for each score, of the products that attention asks for: scores and ctx; or scores, gradients of P, and those
 * of queries, keys and values. */
static double asked_columns(const struct pp_call *call)
{
    const struct pp_attention_dims *n = &call->attention;
    const int values = PP_VALUE_COLUMNS(n);
    return is_gradient(call) ? 3 * n->dh + 2 * values : n->dh + values;
}

static bool others_multiply(const struct pp_call *call)
{
    return is_flash(call) && call->precision == PP_BF16 &&
           pp_others_attend(call->attention.dh, PP_VALUE_COLUMNS(&call->attention));
}

static void add_attention(const struct pp_call *call, bool gpu, struct pp_work *work)
{
    const struct parts p = parts_of(call, gpu);
    const double heads = (double)call->attention.rows * call->attention.heads;
    const int other = call->kernel == PP_KERNEL_FLASH_GRAD ? PP_SOFTMAX_AGAIN_FLOPS : PP_SOFTMAX_FLOPS,
              turns = call->kernel == PP_KERNEL_FLASH_GRAD && gpu ? 2 : 1,
              arithmetic = has_own_arithmetic(call, gpu) ? call->precision : PP_FP32;
    work->flops[PP_FP32] += heads * p.of[0].scores * other * turns;
    if (gpu && call->kernel == PP_KERNEL_FLASH && call->at.flash.bias.region != PP_MEM_NONE) {
        const struct pp_operand qkv = pp_call_operand(call, PP_OPERAND(flash, qkv)); /* a bias is added first, */
        const double once = (double)qkv.elements * (double)qkv.element_bytes;
        work->bytes_before = 2 * once;
        work->bytes -= once; /* and what it makes is written by that launch alone */
    }
    if (gpu && others_multiply(call))
        work->attention[is_gradient(call)] = 2 * heads * asked_columns(call) * processor_scores(&call->attention, true);
    if (gpu && is_flash(call) && pp_flash_multiplies(call))
        work->clocks = heads * clocks_of(&p, is_gradient(call), PP_WIDEST_COLUMNS(&call->attention) > PP_MMA_NARROW);
    for (int i = 0; i < 2; i++) {
        work->flops[arithmetic] += 2 * heads * p.of[i].scores * (double)p.of[i].columns;
        work->shared_bytes += heads * p.of[i].scores * p.of[i].shared_bytes;
    }
}

static void add_product(const struct pp_call *call, struct pp_work *work)
{
    const struct pp_operand c = pp_call_operand(call, 0);
    const double moved = (double)c.element_bytes * (double)c.moved + (call->adds ? pp_call_again_bytes(call) : 0);
    work->flops[call->kernel == PP_KERNEL_GEMM_FP8 ? PP_FP8 : call->precision] = pp_call_flops(call);
    work->product = (struct pp_product){.m = call->gemm.m,
                                        .n = call->gemm.n,
                                        .k = call->gemm.k,
                                        .times = PP_TIMES(&call->gemm),
                                        .moved_bytes = (int)(moved / (double)c.elements)};
}

struct pp_work pp_call_work(const struct pp_call *call, bool gpu)
{
    struct pp_work work = {.bytes = pp_call_bytes(call)};
    if (is_flash(call) || call->kernel == PP_KERNEL_ATTENTION || call->kernel == PP_KERNEL_ATTENTION_GRAD)
        add_attention(call, gpu, &work);
    else if (pp_kernel_is_product(call->kernel))
        add_product(call, &work);
    else
        work.flops[PP_FP32] = pp_call_flops(call);
    return work;
}
