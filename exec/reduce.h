/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over the members of a group, through host memory: gradients over replicas. Every member ends with the sum of
 * all, added in the order of members, so with the same bits everywhere and in every run. The values are cut into one
 * slice per member and slices into pieces of 1 MiB at most; the owner of a slice receives a piece from all others,
 * adds, and sends the sum back. Up to PP_REDUCE_WINDOW pieces are under way. It progresses when it is polled: between
 * the kernels of whatever else the worker computes.
 *
 * With shares (exec/shares.h), the slice of a member is its share. Then a sum is all of the above, or one half of it:
 * the owner of a share adds and keeps the sum (PP_SHARES_SCATTER), or sends its share as it is to all others
 * (PP_SHARES_GATHER). A piece never crosses from one tensor to the next.
 */
#ifndef PP_EXEC_REDUCE_H
#define PP_EXEC_REDUCE_H

#include "core/job/process.h"
#include "core/model/backend.h"
#include "core/model/queue.h"
#include "exec/collective.h"
#include "exec/shares.h"

/* One round: the k-th piece of every slice. A place of the window works on one round. Arrays are indexed by member; the
 * entry [own] is unused. */
struct pp_reduce_round {
    struct pp_request *part_out, *part_in, *sum_out, *sum_in;
    unsigned char **staged;  /* parts received */
    struct pp_share_run run; /* with shares: where these pieces lie */
};

struct pp_reduce {
    struct pp_group group;
    int own;                          /* this worker's position in the group */
    const struct pp_backend *backend; /* NULL: the host adds, in its own memory */
    struct pp_device *device;
    int type; /* enum pp_sum_type */
    int64_t piece_bytes;
    struct pp_reduce_round rounds[PP_REDUCE_WINDOW];
    struct pp_request *requests;
    unsigned char **pointers;
    void *staging;
    int64_t staging_bytes;
    /* of the sum that is under way */
    unsigned char *values;
    int64_t elements;
    const struct pp_shares *shares; /* NULL: all is summed, for all */
    int64_t at;                     /* with shares: where the next round's pieces begin, in bytes of a share */
    int nrounds;                    /* of this sum */
    int opened, summed, closed;     /* rounds that have begun; whose pieces are added; that are done */
    bool done;
};

/* For sums of floats in the memory of a device, which adds them; the host must be able to read that memory
 * (core/model/backend.h: queue NULL). All memory is allocated here. group: two or more workers, this one among them.
 * most_bytes: of the largest sum, equal in all members. */
pp_status pp_reduce_create(struct pp_group group, int me, const struct pp_backend *backend, struct pp_device *device,
                           int64_t most_bytes, struct pp_reduce **out) PP_MUST_CHECK;
/* The same for sums in the host's memory, which the host adds. type: enum pp_sum_type. */
pp_status pp_reduce_create_host(struct pp_group group, int me, int type, int64_t most_bytes,
                                struct pp_reduce **out) PP_MUST_CHECK;
void pp_reduce_free(struct pp_reduce *reduce); /* NULL is fine; before the device is closed */

/* Starts the sum of n values, in place. One sum is under way at a time; all members start theirs in the same order. */
pp_status pp_reduce_start(struct pp_world *world, struct pp_reduce *reduce, void *values, int64_t n) PP_MUST_CHECK;
/* The same with shares: `base` is the memory from which their offsets count. They are borrowed until the sum is
 * done. */
pp_status pp_reduce_start_shares(struct pp_world *world, struct pp_reduce *reduce, void *base,
                                 const struct pp_shares *shares) PP_MUST_CHECK;
pp_status pp_reduce_poll(struct pp_world *world, struct pp_reduce *reduce) PP_MUST_CHECK;

#endif
