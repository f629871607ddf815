/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the simulation from event to event, between events.c and events_lanes.c. Nothing else includes this.
 */
#ifndef PP_SIM_EVENTS_H
#define PP_SIM_EVENTS_H

#include "sim/cores.h"
#include "sim/simulating.h"

enum pp_sim_place { ON_SOURCE, ON_TARGET, NOWHERE };
enum pp_sim_amount {
    CLASS_TIME,
    REST_OF_ISSUE,
    LAUNCH,
    SEND_OVERHEAD,
    WIRE,
    LATENCY,
    WIRE_AND_RECV_OVERHEAD,
    RECV_OVERHEAD,
    UNTIL_VISIBLE,
    ISSUE
};
enum pp_sim_mark { SENT = 1, DONE = 2, FREE = 4, LAST = 8 };

struct phase {
    uint8_t place, amount, marks;
};

struct lane {
    const struct phase *route;
    int32_t first, length;       /* its tasks: order[first] .. */
    int64_t started, sent, done; /* tasks, counted over all steps */
    bool busy;
    int64_t free_since_ns, done_ns; /* done_ns: the last of its tasks was */
    int64_t need;                   /* what it waits for: so many of another lane's tasks, */
    bool need_sent;                 /* sent or done */
    int32_t waiting, next;          /* first lane that waits for this one; next that waits for the same. -1 = none */
};

struct step_times {
    struct pp_sim_times at;
    int64_t done; /* tasks */
};

struct events {
    struct sim *sim;
    struct cores cores;
    struct lane *lanes;     /* [nlanes + nhosts] */
    int nhosts;             /* 0, or as many as there are ranks */
    int32_t *order;         /* ids lane by lane */
    int32_t *position;      /* [ntasks] in its lane */
    int32_t *ready, nready; /* lanes to look at */
    struct step_times times[PP_SIM_STEPS];
};

/* events_lanes.c. Routes of all lanes, and their tasks in order. */
pp_status pp_sim_make_lanes(struct events *e) PP_MUST_CHECK;

#endif
