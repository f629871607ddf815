/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tokens and heads a call works on, where workers have parts of them, and where these stand in the whole.
 */
#ifndef PP_KERNELS_PLACES_H
#define PP_KERNELS_PLACES_H

#include "core/program.h"

/* Of a norm, residual, or a gradient of these: tokens of the worker's microbatches before the first one that it works
 * on, and how many these are; seq: tokens that it has of a row. Behind each `run` of them, unless that is 0, there are
 * `gap` others, of which other tensor ranks have the same pieces. */
struct pp_tokens {
    int64_t first, n;
    int seq, run, gap;
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

/* Where a row's tokens stand of which a worker has `seq`: token t at t + before, and from t = run on at t + behind.
 * They are one part of the row, or two chunks: of those of all workers as many before the first as behind the second.
 */
struct pp_row_places {
    int run, before, behind;
};
static inline struct pp_row_places pp_row_places_of(int seq, const struct pp_frame *frame)
{
    const int rank = frame->context_rank, chunk = seq / 2;
    if (!frame->halves) return (struct pp_row_places){seq, rank * seq, rank * seq};
    return (struct pp_row_places){chunk, rank * chunk, (2 * pp_frame_context(frame) - 2 - rank) * chunk};
}
/* The same of tokens that have their queries in a call of attention or rope: those, or, of a part of the heads, all. */
static inline struct pp_row_places pp_query_places_of(int seq, const struct pp_frame *frame)
{
    return frame->halves ? pp_row_places_of(seq, frame) : (struct pp_row_places){seq, 0, 0};
}

/* Where dropout counts such tokens, whose numbers are `first` and following ones: among those of whole rows. A worker
 * has `seq` of each row, and the call's rows begin with its token `begin`: t tokens further is t + t / seq * others +
 * before, and, from its row's token `half` on, so much more as `apart` says. run, gap: as of struct pp_tokens, of which
 * t does not count the others. The generator has 32 bits of such numbers, so only what is small is divided. */
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

/* The worker's number among those that share the heads of attention, and how many these are. */
static inline int pp_frame_head_rank(const struct pp_frame *frame)
{
    return frame->halves ? frame->tensor_rank : frame->tensor_rank * pp_frame_context(frame) + frame->context_rank;
}
static inline int pp_frame_head_ranks(const struct pp_frame *frame)
{
    return pp_frame_tensor(frame) * (frame->halves ? 1 : pp_frame_context(frame));
}

#endif
