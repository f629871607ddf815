/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient reduction over replicas: every replica ends with the sum of all, added in replica order, so with the same
 * bits everywhere and in every run. The gradient is cut into one slice per replica and slices into pieces of 1 MiB;
 * the owner of a slice receives a piece from all others, adds, and sends the sum back. Up to PP_REDUCE_WINDOW pieces
 * are under way. It progresses when it is polled: between the kernels of whatever else the worker computes.
 */
#ifndef PP_EXEC_REDUCE_H
#define PP_EXEC_REDUCE_H

#include "core/program.h"
#include "exec/collective.h"

enum { PP_REDUCE_PIECE_BYTES = 1 << 20, PP_REDUCE_WINDOW = 2 };

/* The pieces number k of all slices: what one place of the window works on. Arrays are indexed by replica; [own] is
 * unused. */
struct pp_reduce_round {
    struct pp_request *part_out, *part_in, *sum_out, *sum_in;
    unsigned char **staged; /* parts received */
};

struct pp_reduce {
    struct pp_group group;
    int own; /* this worker's position in the group */
    const struct pp_backend *backend;
    struct pp_device *device;
    struct pp_reduce_round rounds[PP_REDUCE_WINDOW];
    struct pp_request *requests;
    unsigned char **pointers;
    void *staging;
    int64_t staging_bytes;
    /* the one under way */
    float *gradient;
    int64_t elements;
    int nrounds, opened, summed, closed;
    bool done;
};

/* All memory is taken here. group: the same rank of all replicas; n > 1. */
pp_status pp_reduce_create(struct pp_group group, int me, const struct pp_backend *backend, struct pp_device *device,
                           struct pp_reduce **out) PP_MUST_CHECK;
void pp_reduce_free(struct pp_reduce *reduce); /* NULL is fine; before the device is closed */

/* gradient: n floats on the device, changed in place. One at a time, in the same order in all members. */
pp_status pp_reduce_start(struct pp_world *world, struct pp_reduce *reduce, float *gradient, int64_t n) PP_MUST_CHECK;
pp_status pp_reduce_poll(struct pp_world *world, struct pp_reduce *reduce) PP_MUST_CHECK;

#endif
