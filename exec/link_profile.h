/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the links between workers through the transports that training uses.
 *
 * Point to point: messages go back and forth between two workers; each carries the time at which it was sent, so
 * every one gives a one-way time, from before pp_send() until the receiver's pp_test() has said done, with the
 * receive posted before. A sample's context says what the sender did before: "written" = its core wrote the buffer,
 * as a pipeline's does; "same" = the bytes of last time. The calls for a small message are the overheads of both ends
 * (send_overhead_ns, recv_overhead_ns); the rest of its one-way time is latency_ns; ns_per_byte is what larger ones
 * take beyond it ("written", sizes near those that the plans send).
 *
 * All-reduce: pp_reduce over two workers, from a common start until done at worker 0: latency_ns + bytes * ns_per_byte;
 * with D replicas a worker moves and adds 2 (D - 1) / D as much.
 *
 * Devices that work through queues are measured through the carrier that training uses, on their own clocks. "round
 * trip": half of the time between two answers, each sent by the other device as soon as it has the message: latency_ns,
 * and ns_per_byte at the sizes that the plans send. "in a row": messages sent one behind the other with one answer, the
 * time of each: what a busy channel moves; nobody waits for a host or for a receiver that is not there. The overheads
 * are what the calls take the host. posts_in_order and receiver_copies say what the simulator must know of the carrier:
 * 1 or 0. All-reduce: sums one behind the other.
 */
#ifndef PP_EXEC_LINK_PROFILE_H
#define PP_EXEC_LINK_PROFILE_H

#include "core/base/stats.h"
#include "core/database/link_profile.h"
#include "core/job/job.h"
#include "core/model/backend.h"
#include "exec/transport.h"

struct pp_link_setup {
    const struct pp_backend *backend;
    const struct pp_carrier *carrier;        /* between processes: exec/carrier_choose.h */
    const struct pp_config *config;          /* which devices, and threads of each worker */
    int workers;                             /* of the job, in a process: they share the GPUs; 0: two workers */
    double seconds;                          /* for each size */
    pp_status (*pin)(void *arg, int worker); /* called in threads that it starts; NULL: they stay where they are */
    void *pin_arg;
    /* Bytes of the smallest and the largest message, and of the smallest and the largest sum of gradients, of the
     * plans; 0: there are none */
    int64_t message_bytes[2], gradient_bytes[2];
};

/* link, parameter: borrowed. */
pp_status pp_link_profile_add(struct pp_link_profile *profile, const char *link, const char *parameter,
                              double value) PP_MUST_CHECK;

/* Between two threads of this process: "inproc p2p", "inproc allreduce", also for devices. Appends to *out, which is
 * zeroed at first. */
pp_status pp_link_profile_threads(const struct pp_link_setup *setup, struct pp_link_profile *out) PP_MUST_CHECK;
/* Between the first two processes of a run of several: "mpi p2p", "mpi allreduce", or by the carrier's name. All
 * processes call it; only the first gets results. */
pp_status pp_link_profile_processes(const struct pp_link_setup *setup, const struct pp_transport *transport,
                                    const struct pp_processes *processes, struct pp_link_profile *out) PP_MUST_CHECK;
/* Measures the time that a worker spends besides kernels and messages: link "worker", task_overhead_ns and
 * step_overhead_ns. Runs steps of two jobs, of one rank and one replica each, whose programs it empties; one has more
 * tasks than the other, which tells the overhead of a task from that of a step: their numbers of tasks must differ. */
pp_status pp_link_profile_worker(const struct pp_link_setup *setup, struct pp_job *few, struct pp_job *many,
                                 struct pp_link_profile *out) PP_MUST_CHECK;

/* Lets the first process measure alone. All processes call it: the first runs `work`, and the others sleep until `work`
 * has returned. */
pp_status pp_link_profile_alone(const struct pp_transport *transport, const struct pp_processes *processes,
                                pp_status (*work)(void *arg), void *arg) PP_MUST_CHECK;

#endif
