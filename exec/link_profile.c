/* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/plan/movers.h"
#include "exec/link_profile_inside.h"
#include "exec/place.h"
#include "exec/reduce.h"

enum {
    WARM_UP = 3, /* exchanges that do not count */
    MANY = 400   /* ... that are enough */
};

/* The first bytes of every message. */
struct header {
    int64_t sent_ns, more;
};

/* What the calls for a message take: to send and to receive it, and to learn that it is done. */
enum call { SEND, SENT, RECEIVE, RECEIVED, CALLS };

/* One of the two workers. Worker 0 decides how often and keeps the times. */
struct side {
    const struct pp_link_setup *setup;
    const struct pp_mover *mover; /* names the links */
    struct pp_world *world;
    int me;
    struct pp_link_profile *out; /* worker 0; else NULL */
    struct pp_device *device;
    void *outgoing, *incoming, *source; /* source: host memory to write from */
    struct pp_reduce *reduce;
    int64_t room;
    struct pp_times one_way;
    struct pp_times calls[CALLS];
};

static int64_t now_of(const struct side *s) { return pp_now_ns() + s->world->processes.clock_offset_ns; }

struct timed {
    struct pp_request *request;
    int64_t last_ns; /* what the last look took */
};

static pp_status look_timed(struct pp_world *world, void *at, bool *done)
{
    struct timed *timed = at;
    const int64_t start = pp_now_ns();
    PP_TRY(pp_test(world, timed->request));
    timed->last_ns = pp_now_ns() - start;
    *done = timed->request->done;
    return PP_OK;
}

/* Waits as a worker does. *last_ns: the call that found it done. */
static pp_status finish(struct side *s, struct pp_request *request, int64_t *last_ns)
{
    struct timed timed = {.request = request};
    PP_TRY(pp_world_await(s->world, s->me, look_timed, &timed));
    *last_ns = timed.last_ns;
    return PP_OK;
}

static pp_status send_one(struct side *s, int64_t bytes, bool write, bool more)
{
    const struct pp_backend *backend = s->setup->backend;
    if (write) PP_TRY(backend->upload(s->device, s->outgoing, s->source, bytes));
    struct header header = {.sent_ns = now_of(s), .more = more};
    PP_TRY(backend->upload(s->device, s->outgoing, &header, sizeof header));
    struct pp_request request;
    int64_t start = pp_now_ns(), last;
    PP_TRY(pp_send(s->world, s->me, 1 - s->me, PP_MESSAGE_FORWARD, s->outgoing, bytes, &request));
    PP_TRY(pp_times_add(&s->calls[SEND], pp_now_ns() - start));
    PP_TRY(finish(s, &request, &last));
    return pp_times_add(&s->calls[SENT], last);
}

static pp_status post(struct side *s, int64_t bytes, struct pp_request *request)
{
    int64_t start = pp_now_ns();
    PP_TRY(pp_recv(s->world, 1 - s->me, s->me, PP_MESSAGE_FORWARD, s->incoming, bytes, request));
    return pp_times_add(&s->calls[RECEIVE], pp_now_ns() - start);
}

static pp_status take_one(struct side *s, struct pp_request *request, bool *more)
{
    int64_t last;
    struct header header;
    PP_TRY(finish(s, request, &last));
    int64_t arrived = now_of(s);
    PP_TRY(s->setup->backend->download(s->device, &header, s->incoming, sizeof header));
    *more = header.more;
    PP_TRY(pp_times_add(&s->one_way, arrived - header.sent_ns));
    return pp_times_add(&s->calls[RECEIVED], last);
}

static void forget(struct side *s)
{
    s->one_way.n = 0;
    for (int i = 0; i < CALLS; i++) s->calls[i].n = 0;
}

/* Both are there and warm: forgets the times so far. Returns when to stop. */
static int64_t begin_counting(struct side *s)
{
    forget(s);
    return pp_now_ns() + (int64_t)(s->setup->seconds * 1e9);
}

static pp_status lead_exchanges(struct side *s, int64_t bytes, bool write)
{
    int64_t deadline = 0;
    bool more = true;
    for (int i = 0; more; i++) {
        struct pp_request request;
        bool echoed;
        if (i == WARM_UP) deadline = begin_counting(s);
        more = i < WARM_UP || (i < MANY && pp_now_ns() < deadline);
        PP_TRY(post(s, bytes, &request));
        PP_TRY(send_one(s, bytes, write, more));
        PP_TRY(take_one(s, &request, &echoed));
    }
    return PP_OK;
}

static pp_status follow_exchanges(struct side *s, int64_t bytes, bool write)
{
    struct pp_request request;
    PP_TRY(post(s, bytes, &request));
    for (bool more = true; more;) {
        PP_TRY(take_one(s, &request, &more));
        if (more) PP_TRY(post(s, bytes, &request));
        PP_TRY(send_one(s, bytes, write, more));
    }
    forget(s);
    return PP_OK;
}

static pp_status measure_size(struct side *s, int64_t bytes, bool write, struct pp_quantiles *ns)
{
    forget(s);
    if (s->me != 0) return follow_exchanges(s, bytes, write);
    PP_TRY(lead_exchanges(s, bytes, write));
    *ns = pp_times_quantiles(&s->one_way);
    return pp_link_sample(s->out, s->mover->p2p, write ? "written" : "same", bytes, ns);
}

/* The receive was posted before, and what the sender does after its call is nobody's latency. */
static pp_status add_parameters(struct side *s, const double *x, const double *y, int n, const double calls[CALLS])
{
    double a, b;
    pp_link_fit(x, y, n, s->setup->message_bytes, &a, &b);
    PP_TRY(pp_link_profile_add(s->out, s->mover->p2p, "latency_ns", fmax(0, a - calls[SEND] - calls[RECEIVED])));
    PP_TRY(pp_link_profile_add(s->out, s->mover->p2p, "send_overhead_ns", calls[SEND] + calls[SENT]));
    PP_TRY(pp_link_profile_add(s->out, s->mover->p2p, "recv_overhead_ns", calls[RECEIVE] + calls[RECEIVED]));
    return pp_link_profile_add(s->out, s->mover->p2p, "ns_per_byte", b);
}

static pp_status measure_p2p(struct side *s)
{
    int64_t sizes[PP_LINK_SIZES];
    double x[PP_LINK_SIZES], y[PP_LINK_SIZES], calls[CALLS] = {0};
    int n = pp_link_message_sizes(s->setup->message_bytes, s->room, sizes), points = 0;
    for (int i = 0; i < n; i++) {
        struct pp_quantiles same = {0}, written = {0};
        PP_TRY(measure_size(s, sizes[i], false, &same));
        for (int k = 0; k < CALLS && sizes[i] == PP_LINK_SMALL; k++)
            calls[k] = (double)pp_times_quantiles(&s->calls[k]).median_ns;
        PP_TRY(measure_size(s, sizes[i], true, &written));
        x[points] = (double)sizes[i];
        y[points++] = (double)written.median_ns;
    }
    return s->me == 0 ? add_parameters(s, x, y, points, calls) : PP_OK;
}

static pp_status look_at_reduce(struct pp_world *world, void *at, bool *done)
{
    struct pp_reduce *reduce = at;
    if (!reduce->done) PP_TRY(pp_reduce_poll(world, reduce));
    *done = reduce->done;
    return PP_OK;
}

static pp_status reduce_once(struct side *s, int64_t bytes)
{
    struct pp_reduce *reduce = s->reduce;
    int64_t start = pp_now_ns();
    PP_TRY(pp_reduce_start(s->world, reduce, s->outgoing, bytes / (int64_t)sizeof(float)));
    PP_TRY(pp_world_await(s->world, s->me, look_at_reduce, reduce));
    return pp_times_add(&s->one_way, pp_now_ns() - start);
}

static pp_status reduce_size(void *side, int64_t bytes, struct pp_quantiles *ns)
{
    struct side *s = side;
    int64_t deadline = 0;
    bool more = true;
    for (int i = 0; more; i++) {
        if (i == WARM_UP) deadline = begin_counting(s);
        more = i < WARM_UP || (i < MANY && pp_now_ns() < deadline);
        PP_TRY(pp_link_agree(s->world, s->me, &more));
        PP_TRY(reduce_once(s, bytes));
    }
    *ns = pp_times_quantiles(&s->one_way);
    return PP_OK;
}

static pp_status measure_reduction(struct side *s)
{
    struct pp_group group = {.first = 0, .stride = 1, .n = 2};
    PP_TRY(pp_reduce_create(group, s->me, s->setup->backend, s->device, s->room, &s->reduce));
    return pp_link_measure_sums(&(struct pp_link_sums){.setup = s->setup,
                                                       .link = s->mover->allreduce,
                                                       .room = s->room,
                                                       .measure = reduce_size,
                                                       .side = s,
                                                       .out = s->out});
}

static pp_status measure(struct side *s)
{
    const struct pp_backend *backend = s->setup->backend;
    s->room = pp_link_room(s->setup);
    const struct pp_world *world = s->world;
    const struct pp_device_spec spec =
        pp_place_device(&world->processes, s->setup->config, world->count, s->me - world->first);
    PP_TRY(backend->open(&spec, &s->device));
    PP_TRY(pp_alloc_bytes(&s->source, (size_t)s->room, 1));
    PP_TRY(backend->alloc(s->device, s->room, &s->outgoing));
    PP_TRY(backend->alloc(s->device, s->room, &s->incoming));
    PP_TRY(measure_p2p(s));
    return measure_reduction(s);
}

/* When both sides have ended: one that gives up leaves the other copying from its memory. */
static void release(struct side *s)
{
    const struct pp_backend *backend = s->setup->backend;
    pp_reduce_free(s->reduce);
    if (s->incoming) backend->release(s->device, s->incoming, s->room);
    if (s->outgoing) backend->release(s->device, s->outgoing, s->room);
    free(s->source);
    pp_times_free(&s->one_way);
    for (int i = 0; i < CALLS; i++) pp_times_free(&s->calls[i]);
    if (s->device) backend->close(s->device);
}

static void *side_main(void *arg)
{
    struct side *s = arg;
    pp_status status = s->setup->pin ? s->setup->pin(s->setup->pin_arg, s->me) : PP_OK;
    if (status == PP_OK)
        status = s->setup->backend->queue ? pp_link_profile_queue(s->setup, s->world, s->me, s->out) : measure(s);
    if (status != PP_OK) pp_world_stop(s->world, status);
    return NULL;
}

static pp_status measure_threads(const struct pp_link_setup *setup, struct pp_world *world, struct pp_link_profile *out)
{
    const struct pp_mover *mover = pp_mover_find(world->transport->name, PP_OF_HOSTS);
    struct side sides[2];
    pthread_t threads[2];
    int started = 0, error = 0;
    for (int i = 0; i < 2 && !error; i++) {
        sides[i] = (struct side){.setup = setup, .mover = mover, .world = world, .me = i, .out = i == 0 ? out : NULL};
        error = pthread_create(&threads[i], NULL, side_main, &sides[i]);
        if (!error) started++;
    }
    if (error) pp_world_stop(world, pp_fail(PP_IO, "cannot start a thread: %s", strerror(error)));
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < started; i++) release(&sides[i]);
    return pp_prefix(pp_world_failure(world), "measuring links between threads");
}

pp_status pp_link_profile_threads(const struct pp_link_setup *setup, struct pp_link_profile *out)
{
    struct pp_processes alone = {.count = 1, .on_host = 1, .hosts = 1};
    struct pp_world *world;
    PP_TRY(pp_world_open(&pp_transport_inproc, &alone, 2, setup->config->threads, &world));
    world->polled = setup->backend->queue != NULL;
    pp_status status = measure_threads(setup, world, out);
    pp_world_close(world);
    return status;
}

static pp_status measure_between(const struct pp_link_setup *setup, struct pp_world *world, struct pp_link_profile *out)
{
    struct side side = {.setup = setup,
                        .mover = pp_mover_find(world->transport->name, PP_OF_HOSTS),
                        .world = world,
                        .me = world->first,
                        .out = world->first == 0 ? out : NULL};
    pp_status status = PP_OK;
    if (side.me < 2 && setup->backend->queue)
        status = pp_link_profile_queue(setup, world, side.me, side.out);
    else if (side.me < 2)
        status = measure(&side);
    PP_TRY(status); /* the other one may still be at this side's memory: it stays, the process ends next */
    PP_TRY(pp_barrier(world, side.me));
    release(&side);
    return PP_OK;
}

pp_status pp_link_profile_processes(const struct pp_link_setup *setup, const struct pp_transport *transport,
                                    const struct pp_processes *processes, struct pp_link_profile *out)
{
    struct pp_world *world;
    PP_TRY(pp_world_open(transport, processes, processes->count, setup->config->threads, &world));
    world->polled = setup->backend->queue != NULL;
    world->carrier = setup->carrier;
    PP_TRY(measure_between(setup, world, out));
    pp_world_close(world);
    return PP_OK;
}
