/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces into which collectives inside tasks are cut, to run beside products: sums of tensor ranks by tokens, exchanges
 * of expert ranks by experts (pp_shape.sum_pieces, pp_shape.exchange_pieces).
 */
#ifndef PP_CORE_SHAPE_PIECES_H
#define PP_CORE_SHAPE_PIECES_H

#include "core/shape/shape.h"

/* Most collectives inside a task that are under way at once; most pieces of sums, and of exchanges, of which each piece
 * needs three. */
enum { PP_BESIDE_MAX = 64, PP_SUM_PIECES_MAX = PP_BESIDE_MAX, PP_EXCHANGE_PIECES_MAX = 16 };

/* The most pieces into which collectives of tensor ranks are cut: sum_pieces if T > 1, else 1. */
static inline int pp_shape_sum_pieces(const struct pp_shape *shape)
{
    return pp_shape_tensor(shape) > 1 && shape->sum_pieces > 1 ? shape->sum_pieces : 1;
}

/* How many pieces suit sums of so many bytes, those of all tokens of a microbatch: more pieces hide more of a sum, but
 * each of them takes its own start. The limits are those that were good in predictions (docs/TIMES.md, "Sums beside
 * products"). */
static inline int pp_pieces_of_bytes(double bytes) { return bytes < 0x1p25 ? 1 : bytes < 0x1p27 ? 2 : 4; }

/* Number of equal pieces into which a worker's `tokens` tokens of a microbatch are cut: the largest number, at most
 * pp_shape_sum_pieces(), that divides them. */
static inline int pp_sum_pieces(const struct pp_shape *shape, int64_t tokens)
{
    int pieces = pp_shape_sum_pieces(shape);
    while (tokens % pieces) pieces--;
    return pieces;
}

/* The same of exchanges: exchange_pieces if N > 1, else 0. */
static inline int pp_shape_exchange_pieces(const struct pp_shape *shape)
{
    return pp_shape_expert_parallel(shape) > 1 ? shape->exchange_pieces : 0;
}

/* Number of equal pieces into which a worker's experts are cut: the largest number, at most pp_shape_exchange_pieces(),
 * that divides them; at least 1. 1, too, where each task rounds its weights to FP8: one scale is for all experts. */
static inline int pp_exchange_pieces(const struct pp_shape *shape)
{
    int pieces = pp_shape_exchange_pieces(shape);
    if (pieces <= 1 || (shape->precision == PP_FP8 && shape->zero == PP_ZERO_PARAMETERS)) return 1;
    while (shape->experts / pp_shape_sharers(shape) % pieces) pieces--;
    return pieces;
}

/* Most collectives inside a task that are under way at once (pp_join_call.beside): of each piece of experts the rows,
 * their gates (or the gradients of these), and the rows back; of a ring the next keys and values, and gradients. */
static inline int pp_shape_most_beside(const struct pp_shape *shape)
{
    const int sums = pp_shape_sum_pieces(shape),
              exchanges = pp_shape_exchange_pieces(shape) ? 3 * pp_exchange_pieces(shape) : 0,
              ring = pp_shape_rings_keys(shape) ? 2 : 0, most = exchanges > ring ? exchanges : ring;
    return sums > 1 && sums > most ? sums : most;
}

#endif
