/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/nccl_line.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/affinity.h"
#include "core/base/clock.h"

enum {
    LEAST_BYTES =
        1 << 10, /* of the first exchange: sizes from the least to the most, each GROWTH times the one before */
    MOST_BYTES = 64 << 20, /* larger sums are done as this one */
    GROWTH = 8,
    NAP_NS = 200000,
    PATIENCE_S = 100 /* others may still be loading weights */
};

/* Joining a communicator, as its own thread sees it. Whoever comes last frees it: the thread, if the worker gave up. */
struct joining {
    struct pp_nccl_place place;
    struct pp_port port;
    const struct pp_nccl *nccl;
    cudaStream_t stream;
    void *memory;  /* of the device */
    int64_t bytes; /* of it: of the largest exchange */
    ncclComm_t comm;
    pp_status status;
    char message[PP_MESSAGE_BYTES];
    atomic_int parties; /* that still use it */
};

pp_status pp_nccl_line_result(const struct pp_nccl_line *line, ncclResult_t result, const char *what)
{
    pp_status status = pp_nccl_check(line->nccl, line->comm, result, what);
    return *line->name ? pp_prefix(status, "%s", line->name) : status;
}

pp_status pp_nccl_line_open(struct pp_nccl_line *line, const struct pp_port *port)
{
    line->port = *port;
    line->ops = port->backend->queue;
    PP_TRY(pp_nccl_load(&line->nccl));
    PP_TRY(line->ops->queue_create(port->device, &line->queue));
    line->stream = line->ops->native(line->queue);
    return PP_OK;
}

/* --- joining --- */

const ncclDataType_t pp_nccl_sum_types[PP_SUM_TYPES] = {
    [PP_SUM_FLOAT] = ncclFloat, [PP_SUM_DOUBLE] = ncclDouble, [PP_SUM_BF16] = ncclBfloat16};

static ncclResult_t scatter(const struct joining *j, size_t bytes)
{
    const ncclDataType_t type = pp_nccl_sum_types[j->place.type];
    const size_t n = bytes / (size_t)pp_sum_bytes(j->place.type) / (size_t)j->place.ranks;
    char *own = (char *)j->memory + n * (size_t)pp_sum_bytes(j->place.type) * (size_t)j->place.rank;
    return n ? j->nccl->reduce_scatter(j->memory, own, n, type, ncclSum, j->comm, j->stream) : ncclSuccess;
}

static ncclResult_t gather(const struct joining *j, size_t bytes)
{
    const size_t part = bytes / (size_t)j->place.ranks;
    const char *own = (const char *)j->memory + part * (size_t)j->place.rank;
    return part ? j->nccl->all_gather(own, j->memory, part, ncclInt8, j->comm, j->stream) : ncclSuccess;
}

/* As many bytes to and from each of the others, wherever they land. */
static ncclResult_t all_to_all(const struct joining *j, size_t bytes)
{
    const struct pp_nccl *nccl = j->nccl;
    const size_t n = bytes / 2 / (size_t)j->place.ranks;
    const char *from = j->memory;
    char *to = (char *)j->memory + bytes / 2;
    ncclResult_t result = n ? nccl->group_start() : ncclSuccess;
    const bool open = n && result == ncclSuccess;
    for (int i = 0; i < j->place.ranks && open && result == ncclSuccess; i++) {
        if (i == j->place.rank) continue;
        result = nccl->send(from + n * (size_t)i, n, ncclInt8, i, j->comm, j->stream);
        if (result == ncclSuccess) result = nccl->recv(to + n * (size_t)i, n, ncclInt8, i, j->comm, j->stream);
    }
    const ncclResult_t end = open ? nccl->group_end() : result;
    return result == ncclSuccess ? end : result;
}

static ncclResult_t exchange(const struct joining *j, size_t bytes)
{
    const struct pp_nccl *nccl = j->nccl;
    const size_t n = bytes / (size_t)pp_sum_bytes(j->place.type);
    const unsigned use = j->place.use;
    const int peer = 1 - j->place.rank;
    ncclResult_t result = ncclSuccess;
    if (use & PP_NCCL_SENDS) result = nccl->send(j->memory, bytes, ncclInt8, peer, j->comm, j->stream);
    if (use & PP_NCCL_RECEIVES && result == ncclSuccess)
        result = nccl->recv(j->memory, bytes, ncclInt8, peer, j->comm, j->stream);
    if (use & PP_NCCL_SUMS && result == ncclSuccess)
        result =
            nccl->all_reduce(j->memory, j->memory, n, pp_nccl_sum_types[j->place.type], ncclSum, j->comm, j->stream);
    if (use & PP_NCCL_SHARES && result == ncclSuccess) result = scatter(j, bytes);
    if (use & PP_NCCL_SHARES && result == ncclSuccess) result = gather(j, bytes);
    if (use & PP_NCCL_PIECES && result == ncclSuccess) result = all_to_all(j, bytes);
    return result;
}

static pp_status join(struct joining *j)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.maxCTAs = j->place.blocks;
    pp_affinity_widen(); /* NCCL's own threads inherit this one's cores, and must not sit on the worker's */
    PP_TRY(j->port.backend->queue->use(j->port.device));
    ncclComm_t comm = NULL;
    PP_TRY(pp_nccl_check(j->nccl, NULL, j->nccl->comm_init(&comm, j->place.ranks, j->place.id, j->place.rank, &config),
                         "ncclCommInitRankConfig"));
    j->comm = comm;
    for (int64_t bytes = LEAST_BYTES; bytes < j->bytes; bytes *= GROWTH)
        PP_TRY(pp_nccl_check(j->nccl, comm, exchange(j, (size_t)bytes), "the first exchange"));
    return pp_nccl_check(j->nccl, comm, exchange(j, (size_t)j->bytes), "the first exchange");
}

/* Does the other party go on? If not, *comm is what was made. */
static bool leave(struct joining *j, ncclComm_t *comm)
{
    if (atomic_fetch_sub(&j->parties, 1) > 1) return true;
    *comm = j->comm;
    free(j);
    return false;
}

static void *join_main(void *arg)
{
    struct joining *j = arg;
    ncclComm_t comm;
    j->status = join(j);
    if (j->status != PP_OK) snprintf(j->message, sizeof j->message, "%s", pp_message());
    (void)leave(j, &comm);
    return NULL;
}

static pp_status nap(const struct pp_nccl_line *line, int64_t deadline)
{
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    PP_TRY(pp_world_check(line->port.world));
    if (pp_now_ns() < deadline) return PP_OK;
    return pp_fail(PP_PEER, "NCCL: the others did not join within %d s", PATIENCE_S);
}

static pp_status await_join(struct pp_nccl_line *line, struct joining *j, int64_t deadline)
{
    while (atomic_load(&j->parties) == 2) PP_TRY(nap(line, deadline));
    line->comm = j->comm;
    return j->status == PP_OK ? PP_OK : pp_fail(j->status, "%s; --transport staged does without NCCL", j->message);
}

/* Until the first exchange has ended on the device. */
static pp_status await_exchange(struct pp_nccl_line *line, struct pp_mark *mark, int64_t deadline)
{
    bool reached = false;
    PP_TRY(line->ops->record(line->port.device, line->queue, mark));
    for (;;) {
        ncclResult_t result = ncclSuccess;
        PP_TRY(line->ops->reached(line->port.device, mark, &reached));
        if (reached) return PP_OK;
        PP_TRY(pp_nccl_line_result(line, line->nccl->comm_async_error(line->comm, &result), "ncclCommGetAsyncError"));
        PP_TRY(pp_nccl_line_result(line, result, "the first exchange"));
        PP_TRY(nap(line, deadline));
    }
}

static pp_status run_joining(struct pp_nccl_line *line, struct joining *j, struct pp_mark *mark)
{
    int64_t deadline = pp_now_ns() + PATIENCE_S * INT64_C(1000000000);
    pthread_t thread;
    atomic_store(&j->parties, 2);
    int error = pthread_create(&thread, NULL, join_main, j);
    if (error) {
        atomic_store(&j->parties, 1);
        return pp_fail(PP_NOMEM, "cannot start a thread for NCCL: %s", strerror(error));
    }
    pthread_detach(thread);
    PP_TRY(await_join(line, j, deadline));
    return await_exchange(line, mark, deadline);
}

/* A channel connects for all sizes at once. */
static int64_t first_bytes(const struct pp_nccl_place *place)
{
    const bool sums = place->use & (PP_NCCL_SUMS | PP_NCCL_SHARES | PP_NCCL_PIECES);
    if (!sums || place->most_bytes < LEAST_BYTES) return LEAST_BYTES;
    return place->most_bytes < MOST_BYTES ? place->most_bytes : MOST_BYTES;
}

pp_status pp_nccl_line_join(struct pp_nccl_line *line, const struct pp_nccl_place *place)
{
    const struct pp_backend *backend = line->port.backend;
    struct joining *j;
    struct pp_mark *mark = NULL;
    void *memory;
    PP_TRY(PP_NEW(&j, 1));
    j->place = *place;
    j->port = line->port;
    j->nccl = line->nccl;
    j->stream = line->stream;
    j->bytes = first_bytes(place);
    atomic_store(&j->parties, 1);
    pp_status status = line->ops->mark_create(line->port.device, false, &mark);
    if (status == PP_OK) status = backend->alloc(line->port.device, j->bytes, &memory);
    if (status == PP_OK) {
        j->memory = memory;
        status = run_joining(line, j, mark);
    }
    /* After a failure the thread may still be at it: what it uses stays, the process ends soon. */
    line->held = leave(j, &line->comm);
    if (line->held) atomic_store(&line->port.world->devices_held, true);
    if (mark) line->ops->mark_destroy(line->port.device, mark);
    if (status == PP_OK) backend->release(line->port.device, memory, first_bytes(place));
    return status;
}

/* --- the end --- */

static void *give_up(void *arg)
{
    struct pp_nccl_line *line = arg;
    line->nccl->comm_abort(line->given_up);
    return NULL;
}

/* On a thread: freeing memory may wait for the kernels of other communicators, which are to be given up next. Where
 * none starts, that wait is the smaller evil: a communicator that nobody gives up holds the device for good. */
void pp_nccl_line_abort(struct pp_nccl_line *line)
{
    if (!line->comm) return;
    line->given_up = line->comm;
    line->comm = NULL;
    line->gives_up = pthread_create(&line->giving_up, NULL, give_up, line) == 0;
    if (!line->gives_up) give_up(line);
}

/* All ends close when everything has arrived everywhere, so nothing is lost by ncclCommAbort; ncclCommDestroy would
 * wait for the other ends to be closed too, and ends are closed in no common order. */
void pp_nccl_line_close(struct pp_nccl_line *line)
{
    if (line->gives_up) pthread_join(line->giving_up, NULL);
    if (line->comm) line->nccl->comm_abort(line->comm);
    if (line->queue && !line->held) line->ops->queue_destroy(line->port.device, line->queue);
}

pp_status pp_nccl_line_check(struct pp_nccl_line *line)
{
    ncclResult_t result = ncclSuccess;
    if (!line->comm) return pp_fail(PP_PEER, "%s was given up", line->name);
    PP_TRY(pp_nccl_line_result(line, line->nccl->comm_async_error(line->comm, &result), "ncclCommGetAsyncError"));
    if (result == ncclSuccess) return PP_OK;
    PP_TRY(pp_nccl_line_result(line, result, "NCCL"));
    return PP_PEER;
}

/* --- parcels --- */

pp_status pp_nccl_line_begin(struct pp_nccl_line *line, struct pp_parcel *parcel, struct pp_mark *after)
{
    parcel->issued = false;
    if (!line->comm) return pp_fail(PP_PEER, "%s was given up", line->name);
    if (after) PP_TRY(line->ops->wait(line->port.device, line->queue, after));
    return parcel->begun ? line->ops->record(line->port.device, line->queue, parcel->begun) : PP_OK;
}

pp_status pp_nccl_line_end(struct pp_nccl_line *line, struct pp_parcel *parcel, ncclResult_t result, const char *what)
{
    PP_TRY(pp_nccl_line_result(line, result, what));
    PP_TRY(line->ops->record(line->port.device, line->queue, parcel->done));
    parcel->issued = true;
    return PP_OK;
}
