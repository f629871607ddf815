/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of which each member has an equal part, as tensor ranks scatter and gather their tokens: through pp_reduce and
 * by the carriers of devices, any number of elements in a part, one route for this and for sums of all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/calls/bf16.h"
#include "core/plan/movers.h"
#include "crew.h"
#include "exec/carrier.h"
#include "exec/reduce.h"
#include "queue_device.h"

#define OK(expression)                                                                                                 \
    do {                                                                                                               \
        if ((expression) != PP_OK) fail_msg("%s", pp_message());                                                       \
    } while (0)

/* ---- what is asked for, and what must come of it ---- */

enum { SUM_OF_ALL = -1, MOST_STEPS = 11 };

/* One after the other, of so many elements in each member's part. */
struct step {
    int use; /* enum pp_shares_use, or SUM_OF_ALL */
    int64_t part;
};
static const struct step few[] = {{PP_SHARES_SCATTER, 1},  {PP_SHARES_GATHER, 7},  {SUM_OF_ALL, 33},
                                  {PP_SHARES_SCATTER, 33}, {PP_SHARES_SCATTER, 7}, {PP_SHARES_GATHER, 33},
                                  {SUM_OF_ALL, 1},         {PP_SHARES_GATHER, 1},  {PP_SHARES_SUM, 1},
                                  {PP_SHARES_SUM, 33},     {PP_SHARES_GATHER, 3}};
/* Several segments of staged's, and of pp_reduce's pieces. */
#ifdef __SANITIZE_THREAD__ /* takes six times as long: two segments, of float */
enum { PART = 2200001, LONG_TYPES = 1 };
#else
enum { PART = 6500001, LONG_TYPES = 2 };
#endif
static const struct step many[] = {
    {PP_SHARES_SCATTER, PART}, {PP_SHARES_GATHER, PART - 2}, {PP_SHARES_SUM, PART - 4}, {PP_SHARES_SCATTER, 300001}};

struct plan {
    const struct pp_carrier *carrier; /* NULL: pp_reduce alone */
    int type, nsteps;
    const struct step *steps;
};

/* Numbers whose sum depends on the order. */
static float value_of(int member, int64_t i, int turn)
{
    uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)(member + 10 * turn) * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    return (float)(int32_t)x * (member % 2 ? 1e-3f : 1e-9f);
}

static float rounded(int type, float x) { return type == PP_SUM_BF16 ? pp_bf16_float(pp_bf16(x)) : x; }

static float sum_of(int type, int members, int64_t i, int turn)
{
    float sum = rounded(type, value_of(0, i, turn));
    for (int k = 1; k < members; k++) sum = rounded(type, sum + rounded(type, value_of(k, i, turn)));
    return sum;
}

static void set_value(void *values, int type, int64_t i, float x)
{
    if (type == PP_SUM_BF16)
        ((uint16_t *)values)[i] = pp_bf16(x);
    else
        ((float *)values)[i] = x;
}

static float value_at(const void *values, int type, int64_t i)
{
    return type == PP_SUM_BF16 ? pp_bf16_float(((const uint16_t *)values)[i]) : ((const float *)values)[i];
}

static void fill(void *values, int type, int me, int64_t n, int turn)
{
    for (int64_t i = 0; i < n; i++) set_value(values, type, i, value_of(me, i, turn));
}

static pp_status check(const void *values, int type, int me, int members, const struct step *step, int turn)
{
    for (int64_t i = 0; i < members * step->part; i++) {
        const int owner = (int)(i / step->part);
        if (step->use == PP_SHARES_SCATTER && owner != me) continue; /* nothing of use */
        const float x =
            step->use == PP_SHARES_GATHER ? rounded(type, value_of(owner, i, turn)) : sum_of(type, members, i, turn);
        if (value_at(values, type, i) != x)
            return pp_fail(PP_INTERNAL, "step %d, type %d: element %lld of parts of %lld is %g, not %g", turn, type,
                           (long long)i, (long long)step->part, value_at(values, type, i), x);
    }
    return PP_OK;
}

static int64_t most_elements(const struct plan *plan, int members)
{
    int64_t most = 0;
    for (int i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].part > most) most = plan->steps[i].part;
    return members * most;
}

/* ---- through the host ---- */

static pp_status by_reduce(struct pp_world *world, int me, void *arg)
{
    const struct plan *plan = arg;
    const int members = world->workers;
    const int64_t bytes = most_elements(plan, members) * pp_sum_bytes(plan->type);
    struct pp_reduce *reduce;
    struct pp_shares *parts;
    void *values = malloc((size_t)bytes);
    PP_TRY(pp_shares_create_plain(&parts));
    PP_TRY(pp_reduce_create_host(pp_group_all(world), me, plan->type, bytes, &reduce));
    for (int i = 0; i < plan->nsteps; i++) {
        const struct step *step = &plan->steps[i];
        fill(values, plan->type, me, members * step->part, i);
        pp_shares_set_plain(parts, step->use, step->part * pp_sum_bytes(plan->type));
        PP_TRY(step->use == SUM_OF_ALL ? pp_reduce_start(world, reduce, values, members * step->part)
                                       : pp_reduce_start_shares(world, reduce, values, parts));
        for (int64_t idle_since = 0; !reduce->done;) {
            const unsigned seen = pp_bell_seen(world, me);
            PP_TRY(pp_reduce_poll(world, reduce));
            PP_TRY(pp_world_check(world));
            if (!reduce->done) pp_world_wait(world, me, seen, &idle_since);
        }
        PP_TRY(check(values, plan->type, me, members, step, i));
    }
    PP_TRY(pp_barrier(world, me));
    pp_reduce_free(reduce);
    free(parts);
    free(values);
    return PP_OK;
}

/* ---- by carriers ---- */

struct route {
    struct pp_port port;
    const struct plan *plan;
    struct pp_sum *sum;
    void *values, *host;
    struct pp_mark *written, *done;
    struct pp_shares *parts;
    int64_t bytes;
};

static pp_status open_route(struct route *r)
{
    const struct pp_queue_ops *ops = r->port.backend->queue;
    const int64_t most = most_elements(r->plan, r->port.world->workers);
    const struct pp_sum_spec spec = {.port = r->port,
                                     .group = pp_group_all(r->port.world),
                                     .most_elements = most,
                                     .type = r->plan->type,
                                     .sums = true,
                                     .shares = true};
    r->bytes = most * pp_sum_bytes(r->plan->type);
    PP_TRY(r->port.backend->alloc(r->port.device, r->bytes, &r->values));
    PP_TRY(ops->host_alloc(r->port.device, r->bytes, &r->host));
    PP_TRY(ops->mark_create(r->port.device, false, &r->written));
    PP_TRY(ops->mark_create(r->port.device, false, &r->done));
    PP_TRY(pp_shares_create_plain(&r->parts));
    return r->plan->carrier->sum_open(&spec, &r->sum);
}

static void close_route(struct route *r)
{
    const struct pp_queue_ops *ops = r->port.backend->queue;
    r->plan->carrier->sum_close(r->sum);
    free(r->parts);
    ops->mark_destroy(r->port.device, r->written);
    ops->mark_destroy(r->port.device, r->done);
    ops->host_release(r->port.device, r->host);
    r->port.backend->release(r->port.device, r->values, r->bytes);
}

static pp_status take_step(struct route *r, int turn)
{
    const struct pp_queue_ops *ops = r->port.backend->queue;
    const struct step *step = &r->plan->steps[turn];
    const int members = r->port.world->workers, type = r->plan->type;
    const int64_t n = members * step->part, bytes = n * pp_sum_bytes(type);
    struct pp_parcel parcel = {.memory = r->values, .bytes = bytes, .done = r->done};
    if (step->use != SUM_OF_ALL) {
        pp_shares_set_plain(r->parts, step->use, bytes / members);
        parcel.shares = r->parts;
    }
    fill(r->host, type, r->port.me, n, turn);
    PP_TRY(ops->copy(r->port.device, ops->compute(r->port.device), r->values, r->host, bytes));
    PP_TRY(ops->record(r->port.device, ops->compute(r->port.device), r->written));
    PP_TRY(r->plan->carrier->sum_start(r->sum, &parcel, r->written));
    while (!parcel.issued) {
        PP_TRY(r->plan->carrier->sum_poll(r->sum, &parcel));
        PP_TRY(pp_world_check(r->port.world));
        if (!parcel.issued) queued_nap();
    }
    for (bool reached = false; !reached;) {
        PP_TRY(ops->reached(r->port.device, r->done, &reached));
        PP_TRY(pp_world_check(r->port.world));
        if (!reached) queued_nap();
    }
    PP_TRY(r->port.backend->download(r->port.device, r->host, r->values, bytes));
    PP_TRY(check(r->host, type, r->port.me, members, step, turn));
    return pp_barrier(r->port.world, r->port.me);
}

static pp_status by_carrier(struct pp_world *world, int me, void *arg)
{
    struct route r = {.port = {.world = world, .backend = &pp_backend_queued, .me = me}, .plan = arg};
    const struct pp_device_spec device = {.worker = me, .workers = world->workers, .on_host = 1, .threads = 1};
    PP_TRY(r.port.backend->open(&device, &r.port.device));
    PP_TRY(open_route(&r));
    for (int i = 0; i < r.plan->nsteps; i++) PP_TRY(take_step(&r, i));
    if (r.plan->carrier->sum_check) PP_TRY(r.plan->carrier->sum_check(r.sum));
    close_route(&r);
    r.port.backend->close(r.port.device);
    return PP_OK;
}

/* ---- tests ---- */

static void run_plans(const struct pp_carrier *carrier)
{
    static const int types[] = {PP_SUM_FLOAT, PP_SUM_BF16};
    for (int i = 0; i < 2; i++)
        for (int workers = 2; workers <= 4; workers++) {
            struct plan plan = {carrier, types[i], MOST_STEPS, few};
            OK(crew_run(workers, carrier ? by_carrier : by_reduce, &plan));
            plan.steps = many;
            plan.nsteps = sizeof many / sizeof *many;
            if (workers == 2 && i < LONG_TYPES) OK(crew_run(workers, carrier ? by_carrier : by_reduce, &plan));
        }
}

static void parts_of_the_host(void **state)
{
    (void)state;
    run_plans(NULL);
}

static void parts_by_carriers(void **state)
{
    (void)state;
    const struct queued_settings settings = {.seed = 5, .most_delay_us = 50};
    queued_set(&settings);
    run_plans(&pp_carrier_inproc);
    for (int i = 0; pp_carriers[i]; i++)
        if (!strcmp(pp_mover_find(pp_carriers[i]->name, PP_OF_DEVICES)->needs, "NOTHING")) run_plans(pp_carriers[i]);
    queued_set(NULL);
}

/* Set anew for each use, of whatever it was before. */
static void one_list_for_all(void **state)
{
    (void)state;
    struct pp_shares *parts;
    OK(pp_shares_create_plain(&parts));
    for (int64_t bytes = 6; bytes < 1000; bytes *= 7) {
        pp_shares_set_plain(parts, bytes % 4 ? PP_SHARES_SCATTER : PP_SHARES_GATHER, bytes);
        const struct pp_share_run run = pp_shares_run(parts, 2, 100);
        assert_int_equal(parts->use, bytes % 4 ? PP_SHARES_SCATTER : PP_SHARES_GATHER);
        assert_int_equal(parts->bytes, bytes);
        assert_int_equal(parts->n, 1);
        assert_int_equal(run.offset, 2);
        assert_int_equal(run.stride, bytes);
        assert_int_equal(run.bytes, bytes - 2 < 100 ? bytes - 2 : 100);
    }
    free(parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_list_for_all), cmocka_unit_test(parts_of_the_host),
                                       cmocka_unit_test(parts_by_carriers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
