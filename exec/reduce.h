/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over the members of a group, through host memory: gradients over replicas. Every member ends with the sum of
 * all, added in the order of members, so with the same bits everywhere and in every run. The values are cut into one
 * slice per member and slices into pieces of 1 MiB at most; the owner of a slice receives a piece from all others,
 * adds, and sends the sum back. Up to PP_REDUCE_WINDOW pieces are under way. It progresses when it is polled: between
 * the kernels of whatever else the worker computes.
 *
 * Of shares (exec/shares.h) it is all of that, or one half: the owner of a share sums it and keeps the sum, or sends to
 * all what it has. Pieces then end where tensors do.
 */
#ifndef PP_EXEC_REDUCE_H
#define PP_EXEC_REDUCE_H

#include "core/process.h"
#include "core/program.h"
#include "core/queue.h"
#include "exec/collective.h"
#include "exec/shares.h"

/* The pieces number k of all slices: what one place of the window works on. Arrays are indexed by member; [own] is
 * unused. */
struct pp_reduce_round {
    struct pp_request *part_out, *part_in, *sum_out, *sum_in;
    unsigned char **staged;  /* parts received */
    struct pp_share_run run; /* of shares: which pieces these are */
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
    /* the one under way */
    unsigned char *values;
    int64_t elements;
    const struct pp_shares *shares; /* NULL: all is summed, for all */
    int64_t at;                     /* of shares: where the next round's pieces begin */
    int nrounds, opened, summed, closed;
    bool done;
};

/* All memory is taken here. group: of two or more workers, this one among them. most_bytes: of the largest sum, alike
 * in all members. For floats in memory of a device that the host can read (core/program.h: queue NULL), which adds
 * them. */
pp_status pp_reduce_create(struct pp_group group, int me, const struct pp_backend *backend, struct pp_device *device,
                           int64_t most_bytes, struct pp_reduce **out) PP_MUST_CHECK;
/* The same for memory of the host. type: enum pp_sum_type. */
pp_status pp_reduce_create_host(struct pp_group group, int me, int type, int64_t most_bytes,
                                struct pp_reduce **out) PP_MUST_CHECK;
void pp_reduce_free(struct pp_reduce *reduce); /* NULL is fine; before the device is closed */

/* values: n of them, changed in place. One at a time, in the same order in all members. */
pp_status pp_reduce_start(struct pp_world *world, struct pp_reduce *reduce, void *values, int64_t n) PP_MUST_CHECK;
/* The same for shares, which are borrowed until it is done. */
pp_status pp_reduce_start_shares(struct pp_world *world, struct pp_reduce *reduce, void *base,
                                 const struct pp_shares *shares) PP_MUST_CHECK;
pp_status pp_reduce_poll(struct pp_world *world, struct pp_reduce *reduce) PP_MUST_CHECK;

#endif
