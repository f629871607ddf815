/* SPDX-License-Identifier: Apache-2.0
 *
 * Scratch of attention where keys and values go around in a ring (kernels/program_ring.c).
 */
#ifndef PP_KERNELS_PROGRAM_RING_H
#define PP_KERNELS_PROGRAM_RING_H

#include <stdbool.h>

#include "core/calls/operand.h"

/* n: a worker's tokens; h: those of a chunk of a row; widths as in core/shape/heads.h. */
struct pp_ring_scratch {
    struct pp_ref keys[2]; /* [n, keys]: of whom the worker attends to now, and of whom next */
    /* Forward, and where a backward makes a layer again, for two chunks: */
    struct pp_ref part;     /* [h, attended] */
    struct pp_ref part_lse; /* [heads, h] float */
    /* Backward: */
    struct pp_ref grads[2]; /* [n, keys]: the gradients of these keys and values, which go around behind them */
    struct pp_ref queries;  /* [n, query]: the sum of the gradients of queries */
    /* Backward, for two chunks: */
    struct pp_ref part_qkv;  /* [h, qkv]: queries, then their gradients; the other columns are not used */
    struct pp_ref part_keys; /* [h, keys]: gradients */
};

struct pp_writer;

/* Takes w->ring. back: of a program that has gradients of attention. */
void pp_writer_take_ring(struct pp_writer *w, bool back);
/* Attention of layer l, of queries that have their bias and rotation, to the slot's ctx and lse. Before, here and
 * below, w->ring.keys[0] has the worker's own keys and values. */
void pp_write_ring(struct pp_writer *w, int l, struct pp_ref scratch);
/* Its gradient, from that at ctx to that at qkv, in place of qkv. */
void pp_write_ring_grad(struct pp_writer *w, int l, struct pp_ref dctx, struct pp_ref scratch);

#endif
