/* SPDX-License-Identifier: Apache-2.0
 *
 * The time of a product in tiles, counted by hand for a GPU whose figures are round. (Beside measured products:
 * measuring.kernels.)
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "sim/machine_calls.h"
#include "sim/product.h"

enum { MULTIPROCESSORS = 10 };

/* 2 operations a ns of each multiprocessor: a column of a tile of n numbers takes n ns. A byte a ns of each. */
static const double flops_per_ns = 2.0 * MULTIPROCESSORS, bytes_per_ns = MULTIPROCESSORS;

static double time_of(double load, double store, double split_ns, struct pp_product product)
{
    const struct pp_tiles tiles = {MULTIPROCESSORS, 1000, 1, load, store, split_ns, 1};
    return pp_product_ns(&tiles, &product, flops_per_ns, bytes_per_ns);
}

static void check(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-6 * expected)) fail_msg("%.3f ns, not %.3f", found, expected);
}

/* Ten tiles of 128 x 128 at once; an eleventh has all to itself. As 22 tiles of half the size it takes three turns of
 * half the time, as 44 of a quarter five of a quarter of it. */
static void test_waves(void **state)
{
    (void)state;
    const double tile = 128 * 128 * 100.0;
    check(time_of(0, 0, 0, (struct pp_product){128, 1280, 100, 1, 2}), tile);
    check(time_of(0, 0, 0, (struct pp_product){1280, 128, 100, 1, 2}), tile);
    check(time_of(0, 0, 0, (struct pp_product){128, 128, 100, 10, 2}), tile);
    check(time_of(0, 0, 0, (struct pp_product){128, 128, 100, 11, 2}), tile * 5 / 4);
    check(time_of(0, 0, 0, (struct pp_product){1, 1, 100, 10, 2}), 64 * 64 * 100.0);
}

/* Rows and columns of a tile cost the same in a large one and in a small one: so tiles are as large as keeps all
 * multiprocessors busy, the largest of 256 x 256 by two of them. */
static void test_edges(void **state)
{
    (void)state;
    const double load = 16;
    check(time_of(load, 0, 0, (struct pp_product){128, 1280, 100, 1, 2}), (128 * 128 + load * 256) * 100);
    check(time_of(load, 0, 0, (struct pp_product){128, 2560, 100, 1, 2}), (128 * 256 + load * 384) * 100);
    check(time_of(load, 0, 0, (struct pp_product){256, 1280, 100, 1, 2}), (256 * 256 + load * 512) * 100 / 2);
    check(time_of(load, 0, 0, (struct pp_product){64, 640, 100, 1, 2}), (64 * 64 + load * 128) * 100);
}

/* Of an odd number of multiprocessors one is in no pair. The others are no faster for it. */
static void test_odd_number(void **state)
{
    (void)state;
    enum { ODD = MULTIPROCESSORS + 1 };
    const struct pp_tiles tiles = {ODD, 1000, 1, 16, 0.5, 0, 1};
    const struct pp_product product = {256, 1280, 100, 1, 2}; /* five tiles, and five pairs */
    const double multiplied = (256 * 256 + 16 * 512) * 100, stored = 256 * 256 * 0.5 * 2;
    check(pp_product_ns(&tiles, &product, 2.0 * ODD, ODD), (multiplied + stored) / 2);
}

/* Of the peak a share: multiplying and loading take longer by it, writing does not. */
static void test_share_of_the_peak(void **state)
{
    (void)state;
    const struct pp_product product = {128, 1280, 100, 1, 2};
    struct pp_tiles tiles = {MULTIPROCESSORS, 1000, 0.8, 16, 0.5, 0, 1};
    const double multiplied = (128 * 128 + 16 * 256) * 100, stored = 128 * 128 * 0.5 * 2;
    check(pp_product_ns(&tiles, &product, flops_per_ns, bytes_per_ns), multiplied / 0.8 + stored);
    tiles.peak = 1;
    check(pp_product_ns(&tiles, &product, flops_per_ns, bytes_per_ns), multiplied + stored);
}

static void test_results_are_written(void **state)
{
    (void)state;
    check(time_of(0, 0.5, 0, (struct pp_product){128, 1280, 100, 1, 2}), 128 * 128 * (100 + 0.5 * 2));
    check(time_of(0, 0.5, 0, (struct pp_product){128, 1280, 100, 1, 4}), 128 * 128 * (100 + 0.5 * 4));
}

/* One tile of 64 x 64, K of 4096: in eight parts an eighth of the time, a second pass, and eight sums in float that are
 * written and read. Not where parts would be short, nor where the pass takes longer than it spares. */
static void test_k_in_parts(void **state)
{
    (void)state;
    const double area = 64 * 64, pass = 2 * 4 * 8 * area / bytes_per_ns;
    check(time_of(0, 0, 500, (struct pp_product){64, 64, 4096, 1, 2}), area * 4096 / 8 + 500 + pass);
    check(time_of(0, 0, 500, (struct pp_product){64, 64, 511, 1, 2}), area * 511);
    check(time_of(0, 0, area * 4096, (struct pp_product){64, 64, 4096, 1, 2}), area * 4096);
    check(time_of(0, 0, 500, (struct pp_product){64, 64, 513, 1, 2}), area * 257 + 500 + pass / 4);
}

/* In sixteen parts at most, however many multiprocessors there are. */
static void test_most_parts(void **state)
{
    (void)state;
    enum { MANY = 64, K = MANY * 256 };
    const struct pp_tiles tiles = {MANY, 1000, 1, 0, 0, 500, 1};
    const struct pp_product product = {64, 64, K, 1, 2};
    const double area = 64 * 64, rate = flops_per_ns * MANY / MULTIPROCESSORS; /* of each that of the other tests */
    check(pp_product_ns(&tiles, &product, rate, bytes_per_ns), area * K / 16 + 500 + 2 * 4 * 16 * area / bytes_per_ns);
}

/* (Where K can be cut in more parts, a slightly larger one may be faster: not between these.) */
static void test_larger_takes_longer(void **state)
{
    (void)state;
    double last = 0;
    for (int n = 64; n <= 8192; n += 64) {
        const double ns = time_of(19, 0.5, 1000, (struct pp_product){n, n, n, 1, 2});
        assert_true(ns > last);
        last = ns;
    }
}

static int moved_bytes(struct pp_call call, bool adds)
{
    call.adds = adds;
    return pp_call_work(&call, true).product.moved_bytes;
}

/* What is added to is read as well. */
static void test_adding_reads(void **state)
{
    (void)state;
    struct pp_call call = {PP_KERNEL_GEMM_TN, .gemm = {3, 4, 5, PP_GEMM_GRADIENT, 1, 7}, .precision = PP_BF16};
    assert_int_equal(moved_bytes(call, false), 4);
    assert_int_equal(moved_bytes(call, true), 8);
    call = (struct pp_call){PP_KERNEL_GEMM_NN, .gemm = {3, 4, 5, PP_GEMM_WRITE}, .precision = PP_BF16};
    assert_int_equal(moved_bytes(call, false), 2);
    call.gemm.mode = PP_GEMM_ADD;
    assert_int_equal(moved_bytes(call, false), 4);
}

/* A machine that knows of tiles: start, and the longer of operands and tiles. In another arithmetic, or without tiles,
 * a share of the peak. */
static void test_machine(void **state)
{
    (void)state;
    struct pp_machine m;
    assert_int_equal(pp_machine_find("h100", &m), PP_OK);
    const struct pp_call call = {PP_KERNEL_GEMM_NN, .gemm = {4096, 4096, 4096}, .precision = PP_BF16};
    struct pp_work work = pp_call_work(&call, true);
    const double tiles = pp_product_ns(&m.tiles[PP_BF16], &work.product, m.peak_flops_per_ns[PP_BF16], m.bytes_per_ns);
    check(pp_machine_work_ns(&m, &work), m.tiles[PP_BF16].start_ns + tiles);
    work.bytes = 1e12;
    check(pp_machine_work_ns(&m, &work), m.tiles[PP_BF16].start_ns + 1e12 / m.bytes_per_ns);
    work = pp_call_work(&call, true);
    memset(m.tiles, 0, sizeof m.tiles);
    check(pp_machine_work_ns(&m, &work), 2.0 * 4096 * 4096 * 4096 / m.flops_per_ns[PP_BF16]);
}

/* All precisions with tensor cores of all GPUs know of tiles, whose rate a large product comes near. */
static void test_large_products_reach_most_of_the_peak(void **state)
{
    (void)state;
    static const char *const names[] = {"a100", "h100", "h200", "b200", "gb200", "b300", "gb300"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int precision = PP_TF32; precision <= PP_BF16; precision++) {
            struct pp_machine m;
            assert_int_equal(pp_machine_find(names[i], &m), PP_OK);
            const struct pp_call call = {PP_KERNEL_GEMM_NT, .gemm = {16384, 16384, 16384}, .precision = precision};
            const struct pp_work work = pp_call_work(&call, true);
            const double part = pp_call_flops(&call) / m.peak_flops_per_ns[precision] / pp_machine_work_ns(&m, &work);
            if (!(part >= 0.65 && part <= 0.9)) fail_msg("%s: %.2f of the peak", names[i], part);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waves),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_odd_number),
        cmocka_unit_test(test_share_of_the_peak),
        cmocka_unit_test(test_results_are_written),
        cmocka_unit_test(test_adding_reads),
        cmocka_unit_test(test_k_in_parts),
        cmocka_unit_test(test_most_parts),
        cmocka_unit_test(test_larger_takes_longer),
        cmocka_unit_test(test_machine),
        cmocka_unit_test(test_large_products_reach_most_of_the_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
