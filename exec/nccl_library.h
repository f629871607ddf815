/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL, loaded when it is first asked for: libnccl.so.2, or the file that PPKIT_NCCL names. Programs do not link it, so
 * they start without it and as fast.
 */
#ifndef PP_EXEC_NCCL_LIBRARY_H
#define PP_EXEC_NCCL_LIBRARY_H

#include <nccl.h>
#include <stdbool.h>

#include "core/base/status.h"

/* X(member, symbol): the functions that are used. */
#define PP_NCCL_FUNCTIONS(X)                                                                                           \
    X(get_version, ncclGetVersion)                                                                                     \
    X(get_unique_id, ncclGetUniqueId)                                                                                  \
    X(comm_init, ncclCommInitRankConfig)                                                                               \
    X(comm_destroy, ncclCommDestroy)                                                                                   \
    X(comm_abort, ncclCommAbort)                                                                                       \
    X(comm_async_error, ncclCommGetAsyncError)                                                                         \
    X(send, ncclSend)                                                                                                  \
    X(recv, ncclRecv)                                                                                                  \
    X(all_reduce, ncclAllReduce)                                                                                       \
    X(reduce_scatter, ncclReduceScatter)                                                                               \
    X(all_gather, ncclAllGather)                                                                                       \
    X(group_start, ncclGroupStart)                                                                                     \
    X(group_end, ncclGroupEnd)                                                                                         \
    X(error_string, ncclGetErrorString)                                                                                \
    X(last_error, ncclGetLastError)

struct pp_nccl {
#define X(member, symbol) __typeof__(&symbol) member;
    PP_NCCL_FUNCTIONS(X)
#undef X
    int version; /* 22809 */
};

/* Loads the library at the first call; later calls, in any thread, give the same result. PP_UNSUPPORTED: there is none,
 * or it is too old. */
pp_status pp_nccl_load(const struct pp_nccl **out) PP_MUST_CHECK;

/* Sets environment variables that NCCL reads, unless the user has set them. Called by the main thread before any other
 * thread is started. Sums inside switches are turned off, since they give other bits from run to run. shared: processes
 * of the run share a GPU. NCCL refuses that unless each process looks like a host of its own; they then communicate
 * through sockets, and where all are on one host (`alone`) through its loopback interface. */
pp_status pp_nccl_set_environment(bool shared, bool alone) PP_MUST_CHECK;

/* PP_OK for ncclSuccess. Else a failure whose message is NCCL's: PP_PEER where another process is the cause, else
 * PP_IO. comm: the communicator of the call, or NULL. what: the call, for the message. */
pp_status pp_nccl_check(const struct pp_nccl *nccl, ncclComm_t comm, ncclResult_t result,
                        const char *what) PP_MUST_CHECK;

#endif
