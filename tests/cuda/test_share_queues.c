/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers' shares of a GPU: all that their queues do. Quick, for it is the first that scripts/gpu asks a GPU.
 */
#include "core/base/clock.h"
#include "device_case.h"

enum { MOST = 4, LAUNCHES = 250 /* that measure() queues behind its gate, at most */, GATE_OPENS_MS = 100 };

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
    MUST_OK(measure(device, &program, &frame, &time, NULL));
    cuda->release(device, memory, sizeof from);
    for (int i = 0; i < 2; i++) ops->mark_destroy(device, timed[i]);
    ops->mark_destroy(other, theirs);
    ops->queue_destroy(device, queue);
}

/* A stream has room for all that: else the gate would have to open by itself, and each sample would take as long. */
static void fill_queue(struct pp_device *device)
{
    static struct pp_call calls[LAUNCHES];
    const struct pp_program program = {.calls = calls, .ncalls = LAUNCHES};
    struct pp_run_time time;
    struct pp_frame frame = {0};
    for (int i = 0; i < LAUNCHES; i++)
        calls[i] = (struct pp_call){
            .kernel = PP_KERNEL_COPY, .matrix = {1, 4}, .ref = {{PP_MEM_ACT, .offset = 16}, {PP_MEM_ACT}}};
    MUST_OK(ops->use(device));
    MUST_OK(cuda->alloc(device, 2 * 16, &frame.base[PP_MEM_ACT]));
    MUST_OK(measure(device, &program, &frame, &time, NULL));
    printf("%d launches: queued in %.2f ms, run in %.2f ms\n", LAUNCHES, (double)time.host_ns * 1e-6,
           (double)time.device_ns * 1e-6);
    MUST(time.host_ns < GATE_OPENS_MS * INT64_C(1000000));
    cuda->release(device, frame.base[PP_MEM_ACT], 2 * 16);
}

static void use_shares(int n, const char *says)
{
    struct pp_device *device[MOST];
    const int64_t start = pp_now_ns();
    load_cuda();
    for (int i = 0; i < n; i++) {
        device[i] = open_device(i, n);
        printf("worker %d of %d is open after %.0f ms\n", i, n, (double)(pp_now_ns() - start) * 1e-6);
    }
    const pp_status probed = ops->probe(device[0]);
    printf("%s: %s\n", cuda->describe(device[0]), probed == PP_OK ? "at the same time" : pp_message());
    MUST(!*wanted || (probed == PP_UNSUPPORTED && strstr(pp_message(), wanted)));
    for (int i = 0; i < n; i++) use_queues(device[i], device[(i + 1) % n]);
    for (int i = 0; i < n; i++) fill_queue(device[i]);
    for (int i = 0; i < n; i++) MUST(strstr(cuda->describe(device[i]), says));
    for (int i = 0; i < n; i++) cuda->close(device[i]);
}

static void two_shares_work(void) { use_shares(2, ", share 1/2 ("); }
static void four_shares_work(void) { use_shares(4, ", share 1/4 ("); }
static void no_shares_work(void) { use_shares(2, ", 2 workers take turns: times are meaningless"); }

static void test_shares(void **state)
{
    (void)state;
    wanted = "";
    assert_clean(run_case(two_shares_work, one_gpu));
    assert_clean(run_case(four_shares_work, one_gpu));
}

/* Events that are made in green contexts are refused: then those of the primary one are taken. */
static void test_primary_events(void **state)
{
    (void)state;
    static const char *const cases[] = {"PP_EMULATE_OWN_EVENTS=2", "PP_EMULATE_FAIL=cuCtxFromGreenCtx:*",
                                        "PP_EMULATE_FAIL=cuCtxPushCurrent:*",
                                        "PP_EMULATE_FAIL=cudaEventElapsedTime:1=400"};
    wanted = "";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const settings[] = {one_gpu[0], one_gpu[1], cases[i], NULL};
        assert_clean(run_case(two_shares_work, settings));
    }
}

/* Events of green contexts are all that is taken; then these are refused, too. */
static void test_own_events(void **state)
{
    (void)state;
    static const struct {
        const char *events, *fails, *says;
    } cases[] = {
        {"1", "cuCtxFromGreenCtx:*", "using an event in a part of the GPU: invalid resource"},
        {"1", "cuCtxPushCurrent:*", "using an event in a part of the GPU: invalid resource"},
        /* Of each device the first time between two. */
        {"1", "cudaEventElapsedTime:1,cudaEventElapsedTime:1", "using an event in a part of the GPU: invalid resource"},
        /* Of each device the fourth. An item counts the calls that none before it made fail. */
        {"2", "cudaEventCreateWithFlags:4,cudaEventCreateWithFlags:8", "making an event: unknown error"},
        {"2", "cudaStreamWaitEvent:1,cudaStreamWaitEvent:1", "using an event in a part of the GPU: unknown error"},
    };
    char events[32], fail[96];
    const char *const own[] = {one_gpu[0], "PP_EMULATE_OWN_EVENTS=1", NULL};
    const char *const none[] = {one_gpu[0], events, fail, NULL};
    wanted = "";
    assert_clean(run_case(two_shares_work, own));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(events, sizeof events, "PP_EMULATE_OWN_EVENTS=%s", cases[i].events);
        snprintf(fail, sizeof fail, "PP_EMULATE_FAIL=%s", cases[i].fails);
        wanted = cases[i].says;
        const char *account = run_case(no_shares_work, none);
        assert_clean(account);
        assert_int_equal(counted(account, "live_contexts"), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shares), cmocka_unit_test(test_primary_events),
                                       cmocka_unit_test(test_own_events)};
    return RUN_CASES(tests, 1);
}
