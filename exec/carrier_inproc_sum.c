/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums. Each member adds one slice, in place and in the order of members, and copies the other slices from those who
 * added them. Three phases, each of which a member issues when all have issued the one before; so whatever a mark waits
 * for is in a queue already, and no wait of the devices can be in vain. Of shares one of the two may be left out.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "exec/carrier_inproc.h"

enum { SLICE_ALIGN = 64 /* elements */ };

/* Phases of a round, as counted in `phase`. */
enum { PUBLISHED = 1, ADDED, COPIED, PHASES = COPIED };

struct member {
    _Alignas(PP_INPROC_LINE) _Atomic uint64_t phase; /* PHASES * rounds done, + phase of this one */
    void *memory;
    const void *from;               /* of pieces */
    int64_t elements;               /* of shares: of one of them, in bytes */
    struct pp_mark *ready;          /* its part is there; NULL: nothing to wait for */
    struct pp_mark *added, *copied; /* its slice is the sum; it has read what it needs of the others' */
};

struct circle {
    atomic_int users;
    struct member members[];
};

struct pp_sum {
    struct pp_port port;
    struct pp_group group;
    int own; /* this worker's place in the group */
    int type;
    struct pp_queue *queue;
    struct pp_mark *rest; /* for the end after a failure */
    struct circle *circle;
    uint64_t rounds;
};

static struct member *self(struct pp_sum *s) { return &s->circle->members[s->own]; }

static pp_status share_circle(struct pp_sum *s)
{
    struct pp_world *world = s->port.world;
    if (s->own > 0) {
        PP_TRY(pp_inproc_take_over(world, pp_group_worker(&s->group, 0), s->port.me, &s->circle));
        atomic_fetch_add(&s->circle->users, 1);
        return PP_OK;
    }
    PP_TRY(pp_inproc_shared(sizeof *s->circle + (size_t)s->group.n * sizeof s->circle->members[0], &s->circle));
    atomic_store(&s->circle->users, 1);
    for (int i = 1; i < s->group.n; i++)
        PP_TRY(pp_inproc_hand_over(world, s->port.me, pp_group_worker(&s->group, i), &s->circle));
    return PP_OK;
}

pp_status pp_inproc_sum_open(const struct pp_sum_spec *spec, struct pp_sum **out)
{
    struct pp_sum *s;
    if (spec->group.n > PP_SUM_PARTS)
        return pp_fail(PP_UNSUPPORTED, "a sum over %d workers: %d is the most", spec->group.n, PP_SUM_PARTS);
    PP_TRY(PP_NEW(&s, 1));
    *out = s; /* the caller closes it, even half open */
    s->port = spec->port;
    s->group = spec->group;
    s->own = pp_group_member(&spec->group, spec->port.me);
    s->type = spec->type;
    const struct pp_queue_ops *ops = s->port.backend->queue;
    PP_TRY(ops->queue_create(s->port.device, &s->queue));
    PP_TRY(ops->mark_create(s->port.device, false, &s->rest));
    PP_TRY(share_circle(s));
    PP_TRY(ops->mark_create(s->port.device, false, &self(s)->added));
    return ops->mark_create(s->port.device, false, &self(s)->copied);
}

void pp_inproc_sum_close(struct pp_sum *s)
{
    if (!s) return;
    const struct pp_queue_ops *ops = s->port.backend->queue;
    if (s->queue) ops->queue_destroy(s->port.device, s->queue);
    if (s->rest) ops->mark_destroy(s->port.device, s->rest);
    if (s->circle) {
        if (self(s)->added) ops->mark_destroy(s->port.device, self(s)->added);
        if (self(s)->copied) ops->mark_destroy(s->port.device, self(s)->copied);
        if (atomic_fetch_sub(&s->circle->users, 1) == 1) free(s->circle);
    }
    free(s);
}

static void enter_phase(struct pp_sum *s, uint64_t phase)
{
    atomic_store_explicit(&self(s)->phase, PHASES * s->rounds + phase, memory_order_release);
    for (int i = 0; i < s->group.n; i++)
        if (i != s->own) pp_bell_ring(s->port.world, pp_group_worker(&s->group, i));
}

static bool all_in_phase(struct pp_sum *s, uint64_t phase)
{
    for (int i = 0; i < s->group.n; i++)
        if (atomic_load_explicit(&s->circle->members[i].phase, memory_order_acquire) < PHASES * s->rounds + phase)
            return false;
    return true;
}

/* Where member i's slice begins, in elements; that of member n: the end. */
static int64_t slice_start(struct pp_sum *s, int i)
{
    int64_t elements = self(s)->elements;
    return i == s->group.n ? elements : elements * i / s->group.n / SLICE_ALIGN * SLICE_ALIGN;
}

static int64_t element_bytes(const struct pp_sum *s) { return pp_sum_bytes(s->type); }

/* Waits until the parts of all are there. */
static pp_status hold_for_parts(struct pp_sum *s)
{
    for (int i = 0; i < s->group.n; i++) {
        const struct member *m = &s->circle->members[i];
        if (m->elements != self(s)->elements)
            return pp_fail(PP_INTERNAL, "worker %d sums %lld elements, worker %d %lld", s->port.me,
                           (long long)self(s)->elements, pp_group_worker(&s->group, i), (long long)m->elements);
        if (i != s->own && m->ready) PP_TRY(s->port.backend->queue->wait(s->port.device, s->queue, m->ready));
    }
    return PP_OK;
}

/* n elements, `offset` bytes from each member's memory. */
static pp_status add_parts(struct pp_sum *s, int64_t offset, int64_t n)
{
    const void *parts[PP_SUM_PARTS];
    for (int i = 0; i < s->group.n; i++) parts[i] = (char *)s->circle->members[i].memory + offset;
    if (n == 0) return PP_OK;
    return s->port.backend->queue->sum(s->port.device, s->queue, (char *)self(s)->memory + offset, parts, s->group.n, n,
                                       s->type);
}

static pp_status add_slice(struct pp_sum *s, const struct pp_parcel *parcel)
{
    const struct pp_shares *shares = parcel->shares;
    const int64_t first = slice_start(s, s->own);
    PP_TRY(hold_for_parts(s));
    if (!shares && !parcel->pieces) PP_TRY(add_parts(s, first * element_bytes(s), slice_start(s, s->own + 1) - first));
    for (int t = 0; shares && shares->use != PP_SHARES_GATHER && t < shares->n; t++) {
        const struct pp_share_tensor *tensor = &shares->tensors[t];
        PP_TRY(add_parts(s, tensor->offset + s->own * tensor->part_bytes, tensor->part_bytes / element_bytes(s)));
    }
    return s->port.backend->queue->record(s->port.device, s->queue, self(s)->added);
}

static pp_status copy_from(struct pp_sum *s, const struct member *m, int64_t offset, int64_t bytes)
{
    return s->port.backend->queue->copy(s->port.device, s->queue, (char *)self(s)->memory + offset,
                                        (char *)m->memory + offset, bytes);
}

/* Queues copies of the pieces that member i has for this worker. */
static pp_status copy_pieces(struct pp_sum *s, const struct pp_pieces *pieces, int i)
{
    for (int turn = 0; turn < pp_pieces_turns(pieces); turn++) {
        const struct pp_strided copies = pp_pieces_between(pieces, i, s->circle->members[i].from, s->own, turn);
        PP_TRY(s->port.backend->queue->copy_strided(s->port.device, s->queue, &copies));
    }
    return PP_OK;
}

/* Queues copies of what this worker takes from member i, to the same place in its own memory: the slice that i has
 * summed; of shares, the parts of tensors that are i's, if all are to have them; of pieces, those for this worker, if
 * there are any. All members must have issued the phase before (ADDED), or i's mark is that of an earlier round. */
static pp_status copy_slice(struct pp_sum *s, const struct pp_parcel *parcel, int i)
{
    const struct pp_shares *shares = parcel->shares;
    const struct member *m = &s->circle->members[i];
    const int64_t first = slice_start(s, i), bytes = (slice_start(s, i + 1) - first) * element_bytes(s);
    if (parcel->pieces && !pp_pieces_go(parcel->pieces, i, s->own)) return PP_OK;
    PP_TRY(s->port.backend->queue->wait(s->port.device, s->queue, m->added));
    if (parcel->pieces) return copy_pieces(s, parcel->pieces, i);
    if (!shares) return bytes ? copy_from(s, m, first * element_bytes(s), bytes) : PP_OK;
    for (int t = 0; shares->use != PP_SHARES_SCATTER && t < shares->n; t++) {
        const struct pp_share_tensor *tensor = &shares->tensors[t];
        PP_TRY(copy_from(s, m, tensor->offset + i * tensor->part_bytes, tensor->part_bytes));
    }
    return PP_OK;
}

/* The mark of a slice also says that its owner has read this member's part of it. */
static pp_status copy_slices(struct pp_sum *s, const struct pp_parcel *parcel)
{
    for (int k = parcel->pieces ? 0 : 1; k < s->group.n; k++)
        PP_TRY(copy_slice(s, parcel, (s->own + k) % s->group.n)); /* not all from the same member at once */
    return s->port.backend->queue->record(s->port.device, s->queue, self(s)->copied);
}

/* Done when the others have read: then the memory may be written again. */
static pp_status end_round(struct pp_sum *s, struct pp_parcel *parcel)
{
    const struct pp_queue_ops *ops = s->port.backend->queue;
    for (int i = 0; i < s->group.n; i++)
        if (i != s->own) PP_TRY(ops->wait(s->port.device, s->queue, s->circle->members[i].copied));
    PP_TRY(ops->record(s->port.device, s->queue, parcel->done));
    parcel->issued = true;
    return PP_OK;
}

pp_status pp_inproc_sum_poll(struct pp_sum *s, struct pp_parcel *parcel)
{
    while (!parcel->issued && all_in_phase(s, (uint64_t)parcel->state)) {
        if (parcel->state == PUBLISHED) PP_TRY(add_slice(s, parcel));
        if (parcel->state == ADDED) PP_TRY(copy_slices(s, parcel));
        if (parcel->state == COPIED) {
            PP_TRY(end_round(s, parcel));
            s->rounds++;
        } else {
            enter_phase(s, (uint64_t)++parcel->state);
        }
    }
    return PP_OK;
}

pp_status pp_inproc_sum_start(struct pp_sum *s, struct pp_parcel *parcel, struct pp_mark *after)
{
    parcel->after = after;
    parcel->issued = false;
    parcel->state = PUBLISHED;
    self(s)->memory = parcel->memory;
    self(s)->from = parcel->pieces ? parcel->pieces->from : NULL;
    self(s)->elements = parcel->shares ? parcel->shares->bytes : parcel->bytes / element_bytes(s);
    self(s)->ready = after;
    PP_TRY(pp_inproc_begin(&s->port, s->queue, parcel));
    enter_phase(s, PUBLISHED);
    return pp_inproc_sum_poll(s, parcel);
}

void pp_inproc_sum_abort(struct pp_sum *s)
{
    if (s->rest) pp_port_rest(&s->port, s->queue, s->rest);
}
