/* SPDX-License-Identifier: Apache-2.0
 *
 * Processors of a system with more than a cpu_set_t has room for. The system calls are those of this file.
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/affinity.h"
#include "core/base/cores.h"

enum { FIRST = 2000, SECOND = 3001, POSSIBLE = 4096 };

static int tied = -1; /* what the thread was last tied to */

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    if (8 * bytes < POSSIBLE) return errno = EINVAL, -1;
    CPU_ZERO_S(bytes, set);
    CPU_SET_S(FIRST, bytes, set);
    CPU_SET_S(SECOND, bytes, set);
    return 0;
}

int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set)
{
    (void)pid;
    for (size_t cpu = 0; cpu < 8 * bytes; cpu++)
        if (CPU_ISSET_S(cpu, bytes, set)) tied = (int)cpu;
    return 0;
}

static void test_all_are_found(void **state)
{
    (void)state;
    size_t bytes;
    cpu_set_t *set = pp_affinity(&bytes);
    assert_non_null(set);
    assert_true(8 * bytes >= POSSIBLE && CPU_COUNT_S(bytes, set) == 2 && CPU_ISSET_S(SECOND, bytes, set));
    free(set);
    assert_int_equal(pp_affinity_count(), 2);
}

/* A set of others: each counts as a core that hwloc does not know. */
static void test_cores_of_a_set(void **state)
{
    (void)state;
    cpu_set_t *set = CPU_ALLOC(POSSIBLE);
    const size_t bytes = CPU_ALLOC_SIZE(POSSIBLE);
    assert_non_null(set);
    CPU_ZERO_S(bytes, set);
    assert_int_equal(pp_cores_in(set, bytes), 1); /* nothing is known */
    for (int n = 1; n <= 3; n++) {
        CPU_SET_S(SECOND - 2 * n, bytes, set);
        assert_int_equal(pp_cores_in(set, bytes), n);
    }
    CPU_FREE(set);
}

/* hwloc knows of no core with these numbers, so each of them counts as one. */
static void test_threads_are_tied_to_them(void **state)
{
    (void)state;
    assert_int_equal(pp_cores_count(), 2);
    pp_cores_pin(1);
    assert_int_equal(tied, SECOND);
    pp_cores_pin(2);
    assert_int_equal(tied, FIRST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_are_found), cmocka_unit_test(test_cores_of_a_set),
                                       cmocka_unit_test(test_threads_are_tied_to_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
