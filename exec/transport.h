/* SPDX-License-Identifier: Apache-2.0
 *
 * Transports: how bytes get from one worker to another.
 *
 * A run is done by so many workers as its plan has (core/workers.h numbers them), spread over n processes,
 * consecutive workers in one process; each worker is one thread. Two workers of one process always talk through
 * `inproc`; workers of different processes through the transport that joins the processes (`mpi`). So a world of
 * threads, of processes, and of both look the same from here.
 *
 * Messages. A message goes from one worker to another and has a kind. Messages of one kind between the same two
 * workers arrive in the order in which they were sent, and the n-th receive gets the n-th message; kinds do not mix.
 * Sends and receives return at once; the buffer belongs to the transport until the request is done, or, when the run
 * fails before, until all workers of the process have stopped. Requests of one kind between the same two workers
 * complete in order, so it is enough to test the oldest.
 *
 * Nothing moves while nobody calls: the receiver copies, in pp_test(), and a sender with many messages open must test
 * them too. Workers do so between kernels.
 */
#ifndef PP_EXEC_TRANSPORT_H
#define PP_EXEC_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/plan.h"
#include "exec/linger.h"

enum pp_message_kind {
    PP_MESSAGE_FORWARD,  /* activations: PP_XFER_F */
    PP_MESSAGE_BACKWARD, /* their gradients: PP_XFER_B */
    PP_MESSAGE_PART,     /* gradient reduction: a replica's contribution, to the owner of a piece */
    PP_MESSAGE_SUM,      /* gradient reduction: the sum, from the owner */
    PP_MESSAGE_NORM,     /* sums of squares */
    PP_MESSAGE_PIECE,    /* of an all to all */
    PP_MESSAGE_LOSS,     /* a step's loss, to worker 0 */
    PP_MESSAGE_CONTROL,  /* everything outside of steps: barriers, weights, results */
    PP_MESSAGE_KINDS
};

/* Of a channel: pp_lane.transfer. */
static inline int pp_message_of(int transfer)
{
    return transfer == PP_XFER_F ? PP_MESSAGE_FORWARD : PP_MESSAGE_BACKWARD;
}

struct pp_world;
struct pp_carrier;

/* One send or receive under way. Lives with the caller, at one address until it is done. */
struct pp_request {
    bool receive, remote, done;
    int32_t src, dst, kind; /* workers, enum pp_message_kind */
    void *buffer;
    int64_t bytes;
    /* the transport's */
    void *channel;
    uint64_t sequence;
    uint64_t native;
};

/* The processes that take part, as the launcher (mpirun, srun) made them. */
struct pp_processes {
    bool launched; /* by a launcher, which may have tied each to a core */
    int count, index;
    int on_host, host_index; /* processes on this one's machine; this one among them */
    int hosts;
    /* This process's clock + offset = the first process's clock, to within the uncertainty. Both 0 on one machine. */
    int64_t clock_offset_ns, clock_uncertainty_ns;
};

struct pp_transport {
    const char *name, *summary;
    const char *mover; /* who moves the bytes, and when */
    /* Joins the other processes. Called once, by the main thread. */
    pp_status (*start)(struct pp_processes *out);
    void (*finish)(void);
    /* Ends all processes of the run, this one too where there are several; else returns. */
    void (*abort)(int exit_code);
    /* Outside of worlds, by the main thread of every process, in the same order everywhere: all = [processes][bytes],
     * by index. After a failure (PP_INTERRUPTED: a signal) the memory may still be written. */
    pp_status (*gather)(const void *mine, int bytes, void *all);
    /* Called by the main thread of each process that a signal stopped, while the world's requests still have their
     * memory: does the first process hear that from all others, within a moment? If not, one may have failed, and the
     * launcher has sent the signal. Others than the first get no answer, only that moment later: false. */
    bool (*all_stopped)(void);
    /* What the transport needs for one world: world->local_state of `inproc`, else world->remote_state. */
    pp_status (*attach)(struct pp_world *world, void **state);
    void (*detach)(struct pp_world *world, void *state);
    pp_status (*send)(struct pp_world *world, struct pp_request *request);
    pp_status (*recv)(struct pp_world *world, struct pp_request *request);
    pp_status (*test)(struct pp_world *world, struct pp_request *request);
};

#define PP_TRANSPORT(name, joins, needs) extern const struct pp_transport pp_transport_##name;
#define PP_CARRIER(name, joins, needs, host_wait)
#include "core/movers.def"

/* Those that this build has, in the order in which `auto` prefers them; NULL-terminated. */
extern const struct pp_transport *const pp_transports[];

/* name: "auto", a row of pp_transports, or a carrier's, which is as "auto" here: the first between processes if a
 * launcher started this process, as the environment tells, else threads. Refuses what can not work (two processes
 * without a transport between them). Call once; pairs with finish() of the transport. */
pp_status pp_transport_start(const char *name, const struct pp_transport **out,
                             struct pp_processes *processes) PP_MUST_CHECK;

/* A worker's doorbell: rung by whoever gave it something to do. Own cache line. */
struct pp_bell {
    _Alignas(64) atomic_uint count;
    atomic_uint sleeping;
    struct pp_linger linger; /* the worker's own */
};

enum { PP_LETTER = 256 /* bytes; an identity of NCCL's is shorter */ };

/* A worker's memory for messages outside of steps: lives as long as the world, so that a failing worker takes nothing
 * away from one that still copies from it. */
struct pp_scratch {
    void *memory;
    int64_t bytes;
    char letter[PP_LETTER]; /* what pp_send_now() and pp_recv_now() move, if it is as short */
};

struct pp_world {
    const struct pp_transport *transport;
    struct pp_processes processes;
    int workers;                /* of the world */
    int first, count;           /* this process has workers first .. first+count-1 */
    bool remote;                /* there are other processes */
    bool crowded;               /* more busy threads than cores: who waits lets others run */
    bool polled;                /* workers wait for devices, which ring no bell. Set before the workers start */
    bool dozes;                 /* devices wait instead of computing (pp_backend.waits). Set before the workers start */
    int cores;                  /* that this process may use */
    atomic_int stop;            /* a worker of this process failed: enum pp_status */
    struct pp_bell *bells;      /* [count] */
    struct pp_scratch *scratch; /* [count] */
    void *local_state, *remote_state;
    /* Between devices of different processes (exec/carrier.h); NULL where the host's memory is the device's. */
    const struct pp_carrier *carrier;
    bool shares_devices; /* a worker of this process has no device to itself */
    /* A thread that cannot be ended still uses devices of this process (exec/nccl_line.c): they stay open until the
     * process ends, which is soon. */
    atomic_bool devices_held;
};

/* workers: a multiple of processes->count, else PP_USAGE. threads: of each worker. All processes call it. The world
 * must be closed when no request is open, or after a failure. */
pp_status pp_world_open(const struct pp_transport *transport, const struct pp_processes *processes, int workers,
                        int threads, struct pp_world **out) PP_MUST_CHECK;
void pp_world_close(struct pp_world *world); /* NULL is fine */

/* Workers that call these are of this process; src and dst differ. */
pp_status pp_send(struct pp_world *world, int src, int dst, int kind, const void *buffer, int64_t bytes,
                  struct pp_request *request) PP_MUST_CHECK;
pp_status pp_recv(struct pp_world *world, int src, int dst, int kind, void *buffer, int64_t bytes,
                  struct pp_request *request) PP_MUST_CHECK;
/* Moves what can be moved; request->done tells. Nothing to do for a request that is done. */
pp_status pp_test(struct pp_world *world, struct pp_request *request) PP_MUST_CHECK;
/* Blocks until done; fails when the world is stopped. */
pp_status pp_finish(struct pp_world *world, int me, struct pp_request *request) PP_MUST_CHECK;
/* Both at once. A buffer of more than PP_LETTER bytes must outlive a failure as that of any request does. */
pp_status pp_send_now(struct pp_world *world, int src, int dst, int kind, const void *buffer,
                      int64_t bytes) PP_MUST_CHECK;
pp_status pp_recv_now(struct pp_world *world, int src, int dst, int kind, void *buffer, int64_t bytes) PP_MUST_CHECK;

/* The worker's scratch, at least this large; what it held is lost. No request may use it. */
pp_status pp_world_scratch(struct pp_world *world, int me, int64_t bytes, void *out) PP_MUST_CHECK;

/* Tells the workers of this process to give up; their next pp_world_check() fails. */
void pp_world_stop(struct pp_world *world, pp_status why);
/* PP_INTERRUPTED after a signal, PP_PEER after pp_world_stop(). */
pp_status pp_world_check(struct pp_world *world) PP_MUST_CHECK;

/* Waiting: seen = pp_bell_seen(); look for work; nothing there: pp_world_wait(). It spins shortly (20 ms at most,
 * while nobody else wants the core), where workers crowd it lets the others run for a while (threads: 2 ms), then it
 * sleeps until the bell rings (or a moment, where bytes may come from another process). *idle_since: 0 at first, then
 * kept between calls. */
unsigned pp_bell_seen(struct pp_world *world, int me);
void pp_bell_ring(struct pp_world *world, int worker); /* of this process */
void pp_world_wait(struct pp_world *world, int me, unsigned seen, int64_t *idle_since);
/* All of that, for one thing alone: looks at it again and again until *done. PP_INTERRUPTED, PP_PEER; or what looking
 * gives. */
typedef pp_status pp_world_look(struct pp_world *world, void *at, bool *done);
pp_status pp_world_await(struct pp_world *world, int me, pp_world_look *look, void *at) PP_MUST_CHECK;
/* The same for whoever waits for a time: returns when it is reached, or something came in, or now and then. */
void pp_world_sleep(struct pp_world *world, int me, unsigned seen, int64_t until_ns);

#endif
