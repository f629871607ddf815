/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated time: pieces of work on cores, whose rates change with what else runs, and plain delays. Pieces end in the
 * order of their times; ties are broken by task, then by step.
 *
 * Pieces on one core share it equally. Cores of a sharing domain slow each other down, see core/plan/cost.h: the domain
 * is all cores of the machine, or each device that successive workers share. Only one worker of each rank is simulated;
 * `alike` workers of a domain (replicas, and members of the rank) do the same at the same time, and count as busy
 * together. A piece whose rate never changes takes exactly its length.
 */
#ifndef PP_SIM_CORES_H
#define PP_SIM_CORES_H

#include "core/plan/cost.h"

struct pp_sim_work {
    int32_t task, step, phase, lane; /* for the caller's use; task and step also break ties */
};

struct pp_sim_piece; /* a piece of work or a delay; see cores.c */

struct pp_sim_cores {
    const struct pp_cost *cost;
    int64_t now_ns; /* the simulated time */
    int ranks, alike;
    int width; /* ranks of a sharing domain; the last domain may have fewer */
    int domains;
    int *active, *active_rated; /* [domains] cores that have work: now, and when rates were last set */
    struct pp_sim_piece *pieces;
    int64_t capacity;           /* elements that pieces and heap have room for */
    int32_t npieces;            /* elements of `pieces` in use so far */
    int32_t unused;             /* first element of a linked list of pieces that are free again; -1 = none */
    int32_t *heap, nheap;       /* binary heap of pieces, by the time at which they end */
    int32_t *on_core;           /* [ranks] first element of a linked list of the core's pieces; -1 = idle */
    int32_t *load;              /* [ranks] pieces on the core */
    int32_t *collectives;       /* [ranks] collectives that slow down what the core computes (pp_cost.taken) */
    int32_t *changed, nchanged; /* cores whose rates must be set again */
    bool *is_changed;           /* [ranks] is the core in `changed`? */
};

pp_status pp_cores_init(struct pp_sim_cores *c, const struct pp_cost *cost, int ranks) PP_MUST_CHECK;
void pp_cores_release(struct pp_sim_cores *c);
/* Starts a piece of `ns` on a core (a rank), which takes loaded_ns if all cores of the domain are busy; core -1: a
 * delay of `ns`, for which the other arguments do not matter. idle: the part of the piece, 0 to 1, in which the core
 * computes nothing, so that collectives (pp_cost.taken) do not slow it down. PP_NOMEM. */
pp_status pp_cores_start(struct pp_sim_cores *c, struct pp_sim_work work, int core, int64_t ns, int64_t loaded_ns,
                         double idle) PP_MUST_CHECK;
/* From now on `more` further collectives slow the core down; negative: fewer. */
void pp_cores_collect(struct pp_sim_cores *c, int core, int more);
/* Advances the time to the next end of a piece, and returns its work in *out; false if there are no pieces. */
bool pp_cores_next(struct pp_sim_cores *c, struct pp_sim_work *out);

#endif
