/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/carrier.h"

#include <time.h>

#include "core/base/clock.h"
#include "core/plan/movers.h"

static const int64_t REST_NS = 5000000000, NAP_NS = 100000;

const struct pp_carrier *const pp_carriers[] = {
#define IF_THREADS(...)
#define IF_PROCESSES(...) __VA_ARGS__
#define PP_TRANSPORT(name, joins, needs)
#define PP_CARRIER(name, joins, needs, host_wait) IF_##joins(PP_WHERE(PP_HAVE_##needs, &pp_carrier_##name, ))
#include "core/plan/movers.def"
    NULL,
};

void pp_port_rest(const struct pp_port *port, struct pp_queue *queue, struct pp_mark *mark)
{
    const struct pp_queue_ops *ops = port->backend->queue;
    bool reached = ops->record(port->device, queue, mark) != PP_OK;
    for (int64_t start = pp_now_ns(); !reached && pp_now_ns() - start < REST_NS;) {
        if (ops->reached(port->device, mark, &reached) != PP_OK) return;
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}
