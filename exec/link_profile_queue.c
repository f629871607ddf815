/* SPDX-License-Identifier: Apache-2.0
 *
 * Links between devices that work through queues. Both workers put a list of sends and receives into queues, where each
 * waits for the one before that it depends on, so that the devices answer each other and the hosts only look on; a
 * carrier that needs the hosts gets them. Times are between marks of worker 0's device.
 */
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/plan/movers.h"
#include "exec/carrier.h"
#include "exec/link_profile_inside.h"
#include "exec/place.h"

enum {
    ROUNDS = 9,  /* of a list; the first is the warm-up and the common start */
    ROW = 8,     /* messages of a round that are sent one behind the other */
    OPEN = 4,    /* parcels open at one end of a channel; small, for what carriers keep for each */
    LISTS = 50,  /* that are enough */
    NOTHING = -1 /* to wait for */
};

/* A send, a receive or a sum of the list. */
struct step {
    int channel; /* index; SUM */
    int64_t bytes;
    int after; /* index of the step before; NOTHING */
};
enum { AWAY, BACK, CHANNELS, SUM = CHANNELS };
enum { STEPS = ROUNDS * (ROW + 1) };

struct side {
    const struct pp_link_setup *setup;
    const struct pp_carrier *carrier;
    const struct pp_queue_ops *ops;
    struct pp_port port;
    struct pp_link_profile *out;           /* worker 0; else NULL */
    struct pp_channel *channels[CHANNELS]; /* from worker 0 to 1, and back */
    struct pp_sum *sum;
    void *outgoing, *incoming;
    int64_t room;
    const struct pp_mover *mover; /* names the links */
    int nsteps;
    struct step steps[STEPS];
    struct pp_parcel parcels[STEPS]; /* their marks are kept */
    struct pp_times times, send_calls, recv_calls;
};

/* --- lists --- */

static bool sends(const struct side *s, int channel) { return (channel == AWAY) == (s->port.me == 0); }

static int add_step(struct side *s, int channel, int64_t bytes, int after)
{
    s->steps[s->nsteps] = (struct step){channel, bytes, after};
    return s->nsteps++;
}

/* Worker 0 sends when the answer is there; worker 1 answers when all of the row are. */
static void list_rounds(struct side *s, int64_t bytes, int row, int64_t answer_bytes)
{
    int last = NOTHING;
    s->nsteps = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int begin = last;
        for (int i = 0; i < row; i++) last = add_step(s, AWAY, bytes, s->port.me == 0 ? begin : NOTHING);
        last = add_step(s, BACK, answer_bytes, s->port.me == 0 ? NOTHING : last);
    }
}

static void list_sums(struct side *s, int64_t bytes)
{
    s->nsteps = 0;
    for (int round = 0; round < ROUNDS; round++) add_step(s, SUM, bytes, NOTHING);
}

static pp_status poll_step(struct side *s, int i)
{
    if (s->parcels[i].issued) return PP_OK;
    if (s->steps[i].channel == SUM) return s->carrier->sum_poll(s->sum, &s->parcels[i]);
    return s->carrier->poll(s->channels[s->steps[i].channel], &s->parcels[i]);
}

static pp_status start_step(struct side *s, int i)
{
    const struct step *step = &s->steps[i];
    struct pp_parcel *parcel = &s->parcels[i];
    struct pp_mark *after = step->after == NOTHING ? NULL : s->parcels[step->after].done;
    bool outward = step->channel == SUM || sends(s, step->channel);
    parcel->memory = outward ? s->outgoing : s->incoming;
    parcel->bytes = step->bytes;
    if (step->channel == SUM) return s->carrier->sum_start(s->sum, parcel, after);
    int64_t start = pp_now_ns();
    struct pp_channel *channel = s->channels[step->channel];
    PP_TRY(outward ? s->carrier->send(channel, parcel, after) : s->carrier->recv(channel, parcel, after));
    return pp_times_add(outward ? &s->send_calls : &s->recv_calls, pp_now_ns() - start);
}

/* May the next step be started? What it depends on must be in a queue; of sums one is open, of parcels a few. */
static bool can_start(const struct side *s, int i, int oldest)
{
    const struct step *step = &s->steps[i];
    int most = step->channel == SUM ? 1 : OPEN;
    return i - oldest < most && (step->after == NOTHING || s->parcels[step->after].issued);
}

/* Until `i` steps from the front are done on the device; `reached`: so many are known to be. */
static pp_status look(struct side *s, int next, int *issued, int *reached)
{
    for (int i = *issued; i < next; i++) PP_TRY(poll_step(s, i));
    while (*issued < next && s->parcels[*issued].issued) ++*issued;
    for (bool there = true; *reached < *issued; ++*reached) {
        PP_TRY(s->ops->reached(s->port.device, s->parcels[*reached].done, &there));
        if (!there) break;
    }
    return PP_OK;
}

static pp_status run_list(struct side *s)
{
    struct pp_world *world = s->port.world;
    int next = 0, issued = 0, reached = 0;
    for (int i = 0; i < s->nsteps; i++) s->parcels[i].issued = false;
    for (int64_t idle_since = 0; reached < s->nsteps;) {
        unsigned seen = pp_bell_seen(world, s->port.me);
        int before = next + issued + reached;
        while (next < s->nsteps && can_start(s, next, issued)) PP_TRY(start_step(s, next++));
        PP_TRY(look(s, next, &issued, &reached));
        for (int c = 0; c < CHANNELS && s->carrier->check; c++) PP_TRY(s->carrier->check(s->channels[c]));
        PP_TRY(pp_world_check(world));
        if (before != next + issued + reached)
            idle_since = 0;
        else
            pp_world_wait(world, s->port.me, seen, &idle_since);
    }
    return PP_OK;
}

/* --- times --- */

/* The times between the ends of rounds of `length` steps, divided by `parts`. */
static pp_status take_times(struct side *s, int length, int parts)
{
    for (int i = 2 * length - 1; i < s->nsteps; i += length) {
        int64_t ns;
        PP_TRY(s->ops->elapsed(s->port.device, s->parcels[i - length].done, s->parcels[i].done, &ns));
        PP_TRY(pp_times_add(&s->times, ns > 0 ? ns / parts : 0));
    }
    return PP_OK;
}

/* Runs the list again and again for a while. */
static pp_status measure_list(struct side *s, int length, int parts, struct pp_quantiles *ns)
{
    const int64_t deadline = pp_now_ns() + (int64_t)(s->setup->seconds * 1e9);
    bool more = true;
    s->times.n = 0;
    for (int i = 0; more; i++) {
        PP_TRY(run_list(s));
        PP_TRY(take_times(s, length, parts));
        more = i + 1 < LISTS && pp_now_ns() < deadline;
        PP_TRY(pp_link_agree(s->port.world, s->port.me, &more));
    }
    *ns = pp_times_quantiles(&s->times);
    return PP_OK;
}

static pp_status add_p2p_figures(struct side *s, const double *x, const double *y, int n, const double calls[2])
{
    PP_TRY(pp_link_add_fit(s->out, s->mover->p2p, x, y, n, s->setup->message_bytes));
    const struct {
        const char *name;
        double value;
    } figures[] = {{"send_overhead_ns", calls[0]},
                   {"recv_overhead_ns", calls[1]},
                   {"posts_in_order", s->carrier->posts_in_order},
                   {"receiver_copies", 0}};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        PP_TRY(pp_link_profile_add(s->out, s->mover->p2p, figures[i].name, figures[i].value));
    return PP_OK;
}

static pp_status measure_p2p(struct side *s)
{
    int64_t sizes[PP_LINK_SIZES];
    double x[PP_LINK_SIZES], y[PP_LINK_SIZES], calls[2] = {0};
    int n = pp_link_message_sizes(s->setup->message_bytes, s->room, sizes);
    for (int i = 0; i < n; i++) {
        struct pp_quantiles trip, row;
        list_rounds(s, sizes[i], 1, sizes[i]);
        PP_TRY(measure_list(s, 2, 2, &trip));
        list_rounds(s, sizes[i], ROW, PP_LINK_SMALL);
        PP_TRY(measure_list(s, ROW + 1, ROW, &row));
        x[i] = (double)sizes[i];
        y[i] = (double)trip.median_ns;
        if (s->port.me != 0) continue;
        PP_TRY(pp_link_sample(s->out, s->mover->p2p, "round trip", sizes[i], &trip));
        PP_TRY(pp_link_sample(s->out, s->mover->p2p, "in a row", sizes[i], &row));
    }
    calls[0] = (double)pp_times_quantiles(&s->send_calls).median_ns;
    calls[1] = (double)pp_times_quantiles(&s->recv_calls).median_ns;
    return s->port.me == 0 ? add_p2p_figures(s, x, y, n, calls) : PP_OK;
}

static pp_status measure_sum(void *side, int64_t bytes, struct pp_quantiles *ns)
{
    list_sums(side, bytes);
    return measure_list(side, 1, 1, ns);
}

static pp_status measure_sums(struct side *s)
{
    return pp_link_measure_sums(&(struct pp_link_sums){.setup = s->setup,
                                                       .link = s->mover->allreduce,
                                                       .room = s->room,
                                                       .measure = measure_sum,
                                                       .side = s,
                                                       .out = s->out});
}

/* --- opening and closing --- */

/* As many as the job has, so that the devices have its shares, though only those that measure are opened. */
static int workers_here(const struct side *s)
{
    const int here = s->port.world->count;
    return s->setup->workers > here ? s->setup->workers : here;
}

static pp_status open_device(struct side *s)
{
    struct pp_world *world = s->port.world;
    const struct pp_device_spec spec =
        pp_place_device(&world->processes, s->setup->config, workers_here(s), s->port.me - world->first);
    const struct pp_backend *backend = s->port.backend;
    s->room = pp_link_room(s->setup);
    if (world->remote) world->sharers = pp_place_sharers(backend, &spec);
    PP_TRY(backend->open(&spec, &s->port.device));
    PP_TRY(backend->alloc(s->port.device, s->room, &s->outgoing));
    PP_TRY(backend->alloc(s->port.device, s->room, &s->incoming));
    for (int i = 0; i < STEPS; i++) PP_TRY(s->ops->mark_create(s->port.device, true, &s->parcels[i].done));
    return PP_OK;
}

static pp_status open_links(struct side *s)
{
    for (int c = 0; c < CHANNELS; c++) {
        const struct pp_channel_spec spec = {.port = s->port,
                                             .src = c == AWAY ? 0 : 1,
                                             .dst = c == AWAY ? 1 : 0,
                                             .kind = c == AWAY ? PP_MESSAGE_FORWARD : PP_MESSAGE_BACKWARD,
                                             .most_bytes = s->room,
                                             .most_parcels = OPEN};
        PP_TRY(s->carrier->open(&spec, &s->channels[c]));
    }
    const struct pp_sum_spec sum = {.port = s->port,
                                    .group = {.first = 0, .stride = 1, .n = 2},
                                    .most_elements = s->room / (int64_t)sizeof(float),
                                    .type = PP_SUM_FLOAT,
                                    .sums = true};
    return s->carrier->sum_open(&sum, &s->sum);
}

static void close_all(struct side *s)
{
    const struct pp_backend *backend = s->port.backend;
    for (int c = 0; c < CHANNELS; c++) s->carrier->close(s->channels[c]);
    s->carrier->sum_close(s->sum);
    for (int i = 0; i < STEPS; i++) s->ops->mark_destroy(s->port.device, s->parcels[i].done);
    backend->release(s->port.device, s->outgoing, s->room);
    backend->release(s->port.device, s->incoming, s->room);
    backend->close(s->port.device);
}

/* Both are done with everything before either takes anything away. */
static pp_status meet(struct side *s)
{
    bool more = false;
    PP_TRY(pp_link_agree(s->port.world, s->port.me, &more));
    if (s->port.me == 0) return pp_recv_now(s->port.world, 1, 0, PP_MESSAGE_CONTROL, &more, sizeof more);
    return pp_send_now(s->port.world, 1, 0, PP_MESSAGE_CONTROL, &more, sizeof more);
}

static pp_status measure(struct side *s)
{
    PP_TRY(open_device(s));
    PP_TRY(open_links(s));
    PP_TRY(measure_p2p(s));
    PP_TRY(measure_sums(s));
    PP_TRY(meet(s));
    close_all(s);
    return PP_OK;
}

pp_status pp_link_profile_queue(const struct pp_link_setup *setup, struct pp_world *world, int me,
                                struct pp_link_profile *out)
{
    struct side *s;
    PP_TRY(PP_NEW(&s, 1));
    s->setup = setup;
    s->carrier = world->remote ? world->carrier : &pp_carrier_inproc;
    s->ops = setup->backend->queue;
    s->port = (struct pp_port){.world = world, .backend = setup->backend, .me = me};
    s->out = out;
    s->mover = pp_mover_find(s->carrier->name, PP_OF_DEVICES);
    pp_status status = measure(s);
    pp_times_free(&s->times);
    pp_times_free(&s->send_calls);
    pp_times_free(&s->recv_calls);
    if (status == PP_OK) free(s);
    return status;
}
