/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated time: pieces of work on cores, whose rates change with what else runs, and plain delays. The earliest end
 * comes first; ties go by task, then by step.
 *
 * Pieces on one core share it equally. Cores of a sharing domain slow each other down as core/cost.h says; `alike`
 * workers of the domain do the same at the same time (replicas, and the workers of a rank). Devices that a few
 * successive workers share are a domain each. A piece whose rate never changes takes exactly its length.
 */
#ifndef PP_SIM_CORES_H
#define PP_SIM_CORES_H

#include "core/cost.h"

struct work {
    int32_t task, step, phase, lane; /* the caller's */
};

struct piece; /* cores.c */

struct cores {
    const struct pp_cost *cost;
    int64_t now_ns;
    int ranks, alike;
    int width; /* ranks of a sharing domain; the last one may have fewer */
    int domains;
    int *active, *active_rated; /* [domains] cores with work: now; when rates were last set */
    struct piece *pieces;
    int64_t capacity;           /* of pieces and heap */
    int32_t npieces, unused;    /* unused: first of a chain */
    int32_t *heap, nheap;       /* pieces by time of end */
    int32_t *on_core;           /* [ranks] first piece of a chain; -1 = idle */
    int32_t *load;              /* [ranks] pieces on the core */
    int32_t *collectives;       /* [ranks] that take from what the core computes (core/cost.h) */
    int32_t *changed, nchanged; /* cores whose load changed since rates were last set */
    bool *is_changed;           /* [ranks] */
};

pp_status pp_cores_init(struct cores *c, const struct pp_cost *cost, int ranks) PP_MUST_CHECK;
void pp_cores_release(struct cores *c);
/* core: a rank, or -1 for a delay (the rest is then not looked at). idle: the part of it, from 0 to 1, in which the
 * core computes nothing: collectives take nothing from that. */
pp_status pp_cores_start(struct cores *c, struct work work, int core, int64_t ns, int64_t loaded_ns,
                         double idle) PP_MUST_CHECK;
/* From now on `more` collectives take from the core; negative: fewer. */
void pp_cores_collect(struct cores *c, int core, int more);
/* Goes to the next end of a piece; false if there is none. */
bool pp_cores_next(struct cores *c, struct work *out);

#endif
