/* SPDX-License-Identifier: Apache-2.0
 *
 * Training runs of tiny models with dropout and clipping: losses of training, validation and test and final weights
 * have the same bits for every schedule, every cut into ranks and stages and every checkpoint mode; replicas agree with
 * one replica of their rows together. How a run ends that fails.
 */
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "exec/signals.h"
#include "trained.h"

static void run(const char *options, struct outcome *out)
{
    const struct pp_backend *cpu;
    assert_int_equal(pp_backend_find("cpu", &cpu), PP_OK);
    if (train(cpu, options, NULL, out) != PP_OK) fail_msg("%s: %s", options, pp_message());
}

static const char *const variants[] = {
    "--schedule gpipe --stages 2",
    "--schedule gpipe --stages 4",
    "--schedule 1f1b --stages 1",
    "--schedule 1f1b --stages 2",
    "--schedule 1f1b --stages 4",
    "--schedule interleaved --stages 1 --virtual 4",
    "--schedule gpipe --stages 2 --checkpoint always",
    "--schedule 1f1b --stages 2 --checkpoint except_last",
    "--schedule 1f1b --stages 4 --checkpoint always",
    "--schedule gpipe --stages 2 --checkpoint layers",
    "--schedule interleaved --stages 2 --virtual 2 --checkpoint layers",
    "--schedule 1f1b --stages 2 --recv-buffers 1",
    "--schedule gpipe --stages 2 --recv-buffers 8 --split 1,3",
};

static void bits_do_not_depend_on_the_pipeline(void **state)
{
    (void)state;
    struct outcome reference, other;
    run(BASE "--schedule gpipe --stages 1", &reference);
    assert_int_equal(reference.nvalid, 2);
    assert_true(reference.losses[reference.nlosses - 1] < reference.losses[0]);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        char options[600];
        snprintf(options, sizeof options, BASE "%s", variants[i]);
        run(options, &other);
        expect_equal(&reference, &other, variants[i]);
        free(other.weights);
    }
    free(reference.weights);
}

/* Five rows of an evaluation in as many microbatches, which no round of two ranks divides. */
#define EVEN MODEL "--rows 6 --tokens 7 --generated-tokens 1000 --max-batches 4 --epochs 1 --eval-rows 5 --chunks 6 "

/* Of the registry, on every number of ranks that it takes: one refuses shapes that cannot work, but not all. */
static void every_schedule_has_these_bits(void **state)
{
    (void)state;
    static const char *const cuts[] = {"--stages 1", "--stages 2", "--stages 4", "--stages 2 --checkpoint always",
                                       "--stages 2 --checkpoint layers"};
    const struct pp_backend *cpu;
    const struct pp_schedule *schedule;
    struct outcome reference, other;
    assert_int_equal(pp_backend_find("cpu", &cpu), PP_OK);
    run(EVEN "--schedule 1f1b --stages 1", &reference);
    assert_int_equal(reference.nvalid, 1);
    for (int i = 0; (schedule = pp_schedule_at(i)); i++) {
        int compared = 0;
        for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
            char options[600];
            snprintf(options, sizeof options, EVEN "--schedule %s %s", schedule->name, cuts[k]);
            const pp_status status = train(cpu, options, NULL, &other);
            if (status == PP_USAGE) continue;
            if (status != PP_OK) fail_msg("%s: %s", options, pp_message());
            expect_equal(&reference, &other, options);
            free(other.weights);
            compared++;
        }
        if (compared < 2) fail_msg("%s refuses nearly all: %s", schedule->name, pp_message());
    }
    free(reference.weights);
}

#define CONSTANT MODEL "--tokens 7 --data constant --epochs 3 "

static void replicas_agree_with_more_rows(void **state)
{
    (void)state;
    static const struct {
        const char *one, *several;
    } pairs[] = {
        {"--rows 4 --chunks 2 --stages 1", "--rows 2 --chunks 1 --replicas 2 --stages 1"},
        {"--rows 4 --chunks 4 --stages 2", "--rows 2 --chunks 2 --replicas 2 --stages 2 --schedule 1f1b"},
        {"--rows 6 --chunks 3 --stages 1",
         "--rows 2 --chunks 1 --replicas 3 --stages 2 --virtual 2 --schedule interleaved"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct outcome one, several;
        char options[600];
        snprintf(options, sizeof options, CONSTANT "%s", pairs[i].one);
        run(options, &one);
        snprintf(options, sizeof options, CONSTANT "%s", pairs[i].several);
        run(options, &several);
        assert_int_equal(one.nlosses, several.nlosses);
        for (int k = 0; k < one.nlosses; k++)
            if (!(fabs(one.losses[k] - several.losses[k]) <= 1e-5 * one.losses[k]))
                fail_msg("%s: loss %d is %g, not %g", pairs[i].several, k, several.losses[k], one.losses[k]);
        for (int64_t k = 0; k < one.parameters; k++)
            if (!(fabsf(one.weights[k] - several.weights[k]) <= 1e-5f * (1 + fabsf(one.weights[k]))))
                fail_msg("%s: weight %lld is %g, not %g", pairs[i].several, (long long)k, several.weights[k],
                         one.weights[k]);
        free(one.weights);
        free(several.weights);
    }
}

/* Worker 1 fails, and worker 0 by itself too, once the thread of worker 1 has ended. */
static atomic_int ended_thread;

static pp_status open_failing(const struct pp_device_spec *spec, struct pp_device **out)
{
    char path[64];
    *out = NULL;
    if (spec->worker == 1) {
        atomic_store(&ended_thread, (int)gettid());
        return pp_fail(PP_IO, "the first failure");
    }
    while (!atomic_load(&ended_thread)) usleep(1000);
    snprintf(path, sizeof path, "/proc/self/task/%d", atomic_load(&ended_thread));
    while (access(path, F_OK) == 0) usleep(1000);
    return pp_fail(PP_INPUT, "the second failure");
}

static void the_first_failure_is_told(void **state)
{
    (void)state;
    const struct pp_backend *cpu;
    struct outcome out;
    assert_int_equal(pp_backend_find("cpu", &cpu), PP_OK);
    struct pp_backend failing = *cpu;
    failing.open = open_failing;
    assert_int_equal(train(&failing, BASE "--schedule gpipe --stages 2", NULL, &out), PP_IO);
    assert_string_equal(pp_message(), "worker 1: the first failure");
}

/* A device that knows of no signals, and counts what is written to it. */
static int uploads;

static pp_status open_deaf(const struct pp_device_spec *spec, struct pp_device **out)
{
    const struct pp_backend *cpu;
    struct pp_device_spec deaf = *spec;
    deaf.interrupted = NULL;
    PP_TRY(pp_backend_find("cpu", &cpu));
    return cpu->open(&deaf, out);
}

static pp_status count_upload(struct pp_device *device, void *to, const void *from, int64_t bytes)
{
    (void)device;
    uploads++;
    memcpy(to, from, (size_t)bytes);
    return PP_OK;
}

/* A signal ends what comes before the first step, too: the memory of the workers, their first weights. The flag stays
 * set: the last test. */
static void a_signal_ends_the_preparations(void **state)
{
    (void)state;
    const struct pp_backend *cpu;
    struct outcome out;
    assert_int_equal(pp_backend_find("cpu", &cpu), PP_OK);
    struct pp_backend counting = *cpu;
    counting.upload = count_upload;
    assert_int_equal(train(&counting, BASE "--schedule gpipe --stages 1", NULL, &out), PP_OK);
    assert_true(uploads > 0);
    free(out.weights);
    assert_int_equal(pp_signals_catch(), PP_OK);
    raise(SIGTERM);
    for (int deaf = 0; deaf < 2; deaf++) {
        uploads = 0;
        if (deaf) counting.open = open_deaf;
        assert_int_equal(train(&counting, BASE "--schedule gpipe --stages 1", NULL, &out), PP_INTERRUPTED);
        assert_int_equal(uploads, 0);
        const bool opening = strstr(pp_message(), "worker 0: ") != NULL;
        if (opening == deaf) fail_msg("not the right place: %s", pp_message());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_the_pipeline), cmocka_unit_test(every_schedule_has_these_bits),
        cmocka_unit_test(replicas_agree_with_more_rows),      cmocka_unit_test(the_first_failure_is_told),
        cmocka_unit_test(a_signal_ends_the_preparations),
    };
    pp_log_init("test_worker", true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
