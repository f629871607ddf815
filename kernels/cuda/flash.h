/* SPDX-License-Identifier: Apache-2.0
 *
 * How calls of flash and flash_grad are divided into launches: for the launchers, and for pp_cuda_launches().
 */
#ifndef PP_KERNELS_CUDA_FLASH_H
#define PP_KERNELS_CUDA_FLASH_H

#include "kernels/cuda/attention_tiles.h"

enum { PP_FLASH_BLOCKS = 512 }; /* of attention_flash.cu, that keep a large device busy */

/* flash_grad works on parts: as many groups (heads that share keys and values) at a time as have room in scratch.
 *
 * Gradients take the place of what they are gradients of, so some must wait in scratch until no block needs the old
 * numbers any more; a launch of its own then takes them to their place. Gradients of queries wait where each head has
 * keys and values of its own. Else those of keys and values wait, as there are fewer of them; on tensor cores also for
 * wide heads, whose keys several blocks need. Gradients of keys that lie apart from qkv (attention.keys) never wait. */
struct pp_flash_parts {
    int groups;      /* of a part; the last part may have fewer */
    int parts;       /* 0: there is not even room for one group */
    int64_t bytes;   /* of scratch for a group */
    int launches;    /* of a part */
    int terms;       /* pieces of a group whose gradients of keys and values are made apart, then added */
    int pitch;       /* numbers from one token's waiting gradients to the next token's */
    int64_t queries; /* numbers of a group's waiting gradients of queries */
    int64_t keys;    /* the same of keys and values */
};

/* Launches of a call of flash: one kernel; before it one more that adds the bias, if the call has a bias. */
static inline int pp_flash_launches(const struct pp_call *call)
{
    return call->at.flash.bias.region == PP_MEM_NONE ? 1 : 2;
}

static inline int64_t pp_flash_ceil(int64_t n, int64_t of) { return (n + of - 1) / of; }
static inline int64_t pp_flash_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t pp_flash_most(int64_t a, int64_t b) { return a > b ? a : b; }

/* pp_flash_parts.terms in float arithmetic: as many as make enough blocks for a large device of one row of tokens, if
 * scratch has room for a group. Scratch and shape alone decide, so equal calls have equal bits. fixed: floats of
 * scratch for a token of a group, beside its gradients of keys and values. */
static inline int pp_flash_terms(const struct pp_call *call, int pitch, int64_t fixed, int64_t scratch_bytes)
{
    const struct pp_attention_dims *n = &call->attention;
    const int64_t group = n->heads / PP_KV_HEADS(n), blocks = pp_flash_ceil(n->seq, PP_TILE_SIDE) * PP_KV_HEADS(n),
                  room = scratch_bytes / (int64_t)sizeof(float) / n->seq - fixed,
                  most = pp_flash_least(PP_FLASH_BLOCKS / blocks, room / (2 * pitch));
    return (int)pp_flash_ceil(group, pp_flash_ceil(group, most > 1 ? pp_flash_least(group, most) : 1));
}

/* Do gradients of keys and values wait, or go to a place of their own, so that those of queries need not wait? */
static inline bool pp_flash_keys_apart(const struct pp_attention_dims *n, bool multiplies)
{
    return n->keys > 0 || n->heads > PP_KV_HEADS(n) || (multiplies && PP_WIDEST_COLUMNS(n) > PP_MMA_NARROW);
}

/* multiplies: on tensor cores. There waiting gradients are bfloat16, and the kernel of queries also makes the means
 * (the sums of dP P of each query); a launch that makes means alone is needed only where the kernel of keys comes
 * first. */
static inline struct pp_flash_parts pp_flash_divide(const struct pp_call *call, bool multiplies, int64_t scratch_bytes)
{
    const struct pp_attention_dims *n = &call->attention;
    const int widest = PP_WIDEST_COLUMNS(n);
    const int64_t seq = n->seq, groups = (int64_t)n->rows * PP_KV_HEADS(n), group = n->heads / PP_KV_HEADS(n);
    const bool apart = n->keys > 0, shared = pp_flash_keys_apart(n, multiplies), wide = widest > PP_FLASH_COLUMNS;
    struct pp_flash_parts p = {.terms = 1, .pitch = widest};
    if (!multiplies) p.pitch = (widest + 3) / 4 * 4; /* whole quads */
    if (!multiplies && !apart) {
        p.terms = pp_flash_terms(call, p.pitch, group * (wide ? p.pitch + 1 : 1), scratch_bytes);
    }
    p.queries = wide || !shared ? group * seq * p.pitch : 0;
    p.keys = (wide || shared) && !apart ? 2 * p.terms * seq * p.pitch : 0;
    p.launches = (multiplies && !shared ? 2 : 3) + (p.queries > 0) + (p.keys > 0);
    p.bytes = (multiplies ? 2 : (int64_t)sizeof(float)) * (p.queries + p.keys) + (int64_t)sizeof(float) * group * seq;
    const int64_t room = scratch_bytes / p.bytes;
    if (room == 0) return p;
    p.parts = (int)pp_flash_ceil(groups, room);
    p.groups = (int)pp_flash_ceil(groups, p.parts);
    return p;
}

#endif
