/* SPDX-License-Identifier: Apache-2.0
 *
 * Transports: how bytes get from one worker to another.
 *
 * A run is done by so many workers as its plan has (core/plan/workers.h numbers them), spread over n processes,
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

#include "core/plan/plan.h"
#include "exec/linger.h"

enum pp_message_kind {
    PP_MESSAGE_FORWARD,  /* activations: PP_XFER_F */
    PP_MESSAGE_BACKWARD, /* their gradients: PP_XFER_B */
    PP_MESSAGE_PART,     /* gradient reduction: a replica's contribution, to the owner of a piece */
    PP_MESSAGE_SUM,      /* gradient reduction: the sum, from the owner */
    PP_MESSAGE_NORM,     /* sums of squares, for the norm of all gradients */
    PP_MESSAGE_PIECE,    /* a piece of an exchange (exec/exchange.h) */
    PP_MESSAGE_LOSS,     /* a step's loss, to worker 0 */
    PP_MESSAGE_CONTROL,  /* everything outside of steps: barriers, weights, results */
    PP_MESSAGE_KINDS
};

/* The kind of messages of a channel; transfer: pp_lane.transfer. */
static inline int pp_message_of(int transfer)
{
    return transfer == PP_XFER_F ? PP_MESSAGE_FORWARD : PP_MESSAGE_BACKWARD;
}

struct pp_world;
struct pp_carrier;

/* One send or receive, in the caller's memory. It stays at one address until it is done. */
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
    bool launched;           /* a launcher started them, and may have bound each to a core */
    int count, index;        /* all processes; which of them this is */
    int on_host, host_index; /* processes on this machine; which of them this is */
    int host_cores;          /* that these processes were started on, together; 0: not known */
    int hosts;               /* machines */
    int host;                /* which machine this is: the index of its first process */
    /* This process's clock + offset = the first process's clock, to within the uncertainty. Both 0 on one machine. */
    int64_t clock_offset_ns, clock_uncertainty_ns;
};

struct pp_transport {
    const char *name, *summary;
    const char *mover; /* who moves the bytes, and when */
    /* Joins the other processes. Called once, by the main thread. */
    pp_status (*start)(struct pp_processes *out);
    void (*finish)(void);
    /* Ends all processes of the run, including this one. Returns where there is only one process. */
    void (*abort)(int exit_code);
    /* All-gather over processes, while no world is open; called by the main thread of every process, in the same order
     * everywhere. all: [processes][bytes], by index. After a failure (PP_INTERRUPTED: a signal) `mine` may still be
     * read, and `all` written to. */
    pp_status (*gather)(const void *mine, int bytes, void *all);
    /* Called by the main thread of each process that a signal stopped, before the memory of the world's requests is
     * freed. Each tells the first process that it was stopped. Returns true in the first process if all others have
     * told so within a moment; false means that one may have failed by itself, so that the launcher sent the signal.
     * The other processes get false after that moment. */
    bool (*all_stopped)(void);
    /* Makes what the transport needs for one world: world->local_state for `inproc`, world->remote_state for others. */
    pp_status (*attach)(struct pp_world *world, void **state);
    void (*detach)(struct pp_world *world, void *state);
    pp_status (*send)(struct pp_world *world, struct pp_request *request);
    pp_status (*recv)(struct pp_world *world, struct pp_request *request);
    pp_status (*test)(struct pp_world *world, struct pp_request *request);
};

#define PP_TRANSPORT(name, joins, needs) extern const struct pp_transport pp_transport_##name;
#define PP_CARRIER(name, joins, needs, host_wait)
#include "core/plan/movers.def"

/* The transports that this build has, in the order in which `auto` prefers them; NULL-terminated. */
extern const struct pp_transport *const pp_transports[];

/* Chooses and starts the transport. name: that of a transport; or "auto", or that of a carrier, which mean: the first
 * transport between processes if a launcher started this process (the environment tells), else threads. Refuses what
 * cannot work, such as two processes without a transport between them. Called once; the transport's finish() ends
 * it. */
pp_status pp_transport_start(const char *name, const struct pp_transport **out,
                             struct pp_processes *processes) PP_MUST_CHECK;

/* Wakes a sleeping worker: rung by whoever gave it something to do. In a cache line of its own. */
struct pp_bell {
    _Alignas(64) atomic_uint count; /* how often it was rung */
    atomic_uint sleeping;           /* the worker sleeps, or is about to */
    struct pp_linger linger;        /* used by the worker alone */
};

enum { PP_LETTER = 256 /* bytes of a short message; an ncclUniqueId fits */ };

/* A worker's memory for messages outside of steps. It lives as long as the world: where a worker fails, another one may
 * still be copying from it. */
struct pp_scratch {
    void *memory;
    int64_t bytes;
    char letter[PP_LETTER]; /* buffer of pp_send_now() and pp_recv_now() for messages that fit */
};

struct pp_world {
    const struct pp_transport *transport;
    struct pp_processes processes;
    int workers;      /* of the world */
    int first, count; /* this process has workers first .. first+count-1 */
    bool remote;      /* there are other processes */
    bool crowded;     /* there are more busy threads than cores: a waiting thread yields its core */
    bool polled;      /* workers wait for devices, which ring no bell. Set before the workers start */
    bool dozes;       /* devices wait instead of computing (pp_backend.waits). Set before the workers start */
    int cores;        /* that this process may use */
    atomic_int stop;  /* enum pp_status: PP_OK, or why workers of this process are to stop */
    char message[PP_MESSAGE_BYTES]; /* with `stop`: see pp_world_failure() */
    bool signal_alone;              /* `message` is PP_BY_SIGNAL: whoever knows more may tell it */
    struct pp_bell *bells;          /* [count] */
    struct pp_scratch *scratch;     /* [count] */
    void *local_state, *remote_state;
    /* Moves the memory of devices between processes (exec/carrier.h); NULL where devices use the host's memory. */
    const struct pp_carrier *carrier;
    int sharers; /* the most workers of the host that share a device of this process; 0, 1: each has one to itself */
    /* A thread that cannot be ended still uses devices of this process (exec/nccl_line.c): they stay open until the
     * process ends, which is soon. */
    atomic_bool devices_held;
};

/* All processes call it. workers: of the world; PP_USAGE where this is no multiple of processes->count. threads: of
 * each worker. The world may be closed when no request is open, or after a failure. */
pp_status pp_world_open(const struct pp_transport *transport, const struct pp_processes *processes, int workers,
                        int threads, struct pp_world **out) PP_MUST_CHECK;
void pp_world_close(struct pp_world *world); /* NULL is fine */

/* Start sending from worker src, or receiving at worker dst, which is the calling worker. src and dst differ. */
pp_status pp_send(struct pp_world *world, int src, int dst, int kind, const void *buffer, int64_t bytes,
                  struct pp_request *request) PP_MUST_CHECK;
pp_status pp_recv(struct pp_world *world, int src, int dst, int kind, void *buffer, int64_t bytes,
                  struct pp_request *request) PP_MUST_CHECK;
/* Moves the request on as far as possible without waiting, and sets request->done. Does nothing for one that is
 * done. */
pp_status pp_test(struct pp_world *world, struct pp_request *request) PP_MUST_CHECK;
/* Waits until the request is done; fails when the world is stopped. */
pp_status pp_finish(struct pp_world *world, int me, struct pp_request *request) PP_MUST_CHECK;
/* Send or receive, and wait until it is done. After a failure a buffer of more than PP_LETTER bytes must stay, like
 * that of any request, until all workers of the process have stopped. */
pp_status pp_send_now(struct pp_world *world, int src, int dst, int kind, const void *buffer,
                      int64_t bytes) PP_MUST_CHECK;
pp_status pp_recv_now(struct pp_world *world, int src, int dst, int kind, void *buffer, int64_t bytes) PP_MUST_CHECK;

/* Returns the worker's scratch memory, enlarged to at least so many bytes; its contents are lost. No open request may
 * use it. out: address of the pointer to set. */
pp_status pp_world_scratch(struct pp_world *world, int me, int64_t bytes, void *out) PP_MUST_CHECK;

/* Tells the workers of this process to give up; their next pp_world_check() fails. Called by a thread that has just
 * failed, as pp_message() says. */
void pp_world_stop(struct pp_world *world, pp_status why);
/* The failure with which pp_world_stop() was called first, and its message: the failures of other workers may have
 * come of it. Of workers that a signal has stopped, that of the first who says more than PP_BY_SIGNAL. PP_OK: there was
 * none. */
pp_status pp_world_failure(const struct pp_world *world) PP_MUST_CHECK;
/* PP_INTERRUPTED after a signal, PP_PEER after pp_world_stop(). */
pp_status pp_world_check(struct pp_world *world) PP_MUST_CHECK;

/* How a worker waits: seen = pp_bell_seen(); look for work; if there is none, pp_world_wait(seen), and again. A worker
 * that has been idle for a short time spins (20 ms at most, while nobody else wants the core); then it may yield the
 * core to others (in a crowded world of threads for 2 ms); then it sleeps until the bell rings, or for a moment where
 * bytes may come from another process. *idle_since: 0 at first, and again when something has come in; else kept between
 * calls. */
unsigned pp_bell_seen(struct pp_world *world, int me);
void pp_bell_ring(struct pp_world *world, int worker); /* of this process */
void pp_world_wait(struct pp_world *world, int me, unsigned seen, int64_t *idle_since);
/* Waits in this way for one thing: calls look() again and again until it sets *done. Returns PP_INTERRUPTED or PP_PEER
 * where the world is stopped, or the failure of look(). */
typedef pp_status pp_world_look(struct pp_world *world, void *at, bool *done);
pp_status pp_world_await(struct pp_world *world, int me, pp_world_look *look, void *at) PP_MUST_CHECK;
/* As pp_world_wait(), for a worker that waits for a time: returns when that time is reached or the bell rings, and from
 * time to time. */
void pp_world_sleep(struct pp_world *world, int me, unsigned seen, int64_t until_ns);

#endif
