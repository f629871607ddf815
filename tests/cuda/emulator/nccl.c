/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL: send, receive, all-reduce, reduce-scatter and all-gather, with what real ones do that a program can trip over.
 * Nothing is buffered: a send ends when its receive took everything. The first exchange of a pair blocks the hosts of
 * both. Operations of one communicator run one after another whatever their streams. A dead peer is noticed by the
 * operation that waits for it, which then goes on waiting until ncclCommAbort (PP_EMULATE_NCCL_MUTE=1: it is not even
 * noticed, as over NVLink). Sums of more than two have another order unless NCCL_NVLS_ENABLE is 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "nccl_exchange.h"

static _Thread_local char last_error[200];
static _Thread_local int open_groups;

/* Sends and receives of the open group, until its end. */
enum { GROUP = 4096 };
struct waiting {
    struct pp_nccl_exchange what;
    cudaStream_t stream;
    int order;
};
static _Thread_local struct waiting *waiting; /* [GROUP] */
static _Thread_local int nwaiting;
static atomic_int first_exchanges; /* under way in this process */

void pp_emu_allocates(const char *function)
{
    if (atomic_load(&first_exchanges) > 0)
        pp_emu_complain("%s: while a communicator's first exchange is under way in this process", function);
}

static ncclResult_t fail(ncclResult_t result, const char *text)
{
    snprintf(last_error, sizeof(last_error), "%s", text);
    return result;
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < sizeof(texts) / sizeof(*texts) ? texts[result] : "unknown result code";
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    uint64_t random[2];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) return ncclSystemError;
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, PP_MESH_ID_BYTES, "%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    return ncclSuccess;
}

/* ---- communicators ---- */

static uint32_t host_hash(void)
{
    char name[256] = "";
    const char *id = getenv("NCCL_HOSTID");
    if (!id || !*id) gethostname(name, sizeof(name) - 1);
    uint32_t h = 2166136261u;
    for (const char *c = id && *id ? id : name; *c; c++) h = (h ^ (uint8_t)*c) * 16777619u;
    return h;
}

static void release(ncclComm_t comm)
{
    if (atomic_fetch_sub(&comm->references, 1) > 1) return;
    pp_mesh_close(&comm->mesh);
    pp_emu_record_release(comm->last);
    free(comm);
    pp_emu_count(PP_EMU_LIVE_COMMUNICATORS, -1);
}

static ncclResult_t check_ranks(const struct pp_mesh *mesh)
{
    for (int i = 0; i < mesh->ranks; i++) {
        if (mesh->peer[i].ranks != mesh->ranks) return fail(ncclInvalidArgument, "ranks disagree about their number");
        for (int j = 0; j < i; j++) {
            if (mesh->peer[i].host == mesh->peer[j].host && mesh->peer[i].device == mesh->peer[j].device)
                return fail(ncclInvalidUsage, "Duplicate GPU detected: two ranks of one host use the same device");
        }
    }
    return ncclSuccess;
}

static bool config_fits(const ncclConfig_t *config)
{
    return !config || (config->size == sizeof(*config) && config->magic == 0xcafebeef &&
                       (config->blocking == NCCL_CONFIG_UNDEF_INT || config->blocking == 1) && config->maxCTAs != 0);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    if (pp_emu_enter(__func__) != cudaSuccess) return fail(ncclUnhandledCudaError, "no CUDA");
    pp_emu_allocates(__func__);
    if (!out || ranks < 1 || ranks > PP_MESH_RANKS || rank < 0 || rank >= ranks || !config_fits(config))
        return fail(ncclInvalidArgument, "ncclCommInitRankConfig: ranks, rank or config");
    const struct pp_mesh_rank me = {.rank = rank, .ranks = ranks, .device = pp_emu_current(), .host = host_hash()};
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    if (!comm) return ncclSystemError;
    pp_emu_count(PP_EMU_LIVE_COMMUNICATORS, 1);
    comm->references = 1;
    comm->device = me.device;
    comm->mute = pp_emu_settings()->mute;
    const char *nvls = getenv("NCCL_NVLS_ENABLE");
    comm->switched = !nvls || *nvls != '0';
    ncclResult_t result = ncclSuccess;
    if (!pp_mesh_open(&comm->mesh, id.internal, &me, last_error, sizeof(last_error))) result = ncclSystemError;
    if (result == ncclSuccess) result = check_ranks(&comm->mesh);
    if (result != ncclSuccess)
        release(comm);
    else
        *out = comm;
    return result;
}

/* Waits for its operations and for the others to destroy theirs; memory is freed, so for the device too. */
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    char bye = 'b';
    if (!comm) return ncclSuccess;
    if (comm->last) pp_emu_record_wait(comm->last);
    for (int i = 0; i < comm->mesh.ranks; i++) {
        if (i != comm->mesh.rank) pp_mesh_send(&comm->mesh, PP_MESH_HOSTS, i, &bye, 1);
    }
    for (int i = 0; i < comm->mesh.ranks; i++) {
        if (i != comm->mesh.rank) pp_mesh_recv(&comm->mesh, PP_MESH_HOSTS, i, &bye, 1);
    }
    pp_emu_drain_device(comm->device);
    release(comm);
    return ncclSuccess;
}

/* Ends what runs; frees memory, which waits for everything else on the device. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (!comm) return ncclSuccess;
    atomic_store(&comm->aborted, true);
    pp_mesh_cut(&comm->mesh);
    pp_emu_drain_device(comm->device);
    release(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    if (!comm || !error) return fail(ncclInvalidArgument, "ncclCommGetAsyncError: NULL");
    const int injected = pp_emu_injected(__func__, ncclRemoteError);
    *error = injected ? (ncclResult_t)injected : (ncclResult_t)atomic_load(&comm->async_error);
    return ncclSuccess;
}

/* ---- operations ---- */

static void run_exchange(struct pp_emu_op *op, cudaStream_t stream, bool dead)
{
    struct pp_nccl_exchange *x = (struct pp_nccl_exchange *)op;
    ncclComm_t comm = x->comm;
    bool ok = !dead && !atomic_load(&comm->aborted);
    (void)stream;
    if (ok) ok = pp_nccl_move(x);
    if (!ok && !dead && !comm->mute) atomic_store(&comm->async_error, ncclRemoteError);
    while (!ok && !dead && !atomic_load(&comm->aborted)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (x->first) atomic_fetch_sub(&first_exchanges, 1);
    release(comm);
    free(x);
}

/* Hosts of a pair (of all, for sums) make the connection together. */
static ncclResult_t connect_hosts(ncclComm_t comm, enum pp_nccl_operation operation, int peer)
{
    struct pp_mesh *mesh = &comm->mesh;
    char token = (char)operation;
    for (int i = 0; i < mesh->ranks; i++) {
        if (i == mesh->rank || (!pp_nccl_is_collective(operation) && i != peer)) continue;
        if (!pp_mesh_send(mesh, PP_MESH_HOSTS, i, &token, 1)) return fail(ncclRemoteError, "a rank is gone");
    }
    for (int i = 0; i < mesh->ranks; i++) {
        if (i == mesh->rank || (!pp_nccl_is_collective(operation) && i != peer)) continue;
        if (!pp_mesh_recv(mesh, PP_MESH_HOSTS, i, &token, 1)) return fail(ncclRemoteError, "a rank is gone");
    }
    return ncclSuccess;
}

/* *first: the exchange is one of first_exchanges, until it has ended. */
static ncclResult_t connect_once(const struct pp_nccl_exchange *x, bool *first)
{
    bool *connected = &x->comm->connected[x->operation][pp_nccl_is_collective(x->operation) ? 0 : x->peer];
    *first = !*connected;
    *connected = true;
    if (!*first) return ncclSuccess;
    atomic_fetch_add(&first_exchanges, 1);
    const ncclResult_t result = connect_hosts(x->comm, x->operation, x->peer);
    if (result != ncclSuccess) atomic_fetch_sub(&first_exchanges, 1);
    return result;
}

static size_t bytes_of(ncclDataType_t type)
{
    static const unsigned char sizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return (unsigned)type < ncclNumTypes ? sizes[type] : 0;
}

static bool buffers_fit(const struct pp_nccl_exchange *x)
{
    const char *name = pp_nccl_operations[x->operation];
    const size_t all = x->bytes * (size_t)x->comm->mesh.ranks;
    const size_t from = x->operation == PP_NCCL_SCATTER ? all : x->bytes;
    const size_t to = x->operation == PP_NCCL_GATHER ? all : x->bytes;
    return (x->from || x->to) && (!x->from || pp_emu_is_device(name, "what is sent", x->from, from)) &&
           (!x->to || pp_emu_is_device(name, "what is received", x->to, to));
}

static ncclResult_t check_exchange(const struct pp_nccl_exchange *x, cudaStream_t stream)
{
    const struct pp_mesh *mesh = &x->comm->mesh;
    const bool together = pp_nccl_is_collective(x->operation);
    const bool sums = together && x->operation != PP_NCCL_GATHER;
    if (!stream || stream->device != x->comm->device)
        return fail(ncclInvalidArgument, "the stream is not of the communicator's device");
    if (!x->bytes) return fail(ncclInvalidArgument, "no bytes, or an unknown type");
    if (!together && (x->peer < 0 || x->peer >= mesh->ranks || x->peer == mesh->rank))
        return fail(ncclInvalidArgument, "no such peer");
    if (sums && x->type != ncclFloat32 && x->type != ncclFloat64 && x->type != ncclBfloat16)
        return fail(ncclInvalidArgument, "the emulator adds float32, float64 and bfloat16 only");
    return buffers_fit(x) ? ncclSuccess : fail(ncclInvalidArgument, "a buffer is not device memory");
}

static ncclResult_t start(const struct pp_nccl_exchange *what, cudaStream_t handle)
{
    const char *name = pp_nccl_operations[what->operation];
    if (!what->comm || atomic_load(&what->comm->aborted)) return fail(ncclInvalidArgument, "no communicator");
    if (pp_emu_fault(what->comm->device) != cudaSuccess) return fail(ncclUnhandledCudaError, "the device has failed");
    const int injected = pp_emu_injected(name, ncclInternalError);
    if (injected) return fail((ncclResult_t)injected, "injected");
    const cudaStream_t stream = pp_emu_stream(handle);
    ncclResult_t result = check_exchange(what, stream);
    bool first = false;
    if (result == ncclSuccess) result = connect_once(what, &first);
    if (result != ncclSuccess) return result;
    struct pp_nccl_exchange *x = malloc(sizeof(*x));
    if (!x) abort();
    *x = *what;
    x->first = first;
    x->op.run = run_exchange;
    atomic_fetch_add(&x->comm->references, 1);
    struct pp_emu_record *end = pp_emu_record_new();
    if (x->comm->last) pp_emu_enqueue(stream, pp_emu_wait_op(x->comm->last));
    pp_emu_enqueue(stream, &x->op);
    pp_emu_enqueue(stream, pp_emu_record_op(end));
    pp_emu_record_release(what->comm->last);
    what->comm->last = end;
    pp_emu_count(PP_EMU_COLLECTIVES, 1);
    return ncclSuccess;
}

/* In a group sends and receives are matched whatever their order. Here they run one after the other, in an order that
 * all ranks have: pair after pair, of each first what the lower rank sends, each way in the order of the calls. */
static int by_pair(const void *a, const void *b)
{
    const struct waiting *x = a, *y = b;
    const struct pp_nccl_exchange *const of[] = {&x->what, &y->what};
    int key[2][3];
    for (int i = 0; i < 2; i++) {
        const int me = of[i]->comm->mesh.rank, peer = of[i]->peer;
        const bool lower = of[i]->operation == PP_NCCL_SEND ? me < peer : peer < me;
        key[i][0] = me < peer ? me : peer;
        key[i][1] = me < peer ? peer : me;
        key[i][2] = !lower;
    }
    for (int k = 0; k < 3; k++)
        if (key[0][k] != key[1][k]) return key[0][k] - key[1][k];
    return x->order - y->order;
}

static ncclResult_t start_waiting(void)
{
    ncclResult_t result = ncclSuccess;
    qsort(waiting, (size_t)nwaiting, sizeof(*waiting), by_pair);
    for (int i = 0; i < nwaiting && result == ncclSuccess; i++) result = start(&waiting[i].what, waiting[i].stream);
    free(waiting);
    waiting = NULL;
    nwaiting = 0;
    return result;
}

static ncclResult_t start_or_wait(const struct pp_nccl_exchange *what, cudaStream_t stream)
{
    if (!open_groups) return start(what, stream);
    if (!what->comm) return fail(ncclInvalidArgument, "no communicator");
    if (!waiting) waiting = malloc(GROUP * sizeof(*waiting));
    if (!waiting || nwaiting == GROUP) return fail(ncclSystemError, "the emulator has no room for such a group");
    waiting[nwaiting] = (struct waiting){*what, stream, nwaiting};
    nwaiting++;
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return start_or_wait(&(struct pp_nccl_exchange){.comm = comm,
                                                    .operation = PP_NCCL_SEND,
                                                    .type = type,
                                                    .count = count,
                                                    .peer = peer,
                                                    .bytes = count * bytes_of(type),
                                                    .from = from},
                         stream);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return start_or_wait(&(struct pp_nccl_exchange){.comm = comm,
                                                    .operation = PP_NCCL_RECV,
                                                    .type = type,
                                                    .count = count,
                                                    .peer = peer,
                                                    .bytes = count * bytes_of(type),
                                                    .to = to},
                         stream);
}

static ncclResult_t start_collective(enum pp_nccl_operation operation, const void *from, void *to, size_t count,
                                     ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    return start(&(struct pp_nccl_exchange){.comm = comm,
                                            .operation = operation,
                                            .type = type,
                                            .count = count,
                                            .bytes = count * bytes_of(type),
                                            .from = from,
                                            .to = to},
                 stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream)
{
    if (operation != ncclSum) return fail(ncclInvalidArgument, "the emulator only adds");
    return start_collective(PP_NCCL_SUM, from, to, count, type, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream)
{
    if (operation != ncclSum) return fail(ncclInvalidArgument, "the emulator only adds");
    return start_collective(PP_NCCL_SCATTER, from, to, count, type, comm, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return start_collective(PP_NCCL_GATHER, from, to, count, type, comm, stream);
}

/* Collectives of one communicator: one after the other is as good. */
ncclResult_t ncclGroupStart(void)
{
    open_groups++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (open_groups == 0) return fail(ncclInvalidUsage, "ncclGroupEnd: no group is open");
    open_groups--;
    return open_groups || !waiting ? ncclSuccess : start_waiting();
}
