/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the simulation from event to event, shared by events.c and events_lanes.c. Nothing else includes this.
 *
 * A task goes through the phases of its lane's route. In a phase it is a piece of work on the core of one of its ranks,
 * or a delay; at the end of a phase it may be marked.
 */
#ifndef PP_SIM_EVENTS_H
#define PP_SIM_EVENTS_H

#include "sim/cores.h"
#include "sim/simulating.h"

/* Where the work of a phase is done: on the core of the lane's source rank, of its target rank, or nowhere (a delay).
 */
enum pp_sim_place { PP_SIM_ON_SOURCE, PP_SIM_ON_TARGET, PP_SIM_NOWHERE };
/* How long a phase takes (core/plan/cost.h). */
enum pp_sim_amount {
    PP_SIM_CLASS_TIME,             /* the duration of the task's class */
    PP_SIM_REST_OF_ISSUE,          /* until the host has issued the whole task */
    PP_SIM_LAUNCH,                 /* launch_ns; after the last task of a step also step_overhead_ns */
    PP_SIM_SEND_OVERHEAD,          /* of the link */
    PP_SIM_WIRE,                   /* the bytes of a transfer, without latency and overheads */
    PP_SIM_LATENCY,                /* of the link or network */
    PP_SIM_WIRE_AND_RECV_OVERHEAD, /* both */
    PP_SIM_RECV_OVERHEAD,          /* of the link */
    PP_SIM_UNTIL_VISIBLE,          /* host: until the device can see what the host issues next */
    PP_SIM_ISSUE                   /* host: host_ns of the task's class */
};
/* What is true of a task at the end of a phase. */
enum pp_sim_mark {
    PP_SIM_SENT = 1, /* its send slot is free; a host has begun to issue it */
    PP_SIM_DONE = 2, /* it is done; a host has issued it */
    PP_SIM_FREE = 4, /* its lane is free */
    PP_SIM_LAST = 8  /* the phase is the last one */
};

struct pp_sim_phase {
    uint8_t place, amount, marks; /* enum pp_sim_place, enum pp_sim_amount, bits of enum pp_sim_mark */
};

/* A lane of the plan; or a host that issues tasks, as a lane of its own. */
struct pp_sim_lane {
    const struct pp_sim_phase *route;
    int32_t first, length;       /* its tasks of a step are pp_sim_events.order[first] .. [first + length - 1] */
    int64_t started, sent, done; /* numbers of tasks, counted over all steps */
    bool busy;
    int64_t free_since_ns, done_ns; /* when it became free; when the last of its done tasks ended */
    /* If the next task waits for another lane: until that lane has sent (need_sent) or done `need` tasks. */
    int64_t need;
    bool need_sent;
    int32_t waiting; /* the first lane that waits for this one; -1 = none */
    int32_t next;    /* the next lane that waits for the same lane as this one; -1 = none */
};

struct pp_sim_step {
    struct pp_sim_times at;
    int64_t done; /* number of tasks that are done */
};

enum { PP_SIM_KNOWN_HOSTS = 2 };

struct pp_sim_events {
    struct pp_sim *sim;
    struct pp_sim_cores cores;
    struct pp_sim_lane *lanes; /* [nlanes + nhosts] those of the plan, then hosts, one for each rank */
    int nhosts;                /* number of ranks if hosts issue tasks, else 0 */
    int32_t *order;            /* task ids, lane by lane */
    int32_t *position;         /* [ntasks] index of the task among those of its lane */
    int32_t *host_position;    /* [ntasks, 2] the same among those of the first hosts that issue it; no hosts: NULL */
    int32_t *ready, nready;    /* stack of lanes whose next task may be able to start */
    struct pp_sim_step times[PP_SIM_STEPS];
};

/* events_lanes.c: makes all lanes, with their routes and tasks. */
pp_status pp_sim_make_lanes(struct pp_sim_events *e) PP_MUST_CHECK;

#endif
