/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator of NCCL with a queue of its own: what channels and sums of carrier_nccl.c are made of.
 *
 * Communicators are blocking: those that are not would start a thread for each operation, and the host would have to
 * wait for it before it may record a mark. What may wait for another process, making one and the first exchange, is
 * done by a thread of its own, so that the worker notices a peer that died.
 */
#ifndef PP_EXEC_NCCL_LINE_H
#define PP_EXEC_NCCL_LINE_H

#include <pthread.h>

#include "exec/carrier.h"
#include "exec/nccl_library.h"

struct pp_nccl_line {
    struct pp_port port;
    const struct pp_queue_ops *ops;
    const struct pp_nccl *nccl;
    struct pp_queue *queue;
    cudaStream_t stream; /* the queue's */
    ncclComm_t comm;     /* NULL: none, or given up */
    char name[64];       /* for messages, when it is open; the caller's to fill in */
    pthread_t giving_up;
    bool gives_up;
    ncclComm_t given_up;
    bool held; /* the thread that joins did not come back: it still uses the queue */
};

enum pp_nccl_use { PP_NCCL_SENDS = 1, PP_NCCL_RECEIVES = 2, PP_NCCL_SUMS = 4, PP_NCCL_SHARES = 8, PP_NCCL_PIECES = 16 };

struct pp_nccl_place {
    ncclUniqueId id; /* of one member, ncclGetUniqueId */
    int ranks, rank;
    int blocks;         /* at most so many thread blocks for an operation; NCCL_MAX_CTAS beats it */
    unsigned use;       /* enum pp_nccl_use: what is first done, so that no task waits for a connection */
    int type;           /* of sums: enum pp_sum_type */
    int64_t most_bytes; /* of an operation. NCCL chooses how to sum by size, and connects when it first chooses so */
};

/* [enum pp_sum_type] */
extern const ncclDataType_t pp_nccl_sum_types[PP_SUM_TYPES];

/* The library, the queue. What was opened is closed by pp_nccl_line_close(), also after a failure. */
pp_status pp_nccl_line_open(struct pp_nccl_line *line, const struct pp_port *port) PP_MUST_CHECK;
/* Makes the communicator and has the first exchange, together with its other members. */
pp_status pp_nccl_line_join(struct pp_nccl_line *line, const struct pp_nccl_place *place) PP_MUST_CHECK;
/* A queue that is held stays, as do the devices (pp_world.devices_held). Everything that was asked for must have
 * ended on all devices of the communicator, or be given up. */
void pp_nccl_line_close(struct pp_nccl_line *line);
/* Gives up: what is in the queue ends soon. */
void pp_nccl_line_abort(struct pp_nccl_line *line);
/* Failures that no call reported. PP_PEER. */
pp_status pp_nccl_line_check(struct pp_nccl_line *line) PP_MUST_CHECK;

/* Around the call that puts a parcel's operation into the queue; result: what it returned. */
pp_status pp_nccl_line_begin(struct pp_nccl_line *line, struct pp_parcel *parcel, struct pp_mark *after) PP_MUST_CHECK;
pp_status pp_nccl_line_end(struct pp_nccl_line *line, struct pp_parcel *parcel, ncclResult_t result,
                           const char *what) PP_MUST_CHECK;
/* A result with the line's name. */
pp_status pp_nccl_line_result(const struct pp_nccl_line *line, ncclResult_t result, const char *what) PP_MUST_CHECK;

#endif
