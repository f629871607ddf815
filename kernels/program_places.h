/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the model: the way of tokens to the places of experts, and back; and parts of a worker's experts, of which one
 * is on its way beside the products of others. Letters are those of kernels/slot.h.
 */
#ifndef PP_KERNELS_PROGRAM_PLACES_H
#define PP_KERNELS_PROGRAM_PLACES_H

#include "kernels/kernels.h"

struct pp_writer;

/* Do expert ranks share the experts? Then what places hold goes to the workers that have their experts. */
bool pp_writer_is_apart(const struct pp_writer *w);
/* Experts whose matrices the worker has, and rows of each. */
int pp_writer_own_experts(const struct pp_writer *w);
int pp_writer_expert_rows(const struct pp_writer *w);

/* Of several equal parts of the worker's experts, one: successive experts, and what their places hold. */
struct pp_expert_part {
    int index, of;
};
/* Number of parts (pp_exchange_pieces()); one of them; all experts. */
int pp_writer_parts(const struct pp_writer *w);
struct pp_expert_part pp_writer_part(const struct pp_writer *w, int index);
struct pp_expert_part pp_whole_part(void);
/* Places of a part. */
int pp_part_rows(const struct pp_writer *w, struct pp_expert_part part);
/* Of `all`, `width` numbers for each place, those of a part. wide: float32 whatever the precision. */
struct pp_ref pp_part_ref(const struct pp_writer *w, struct pp_expert_part part, struct pp_ref all, int width,
                          bool wide);

/* Scratch for places of experts. */
struct pp_expert_places {
    struct pp_ref places; /* [S, d]: what experts read, and what they make */
    struct pp_ref sent;   /* [S, d], where expert ranks share the experts: rows to them, and back from them */
    struct pp_ref gates;  /* [S] float, there as well: gates of these rows */
};
/* Takes as much of it as the stage needs: nothing without experts. */
struct pp_expert_places pp_writer_expert_places(struct pp_writer *w);
/* Takes scratch for a number of each place, [S] float. */
struct pp_ref pp_writer_place_numbers(struct pp_writer *w);

/* to [S, d] = what places hold of `from` [T, d]; to [T, d] = the sum of what a token's places hold in `from` [S, d]. */
void pp_write_dispatch(struct pp_writer *w, int l, struct pp_ref to, struct pp_ref from);
void pp_write_combine(struct pp_writer *w, int l, enum pp_gemm_mode mode, struct pp_ref to, struct pp_ref from);
/* A number of each choice, [T, K] float, to its place, [S] float; the other way. */
void pp_write_numbers_to_places(struct pp_writer *w, int l, struct pp_ref to, struct pp_ref from);
void pp_write_numbers_from_places(struct pp_writer *w, int l, struct pp_ref to, struct pp_ref from);

enum pp_exchange_way { PP_TO_EXPERTS, PP_TO_TOKENS };
/* What a part's places have in `from`, into `to` on the workers that have their experts, or their tokens; both are of
 * all places: rows [S, d], or numbers [S] float. Returns the number under which it is awaited; 0: it is done. */
int pp_write_exchange_rows(struct pp_writer *w, struct pp_expert_part part, enum pp_exchange_way way, struct pp_ref to,
                           struct pp_ref from);
int pp_write_exchange_numbers(struct pp_writer *w, struct pp_expert_part part, enum pp_exchange_way way,
                              struct pp_ref to, struct pp_ref from);
/* Awaits an exchange, and others of its type that were started before. number: may be 0. */
void pp_write_await(struct pp_writer *w, int number);
/* The same of the last one that was started. After it none may be under way: numbers begin anew. */
void pp_write_await_last(struct pp_writer *w);

#endif
