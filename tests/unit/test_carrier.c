/* SPDX-License-Identifier: Apache-2.0
 *
 * Carriers between the threads of one process, over the queue device for tests with random delays: what arrives is what
 * was sent, although slots are few and written again at once; sums have the bits of member order. Carriers that need a
 * library (`nccl`) know only the memory of its devices: tests/cuda.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/calls/bf16.h"
#include "core/plan/movers.h"
#include "crew.h"
#include "exec/carrier.h"
#include "exec/link_profile.h"
#include "queue_device.h"

enum { PARCELS = 60, SLOTS = 3, OPEN = 5, MOST_WORDS = 5000 };

#define OK(expression)                                                                                                 \
    do {                                                                                                               \
        if ((expression) != PP_OK) fail_msg("%s", pp_message());                                                       \
    } while (0)

enum { MOST_CARRIERS = 16 };

/* inproc, and all between processes whose row needs nothing. */
static const struct pp_carrier *carriers[MOST_CARRIERS] = {&pp_carrier_inproc};
static int ncarriers = 1;

static void list_carriers(void)
{
    for (int i = 0; pp_carriers[i] && ncarriers < MOST_CARRIERS; i++)
        if (!strcmp(pp_mover_find(pp_carriers[i]->name, PP_OF_DEVICES)->needs, "NOTHING"))
            carriers[ncarriers++] = pp_carriers[i];
}

static int words_of(int i) { return 1 + (i * 977) % MOST_WORDS; }

static int word_of(int src, int i, int w) { return (i * 31 + w) * 31 + src; }

/* --- one end --- */

/* One direction at one worker: slots of the device behind which host memory stands for the kernels that fill and read
 * them. */
struct end {
    struct pp_port port;
    const struct pp_carrier *carrier;
    const struct pp_queue_ops *ops;
    struct pp_channel *channel;
    int src, next, issued;
    int *slots, *host; /* [SLOTS][MOST_WORDS] of the device; [PARCELS][MOST_WORDS] */
    struct pp_parcel parcels[PARCELS];
    struct pp_mark *computed[PARCELS]; /* sender: slot written; receiver: slot read */
};

static const int64_t slot_bytes = MOST_WORDS * sizeof(int);

static pp_status open_end(struct end *e, const struct pp_carrier *carrier, const struct pp_port *port, int src,
                          int kind)
{
    const struct pp_channel_spec spec = {
        .port = *port, .src = src, .dst = 1 - src, .kind = kind, .most_bytes = slot_bytes, .most_parcels = OPEN};
    void *memory;
    e->port = *port;
    e->carrier = carrier;
    e->ops = port->backend->queue;
    e->src = src;
    PP_TRY(port->backend->alloc(port->device, SLOTS * slot_bytes, &memory));
    e->slots = memory;
    PP_TRY(e->ops->host_alloc(port->device, PARCELS * slot_bytes, &memory));
    e->host = memory;
    for (int i = 0; i < PARCELS; i++) {
        PP_TRY(e->ops->mark_create(port->device, false, &e->computed[i]));
        PP_TRY(e->ops->mark_create(port->device, i % 2 == 0, &e->parcels[i].done));
        if (i % 2 == 0) PP_TRY(e->ops->mark_create(port->device, true, &e->parcels[i].begun));
        for (int w = 0; w < words_of(i) && port->me == src; w++) e->host[i * MOST_WORDS + w] = word_of(src, i, w);
    }
    return carrier->open(&spec, &e->channel);
}

static void close_end(struct end *e)
{
    e->carrier->close(e->channel);
    for (int i = 0; i < PARCELS; i++) {
        e->ops->mark_destroy(e->port.device, e->computed[i]);
        e->ops->mark_destroy(e->port.device, e->parcels[i].done);
        if (e->parcels[i].begun) e->ops->mark_destroy(e->port.device, e->parcels[i].begun);
    }
    e->ops->host_release(e->port.device, e->host);
    e->port.backend->release(e->port.device, e->slots, SLOTS * slot_bytes);
}

/* "Computes" with the slot of parcel i, in the compute queue. */
static pp_status compute(struct end *e, int i, struct pp_mark *after)
{
    struct pp_queue *queue = e->ops->compute(e->port.device);
    int *slot = e->slots + i % SLOTS * MOST_WORDS, *host = e->host + i * MOST_WORDS;
    bool sends = e->port.me == e->src;
    if (after) PP_TRY(e->ops->wait(e->port.device, queue, after));
    PP_TRY(e->ops->copy(e->port.device, queue, sends ? slot : host, sends ? host : slot,
                        words_of(i) * (int64_t)sizeof(int)));
    return e->ops->record(e->port.device, queue, e->computed[i]);
}

static void fill_parcel(struct end *e, int i)
{
    e->parcels[i].memory = e->slots + i % SLOTS * MOST_WORDS;
    e->parcels[i].bytes = words_of(i) * (int64_t)sizeof(int);
}

/* The slot's last parcel must have left; the kernel that writes the slot waits for its mark. */
static pp_status step_sender(struct end *e)
{
    while (e->next < PARCELS && e->next < e->issued + OPEN && (e->next < SLOTS || e->next - SLOTS < e->issued)) {
        int i = e->next++;
        PP_TRY(compute(e, i, i >= SLOTS ? e->parcels[i - SLOTS].done : NULL));
        fill_parcel(e, i);
        PP_TRY(e->carrier->send(e->channel, &e->parcels[i], e->computed[i]));
    }
    return PP_OK;
}

/* Receives are posted when the kernel that empties the slot is in its queue. */
static pp_status step_receiver(struct end *e)
{
    while (e->next < PARCELS && e->next < e->issued + SLOTS) {
        int i = e->next++;
        fill_parcel(e, i);
        PP_TRY(e->carrier->recv(e->channel, &e->parcels[i], i >= SLOTS ? e->computed[i - SLOTS] : NULL));
    }
    return PP_OK;
}

static pp_status step(struct end *e)
{
    PP_TRY(e->port.me == e->src ? step_sender(e) : step_receiver(e));
    while (e->issued < e->next) {
        PP_TRY(e->carrier->poll(e->channel, &e->parcels[e->issued]));
        if (!e->parcels[e->issued].issued) break;
        if (e->port.me != e->src) PP_TRY(compute(e, e->issued, e->parcels[e->issued].done));
        e->issued++;
    }
    return e->carrier->check ? e->carrier->check(e->channel) : PP_OK;
}

static pp_status await_mark(const struct pp_port *port, struct pp_mark *mark)
{
    for (bool reached = false; !reached;) {
        PP_TRY(port->backend->queue->reached(port->device, mark, &reached));
        PP_TRY(pp_world_check(port->world));
        if (!reached) queued_nap();
    }
    return PP_OK;
}

static pp_status finish_end(struct end *e)
{
    PP_TRY(await_mark(&e->port, e->computed[PARCELS - 1]));
    PP_TRY(await_mark(&e->port, e->parcels[PARCELS - 1].done));
    for (int i = 0; i < PARCELS; i++)
        for (int w = 0; w < words_of(i); w++)
            if (e->host[i * MOST_WORDS + w] != word_of(e->src, i, w))
                return pp_fail(PP_INTERNAL, "word %d of parcel %d is wrong", w, i);
    int64_t ns;
    return e->ops->elapsed(e->port.device, e->parcels[0].begun, e->parcels[0].done, &ns);
}

static pp_status both_ways(struct pp_world *world, int me, void *arg)
{
    const struct pp_carrier *carrier = arg;
    struct pp_port port = {.world = world, .backend = &pp_backend_queued, .me = me};
    struct pp_device_spec spec = {.worker = me, .workers = 2, .on_host = 1, .threads = 1};
    static struct end all[2][2];
    struct end *ends = all[me];
    memset(ends, 0, sizeof all[me]);
    PP_TRY(port.backend->open(&spec, &port.device));
    PP_TRY(open_end(&ends[0], carrier, &port, 0, PP_MESSAGE_FORWARD));
    PP_TRY(open_end(&ends[1], carrier, &port, 1, PP_MESSAGE_BACKWARD));
    while (ends[0].issued < PARCELS || ends[1].issued < PARCELS) {
        PP_TRY(step(&ends[0]));
        PP_TRY(step(&ends[1]));
        PP_TRY(pp_world_check(world));
        sched_yield(); /* marks ring no bell */
    }
    PP_TRY(finish_end(&ends[0]));
    PP_TRY(finish_end(&ends[1]));
    PP_TRY(pp_barrier(world, me));
    close_end(&ends[0]);
    close_end(&ends[1]);
    port.backend->close(port.device);
    return PP_OK;
}

static void parcels_arrive(void **state)
{
    (void)state;
    for (int c = 0; c < ncarriers; c++)
        for (int delay = 0; delay <= 200; delay += 100) {
            const struct queued_settings settings = {.seed = 7 + (uint64_t)delay, .most_delay_us = delay};
            queued_set(&settings);
            OK(crew_run(2, both_ways, (void *)(uintptr_t)carriers[c]));
        }
    queued_set(NULL);
}

/* --- sums --- */

struct summing {
    const struct pp_carrier *carrier;
    int64_t n;
    int type;
};

/* Numbers whose sum depends on the order. */
static double value_of(int member, int64_t i)
{
    uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)member * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    return (double)(int32_t)x * (member % 2 ? 1e-3 : 1e-9);
}

static void set_value(void *values, int type, int64_t i, double value)
{
    if (type == PP_SUM_DOUBLE)
        ((double *)values)[i] = value;
    else if (type == PP_SUM_BF16)
        ((uint16_t *)values)[i] = pp_bf16((float)value);
    else
        ((float *)values)[i] = (float)value;
}

static uint16_t half_sum(int64_t i, int members)
{
    uint16_t half = pp_bf16((float)value_of(0, i));
    for (int k = 1; k < members; k++)
        half = pp_bf16(pp_bf16_float(half) + pp_bf16_float(pp_bf16((float)value_of(k, i))));
    return half;
}

static bool is_sum(const void *values, int type, int64_t i, int members)
{
    if (type == PP_SUM_BF16) return ((const uint16_t *)values)[i] == half_sum(i, members);
    float narrow = (float)value_of(0, i);
    double wide = value_of(0, i);
    for (int k = 1; k < members; k++) {
        narrow += (float)value_of(k, i);
        wide += value_of(k, i);
    }
    return type == PP_SUM_DOUBLE ? ((const double *)values)[i] == wide : ((const float *)values)[i] == narrow;
}

static pp_status sum_twice(const struct pp_port *port, const struct summing *s, struct pp_sum *sum, void *values)
{
    const struct pp_queue_ops *ops = port->backend->queue;
    void *host;
    struct pp_parcel parcel = {.memory = values, .bytes = s->n * pp_sum_bytes(s->type)};
    struct pp_mark *written;
    PP_TRY(ops->host_alloc(port->device, parcel.bytes, &host));
    PP_TRY(ops->mark_create(port->device, false, &written));
    PP_TRY(ops->mark_create(port->device, false, &parcel.done));
    for (int round = 0; round < 2; round++) {
        for (int64_t i = 0; i < s->n; i++) set_value(host, s->type, i, value_of(port->me, i));
        PP_TRY(ops->copy(port->device, ops->compute(port->device), values, host, parcel.bytes));
        PP_TRY(ops->record(port->device, ops->compute(port->device), written));
        PP_TRY(s->carrier->sum_start(sum, &parcel, written));
        while (!parcel.issued) {
            PP_TRY(s->carrier->sum_poll(sum, &parcel));
            PP_TRY(pp_world_check(port->world));
            if (!parcel.issued) queued_nap();
        }
        PP_TRY(await_mark(port, parcel.done));
        PP_TRY(port->backend->download(port->device, host, values, parcel.bytes));
        for (int64_t i = 0; i < s->n; i++)
            if (!is_sum(host, s->type, i, port->world->workers))
                return pp_fail(PP_INTERNAL, "element %lld of %lld is wrong", (long long)i, (long long)s->n);
        PP_TRY(pp_barrier(port->world, port->me));
    }
    ops->mark_destroy(port->device, written);
    ops->mark_destroy(port->device, parcel.done);
    ops->host_release(port->device, host);
    return s->carrier->sum_check ? s->carrier->sum_check(sum) : PP_OK;
}

static pp_status summing(struct pp_world *world, int me, void *arg)
{
    const struct summing *s = arg;
    struct pp_port port = {.world = world, .backend = &pp_backend_queued, .me = me};
    struct pp_device_spec device = {.worker = me, .workers = world->workers, .on_host = 1, .threads = 1};
    int64_t bytes = s->n * pp_sum_bytes(s->type);
    struct pp_sum *sum;
    void *values;
    PP_TRY(port.backend->open(&device, &port.device));
    const struct pp_sum_spec spec = {
        .port = port, .group = pp_group_all(world), .most_elements = s->n, .type = s->type, .sums = true};
    PP_TRY(port.backend->alloc(port.device, bytes, &values));
    PP_TRY(s->carrier->sum_open(&spec, &sum));
    PP_TRY(sum_twice(&port, s, sum, values));
    s->carrier->sum_close(sum);
    port.backend->release(port.device, values, bytes);
    port.backend->close(port.device);
    return PP_OK;
}

/* More than one segment of staged's. */
#ifdef __SANITIZE_THREAD__ /* takes eight times as long: of float alone */
enum { TWO_SEGMENTS = 4200000, OF_HALVES = 0 };
#else
enum { TWO_SEGMENTS = 9000000, OF_HALVES = 1 };
#endif

static void sums_have_the_bits_of_member_order(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 17, 1000, 300001, TWO_SEGMENTS};
    const struct queued_settings settings = {.seed = 3, .most_delay_us = 50};
    queued_set(&settings);
    for (int c = 0; c < ncarriers; c++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int workers = 2; workers <= (sizes[i] > 1000000 ? 2 : 3); workers++) {
                struct summing s = {carriers[c], sizes[i], i % 2 ? PP_SUM_DOUBLE : PP_SUM_FLOAT};
                OK(crew_run(workers, summing, &s));
                s.type = PP_SUM_BF16;
                if (OF_HALVES || s.n < TWO_SEGMENTS) OK(crew_run(workers, summing, &s));
            }
    queued_set(NULL);
}

/* --- the link profile of devices --- */

static void link_profiles_name_the_carrier(void **state)
{
    (void)state;
    static struct pp_link_profile profile;
    static const struct pp_config config = {.threads = 1};
    const struct pp_link_setup setup = {.backend = &pp_backend_queued,
                                        .config = &config,
                                        .workers = 4,
                                        .seconds = 1e-9,
                                        .message_bytes = {5000, 40000},
                                        .gradient_bytes = {10000, 20000}};
    static const char *const figures[] = {"latency_ns",       "ns_per_byte",    "send_overhead_ns",
                                          "recv_overhead_ns", "posts_in_order", "receiver_copies"};
    OK(pp_link_profile_threads(&setup, &profile));
    assert_int_equal(queued_workers(), 4);          /* the job's shares of a GPU, not halves */
    assert_int_equal(profile.nsamples, 2 * 11 + 7); /* a round trip and a row of each size; sums */
    for (int i = 0; i < profile.nsamples; i++) {
        assert_string_equal(profile.samples[i].name, i < 2 * 11 ? "inproc p2p" : "inproc allreduce");
        assert_true(profile.samples[i].count >= 7);
        assert_true(profile.samples[i].median_ns > 0);
    }
    assert_int_equal(profile.nfigures, 6 + 2);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(profile.figures[i].of, "inproc p2p");
        assert_string_equal(profile.figures[i].name, figures[i]);
        assert_true(profile.figures[i].value >= 0);
    }
    assert_string_equal(profile.figures[6].of, "inproc allreduce");
}

/* --- the registry --- */

static void carriers_are_those_of_the_list(void **state)
{
    (void)state;
    int n = 0;
    for (int i = 0; i < pp_nmovers; i++) {
        if (pp_movers[i].moves != PP_OF_DEVICES || !pp_movers[i].joins_processes || !pp_carriers[n]) continue;
        if (!strcmp(pp_movers[i].name, pp_carriers[n]->name))
            n++;
        else
            assert_string_not_equal(pp_movers[i].needs, "NOTHING"); /* it is not in this build */
    }
    assert_null(pp_carriers[n]);
    assert_true(ncarriers > 1);
    assert_non_null(pp_mover_find(pp_carrier_inproc.name, PP_OF_DEVICES));
}

int main(void)
{
    list_carriers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carriers_are_those_of_the_list),
        cmocka_unit_test(parcels_arrive),
        cmocka_unit_test(sums_have_the_bits_of_member_order),
        cmocka_unit_test(link_profiles_name_the_carrier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
