/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is left, by files of made-up systems.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/memory_left.h"

#define MIB (INT64_C(1) << 20)

/* Writes a file of the system in `root`, and makes the folders that lead there. */
static void file(const char *root, const char *path, const char *text)
{
    char full[300];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(full, 0777); /* it may be there */
        *slash = '/';
    }
    FILE *out = fopen(full, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static void system_of(const char *root, const char *groups)
{
    file(root, "/proc/meminfo", "MemTotal:       4096 kB\nMemFree:        1 kB\nMemAvailable:   2048 kB\n"); /* 2 MiB */
    file(root, "/proc/self/cgroup", groups);
}

static void test_system_alone(void **state)
{
    (void)state;
    assert_int_equal(pp_memory_left("nowhere"), -1);
    system_of("plain", "0::/\n");
    assert_int_equal(pp_memory_left("plain"), 2 * MIB);
    file("old", "/proc/meminfo", "MemTotal: 4096 kB\n"); /* before Linux 3.14 */
    assert_int_equal(pp_memory_left("old"), -1);
}

static void test_version_2(void **state)
{
    (void)state;
    system_of("two", "0::/a/b\n");
    (void)unlink("two/sys/fs/cgroup/a/memory.max"); /* of the test's last run */
    (void)unlink("two/sys/fs/cgroup/a/memory.stat");
    file("two", "/sys/fs/cgroup/a/b/memory.max", "max\n");
    file("two", "/sys/fs/cgroup/a/b/memory.current", "1000\n");
    assert_int_equal(pp_memory_left("two"), 2 * MIB);
    file("two", "/sys/fs/cgroup/a/memory.max", "1048576\n"); /* the group around it has a limit */
    file("two", "/sys/fs/cgroup/a/memory.current", "600000\n");
    assert_int_equal(pp_memory_left("two"), MIB - 600000);
    file("two", "/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 500000\nactive_file 7000\n");
    assert_int_equal(pp_memory_left("two"), MIB - 93000);
    file("two", "/sys/fs/cgroup/a/memory.stat", "active_file 700000\n"); /* more than is used: not of this moment */
    assert_int_equal(pp_memory_left("two"), MIB - 600000);
    file("two", "/sys/fs/cgroup/a/b/memory.max", "900\n"); /* less than it has */
    assert_int_equal(pp_memory_left("two"), 0);
}

/* Groups of a container have other names outside, and it sees its own at the top. */
static void test_version_1_in_a_container(void **state)
{
    (void)state;
    system_of("one", "9:name=systemd:/x\n4:cpu,memory,pids:/docker/0123\n");
    file("one", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
    file("one", "/sys/fs/cgroup/memory/memory.usage_in_bytes", "48576\n");
    file("one", "/sys/fs/cgroup/memory/memory.stat",
         "inactive_file 9\ntotal_inactive_file 8576\ntotal_active_file 10000\n");
    assert_int_equal(pp_memory_left("one"), 1048576 - 30000);
    file("one", "/proc/self/cgroup", "4:cpu,memory_other:/docker/0123\nno group\n");
    assert_int_equal(pp_memory_left("one"), 2 * MIB);
    file("one", "/proc/self/cgroup", "4:memory:/\n");
    file("one", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* none */
    assert_int_equal(pp_memory_left("one"), 2 * MIB);
}

/* What this system says. */
static void test_here(void **state)
{
    (void)state;
    assert_true(pp_memory_left("") > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_system_alone), cmocka_unit_test(test_version_2),
                                       cmocka_unit_test(test_version_1_in_a_container), cmocka_unit_test(test_here)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
