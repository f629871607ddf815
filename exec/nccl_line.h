/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator of NCCL with a queue of its own: what channels and sums of carrier_nccl.c are made of.
 *
 * Communicators are blocking: a non-blocking one would start a thread for each operation, and the host would have to
 * wait for that thread before it may record a mark. Making the communicator, and the first exchange, may wait for
 * another process. A thread of its own does both, so that the worker notices when a peer has died.
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
    char name[64];       /* begins messages; the caller fills it in once the line is open */
    pthread_t giving_up; /* the thread that aborts the communicator `given_up`; started where gives_up is true */
    bool gives_up;
    ncclComm_t given_up;
    bool held; /* the thread that joins did not end in time: it still uses the queue */
};

enum pp_nccl_use { PP_NCCL_SENDS = 1, PP_NCCL_RECEIVES = 2, PP_NCCL_SUMS = 4, PP_NCCL_SHARES = 8, PP_NCCL_PIECES = 16 };

struct pp_nccl_place {
    ncclUniqueId id; /* of one member, ncclGetUniqueId */
    int ranks, rank;
    int blocks;   /* thread blocks of an operation, at most; the variable NCCL_MAX_CTAS beats it */
    unsigned use; /* enum pp_nccl_use: the operations that join() tries, so that no task waits for a connection */
    int type;     /* enum pp_sum_type, of sums */
    int64_t
        most_bytes; /* of the largest operation. NCCL chooses a way to sum by the size, and connects at its first use */
};

/* [enum pp_sum_type] */
extern const ncclDataType_t pp_nccl_sum_types[PP_SUM_TYPES];

/* Loads the library and makes the queue. To be closed by pp_nccl_line_close(), also after a failure. */
pp_status pp_nccl_line_open(struct pp_nccl_line *line, const struct pp_port *port) PP_MUST_CHECK;
/* Makes the communicator and does a first exchange, together with all its other members. */
pp_status pp_nccl_line_join(struct pp_nccl_line *line, const struct pp_nccl_place *place) PP_MUST_CHECK;
/* All operations must have ended on all devices of the communicator, or must have been aborted. A queue that is `held`
 * is not destroyed, and then the devices stay open, too (pp_world.devices_held). */
void pp_nccl_line_close(struct pp_nccl_line *line);
/* Aborts the communicator: operations that are in the queue end soon. */
void pp_nccl_line_abort(struct pp_nccl_line *line);
/* PP_PEER where something failed outside of any call. */
pp_status pp_nccl_line_check(struct pp_nccl_line *line) PP_MUST_CHECK;

/* Called before and after the call of NCCL that puts a parcel's operation into the queue. result: what that call
 * returned; what: its name, for messages. */
pp_status pp_nccl_line_begin(struct pp_nccl_line *line, struct pp_parcel *parcel, struct pp_mark *after) PP_MUST_CHECK;
pp_status pp_nccl_line_end(struct pp_nccl_line *line, struct pp_parcel *parcel, ncclResult_t result,
                           const char *what) PP_MUST_CHECK;
/* As pp_nccl_check(); messages begin with the line's name. */
pp_status pp_nccl_line_result(const struct pp_nccl_line *line, ncclResult_t result, const char *what) PP_MUST_CHECK;

#endif
