/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs run with symbols in the place of numbers. The content of a piece of memory is a number of 64 bits that
 * stands for all that has been computed into it: a hash of the call that wrote it and of the contents of all operands
 * which that call read. So equal contents are equal computations, and a buffer that holds something stale, or something
 * that another call has overwritten in part, has another content than the one expected.
 */
#ifndef PP_TESTS_PROGRAM_CONTENTS_H
#define PP_TESTS_PROGRAM_CONTENTS_H

#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

/* Bytes begin .. end-1 of a region, which hold, of what a call wrote there, the bytes from number `from` on. */
struct piece {
    int region;
    int64_t begin, end, from, whole; /* whole: bytes that the call wrote */
    uint64_t content;
};

/* All that calls have written, sorted by region and place, without overlaps. The rest of the memory holds what it held
 * when the program began. */
struct contents {
    struct piece *pieces;
    int n, room;
};

static inline uint64_t mixed(uint64_t hash, uint64_t value)
{
    uint64_t x = (hash ^ value) + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline void free_contents(struct contents *m)
{
    free(m->pieces);
    *m = (struct contents){0};
}

static inline void insert_piece(struct contents *m, int at, struct piece piece)
{
    if (m->n == m->room) {
        m->room = 2 * m->room + 64;
        m->pieces = realloc(m->pieces, (size_t)m->room * sizeof *m->pieces);
        assert_non_null(m->pieces);
    }
    memmove(m->pieces + at + 1, m->pieces + at, (size_t)(m->n++ - at) * sizeof *m->pieces);
    m->pieces[at] = piece;
}

/* The first piece that ends behind this place. */
static inline int first_piece(const struct contents *m, int region, int64_t begin)
{
    int i = 0;
    while (i < m->n && (m->pieces[i].region < region || (m->pieces[i].region == region && m->pieces[i].end <= begin)))
        i++;
    return i;
}

static inline bool begins_before(const struct contents *m, int i, int region, int64_t end)
{
    return i < m->n && m->pieces[i].region == region && m->pieces[i].begin < end;
}

static inline void write_content(struct contents *m, int region, int64_t begin, int64_t bytes, uint64_t content)
{
    const int64_t end = begin + bytes;
    int i = first_piece(m, region, begin);
    while (begins_before(m, i, region, end)) {
        const struct piece old = m->pieces[i];
        memmove(m->pieces + i, m->pieces + i + 1, (size_t)(--m->n - i) * sizeof *m->pieces);
        if (old.begin < begin) {
            struct piece left = old;
            left.end = begin;
            insert_piece(m, i++, left);
        }
        if (old.end > end) {
            struct piece right = old;
            right.from += end - old.begin;
            right.begin = end;
            insert_piece(m, i, right);
        }
    }
    insert_piece(m, first_piece(m, region, begin), (struct piece){region, begin, end, 0, bytes, content});
}

/* What is there: if it is all that one call wrote, that content. */
static inline uint64_t read_content(const struct contents *m, int region, int64_t begin, int64_t bytes)
{
    const int64_t end = begin + bytes;
    int i = first_piece(m, region, begin);
    if (begins_before(m, i, region, end) && m->pieces[i].begin == begin && m->pieces[i].end == end &&
        m->pieces[i].whole == bytes)
        return m->pieces[i].content;
    uint64_t hash = mixed((uint64_t)region, (uint64_t)bytes);
    int64_t at = begin;
    for (; begins_before(m, i, region, end); i++) {
        const struct piece *p = &m->pieces[i];
        const int64_t from = p->begin > begin ? p->begin : begin, to = p->end < end ? p->end : end;
        if (from > at) hash = mixed(mixed(hash, (uint64_t)at), (uint64_t)from); /* from before the program */
        hash = mixed(mixed(hash, p->content), (uint64_t)(p->from + from - p->begin));
        hash = mixed(hash, (uint64_t)(to - from));
        at = to;
    }
    return at < end ? mixed(mixed(hash, (uint64_t)at), (uint64_t)end) : hash;
}

/* Of one worker: its numbers among the tensor ranks and among the expert ranks. */
struct who {
    int tensor_rank, expert_rank;
};

static inline int64_t place_of(const struct pp_ref *ref, struct who who)
{
    return ref->offset + who.tensor_rank * ref->part_bytes + who.expert_rank * ref->expert_bytes;
}

static inline int64_t bytes_of(const struct pp_call *call, int i)
{
    const struct pp_operand o = pp_call_operand(call, i);
    return o.elements * o.element_bytes;
}

static inline uint64_t content_of(const struct contents *m, const struct pp_call *call, int i, struct who who)
{
    return read_content(m, call->ref[i].region, place_of(&call->ref[i], who), bytes_of(call, i));
}

static inline void set_content(struct contents *m, const struct pp_call *call, int i, struct who who, uint64_t content)
{
    write_content(m, call->ref[i].region, place_of(&call->ref[i], who), bytes_of(call, i), content);
}

/* Has the call this operand, and does it use it so? */
static inline bool uses(const struct pp_call *call, int i, enum pp_operand_use use)
{
    const struct pp_operand o = pp_call_operand(call, i);
    return o.name && call->ref[i].region != PP_MEM_NONE && (o.use & (int)use);
}

/* What is computed: the kernel, its numbers, and the contents that it reads. */
static inline uint64_t computation_of(const struct contents *m, const struct pp_call *call, struct who who)
{
    uint64_t hash = mixed(mixed((uint64_t)call->kernel, (uint64_t)call->precision), (uint64_t)call->site);
    for (int i = 0; i < PP_CALL_DIMS; i++) hash = mixed(hash, (uint64_t)call->n[i]);
    uint32_t scalars[1 + sizeof call->turns / sizeof(uint32_t)];
    memcpy(scalars, &call->p, sizeof call->p);
    memcpy(scalars + 1, &call->turns, sizeof call->turns);
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) hash = mixed(hash, scalars[i]);
    for (int i = 0; i < PP_CALL_REFS; i++)
        hash = mixed(hash, uses(call, i, PP_USE_READ) ? content_of(m, call, i, who) : (uint64_t)i);
    return hash;
}

/* Writes what the call makes of that. */
static inline void compute(struct contents *m, const struct pp_call *call, struct who who, uint64_t computation)
{
    for (int i = 0; i < PP_CALL_REFS; i++)
        if (uses(call, i, PP_USE_WRITE)) set_content(m, call, i, who, mixed(computation, (uint64_t)i));
}

#endif
