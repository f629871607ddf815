/* SPDX-License-Identifier: Apache-2.0
 *
 * Between processes, over MPI. Each worker thread posts and tests its own requests (MPI_THREAD_MULTIPLE); a tag is
 * made of both workers and the kind, so messages of one channel match in order and channels do not mix. MPI moves
 * bytes only while somebody calls it; with Open MPI on one machine the receiver copies them (process_vm_readv).
 */
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/affinity.h"
#include "core/base/clock.h"
#include "core/base/cores.h"
#include "core/base/log.h"
#include "exec/signals.h"
#include "exec/transport.h"

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request must fit struct pp_request");

enum { CLOCK_ROUNDS = 200, CLOCK_TAG = 1, STOPPED_TAG = 2 };

static int provided;

static pp_status check(int code, const char *what)
{
    if (code == MPI_SUCCESS) return PP_OK;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    return pp_fail(PP_PEER, "%s failed: %s", what, text);
}

/* One process's clock against the first's: of many round trips the shortest bounds the error best. */
static pp_status measure_clock(int peer, int index, struct pp_processes *out)
{
    static const char sending[] = "MPI_Send of a time", receiving[] = "MPI_Recv of a time";
    int64_t best = INT64_MAX;
    for (int i = 0; i < CLOCK_ROUNDS; i++) {
        int64_t theirs = 0, before = pp_now_ns();
        if (index == 0) {
            PP_TRY(check(MPI_Recv(&theirs, 1, MPI_INT64_T, peer, CLOCK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                         receiving));
            theirs = pp_now_ns();
            PP_TRY(check(MPI_Send(&theirs, 1, MPI_INT64_T, peer, CLOCK_TAG, MPI_COMM_WORLD), sending));
            continue;
        }
        PP_TRY(check(MPI_Send(&theirs, 1, MPI_INT64_T, 0, CLOCK_TAG, MPI_COMM_WORLD), sending));
        PP_TRY(check(MPI_Recv(&theirs, 1, MPI_INT64_T, 0, CLOCK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE), receiving));
        int64_t after = pp_now_ns();
        if (after - before >= best) continue;
        best = after - before;
        out->clock_offset_ns = theirs - (before + best / 2);
        out->clock_uncertainty_ns = best / 2;
    }
    return PP_OK;
}

/* How many processes a communicator has, and which of them this is. */
static pp_status places_in(MPI_Comm comm, int *count, int *index)
{
    PP_TRY(check(MPI_Comm_size(comm, count), "MPI_Comm_size"));
    return check(MPI_Comm_rank(comm, index), "MPI_Comm_rank");
}

/* A launcher may give each process cores of its own. */
static pp_status find_cores(MPI_Comm host, int *cores)
{
    union {
        cpu_set_t set;
        char bytes[8 * sizeof(cpu_set_t)];
    } usable;
    size_t bytes;
    cpu_set_t *mine = pp_affinity(&bytes);
    memset(&usable, 0, sizeof usable);
    if (mine) memcpy(&usable, mine, bytes < sizeof usable ? bytes : sizeof usable);
    free(mine);
    PP_TRY(check(MPI_Allreduce(MPI_IN_PLACE, usable.bytes, sizeof usable.bytes, MPI_BYTE, MPI_BOR, host),
                 "MPI_Allreduce of cores"));
    *cores = pp_cores_in(&usable.set, sizeof usable);
    return PP_OK;
}

static pp_status find_host(struct pp_processes *out)
{
    MPI_Comm host;
    PP_TRY(check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, out->index, MPI_INFO_NULL, &host),
                 "MPI_Comm_split_type"));
    out->host = out->index;
    pp_status status = places_in(host, &out->on_host, &out->host_index);
    if (status == PP_OK) status = check(MPI_Bcast(&out->host, 1, MPI_INT, 0, host), "MPI_Bcast within a host");
    if (status == PP_OK) status = find_cores(host, &out->host_cores);
    const int freed = MPI_Comm_free(&host);
    return status == PP_OK ? check(freed, "MPI_Comm_free") : status;
}

static pp_status find_hosts(struct pp_processes *out)
{
    PP_TRY(find_host(out));
    int leads = out->host_index == 0;
    PP_TRY(check(MPI_Allreduce(&leads, &out->hosts, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce of hosts"));
    for (int i = 1; i < out->count; i++) {
        int elsewhere = out->host != 0; /* process i tells whether its clock is another one */
        PP_TRY(check(MPI_Bcast(&elsewhere, 1, MPI_INT, i, MPI_COMM_WORLD), "MPI_Bcast"));
        if (elsewhere && (out->index == 0 || out->index == i)) PP_TRY(measure_clock(i, out->index, out));
    }
    return PP_OK;
}

static pp_status start(struct pp_processes *out)
{
    *out = (struct pp_processes){.launched = true};
    PP_TRY(check(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread"));
    /* Else the library ends the process itself. Communicators that are made from this one inherit it. */
    PP_TRY(check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
    PP_TRY(places_in(MPI_COMM_WORLD, &out->count, &out->index));
    return find_hosts(out);
}

/* All is done, and the library may not be asked any more what its codes mean. */
static void finish(void)
{
    if (MPI_Finalize() != MPI_SUCCESS) pp_warn("MPI_Finalize failed");
}

/* Others would wait for ever: only who is known to be alone does not end them. */
static void abort_all(int exit_code)
{
    int count = 0;
    if (MPI_Comm_size(MPI_COMM_WORLD, &count) != MPI_SUCCESS || count > 1) MPI_Abort(MPI_COMM_WORLD, exit_code);
}

/* A process that waits leaves its core to those that still load data. */
static pp_status gather(const void *mine, int bytes, void *all)
{
    const struct timespec nap = {.tv_nsec = 200000};
    MPI_Request request;
    int done = 0;
    PP_TRY(
        check(MPI_Iallgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, MPI_COMM_WORLD, &request), "MPI_Iallgather"));
    for (;;) {
        PP_TRY(check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test of a gather"));
        if (done) return PP_OK;
        if (pp_signals_caught()) return pp_fail(PP_INTERRUPTED, PP_BY_SIGNAL);
        nanosleep(&nap, NULL);
    }
}

/* What has no bytes needs no answer. Then the first process has time to hear it, and to speak, before it is ended. */
static void tell_stopped(int64_t until_ns)
{
    const struct timespec nap = {.tv_nsec = 200000};
    MPI_Request request;
    int done = 0, code = MPI_Isend(NULL, 0, MPI_BYTE, 0, STOPPED_TAG, MPI_COMM_WORLD, &request);
    while (pp_now_ns() < until_ns) {
        if (code == MPI_SUCCESS && !done) code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        nanosleep(&nap, NULL);
    }
}

/* Counts one more process that has told so, if there is one. */
static pp_status hear_stopped(int *heard)
{
    MPI_Status status;
    int there = 0;
    PP_TRY(check(MPI_Iprobe(MPI_ANY_SOURCE, STOPPED_TAG, MPI_COMM_WORLD, &there, &status), "MPI_Iprobe"));
    if (!there) return PP_OK;
    PP_TRY(check(MPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, STOPPED_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                 "MPI_Recv of a signal"));
    ++*heard;
    return PP_OK;
}

/* Where the library fails nothing is known of the others. */
static bool all_stopped(void)
{
    enum { MOMENT_NS = 400000000 }; /* mpirun kills a process 1 s after the signal */
    const struct timespec nap = {.tv_nsec = 200000};
    const int64_t until_ns = pp_now_ns() + MOMENT_NS;
    int count, index, heard = 1;
    if (places_in(MPI_COMM_WORLD, &count, &index) != PP_OK) return false;
    if (count > 1 && provided < MPI_THREAD_MULTIPLE) return false; /* a worker may be stuck in a call */
    if (index > 0) {
        tell_stopped(until_ns);
        return false;
    }
    while (heard < count && pp_now_ns() < until_ns) {
        const int before = heard;
        if (hear_stopped(&heard) != PP_OK) return false;
        if (heard == before) nanosleep(&nap, NULL);
    }
    return heard == count;
}

/* See tag_of(). */
static pp_status check_tags(const struct pp_world *world)
{
    const int64_t needed = (int64_t)world->count * world->count * PP_MESSAGE_KINDS - 1;
    int *most, known = 0;
    PP_TRY(check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &known), "MPI_Comm_get_attr"));
    if (needed <= (known ? *most : 32767)) return PP_OK; /* the least that the standard allows */
    return pp_fail(
        PP_UNSUPPORTED,
        "%d workers in a process are too many for the message tags of this MPI library, up to %d: start more "
        "processes",
        world->count, known ? *most : 32767);
}

static pp_status attach(struct pp_world *world, void **out)
{
    if (provided < (world->count > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED))
        return pp_fail(
            PP_UNSUPPORTED,
            "this MPI library can not be used by %d threads at once (MPI_THREAD_MULTIPLE): start one process "
            "per worker, %d in all",
            world->count, world->workers);
    PP_TRY(check_tags(world));
    MPI_Comm *comm;
    PP_TRY(PP_NEW(&comm, 1));
    *comm = MPI_COMM_NULL;
    *out = comm;
    return check(MPI_Comm_dup(MPI_COMM_WORLD, comm), "MPI_Comm_dup");
}

static void detach(struct pp_world *world, void *state)
{
    (void)world;
    MPI_Comm *comm = state;
    if (*comm != MPI_COMM_NULL) MPI_Comm_free(comm);
    free(comm);
}

static int tag_of(const struct pp_world *world, const struct pp_request *request)
{
    int src = request->src % world->count, dst = request->dst % world->count;
    return (src * world->count + dst) * PP_MESSAGE_KINDS + request->kind;
}

static pp_status check_size(const struct pp_request *request)
{
    if (request->bytes <= INT_MAX) return PP_OK;
    return pp_fail(
        PP_UNSUPPORTED,
        "a message of %lld bytes from worker %d to worker %d is more than MPI takes at once (2 GiB): use more "
        "chunks",
        (long long)request->bytes, request->src, request->dst);
}

static pp_status post_send(struct pp_world *world, struct pp_request *request)
{
    PP_TRY(check_size(request));
    MPI_Request native;
    MPI_Comm *comm = world->remote_state;
    int code = MPI_Isend(request->buffer, (int)request->bytes, MPI_BYTE, request->dst / world->count,
                         tag_of(world, request), *comm, &native);
    memcpy(&request->native, &native, sizeof native);
    return check(code, "MPI_Isend");
}

static pp_status post_recv(struct pp_world *world, struct pp_request *request)
{
    PP_TRY(check_size(request));
    MPI_Request native;
    MPI_Comm *comm = world->remote_state;
    int code = MPI_Irecv(request->buffer, (int)request->bytes, MPI_BYTE, request->src / world->count,
                         tag_of(world, request), *comm, &native);
    memcpy(&request->native, &native, sizeof native);
    return check(code, "MPI_Irecv");
}

static pp_status test(struct pp_world *world, struct pp_request *request)
{
    (void)world;
    MPI_Request native;
    MPI_Status status;
    int done = 0;
    memcpy(&native, &request->native, sizeof native);
    PP_TRY(check(MPI_Test(&native, &done, &status), request->receive ? "MPI_Test of a receive" : "MPI_Test of a send"));
    memcpy(&request->native, &native, sizeof native);
    request->done = done;
    int bytes = (int)request->bytes;
    if (done && request->receive) PP_TRY(check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count"));
    if (bytes != (int)request->bytes)
        return pp_fail(PP_INTERNAL, "worker %d sent %d bytes where worker %d expects %lld (message kind %d)",
                       request->src, bytes, request->dst, (long long)request->bytes, request->kind);
    return PP_OK;
}

const struct pp_transport pp_transport_mpi = {
    .name = "mpi",
    .summary = "workers in several processes, started by mpirun or srun",
    .mover = "the MPI library, inside the calls of a worker that polls; on one machine the receiver's core copies",
    .start = start,
    .finish = finish,
    .abort = abort_all,
    .gather = gather,
    .all_stopped = all_stopped,
    .attach = attach,
    .detach = detach,
    .send = post_send,
    .recv = post_recv,
    .test = test,
};
