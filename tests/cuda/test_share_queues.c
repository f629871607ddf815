/* SPDX-License-Identifier: Apache-2.0
 *
 * Two workers' shares of a GPU: all that their queues do. Quick, for it is the first that scripts/gpu asks a GPU.
 */
#include "device_case.h"

static const char *wanted; /* of the message; a case's process has a copy */

static const char *const one_gpu[] = {"PP_EMULATE_DEVICES=1", "CUDA_VISIBLE_DEVICES=0", NULL};

/* Marks of all kinds in all queues of a share, and waits for those of the other one. */
static void use_queues(struct pp_device *device, struct pp_device *other)
{
    const struct pp_program program = {0};
    struct pp_mark *timed[2], *theirs;
    struct pp_queue *queue;
    struct pp_run_time time;
    struct pp_frame frame = {0};
    int64_t ns, from = 7, back = 0;
    void *memory;
    MUST_OK(ops->use(device));
    MUST_OK(ops->queue_create(device, &queue));
    MUST_OK(ops->mark_create(other, false, &theirs));
    MUST_OK(ops->record(other, ops->compute(other), theirs));
    MUST_OK(ops->use(device));
    for (int i = 0; i < 2; i++) MUST_OK(ops->mark_create(device, true, &timed[i]));
    MUST_OK(ops->wait(device, queue, theirs));
    MUST_OK(ops->record(device, ops->compute(device), timed[0]));
    MUST_OK(ops->wait(device, queue, timed[0]));
    MUST_OK(ops->record(device, queue, timed[1]));
    drain(device, queue);
    MUST_OK(ops->elapsed(device, timed[0], timed[1], &ns));
    MUST_OK(cuda->alloc(device, sizeof from, &memory));
    MUST_OK(cuda->upload(device, memory, &from, sizeof from));
    MUST_OK(cuda->download(device, &back, memory, sizeof back));
    MUST(back == from);
    MUST_OK(ops->measure(device, &program, &frame, &time, NULL));
    cuda->release(device, memory, sizeof from);
    for (int i = 0; i < 2; i++) ops->mark_destroy(device, timed[i]);
    ops->mark_destroy(other, theirs);
    ops->queue_destroy(device, queue);
}

static void use_shares(const char *says)
{
    struct pp_device *device[2];
    load_cuda();
    for (int i = 0; i < 2; i++) device[i] = open_device(i, 2);
    const pp_status probed = ops->probe(device[0]);
    printf("%s: %s\n", cuda->describe(device[0]), probed == PP_OK ? "at the same time" : pp_message());
    MUST(!*wanted || (probed == PP_UNSUPPORTED && strstr(pp_message(), wanted)));
    for (int i = 0; i < 2; i++) use_queues(device[i], device[1 - i]);
    for (int i = 0; i < 2; i++) MUST(strstr(cuda->describe(device[i]), says));
    for (int i = 0; i < 2; i++) cuda->close(device[i]);
}

static void shares_work(void) { use_shares(", share 1/2 ("); }
static void no_shares_work(void) { use_shares(", 2 workers take turns: times are meaningless"); }

static void test_shares(void **state)
{
    (void)state;
    wanted = "";
    assert_clean(run_case(shares_work, one_gpu));
}

/* Events of the primary context are refused; then those of green contexts, too. */
static void test_own_events(void **state)
{
    (void)state;
    static const struct {
        const char *fails, *says;
    } cases[] = {
        /* Of each device the second. An item counts the calls that none before it made fail. */
        {"cudaEventRecord:2=400,cudaEventRecord:3=400", "recording an event in a part of the GPU: invalid resource"},
        {"cudaEventCreateWithFlags:2,cudaEventCreateWithFlags:4", "making an event: unknown error"},
        {"cuCtxFromGreenCtx:*", "cuCtxFromGreenCtx: unknown error"},
        {"cuCtxPushCurrent:*", "cuCtxPushCurrent: unknown error"},
    };
    char fail[96];
    const char *const own[] = {"PP_EMULATE_DEVICES=1", "PP_EMULATE_OWN_EVENTS=1", NULL};
    const char *const none[] = {own[0], own[1], fail, NULL};
    wanted = "";
    assert_clean(run_case(shares_work, own));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(fail, sizeof fail, "PP_EMULATE_FAIL=%s", cases[i].fails);
        wanted = cases[i].says;
        const char *account = run_case(no_shares_work, none);
        assert_clean(account);
        assert_int_equal(counted(account, "live_contexts"), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shares), cmocka_unit_test(test_own_events)};
    return RUN_CASES(tests, 1);
}
