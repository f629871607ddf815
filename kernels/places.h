/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tokens and heads a call works on, where workers have parts of them, and where these stand in the whole.
 *
 * Two ways to have a part of the tokens. Tensor ranks with sequence parallelism: norms and residuals work on a part of
 * the microbatch's tokens (struct pp_tokens). Context ranks: each has a part of every row (struct pp_row_places).
 * Dropout's random numbers are those of the token's place among whole rows (struct pp_token_places).
 */
#ifndef PP_KERNELS_PLACES_H
#define PP_KERNELS_PLACES_H

#include "core/model/program.h"

/* The tokens that a norm, a residual, or the gradient of one works on. */
struct pp_tokens {
    int64_t first; /* number of the first one, counted over the rows of the whole batch that the worker has */
    int64_t n;
    int seq;      /* tokens of a row that the worker's rank has */
    int run, gap; /* after each `run` of them `gap` tokens follow that are other tensor ranks'; run 0: none do */
};
static inline struct pp_tokens pp_call_tokens(const struct pp_call *call, const struct pp_frame *frame)
{
    const struct pp_norm_dims *n = &call->norm;
    const int64_t room = (int64_t)n->rows * n->seq, whole = n->whole;
    if (!whole) return (struct pp_tokens){.first = frame->first_row * n->seq, .n = room, .seq = n->seq};
    const int pieces = n->pieces > 1 ? n->pieces : 1, seq = (int)(whole / n->rows);
    const int64_t own = room / pieces, piece = own * pp_frame_tensor(frame), begin = frame->tensor_rank * own;
    /* Pieces that hold tokens of all workers; of the next one this worker has what is left, if anything is. */
    const int64_t filled = whole / piece < pieces ? whole / piece : pieces, rest = whole - filled * piece - begin;
    const int64_t left = filled == pieces || rest < 0 ? 0 : rest < own ? rest : own;
    return (struct pp_tokens){.first = frame->first_row * seq + begin,
                              .n = filled * own + left,
                              .seq = seq,
                              .run = pieces > 1 ? (int)own : 0,
                              .gap = (int)(piece - own)};
}

/* Where the `seq` tokens that a context rank has of a row stand in it: token t at t + before, and from t = run on at t
 * + behind. They are one part of the row, or, with pp_frame.halves, two chunks of it: as far from the row's begin as
 * the second is from its end. */
struct pp_row_places {
    int run, before, behind;
};
static inline struct pp_row_places pp_row_places_of(int seq, const struct pp_frame *frame)
{
    const int rank = frame->context_rank, chunk = seq / 2;
    if (!frame->halves) return (struct pp_row_places){seq, rank * seq, rank * seq};
    return (struct pp_row_places){chunk, rank * chunk, (2 * pp_frame_context(frame) - 2 - rank) * chunk};
}
/* The same of the tokens of a call of rope: with halves the worker's tokens, else all tokens of the row (all to all has
 * given the call a part of the heads). */
static inline struct pp_row_places pp_query_places_of(int seq, const struct pp_frame *frame)
{
    return frame->halves ? pp_row_places_of(seq, frame) : (struct pp_row_places){seq, 0, 0};
}
/* The same of the queries of a call of attention, among its keys; those of one chunk stand as they do in the chunk. */
static inline struct pp_row_places pp_attention_places_of(const struct pp_attention_dims *n,
                                                          const struct pp_frame *frame)
{
    return n->keys == n->seq ? (struct pp_row_places){n->seq, 0, 0} : pp_query_places_of(n->seq, frame);
}

/* How dropout turns the number of a token among those of the worker into its number among those of whole rows. The
 * worker has `seq` tokens of each row, and other context ranks `others`. The call's rows begin with the worker's token
 * `begin`; t tokens further is number t + t / seq * others + before, plus `apart` from the row's token `half` on.
 * first, run, gap: of struct pp_tokens; t then counts the tokens of other tensor ranks, too. The generator has 32 bits
 * for such numbers, and they wrap around; so only numbers that are small are divided. */
struct pp_token_places {
    uint32_t seq, begin, others, before, half, apart, first, run, gap;
};
static inline struct pp_token_places pp_token_places_of(int seq, const struct pp_frame *frame)
{
    const int64_t context = pp_frame_context(frame), begin = frame->first_row * seq;
    const struct pp_row_places row = pp_row_places_of(seq, frame);
    return (struct pp_token_places){.seq = (uint32_t)seq,
                                    .begin = (uint32_t)begin,
                                    .others = (uint32_t)((context - 1) * seq),
                                    .before = (uint32_t)(begin * context + row.before),
                                    .half = (uint32_t)row.run,
                                    .apart = (uint32_t)(row.behind - row.before)};
}
static inline struct pp_token_places pp_places_of_tokens(const struct pp_tokens *tokens, const struct pp_frame *frame)
{
    struct pp_token_places places = pp_token_places_of(tokens->seq, frame);
    places.first = (uint32_t)tokens->first;
    places.run = (uint32_t)tokens->run;
    places.gap = (uint32_t)tokens->gap;
    return places;
}

/* The worker's number among the workers that share the heads of attention, and how many these are. */
static inline int pp_frame_head_rank(const struct pp_frame *frame)
{
    return frame->halves ? frame->tensor_rank : frame->tensor_rank * pp_frame_context(frame) + frame->context_rank;
}
static inline int pp_frame_head_ranks(const struct pp_frame *frame)
{
    return pp_frame_tensor(frame) * (frame->halves ? 1 : pp_frame_context(frame));
}

#endif
