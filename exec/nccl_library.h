/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL, loaded when it is first asked for: libnccl.so.2, or the file that PPKIT_NCCL names. Programs do not link it, so
 * they start without it and as fast.
 */
#ifndef PP_EXEC_NCCL_LIBRARY_H
#define PP_EXEC_NCCL_LIBRARY_H

#include <nccl.h>
#include <stdbool.h>

#include "core/status.h"

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

/* The same answer in all threads, for the life of the process. PP_UNSUPPORTED: it is not there or too old. */
pp_status pp_nccl_load(const struct pp_nccl **out) PP_MUST_CHECK;

/* Sets what NCCL reads from the environment, where the user has not; by the main thread, before any other is started.
 * Sums by switches are off, since they give other bits from run to run.
 * shared: processes of the run share a GPU, which NCCL refuses unless each looks like a host of its own; they then meet
 * through sockets, on one host (`alone`) through its loopback interface. */
pp_status pp_nccl_set_environment(bool shared, bool alone) PP_MUST_CHECK;

/* PP_OK for ncclSuccess; else says what failed in NCCL's words: PP_PEER where it lies with another process, else PP_IO.
 * comm: NULL or the one it happened on. */
pp_status pp_nccl_check(const struct pp_nccl *nccl, ncclComm_t comm, ncclResult_t result,
                        const char *what) PP_MUST_CHECK;

#endif
