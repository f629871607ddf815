/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives over point-to-point messages. The non-blocking all-gather is a state machine that progresses when it is
 * polled, so that it can share a worker with kernels and transfers; the blocking ones are for the time outside of
 * steps.
 */
#ifndef PP_EXEC_COLLECTIVE_H
#define PP_EXEC_COLLECTIVE_H

#include "core/plan/group.h"
#include "exec/transport.h"

struct pp_group pp_group_all(const struct pp_world *world);
/* All-gather by dissemination, ceil(log2 n) rounds: in round k everyone passes on what it knows to the member 2^k
 * further on. blocks: n blocks of `bytes` each; block j belongs to member (me - j) mod n: the caller fills block 0,
 * its own. */
struct pp_gather {
    struct pp_group group;
    int me, kind; /* worker, enum pp_message_kind */
    int64_t bytes;
    unsigned char *blocks;
    int known; /* blocks 0 .. known-1 are there */
    bool open, done;
    struct pp_request send, recv;
};

/* gather: group, me, kind, bytes and blocks are set. Members must start their gathers of one kind in the same order. */
pp_status pp_gather_start(struct pp_world *world, struct pp_gather *gather) PP_MUST_CHECK;
pp_status pp_gather_poll(struct pp_world *world, struct pp_gather *gather) PP_MUST_CHECK;
/* The block of a member. */
void *pp_gather_block(const struct pp_gather *gather, int member);

/* Blocking, by all workers of the world (`me` calls), in the same order everywhere. */
pp_status pp_barrier(struct pp_world *world, int me) PP_MUST_CHECK;
/* all: [workers][bytes], in order of workers. */
pp_status pp_allgather(struct pp_world *world, int me, const void *mine, int64_t bytes, void *all) PP_MUST_CHECK;
/* From worker `root` to all. */
pp_status pp_broadcast(struct pp_world *world, int me, int root, void *data, int64_t bytes) PP_MUST_CHECK;

#endif
