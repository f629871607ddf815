/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's side of the backend `cuda`: queues, marks, copies, times, shares.
 */
#include <unistd.h>

#include "core/options/devices.h"
#include "device_case.h"

static const char *const strict[] = {"PP_EMULATE_STRICT=1", "PP_EMULATE_JITTER_US=300", NULL};

static void open_and_close(void)
{
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS"); /* images and scripts/gpu set them */
    unsetenv("CUDA_MODULE_LOADING");
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    MUST(strstr(cuda->describe(device), " SMs, driver "));
    MUST(strstr(cuda->describe(device), "cuBLAS"));
    MUST(!strstr(cuda->describe(device), "share"));
    MUST(ops && pp_device_kind(cuda->name)->queue);
    MUST(cuda->reference_ns(device) > 0);
    MUST_OK(ops->probe(device)); /* alone */
    cuda->close(device);
    MUST(!strcmp(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32"));
    MUST(!strcmp(getenv("CUDA_MODULE_LOADING"), "EAGER"));
}

static void keeps_environment(void)
{
    load_cuda();
    MUST(!strcmp(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "8"));
    MUST(!strcmp(getenv("CUDA_MODULE_LOADING"), "LAZY"));
}

static void test_open(void **state)
{
    (void)state;
    static const char *const own[] = {"CUDA_DEVICE_MAX_CONNECTIONS=8", "CUDA_MODULE_LOADING=LAZY", NULL};
    assert_clean(run_case(open_and_close, strict));
    run_case(keeps_environment, own);
}

/* ---- memory ---- */

enum { ODD_BYTES = (9 << 20) + 5 };

static void memory(void)
{
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    unsigned char *there, *from = malloc(ODD_BYTES), *back = malloc(ODD_BYTES);
    void *none = from;
    MUST(from && back);
    MUST_OK(cuda->alloc(device, ODD_BYTES + 3, (void **)&there));
    MUST_OK(cuda->download(device, back, there + 3, ODD_BYTES));
    for (int i = 0; i < ODD_BYTES; i++) MUST(back[i] == 0);
    for (int i = 0; i < ODD_BYTES; i++) from[i] = (unsigned char)(i * 7 + i / 1000);
    MUST_OK(cuda->upload(device, there + 3, from, ODD_BYTES));
    MUST_OK(cuda->download(device, back, there + 3, ODD_BYTES));
    MUST(!memcmp(from, back, ODD_BYTES));
    MUST_OK(cuda->upload(device, there, from, 0));
    cuda->release(device, there, ODD_BYTES + 3);

    MUST(cuda->alloc(device, (int64_t)3 << 50, &none) == PP_NOMEM);
    MUST(!none);
    MUST_SAY("needs 3145728.00 GiB");
    MUST(!is_emulated() || strstr(pp_message(), "of 1.00"));
    MUST_OK(cuda->alloc(device, 0, &none)); /* the failure is forgotten */
    cuda->release(device, none, 0);
    cuda->release(device, NULL, 0);
    cuda->close(device);
    free(from);
    free(back);
}

static void test_memory(void **state)
{
    (void)state;
    static const char *const env[] = {"PP_EMULATE_STRICT=1", "PP_EMULATE_MEMORY=1073741824", NULL};
    assert_clean(run_case(memory, env));
}

/* ---- queues, marks and copies ---- */

enum { N = 1000, HOPS = 20 };

/* A value goes back and forth between two queues and host memory; only marks keep the order. */
static void marks(void)
{
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    struct pp_queue *queue[2];
    struct pp_mark *mark[2], *never;
    float *a, *b, *host;
    bool reached;
    for (int i = 0; i < 2; i++) {
        MUST_OK(ops->queue_create(device, &queue[i]));
        MUST_OK(ops->mark_create(device, false, &mark[i]));
        MUST(ops->native(queue[i]));
    }
    MUST_OK(ops->mark_create(device, false, &never));
    MUST_OK(ops->reached(device, never, &reached));
    MUST(reached);
    MUST_OK(cuda->alloc(device, N * sizeof *a, (void **)&a));
    MUST_OK(cuda->alloc(device, N * sizeof *b, (void **)&b));
    MUST_OK(ops->host_alloc(device, N * sizeof *host, (void **)&host));
    for (int i = 0; i < N; i++) MUST(host[i] == 0);
    for (int i = 0; i < N; i++) host[i] = 1;
    MUST_OK(ops->copy(device, queue[0], a, host, N * sizeof *a));
    for (int hop = 0; hop < HOPS; hop++) { /* a doubles into b in one queue, b goes back into a in the other */
        const void *const parts[] = {a, a};
        MUST_OK(ops->sum(device, queue[0], b, parts, 2, N, PP_SUM_FLOAT));
        MUST_OK(ops->record(device, queue[0], mark[0]));
        MUST_OK(ops->wait(device, queue[1], mark[0]));
        MUST_OK(ops->copy(device, queue[1], a, b, N * sizeof *a));
        MUST_OK(ops->record(device, queue[1], mark[1]));
        MUST_OK(ops->wait(device, queue[0], mark[1]));
    }
    MUST_OK(ops->copy(device, queue[0], host, a, N * sizeof *a));
    drain(device, queue[0]);
    for (int i = 0; i < N; i++) MUST(host[i] == 1 << HOPS);
    for (int i = 0; i < 2; i++) {
        ops->queue_destroy(device, queue[i]);
        ops->mark_destroy(device, mark[i]);
    }
    ops->mark_destroy(device, never);
    ops->host_release(device, host);
    cuda->release(device, a, N * sizeof *a);
    cuda->release(device, b, N * sizeof *b);
    cuda->close(device);
}

static void test_marks(void **state)
{
    (void)state;
    assert_clean(run_case(marks, strict));
}

/* Each fifth pair of numbers there, to every second one here. */
static void check_strides(struct pp_device *device, double *here, const double *there)
{
    const struct pp_strided copies = {here, there, 4 * sizeof *here, 10 * sizeof *there, 2 * sizeof *here, 3};
    double host[12], from[22];
    for (int i = 0; i < 12; i++) host[i] = -1;
    MUST_OK(cuda->upload(device, here, host, sizeof host));
    MUST_OK(ops->copy_strided(device, ops->compute(device), &copies));
    drain(device, ops->compute(device));
    MUST_OK(cuda->download(device, host, here, sizeof host));
    MUST_OK(cuda->download(device, from, there, sizeof from));
    for (int i = 0; i < 12; i++) MUST(host[i] == (i % 4 < 2 ? from[i / 4 * 10 + i % 4] : -1));
}

/* Two GPUs of one process: a copy across, and a sum that reads both. */
static void two_gpus(void)
{
    load_cuda();
    struct pp_device *device[2] = {open_device(0, 2), open_device(1, 2)};
    double *there[2], host[N], factor_there = 0;
    MUST(!is_emulated() || !strstr(cuda->describe(device[0]), "share")); /* a host with one GPU: the same on shares */
    for (int i = 0; i < 2; i++) {
        MUST_OK(ops->use(device[i]));
        for (int k = 0; k < N; k++) host[k] = k + 0.25 * i;
        MUST_OK(cuda->alloc(device[i], sizeof host, (void **)&there[i]));
        MUST_OK(cuda->upload(device[i], there[i], host, sizeof host));
    }
    struct pp_queue *queue = ops->compute(device[1]);
    const void *const parts[] = {there[0], there[1], there[0]};
    MUST_OK(ops->sum(device[1], queue, there[1], parts, 3, N, PP_SUM_DOUBLE));
    drain(device[1], queue);
    MUST_OK(cuda->download(device[1], host, there[1], sizeof host));
    for (int k = 0; k < N; k++) MUST(host[k] == 3 * k + 0.25);
    MUST_OK(ops->copy(device[1], queue, there[0], there[1], sizeof host));
    drain(device[1], queue);
    MUST_OK(ops->use(device[0]));
    MUST_OK(cuda->download(device[0], host, there[0], sizeof host));
    for (int k = 0; k < N; k++) MUST(host[k] == 3 * k + 0.25);
    check_strides(device[0], there[0], there[1]);

    const double sums[] = {9, 16};
    float factor;
    MUST_OK(cuda->upload(device[0], there[0], sums, sizeof sums));
    MUST_OK(ops->clip_factor(device[0], ops->compute(device[0]), there[0], 2, 1.0, (float *)&there[0][2]));
    MUST_OK(cuda->download(device[0], &factor_there, &there[0][2], sizeof factor_there));
    memcpy(&factor, &factor_there, sizeof factor);
    MUST(factor > 0.1999f && factor < 0.2f);
    for (int i = 0; i < 2; i++) {
        cuda->release(device[i], there[i], sizeof host);
        cuda->close(device[i]);
    }
}

static void test_two_gpus(void **state)
{
    (void)state;
    assert_clean(run_case(two_gpus, strict));
}

/* GPUs that cannot read each other: copies go by way of the host, also those at strides; sums are refused. */
static void strangers(void)
{
    load_cuda();
    struct pp_device *device[2] = {open_device(0, 2), open_device(1, 2)};
    double *there[2], host[N] = {1, 2, 3};
    for (int i = 0; i < 2; i++) MUST_OK(cuda->alloc(device[i], sizeof host, (void **)&there[i]));
    MUST_OK(cuda->upload(device[0], there[0], host, sizeof host));
    struct pp_queue *queue = ops->compute(device[1]);
    MUST_OK(ops->copy(device[1], queue, there[1], there[0], sizeof host));
    const void *const own[] = {there[1], there[1]}, *const other[] = {there[1], there[0]};
    MUST_OK(ops->sum(device[1], queue, there[1], own, 2, N, PP_SUM_DOUBLE));
    MUST(ops->sum(device[1], queue, there[1], other, 2, N, PP_SUM_DOUBLE) == PP_UNSUPPORTED);
    MUST_SAY("GPU 1 cannot read the memory of GPU 0");
    MUST_OK(ops->copy_strided(device[1], queue, &(struct pp_strided){there[1], there[0] + 1, 16, 8, 8, 2}));
    MUST_OK(cuda->download(device[1], host, there[1], sizeof host));
    MUST(host[0] == 2 && host[1] == 4 && host[2] == 3); /* of a sum; copied */
    for (int i = 0; i < 2; i++) {
        cuda->release(device[i], there[i], sizeof host);
        cuda->close(device[i]);
    }
}

static void test_strangers(void **state)
{
    (void)state;
    static const char *const env[] = {"PP_EMULATE_PEERS=0", "PP_EMULATE_STRICT=1", NULL};
    assert_clean(run_case(strangers, env));
}

/* ---- programs and their times ---- */

enum { CALLS = 700 }; /* more than may wait behind the gate */

/* Copies along a row of numbers: each call needs the one before. */
static void chain(struct pp_call *calls, int n)
{
    for (int i = 0; i < n; i++)
        calls[i] = (struct pp_call){PP_KERNEL_COPY, .matrix = {1, 4},
                                    .at.copy = {{PP_MEM_ACT, .offset = 16 * (i + 1)}, {PP_MEM_ACT, .offset = 16 * i}}};
}

static void count_poll(void *arg) { ++*(int *)arg; }

static void check_chain(struct pp_device *device, float *memory, int n, float value)
{
    float last[4];
    MUST_OK(cuda->download(device, last, memory + 4 * (ptrdiff_t)n, sizeof last));
    for (int i = 0; i < 4; i++) MUST(last[i] == value);
}

static void set_first(struct pp_device *device, float *memory, float value)
{
    const float first[4] = {value, value, value, value};
    MUST_OK(cuda->upload(device, memory, first, sizeof first));
}

static void times(void)
{
    static struct pp_call calls[CALLS];
    static int64_t ns[CALLS];
    const struct pp_program all = {.calls = calls, .ncalls = CALLS}, few = {.calls = calls, .ncalls = 5}, none = {0};
    const int64_t least = is_emulated() ? atoll(getenv("PP_EMULATE_KERNEL_NS")) : 0, bytes = 16 * (CALLS + 1);
    struct pp_run_time time;
    struct pp_frame frame = {0};
    float *memory;
    int polls = 0;
    const struct pp_progress progress = {count_poll, &polls};
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    chain(calls, CALLS);
    MUST_OK(cuda->alloc(device, bytes, (void **)&memory));
    frame.base[PP_MEM_ACT] = memory;
    MUST_OK(ops->prepare(device, &all));

    set_first(device, memory, 1);
    MUST_OK(cuda->run(device, &few, &frame, &progress, ns));
    check_chain(device, memory, 5, 1);
    MUST(!is_emulated() || polls > 0); /* a GPU may be done before the first look */
    for (int i = 0; i < 5; i++) MUST(ns[i] >= least);

    set_first(device, memory, 2);
    must_be_ahead(device, &few, &frame, 5 * least);
    check_chain(device, memory, 5, 2);
    MUST_OK(measure(device, &few, &frame, &time, ns));
    for (int i = 0; i < 5; i++) MUST(ns[i] >= least);

    set_first(device, memory, 3);
    MUST_OK(measure(device, &all, &frame, &time, ns));
    check_chain(device, memory, CALLS, 3);
    set_first(device, memory, 4);
    MUST_OK(ops->run(device, &all, &frame));
    check_chain(device, memory, CALLS, 4); /* a download goes after what is queued */
    MUST_OK(measure(device, &none, &frame, &time, ns));
    MUST_OK(cuda->run(device, &none, &frame, NULL, NULL));
    ops->push_range("nobody listens");
    ops->pop_range();
    cuda->release(device, memory, bytes);
    cuda->close(device);
}

static void test_times(void **state)
{
    (void)state;
    static const char *const env[] = {"PP_EMULATE_STRICT=1", "PP_EMULATE_KERNEL_NS=200000", NULL};
    const char *account = run_case(times, env);
    assert_clean(account);
    if (is_emulated()) assert_int_equal(counted(account, "host_functions"), 0); /* they would hold others up */
}

/* The activation slot of the second microbatch begins act_row rows further on. */
static void rows(void)
{
    struct pp_call call = {PP_KERNEL_COPY, .matrix = {1, 4},
                           .at.copy = {{PP_MEM_ACT, .offset = 32, .row_bytes = 16}, {PP_MEM_ACT, .row_bytes = 16}}};
    const struct pp_program program = {.calls = &call, .ncalls = 1};
    struct pp_frame frame = {.act_row = 1};
    float values[16], *memory;
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    for (int i = 0; i < 16; i++) values[i] = (float)i;
    MUST_OK(cuda->alloc(device, sizeof values, (void **)&memory));
    MUST_OK(cuda->upload(device, memory, values, sizeof values));
    frame.base[PP_MEM_ACT] = memory;
    MUST_OK(ops->run(device, &program, &frame));
    MUST_OK(cuda->download(device, values, memory, sizeof values));
    for (int i = 0; i < 4; i++) MUST(values[12 + i] == (float)(4 + i) && values[8 + i] == (float)(8 + i));
    call.at.copy.from.region = PP_MEM_CKPT; /* without memory: nothing happens */
    MUST_OK(ops->run(device, &program, &frame));
    cuda->release(device, memory, sizeof values);
    cuda->close(device);
}

static void test_rows(void **state)
{
    (void)state;
    assert_clean(run_case(rows, strict));
}

/* Products run many times take no more than once: nothing is made inside of steps. */
static void products(void)
{
    struct pp_call calls[2] = {
        {.kernel = PP_KERNEL_GEMM_NT, .gemm = {8, 16, 24}, .ref = {{PP_MEM_OUT}, {PP_MEM_IN}, {PP_MEM_PARAM}}},
        {.kernel = PP_KERNEL_GEMM_TN,
         .gemm = {24, 16, 8, PP_GEMM_GRADIENT},
         .ref = {{PP_MEM_GRAD}, {PP_MEM_IN}, {PP_MEM_OUT}}}};
    const struct pp_program program = {.calls = calls, .ncalls = 2};
    struct pp_frame frame = {0};
    enum { ROOM = 4096 };
    char *memory;
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    MUST_OK(cuda->alloc(device, 4 * ROOM, (void **)&memory));
    frame.base[PP_MEM_OUT] = memory;
    frame.base[PP_MEM_IN] = memory + ROOM;
    frame.base[PP_MEM_PARAM] = memory + 2 * ROOM;
    frame.base[PP_MEM_GRAD] = memory + 3 * ROOM;
    MUST_OK(ops->prepare(device, &program));
    for (int runs = atoi(getenv("RUNS")); runs > 0; runs--) {
        calls[1].adds = runs % 2;
        MUST_OK(ops->run(device, &program, &frame));
    }
    drain(device, ops->compute(device));
    cuda->release(device, memory, 4 * ROOM);
    cuda->close(device);
}

static void test_steps_make_nothing(void **state)
{
    (void)state;
    static const char *const none[] = {"RUNS=0", NULL}, *const many[] = {"RUNS=12", NULL};
    static const char *const made[] = {"device_allocations", "host_allocations", "streams", "events"};
    char before[2048];
    snprintf(before, sizeof before, "%s", run_case(products, none));
    const char *after = run_case(products, many);
    assert_clean(after);
    if (!is_emulated()) return;
    assert_int_equal(counted(after, "products"), counted(before, "products") + 24);
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        assert_int_equal(counted(after, made[i]), counted(before, made[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_two_gpus),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_steps_make_nothing),
        cmocka_unit_test(test_strangers),
    };
    return RUN_CASES(tests, 7);
}
