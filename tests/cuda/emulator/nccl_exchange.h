/* SPDX-License-Identifier: Apache-2.0
 *
 * An operation of an emulated communicator, and how its data moves.
 */
#ifndef PP_EMULATOR_NCCL_EXCHANGE_H
#define PP_EMULATOR_NCCL_EXCHANGE_H

#include <nccl.h>

#include "emulator.h"
#include "nccl_mesh.h"

enum pp_nccl_operation { PP_NCCL_SEND, PP_NCCL_RECV, PP_NCCL_SUM, PP_NCCL_SCATTER, PP_NCCL_GATHER, PP_NCCL_OPERATIONS };
extern const char *const pp_nccl_operations[PP_NCCL_OPERATIONS]; /* NCCL's names */

static inline bool pp_nccl_is_collective(enum pp_nccl_operation operation) { return operation >= PP_NCCL_SUM; }

struct ncclComm {
    struct pp_mesh mesh;
    atomic_int references;
    atomic_int async_error;
    atomic_bool aborted;
    int device;
    bool mute;
    bool switched;                                     /* switches may add, in an order of theirs */
    bool connected[PP_NCCL_OPERATIONS][PP_MESH_RANKS]; /* collectives: [0] */
    struct pp_emu_record *last;                        /* the end of the last operation */
};

struct pp_nccl_exchange {
    struct pp_emu_op op;
    ncclComm_t comm;
    enum pp_nccl_operation operation;
    ncclDataType_t type;
    size_t count, bytes; /* SCATTER, GATHER: of each rank's part */
    int peer;
    bool first; /* of its pair, or of all */
    const void *from;
    void *to;
};

/* This rank's part of it. False: a peer is gone, or means something else, or the mesh was cut. */
bool pp_nccl_move(const struct pp_nccl_exchange *exchange);

#endif
