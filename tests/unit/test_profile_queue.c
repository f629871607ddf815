/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiling of devices with queues: which loads, in which share, from whose clock, and what is kept of the host's.
 */
#include "tests/unit/profile_case.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/profile_algorithms.h"

/* The same with queues: measuring takes no time, issuing a tenth of running. There are config_gpus(), shared by as
 * many workers as it takes. */
enum { ISSUE_NS = CALL_NS / 10 };

static atomic_int probes, strangers, prepared;
static bool cannot_share, first_is_shorter, last_rank_is_slow;
static atomic_int slow_runs; /* of the last rank's programs, while it is slow */
static bool grouping;        /* norms and steps take as long as a call, but for times of calls */
static _Thread_local const struct pp_device *used;

static pp_status queued_use(struct pp_device *device)
{
    used = device;
    return PP_OK;
}

static struct pp_queue *queued_compute(struct pp_device *device)
{
    (void)device;
    return NULL;
}

static pp_status queued_copy(struct pp_device *device, struct pp_queue *queue, void *to, const void *from,
                             int64_t bytes)
{
    (void)queue;
    return fake_copy(device, to, from, bytes);
}

static pp_status queued_prepare(struct pp_device *device, const struct pp_program *program)
{
    (void)program;
    strangers += used != device;
    prepared++;
    return PP_OK;
}

/* Programs that have begun and not ended, of the calling thread's device, and whether they write gradients. */
static _Thread_local int under_way, next_end;
static _Thread_local bool writes[PP_MEASURED];
static _Thread_local const struct pp_program *begun[PP_MEASURED];
static atomic_int overlaps, disorders;
static atomic_int forwards, backwards, mixed; /* programs that are under way anywhere; begins beside the other kind */

/* A forward or a backward begins or ends. */
static void count_kind(const struct pp_program *program, int more)
{
    const bool forward = program->signature[0] == 'F', backward = program->signature[0] == 'B';
    if (forward) forwards += more;
    if (backward) backwards += more;
    mixed += more > 0 && ((forward && backwards > 0) || (backward && forwards > 0));
}

static pp_status queued_begin(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                              int slot, bool each)
{
    (void)each;
    runs++;
    strangers += used != device;
    if (!has_memory(program, frame)) bad_frames++;
    if (under_way == 0) next_end = slot;
    disorders += begun[slot] != NULL;
    overlaps += under_way++ > 0;
    count_kind(program, 1);
    begun[slot] = program;
    writes[slot] = strstr(program->signature, " writes") != NULL;
    return PP_OK;
}

/* A device that has a part of a GPU takes twice as long, and a call that writes gradients half as long. */
static pp_status queued_end(struct pp_device *device, const struct pp_program *program, int slot,
                            struct pp_run_time *out, int64_t *kernel_ns)
{
    int64_t call_ns = device->workers > config_gpus() ? 2 * CALL_NS : CALL_NS;
    if (last_rank_is_slow && strstr(program->signature, "+dec")) {
        slow_runs++;
        usleep(1000);
    }
    if (writes[slot] && first_is_shorter) call_ns /= 2;
    disorders += begun[slot] != program || slot != next_end;
    begun[slot] = NULL;
    next_end = (slot + 1) % PP_MEASURED;
    under_way--;
    count_kind(program, -1);
    out->device_ns = call_ns * program->ncalls;
    out->host_ns = (int64_t)ISSUE_NS * program->ncalls;
    if (grouping && program->calls->kernel >= PP_KERNEL_SUMSQ) out->device_ns = call_ns;
    for (int i = 0; kernel_ns && i < program->ncalls; i++) kernel_ns[i] = call_ns;
    return PP_OK;
}

static pp_status queued_probe(struct pp_device *device)
{
    (void)device;
    probes++;
    return cannot_share ? pp_fail(PP_UNSUPPORTED, "workers do not overlap") : PP_OK;
}

/* Chooses once for each program, in a line of its own. */
static pp_status queued_tune(struct pp_device *device, const struct pp_program *program, FILE *out, int *added)
{
    strangers += used != device;
    fprintf(out, "%s\n", program->signature);
    ++*added;
    return PP_OK;
}

static int queued_sharers(const struct pp_device_spec *spec)
{
    int gpus = config_gpus();
    return spec->workers > gpus ? spec->workers / gpus : 1;
}

static const struct pp_queue_ops queued_ops = {.use = queued_use,
                                               .compute = queued_compute,
                                               .copy = queued_copy,
                                               .prepare = queued_prepare,
                                               .measure_begin = queued_begin,
                                               .measure_end = queued_end,
                                               .tune = queued_tune,
                                               .probe = queued_probe};

static struct pp_backend queued_backend(void)
{
    struct pp_backend backend = fake;
    backend.name = "queued";
    backend.run = NULL;
    backend.queue = &queued_ops;
    backend.sharers = queued_sharers;
    return backend;
}

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

static struct pp_profile *queued_profile(const char *options, const struct pp_backend *backend)
{
    struct pp_profile_setup setup = configure(options, 64);
    struct pp_profile *profile;
    probes = strangers = prepared = overlaps = disorders = mixed = 0;
    setup.backend = backend;
    if (pp_profile_create(&setup, &profile) != PP_OK) fail_msg("%s: %s", options, pp_message());
    return profile;
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

/* Under load, a task of gpipe is measured beside tasks of its own stretch. (In other schedules forwards and backwards
 * mix, but threads that are not at the same time anywhere cannot be held to that.) */
static void test_stretches(void **state)
{
    (void)state;
    const struct pp_backend backend = queued_backend();
    struct pp_profile *profile = queued_profile(
        "--preset lab --layers 4 --rows 8 --seconds 0.02 --stages 4 --chunks 4 --gpus 1 --schedule gpipe", &backend);
    assert_int_equal(pp_profile_run(profile), PP_OK);
    assert_int_equal(disorders + forwards + backwards, 0);
    assert_int_equal(mixed, 0);
    pp_profile_free(profile);
}

static time_t patience_ends;
static bool is_late(void) { return time(NULL) > patience_ends; }

/* Of the slowest rank the last forward, of fewer rows than the others, ends after all that other ranks do in that
 * stretch; it has a load nevertheless. */
static void test_slowest_rank(void **state)
{
    (void)state;
    const struct pp_backend backend = queued_backend();
    struct pp_profile *profile = queued_profile(
        "--preset lab --rows 7 --seconds 0.005 --stages 2 --chunks 2 --gpus 1 --schedule gpipe", &backend);
    profile->setup.interrupted = is_late;
    patience_ends = time(NULL) + 20;
    last_rank_is_slow = true;
    assert_int_equal(pp_profile_run(profile), PP_OK);
    last_rank_is_slow = false;
    assert_true(slow_runs < 250); /* as long as it takes where none is slow */
    for (int i = 0; i < profile->nshapes; i++)
        for (int load = 0; load < 2; load++) assert_true(profile->shapes[i].cell[load].ns.count > 0);
    assert_int_equal(disorders, 0);
    pp_profile_free(profile);
}

/* Workers that take turns on a GPU have no times. */
static void test_cannot_share(void **state)
{
    (void)state;
    const struct pp_backend backend = queued_backend();
    struct pp_profile *profile = queued_profile("--preset lab --seconds 0.005 --stages 2 --gpus 1", &backend);
    cannot_share = true;
    assert_int_equal(pp_profile_run(profile), PP_UNSUPPORTED);
    cannot_share = false;
    assert_non_null(strstr(pp_message(), "do not overlap"));
    assert_int_equal(open_devices + open_blocks, 0);
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
    assert_int_equal(pp_db_find_kernel_mean(db, "queued", 1, PP_SAMPLE_GAP, "", 1, &ns, &found), PP_OK);
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
        assert_int_equal(pp_db_find_issue(db, "queued", 1, shape->signature, shape->context, 2, &ns, &found), PP_OK);
        assert_true(found);
        assert_int_equal(ns, (int64_t)ISSUE_NS * shape->ncalls);
    }
    assert_int_equal(pp_db_find_issue(db, "fake", 1, profile->shapes[0].signature, "", 2, &ns, &found), PP_OK);
    assert_false(found);
    assert_int_equal(pp_db_newest_device(db, device, sizeof device), PP_OK);
    assert_string_equal(device, "queued");
    assert_int_equal(pp_db_close(db), PP_OK);
    pp_profile_free(profile);
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

    assert_int_equal(symlink("/dev/full", beside), 0);
    assert_int_equal(pp_profile_algorithms(profile, "chosen"), PP_IO);
    assert_non_null(strstr(pp_message(), "--algorithms: cannot write chosen: No space left"));
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
        cmocka_unit_test(test_queue_device),
        cmocka_unit_test(test_cannot_share),
        cmocka_unit_test(test_gap),
        cmocka_unit_test(test_first_is_shorter),
        cmocka_unit_test(test_stretches),
        cmocka_unit_test(test_slowest_rank),
        cmocka_unit_test(test_each_kind_of_backward),
        cmocka_unit_test(test_issue_is_stored),
        cmocka_unit_test(test_algorithms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
