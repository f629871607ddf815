/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiling of devices with queues: which loads, in which share, from whose clock, and what is kept of the host's.
 */
#include "tests/unit/queued_case.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/profile_algorithms.h"

/* What the profile of a queue device says of each shape, alone and with all sharers. */
static void check_queued(const struct pp_profile *profile, const char *share, int call_ns)
{
    for (int i = 0; i < profile->nshapes; i++) {
        const struct pp_profile_shape *shape = &profile->shapes[i];
        const char *named = strstr(shape->context, " share ");
        assert_string_equal(named ? named : "", share);
        for (int load = 0; load < profile->nloads; load++) {
            const struct pp_profile_cell *cell = &shape->cell[load];
            assert_int_equal(cell->ns.median_ns, (int64_t)call_ns * shape->ncalls);
            assert_int_equal(cell->host_ns.median_ns, (int64_t)ISSUE_NS * shape->ncalls);
            assert_true(cell->host_ns.count > 0);
        }
    }
}

/* A schedule in a file, with the longest name that a plan keeps, of the longest mode of checkpoints. */
#define LONG_NAME "a_name_of_as_many_as_31_byt.csv"

static void write_schedule(const char *path)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", out);
    assert_int_equal(fclose(out), 0);
}

static void test_queue_device(void **state)
{
    (void)state;
    write_schedule(LONG_NAME);
    const struct pp_backend backend = queued_backend();
    const struct {
        const char *options, *share;
        int loads, last_load;
    } cases[] = {
        {"--preset lab --layers 4 --seconds 0.005 --stages 4 --gpus 4", "", 1, 1},
        {"--preset lab --layers 4 --seconds 0.005 --stages 4 --gpus 2", " share 1/2", 2, 2},
        {"--preset lab --layers 4 --seconds 0.005 --stages 2 --replicas 2 --gpus 1", " share 1/4", 2, 4},
        {"--preset lab --seconds 0.005 --stages 2 --chunks 2 --gpus 1 --checkpoint except_last --schedule " LONG_NAME,
         " share 1/2", 2, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_profile *profile = queued_profile(cases[i].options, &backend);
        assert_int_equal(profile->nloads, cases[i].loads);
        assert_int_equal(profile->loads[profile->nloads - 1], cases[i].last_load);
        if (pp_profile_run(profile) != PP_OK) fail_msg("%s: %s", cases[i].options, pp_message());
        check_queued(profile, cases[i].share, *cases[i].share ? 2 * CALL_NS : CALL_NS);
        assert_int_equal(strangers + bad_frames + open_devices + open_blocks + disorders, 0);
        assert_int_equal(overlaps > 0, cases[i].loads > 1); /* sharers are never idle */
        assert_true(prepared > 0);
        assert_int_equal(probes > 0, cases[i].loads > 1);
        pp_profile_free(profile);
    }
}

static bool writes_gradients(const char *name) { return strstr(name, " writes") != NULL; }

/* Measures with calls that take half as long where they write gradients. */
static struct pp_profile *with_shorter_firsts(const char *options)
{
    static struct pp_backend backend;
    backend = queued_backend();
    struct pp_profile *profile = queued_profile(options, &backend);
    first_is_shorter = true;
    assert_int_equal(pp_profile_run(profile), PP_OK);
    first_is_shorter = false;
    return profile;
}

/* A step's first backward of a stage writes gradients: it is a task with times of its own, as are its kernels. */
static void test_first_is_shorter(void **state)
{
    (void)state;
    struct pp_profile *profile =
        with_shorter_firsts("--preset lab --rows 8 --seconds 0.02 --stages 2 --chunks 4 --gpus 1");
    int found = 0;
    for (int i = 0; i < profile->nshapes; i++) {
        const struct pp_profile_shape *shape = &profile->shapes[i];
        const bool first = writes_gradients(shape->signature);
        const int64_t call_ns = first ? CALL_NS : 2 * CALL_NS;
        for (int load = 0; load < 2; load++) {
            const struct pp_profile_cell *cell = &shape->cell[load];
            assert_int_equal(cell->ns.mean_ns, call_ns * shape->ncalls);
            for (int k = 0; k < cell->nkernels; k++) {
                assert_int_equal(cell->kernels[k].ns.mean_ns, call_ns);
                assert_true(first || !writes_gradients(cell->kernels[k].name));
            }
        }
        assert_true(!first || shape->kind == PP_B);
        found += first;
    }
    assert_int_equal(found, 2);
    assert_int_equal(disorders, 0);
    pp_profile_free(profile);
}

/* Of seven rows three are the last microbatch of two, which adds to gradients; of three, one of them writes. */
static void test_each_kind_of_backward(void **state)
{
    (void)state;
    struct pp_profile *profile = with_shorter_firsts("--preset lab --rows 7 --seconds 0.005 --stages 1 --chunks 2,3");
    int found[2] = {0};
    for (int i = 0; i < profile->nshapes; i++) {
        const struct pp_profile_shape *shape = &profile->shapes[i];
        const bool first = writes_gradients(shape->signature);
        if (shape->kind != PP_B || !strstr(shape->signature, " rows3")) continue;
        assert_int_equal(shape->cell[0].ns.mean_ns, (first ? CALL_NS / 2 : CALL_NS) * shape->ncalls);
        found[first]++;
    }
    assert_true(found[false] == 1 && found[true] == 1);
    pp_profile_free(profile);
}

/* What a device saves where it runs calls together is no gap of other tasks. */
static void test_gap(void **state)
{
    (void)state;
    const struct pp_backend backend = queued_backend();
    struct pp_profile *profile = queued_profile("--preset lab --clip 0.5 --seconds 0.005 --stages 1", &backend);
    struct pp_run run = {.tool = "ppprof", .device = "queued", .processes = 1, .cores = 2};
    struct pp_db *db;
    int64_t run_id, ns = -1;
    bool found;
    remove("gap.db");
    grouping = true;
    assert_int_equal(pp_profile_run(profile), PP_OK);
    grouping = false;
    assert_int_equal(pp_db_open("gap.db", PP_DB_WRITE, &db), PP_OK);
    assert_int_equal(pp_db_run_begin(db, &run, &config, NULL, &run_id), PP_OK);
    assert_int_equal(pp_profile_store(profile, db, run_id), PP_OK);
    assert_int_equal(
        pp_db_find_kernel_mean(db, &(struct pp_db_setting){"queued", 1, ""}, PP_SAMPLE_GAP, 1, &ns, &found), PP_OK);
    assert_true(found);
    assert_int_equal(ns, 0);
    assert_int_equal(pp_db_close(db), PP_OK);
    pp_profile_free(profile);
}

static void test_issue_is_stored(void **state)
{
    (void)state;
    const struct pp_backend backend = queued_backend();
    struct pp_profile *profile = queued_profile("--preset lab --seconds 0.005 --stages 2 --gpus 1", &backend);
    struct pp_run run = {.tool = "ppprof", .device = "queued", .processes = 1, .cores = 2};
    struct pp_db *db;
    int64_t run_id, ns;
    char device[16];
    bool found;
    remove("queued.db");
    assert_int_equal(pp_profile_run(profile), PP_OK);
    assert_int_equal(pp_db_open("queued.db", PP_DB_WRITE, &db), PP_OK);
    assert_int_equal(pp_db_newest_device(db, device, sizeof device), PP_OK);
    assert_string_equal(device, "");
    assert_int_equal(pp_db_run_begin(db, &run, &config, NULL, &run_id), PP_OK);
    if (pp_profile_store(profile, db, run_id) != PP_OK) fail_msg("%s", pp_message());
    for (int i = 0; i < profile->nshapes; i++) {
        const struct pp_profile_shape *shape = &profile->shapes[i];
        assert_int_equal(pp_db_find_issue(db, &(struct pp_db_setting){"queued", 1, shape->context}, shape->signature, 2,
                                          &ns, &found),
                         PP_OK);
        assert_true(found);
        assert_int_equal(ns, (int64_t)ISSUE_NS * shape->ncalls);
    }
    assert_int_equal(
        pp_db_find_issue(db, &(struct pp_db_setting){"fake", 1, ""}, profile->shapes[0].signature, 2, &ns, &found),
        PP_OK);
    assert_false(found);
    assert_int_equal(pp_db_newest_device(db, device, sizeof device), PP_OK);
    assert_string_equal(device, "queued");
    assert_int_equal(pp_db_close(db), PP_OK);
    pp_profile_free(profile);
}

/* No file may become larger than that; 0: than before. */
static void limit_files(off_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes > 0 ? (rlim_t)bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A file that cannot be written stays as it is, and nothing lies beside it. */
static void test_algorithms(void **state)
{
    (void)state;
    const struct pp_backend backend = queued_backend();
    struct pp_profile *profile = queued_profile("--preset lab --stages 1", &backend);
    struct stat there;
    char text[32] = "", beside[32];
    snprintf(beside, sizeof beside, "chosen.%ld.part", (long)getpid());
    remove("chosen"), remove(beside), remove("unmade");
    assert_int_equal(pp_profile_algorithms(profile, "chosen"), PP_OK);
    assert_int_equal(stat("chosen", &there), 0);
    const off_t bytes = there.st_size;
    assert_true(bytes > 0);

    limit_files(bytes / 2);
    assert_int_equal(pp_profile_algorithms(profile, "chosen"), PP_IO);
    limit_files(0);
    assert_non_null(strstr(pp_message(), "--algorithms: cannot write chosen: File too large"));
    assert_int_equal(stat("chosen", &there), 0);
    assert_int_equal(there.st_size, bytes);
    assert_int_equal(access(beside, F_OK), -1);

    /* Where the link leads no file can be made. */
    assert_int_equal(symlink("/proc/self/mem", "unmade"), 0);
    assert_int_equal(pp_profile_algorithms(profile, "unmade"), PP_IO);
    assert_non_null(strstr(pp_message(), "--algorithms: cannot write unmade: "));
    assert_true(readlink("unmade", text, sizeof text) > 0);

    /* A name beside the file's would be too long. */
    char deep[4096] = "";
    memset(deep, '/', sizeof deep - 1 - strlen("chosen"));
    memcpy(deep, "./", 2);
    strcpy(deep + sizeof deep - 1 - strlen("chosen"), "chosen");
    assert_int_equal(stat(deep, &there), 0);
    assert_int_equal(pp_profile_algorithms(profile, deep), PP_USAGE);
    assert_string_equal(pp_message(), "--algorithms: the path is too long");
    assert_int_equal(stat("chosen", &there), 0);
    assert_int_equal(there.st_size, bytes);
    assert_int_equal(strangers + open_devices, 0);
    pp_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queue_device),     cmocka_unit_test(test_gap),
        cmocka_unit_test(test_first_is_shorter), cmocka_unit_test(test_each_kind_of_backward),
        cmocka_unit_test(test_issue_is_stored),  cmocka_unit_test(test_algorithms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
