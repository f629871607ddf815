/* SPDX-License-Identifier: Apache-2.0
 *
 * How calls of attention that stores no scores are launched: for the launchers, and for who counts launches.
 */
#ifndef PP_KERNELS_CUDA_FLASH_H
#define PP_KERNELS_CUDA_FLASH_H

#include "kernels/cuda/attention_tiles.h"

enum { PP_FLASH_BLOCKS = 512 }; /* of attention_flash.cu, that keep a large device busy */

/* The backward does some groups of heads, which share keys and values, at a time, as many as have room in scratch:
 * parts of one size, but for the last. Some gradients wait there until nobody needs any more what they take the place
 * of: those of queries where each head has keys and values of its own, else those of keys and values, as there are
 * fewer of these; on tensor cores these also of wide heads, whose keys several blocks need. A launch takes the ones, or
 * the others, to their place. Gradients of keys that have a place of their own (n->keys) never wait. */
struct pp_flash_parts {
    int groups, parts; /* of a part; 0: not even one group has room */
    int64_t bytes;     /* of scratch, that a group takes */
    int launches;      /* of a part */
    int terms;         /* parts of a group whose gradients of keys and values are made apart, then added */
    int pitch;         /* numbers of a token's gradients that wait */
    int64_t queries;   /* numbers of a group's gradients that wait: of queries, */
    int64_t keys;      /* of keys and values */
};

/* Forward: the bias, unless there is none, and all the rest. */
static inline int pp_flash_launches(const struct pp_call *call)
{
    return call->at.flash.bias.region == PP_MEM_NONE ? 1 : 2;
}

static inline int64_t pp_flash_ceil(int64_t n, int64_t of) { return (n + of - 1) / of; }
static inline int64_t pp_flash_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t pp_flash_most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Terms of a group in float arithmetic: enough blocks for a large device at one row of tokens, if there is scratch for
 * a group. That and the shape alone decide, so equal calls have equal bits. fixed: floats of a token of a group beside
 * its gradients of keys and values. */
static inline int pp_flash_terms(const struct pp_call *call, int pitch, int64_t fixed, int64_t scratch_bytes)
{
    const struct pp_attention_dims *n = &call->attention;
    const int64_t group = n->heads / PP_KV_HEADS(n), blocks = pp_flash_ceil(n->seq, PP_TILE_SIDE) * PP_KV_HEADS(n),
                  room = scratch_bytes / (int64_t)sizeof(float) / n->seq - fixed,
                  most = pp_flash_least(PP_FLASH_BLOCKS / blocks, room / (2 * pitch));
    return (int)pp_flash_ceil(group, pp_flash_ceil(group, most > 1 ? pp_flash_least(group, most) : 1));
}

/* multiplies: on tensor cores, where the gradients that wait are bfloat16. There those of queries are made by the
 * kernel that also makes the means, and means alone are launched only where those of keys and values come first. */
static inline struct pp_flash_parts pp_flash_divide(const struct pp_call *call, bool multiplies, int64_t scratch_bytes)
{
    const struct pp_attention_dims *n = &call->attention;
    const int64_t seq = n->seq, groups = (int64_t)n->rows * PP_KV_HEADS(n), group = n->heads / PP_KV_HEADS(n);
    const bool apart = n->keys > 0, shared = apart || group > 1 || (multiplies && n->dh > PP_MMA_NARROW),
               wide = n->dh > PP_FLASH_COLUMNS;
    struct pp_flash_parts p = {.terms = 1, .pitch = n->dh};
    if (!multiplies) p.pitch = (n->dh + 3) / 4 * 4; /* whole quads */
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
