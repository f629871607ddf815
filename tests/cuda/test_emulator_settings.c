/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings of the emulated devices: what is written wrongly ends the process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

/* In a process of its own, with these settings: asks for devices, and frees what is no memory. Returns how it ended. */
static int run(const char *const *settings, char *said, size_t size)
{
    int ends[2], status;
    size_t n = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int devices, nothing;
        dup2(ends[1], STDERR_FILENO);
        for (; *settings; settings++) putenv((char *)(uintptr_t)*settings);
        _exit(cudaGetDeviceCount(&devices) || devices != 2 || !cudaFree(&nothing));
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], said + n, size - 1 - n)) > 0;) n += (size_t)got;
    said[n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_what_is_no_setting_is_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"PP_EMULATE_JITER_US=5", "PP_EMULATE_JITER_US=5 is no setting"},
        {"PP_EMULATE_JITTER_USES=5", "PP_EMULATE_JITTER_USES=5 is no setting"},
        {"PP_EMULATE_DEVICES=two", "PP_EMULATE_DEVICES is no number"},
        {"PP_EMULATE_MEMORY=4G", "PP_EMULATE_MEMORY is no number"},
        {"PP_EMULATE_ORDER=backwards", "PP_EMULATE_ORDER is not 'reverse'"},
        {"PP_EMULATE_FAIL=cudaMalloc", "cudaMalloc in PP_EMULATE_FAIL is not FUNCTION:TURN"},
        {"PP_EMULATE_FAIL=cudaMalloc:first", "PP_EMULATE_FAIL: a turn is no number"},
        {"PP_EMULATE_FAIL=cudaMalloc:2=no", "PP_EMULATE_FAIL: a code is no number"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char said[1000];
        const int status = run((const char *const[]){bad[i][0], NULL}, said, sizeof said);
        if (!WIFSIGNALED(status) || !strstr(said, bad[i][1])) fail_msg("%s is taken: %s", bad[i][0], said);
    }
}

static void test_what_is_empty_is_not_set(void **state)
{
    (void)state;
    char said[1000];
    const char *const empty[] = {"PP_EMULATE_DEVICES=", "PP_EMULATE_ORDER=", "PP_EMULATE_FAIL=", NULL};
    assert_int_equal(run(empty, said, sizeof said), 0);
}

/* Where something is late by chance, it says how to have the same chance again. */
static void test_complaints_name_the_seed(void **state)
{
    (void)state;
    char said[1000];
    const char *const prompt[] = {NULL}, *const late[] = {"PP_EMULATE_JITTER_US=1", NULL},
                      *const other[] = {"PP_EMULATE_JITTER_US=1", "PP_EMULATE_SEED=7", NULL};
    assert_int_equal(run(prompt, said, sizeof said), 0);
    assert_true(strstr(said, "emulator: ") && !strstr(said, "PP_EMULATE_SEED"));
    assert_int_equal(run(late, said, sizeof said), 0);
    assert_non_null(strstr(said, " (PP_EMULATE_SEED=1)\n"));
    assert_int_equal(run(other, said, sizeof said), 0);
    assert_non_null(strstr(said, " (PP_EMULATE_SEED=7)\n"));
}

/* Complaints, and what is refused, are also in a file, where that is named. */
static void test_complaints_are_kept(void **state)
{
    (void)state;
    static const char kept[] = "PP_EMULATE_COMPLAINTS=kept";
    char said[1000], line[1000] = "";
    const char *const complains[] = {kept, NULL}, *const refuses[] = {kept, "PP_EMULATE_DEVICES=two", NULL};
    for (int i = 0; i < 2; i++) {
        remove("kept");
        (void)run(i ? refuses : complains, said, sizeof said);
        FILE *file = fopen("kept", "r");
        assert_non_null(file);
        assert_non_null(fgets(line, sizeof line, file));
        fclose(file);
        assert_true(strncmp(line, "emulator: ", 10) == 0 && strstr(said, line));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_no_setting_is_refused), cmocka_unit_test(test_what_is_empty_is_not_set),
        cmocka_unit_test(test_complaints_name_the_seed), cmocka_unit_test(test_complaints_are_kept)};
    return cmocka_run_group_tests_name("emulator's settings", tests, NULL, NULL);
}
