/* SPDX-License-Identifier: Apache-2.0
 *
 * What workers that share a GPU have of its rates: work that waits for one rate alone, by one worker and several.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/machine_calls.h"

enum { PEAK = 80, BYTES = 10, LOADED = 5, SHARED = 20, MULTIPROCESSORS = 8 };
static const double amount = 1e6;

/* Memory alone, and while others are busy; each precision has another rate. */
static struct pp_machine machine(void)
{
    struct pp_machine m = {.bytes_per_ns = BYTES,
                           .loaded_bytes_per_ns = LOADED,
                           .shared_bytes_per_ns = SHARED,
                           .attention = {0.5, 0.25},
                           .library_attention = true};
    for (int i = 0; i < PP_PRECISIONS; i++) {
        m.flops_per_ns[i] = PEAK / 2 + i;
        m.peak_flops_per_ns[i] = PEAK;
        m.tiles[i] = (struct pp_tiles){.multiprocessors = MULTIPROCESSORS, .peak = 1, .memory = 1};
    }
    return m;
}

static struct pp_work given;

static struct pp_work work_of(const struct pp_call *call, bool gpu)
{
    (void)call;
    assert_true(gpu);
    return given;
}

/* The time of the work by one of so many workers that share the machine. */
static struct pp_roofline times_of(const struct pp_machine *m, const struct pp_work *work, int sharers)
{
    static const struct pp_model_ops ops = {.call_work = work_of};
    static struct pp_machine_calls calls;
    const struct pp_call call = {.kernel = 1};
    given = *work;
    pp_machine_calls_begin(&calls, m, &ops, sharers);
    return pp_machine_roofline(&calls, &call);
}

static void expect(double ns, double expected, const char *what, int sharers)
{
    if (!(fabs(ns - expected) <= 1e-9 * expected))
        fail_msg("%s, %d sharers: %g ns, not %g", what, sharers, ns, expected);
}

/* Sharers divide what is computed, moved inside, and moved while all are busy. A worker that moves alone has all of
 * the memory's bandwidth. */
static void test_each_rate_by_itself(void **state)
{
    (void)state;
    const struct pp_machine m = machine();
    for (int sharers = 1; sharers <= 4; sharers *= 2) {
        for (int i = 0; i < PP_PRECISIONS; i++) {
            struct pp_work work = {0};
            work.flops[i] = amount;
            const struct pp_roofline ns = times_of(&m, &work, sharers);
            expect(ns.ns, sharers * amount / (PEAK / 2 + i), "operations", sharers);
            expect(ns.loaded_ns, ns.ns, "operations under load", sharers);
        }
        for (int i = 0; i < 2; i++) {
            struct pp_work work = {0};
            work.attention[i] = amount;
            expect(times_of(&m, &work, sharers).ns, sharers * amount / (m.attention[i] * PEAK), "library", sharers);
        }
        struct pp_roofline ns = times_of(&m, &(struct pp_work){.bytes = amount}, sharers);
        expect(ns.ns, amount / BYTES, "memory alone", sharers);
        expect(ns.loaded_ns, sharers * amount / LOADED, "memory under load", sharers);
        ns = times_of(&m, &(struct pp_work){.bytes_before = amount}, sharers);
        expect(ns.ns, amount / BYTES, "memory before", sharers);
        expect(ns.loaded_ns, sharers * amount / LOADED, "memory before, under load", sharers);
        ns = times_of(&m, &(struct pp_work){.shared_bytes = amount}, sharers);
        expect(ns.ns, sharers * amount / SHARED, "bytes inside", sharers);
        ns = times_of(&m, &(struct pp_work){.clocks = amount}, sharers);
        expect(ns.ns, sharers * amount * 128 / SHARED, "clocks", sharers);
    }
}

/* Full waves take sharers times as long. One tile takes as long as on one multiprocessor of eight, whoever has the
 * others; where there are fewer multiprocessors than workers, each has one, at its share of the peak. */
static void test_multiprocessors_are_shared(void **state)
{
    (void)state;
    enum { SIDE = 512, TILE = 64, K = 128 };
    struct pp_work many = {.product = {SIDE, SIDE, K, 1, 2}}, one = {.product = {TILE, TILE, K, 1, 2}};
    struct pp_machine m = machine(), few = m;
    few.tiles[PP_BF16].multiprocessors = 2;
    many.flops[PP_BF16] = 2.0 * SIDE * SIDE * K;
    one.flops[PP_BF16] = 2.0 * TILE * TILE * K;
    for (int sharers = 1; sharers <= 4; sharers *= 2) {
        expect(times_of(&m, &many, sharers).ns, sharers * many.flops[PP_BF16] / PEAK, "full waves", sharers);
        expect(times_of(&m, &one, sharers).ns, one.flops[PP_BF16] * MULTIPROCESSORS / PEAK, "one tile", sharers);
        expect(times_of(&few, &many, sharers).ns, sharers * many.flops[PP_BF16] / PEAK, "few", sharers);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_rate_by_itself),
                                       cmocka_unit_test(test_multiprocessors_are_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
