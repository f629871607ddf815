/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU that was idle: its clock is slow until it has worked for a while.
 */
#include <sys/mman.h>
#include <time.h>

#include "core/base/clock.h"
#include "device_case.h"

enum { RUNS = 9, CLOCK_RISES_MS = 30 };

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The median, as ppexec takes it, of runs that begin after a rest; *quickest_ms: of a call. */
static int64_t median_after_rest(struct pp_device *device, double *quickest_ms)
{
    const struct timespec rest = {.tv_sec = is_emulated() ? 0 : 2};
    int64_t ns[RUNS];
    nanosleep(&rest, NULL);
    for (int i = 0; i < RUNS; i++) {
        const int64_t start = pp_now_ns();
        ns[i] = cuda->reference_ns(device);
        const double ms = (double)(pp_now_ns() - start) * 1e-6;
        if (i == 0 || ms < *quickest_ms) *quickest_ms = ms;
    }
    qsort(ns, RUNS, sizeof ns[0], by_value);
    return ns[RUNS / 2];
}

static void reference_is_taken_warm(void)
{
    double quickest_ms;
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    const int64_t first = median_after_rest(device, &quickest_ms);
    MUST(quickest_ms < CLOCK_RISES_MS); /* calls that follow each other do not all wait for it */
    const int64_t second = median_after_rest(device, &quickest_ms);
    printf("the reference kernel: %lld and %lld ns\n", (long long)first, (long long)second);
    MUST((double)first < 2 * (double)second);
    cuda->close(device);
}

static void test_reference(void **state)
{
    (void)state;
    static const char *const cold[] = {"PP_EMULATE_COLD_MS=25", NULL};
    assert_clean(run_case(reference_is_taken_warm, cold));
}

static bool *found; /* of the process of the test, too */

static void look_for_turns(void)
{
    struct pp_device *device[2];
    load_cuda();
    for (int i = 0; i < 2; i++) device[i] = open_device(i, 2);
    *found = ops->probe(device[0]) == PP_UNSUPPORTED;
    if (*found) MUST_SAY("do not compute at the same time");
    for (int i = 0; i < 2; i++) cuda->close(device[i]);
}

/* A slow clock, by which work alone takes longer, does not hide that workers take turns. Beside other programs some
 * tries may fail. */
static void test_probe(void **state)
{
    (void)state;
    static const char *const cold[] = {"PP_EMULATE_DEVICES=1", "PP_EMULATE_PARTITIONS=0", "PP_EMULATE_COLD_MS=240",
                                       NULL};
    found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(found != MAP_FAILED);
    for (int tries = 0; tries < 20 && !*found; tries++) assert_clean(run_case(look_for_turns, cold));
    assert_true(*found);
    munmap(found, sizeof *found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference), cmocka_unit_test(test_probe)};
    return RUN_CASES(tests, 1);
}
