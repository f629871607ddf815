/* SPDX-License-Identifier: Apache-2.0
 *
 * Which GPU a worker gets, and which share of it; do sharers compute at the same time?
 */
#include <time.h>

#include "device_case.h"

enum { MOST = 4 };

/* ---- who goes where ---- */

static const struct {
    struct pp_device_spec spec;
    int sharers;      /* 0: refused */
    const char *says; /* of describe(), or the message */
} places[] = {
    {{.worker = 0, .workers = 1, .on_host = 1}, 1, "device 0"},
    {{.worker = 3, .workers = 4, .on_host = 1}, 1, "device 3"},
    {{.worker = 0, .workers = 2, .host_index = 1, .on_host = 2}, 1, "device 2"},
    {{.worker = 2, .workers = 4, .on_host = 1, .gpus = 2}, 2, "device 1"},
    {{.worker = 3, .workers = 4, .on_host = 1, .gpus = 1}, 4, "device 0, 132 SMs, driver"},
    {{.worker = 7, .workers = 8, .on_host = 1}, 2, "device 3"},
    {{.worker = 1, .workers = 2, .on_host = 1, .gpus = 1}, 2, "share 1/2 (64 SMs)"},
    {{.worker = 2, .workers = 3, .on_host = 1, .gpus = 1}, 3, "share 1/3 (40 SMs)"},
    {{.worker = 1, .workers = 4, .on_host = 1, .gpus = 1}, 4, "share 1/4 (32 SMs)"},
    {{.worker = 15, .workers = 16, .on_host = 1, .gpus = 1}, 16, "share 1/16 (8 SMs)"},
    {{.worker = 0, .workers = 17, .on_host = 1, .gpus = 1}, 17, ", 17 workers take turns: times are meaningless"},
    {{.worker = 0, .workers = 1, .host_index = 1, .on_host = 2, .gpus = 1}, 2, "2 workers take turns"},
    {{.worker = 0, .workers = 3, .host_index = 1, .on_host = 2, .gpus = 3}, 2, "device 1, 132 SMs"},
    {{.worker = 1, .workers = 3, .host_index = 1, .on_host = 2, .gpus = 3}, 2, "share 1/2"},
    {{0}, 1, "device 0"}, /* what is not said is 1 */
    {{.worker = 0, .workers = 5, .on_host = 1}, 0, "5 workers of a host cannot share 4 GPUs evenly: use --gpus 1"},
    {{.worker = 0, .workers = 6, .on_host = 1, .gpus = 4}, 0, "use --gpus 3"},
    {{.worker = 0, .workers = 1, .on_host = 1, .gpus = 5}, 0, "--gpus 5: this host has 4"},
    {{.worker = 0, .workers = 65, .on_host = 1, .gpus = 1}, 0, "at most 64"},
};

static void find_places(void)
{
    load_cuda();
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct pp_device *device;
        const pp_status status = cuda->open(&places[i].spec, &device);
        const char *said = status == PP_OK ? cuda->describe(device) : pp_message();
        if (!strstr(said, places[i].says)) printf("case %zu says: %s\n", i, said);
        MUST(strstr(said, places[i].says));
        MUST(status == (places[i].sharers ? PP_OK : PP_USAGE));
        MUST(!places[i].sharers || cuda->sharers(&places[i].spec) == places[i].sharers);
        if (status == PP_OK)
            cuda->close(device);
        else
            MUST(!device);
    }
}

static void test_places(void **state)
{
    (void)state;
    static const char *const env[] = {"PP_EMULATE_DEVICES=4", "PP_EMULATE_NUMBERED=1", NULL};
    assert_clean(run_case(find_places, env));
}

/* ---- the probe ---- */

static pp_status open_and_probe(int workers)
{
    struct pp_device *device[MOST] = {NULL};
    for (int i = 0; i < workers; i++) {
        device[i] = open_device(i, workers);
        if (i + 1 == workers) continue;
        MUST(ops->probe(device[i]) == PP_INTERNAL);
        MUST_SAY("before its");
    }
    const pp_status status = ops->probe(device[0]);
    for (int i = 0; i < workers; i++) MUST(ops->probe(device[i]) == status);
    for (int i = 0; i < workers; i++) cuda->close(device[i]);
    return status;
}

/* The probe compares times: beside other programs some tries may find what is not so. */
static pp_status probe_until(int workers, pp_status wanted)
{
    const struct timespec while_others_work = {.tv_nsec = 100000000};
    pp_status status = open_and_probe(workers);
    for (int tries = 0; status != wanted && (status == PP_OK || status == PP_UNSUPPORTED) && tries < 100; tries++) {
        nanosleep(&while_others_work, NULL);
        status = open_and_probe(workers);
    }
    return status;
}

static void share_and_probe(void)
{
    load_cuda();
    for (int workers = 2; workers <= MOST; workers *= 2) MUST_OK(probe_until(workers, PP_OK));
}

static void cannot_share(void)
{
    struct pp_device *device;
    const struct pp_device_spec process = {.workers = 1, .on_host = 2, .gpus = 1};
    load_cuda();
    MUST_OK(cuda->open(&process, &device));
    MUST(ops->probe(device) == PP_UNSUPPORTED);
    MUST_SAY("2 workers in several processes use GPU 0, which serves one at a time, so times would be meaningless");
    cuda->close(device);
    device = open_device(16, 17);
    MUST(ops->probe(device) == PP_UNSUPPORTED);
    MUST_SAY("cannot be divided in 17");
    cuda->close(device);
}

/* A driver that gives a worker no part, whatever it says. */
static void has_no_part(void)
{
    struct pp_device *device[2];
    load_cuda();
    for (int i = 0; i < 2; i++) device[i] = open_device(i, 2);
    bool told = false;
    for (int i = 0; i < 2; i++)
        told |= strstr(cuda->describe(device[i]), ", 2 workers take turns: times are meaningless") != NULL;
    MUST(told);
    for (int i = 0; i < 2; i++) {
        MUST(ops->probe(device[i]) == PP_UNSUPPORTED);
        MUST_SAY(", so times would be meaningless");
    }
    for (int i = 0; i < 2; i++) cuda->close(device[i]);
    device[0] = open_device(1, 2); /* nothing is left of it */
    cuda->close(device[0]);
}

static void test_no_part(void **state)
{
    (void)state;
    static const char *const fails[] = {"cuDevSmResourceSplitByCount:*", "cuDevResourceGenerateDesc:2",
                                        "cuGreenCtxCreate:*=801",        "cuGreenCtxCreate:2=2",
                                        "cuGreenCtxCreate:2=999",        "cuGreenCtxGetDevResource:2",
                                        "cuDeviceGetDevResource:1",      "cuGreenCtxCreate:*"};
    for (size_t i = 0; i < sizeof fails / sizeof fails[0]; i++) {
        char fail[96];
        const char *const env[] = {"PP_EMULATE_DEVICES=1", fail, NULL};
        snprintf(fail, sizeof fail, "PP_EMULATE_FAIL=%s", fails[i]);
        const char *account = run_case(has_no_part, env);
        assert_clean(account);
        assert_int_equal(counted(account, "live_contexts"), 0);
    }
}

/* Green contexts that are none: streams of all have the whole GPU. */
static void partitions_are_ignored(void)
{
    load_cuda();
    for (int workers = 2; workers <= MOST; workers++) {
        MUST(probe_until(workers, PP_UNSUPPORTED) == PP_UNSUPPORTED);
        MUST_SAY("do not compute at the same time");
    }
}

static void test_probe(void **state)
{
    (void)state;
    static const char *const ignored[] = {"PP_EMULATE_DEVICES=1", "PP_EMULATE_PARTITIONS=0", NULL};
    static const char *const one[] = {"PP_EMULATE_DEVICES=1", "CUDA_VISIBLE_DEVICES=0", NULL};
    assert_clean(run_case(share_and_probe, one));
    if (!is_emulated()) return;
    assert_clean(run_case(partitions_are_ignored, ignored));
    assert_clean(run_case(cannot_share, one));
}

/* ---- a machine that cannot ---- */

static const char *wanted;

static void is_refused(void)
{
    const struct pp_backend *backend;
    MUST(pp_backend_find("cuda", &backend) == PP_UNSUPPORTED);
    MUST_SAY("--device cuda: ");
    MUST_SAY(wanted);
}

static void falls_back(void)
{
    const struct pp_backend *backend;
    MUST_OK(pp_backend_find("auto", &backend));
    MUST(!strcmp(backend->name, "cpu"));
}

static void test_unusable(void **state)
{
    (void)state;
    static const struct {
        const char *env, *says;
    } cases[] = {
        {"PP_EMULATE_DRIVER=0", "there is no NVIDIA driver"},
        {"PP_EMULATE_DEVICES=0", "finds no GPU"},
        {"PP_EMULATE_FAIL=cudaGetDeviceCount:*=35", "the NVIDIA driver is too old"},
        {"PP_EMULATE_FAIL=cudaGetDeviceCount:*=999", "counting the GPUs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const env[] = {cases[i].env, NULL};
        wanted = cases[i].says;
        run_case(is_refused, env);
        run_case(falls_back, env);
    }
}

/* ---- failures ---- */

static void open_fails(void)
{
    struct pp_device *device = (struct pp_device *)&device;
    const struct pp_device_spec spec = {.worker = 0, .workers = 2, .on_host = 1, .gpus = 1};
    load_cuda();
    const pp_status status = cuda->open(&spec, &device);
    if (status == PP_OK) printf("%s made no difference\n", getenv("PP_EMULATE_FAIL"));
    MUST(status == (strstr(wanted, "alloc") || strstr(wanted, "Alloc") ? PP_NOMEM : PP_IO));
    MUST(!device);
    MUST(strlen(pp_message()) > 10);
    MUST_OK(cuda->open(&spec, &device)); /* the failure leaves nothing behind */
    cuda->close(device);
}

/* Whatever fails while a device is opened, nothing is left of it. */
static void test_open_fails(void **state)
{
    (void)state;
    /* Of a share's events, of others in its streams, and of one without a share. */
    static const char events[] = "cudaEventCreateWithFlags:1,cudaEventCreateWithFlags:1,cudaEventCreateWithFlags:1";
    static const char *const calls[] = {"cudaSetDevice:1",
                                        "cudaGetDeviceProperties:1",
                                        "cudaFuncGetAttributes:1",
                                        "cuGreenCtxStreamCreate:1",
                                        "cuGreenCtxStreamCreate:2",
                                        events,
                                        "cudaHostAlloc:1",
                                        "cudaHostAlloc:2",
                                        "cudaMalloc:1",
                                        "cudaMalloc:2"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        char fail[128];
        const char *const env[] = {"PP_EMULATE_DEVICES=1", fail, NULL};
        snprintf(fail, sizeof fail, "PP_EMULATE_FAIL=%s", calls[i]);
        wanted = calls[i];
        assert_clean(run_case(open_fails, env));
    }
}

/* A kernel dies of an address: the next that looks is told, and so are all after it. */
static void kernel_dies(void)
{
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    struct pp_mark *mark;
    struct pp_queue *queue = ops->compute(device);
    double *memory;
    bool reached = false;
    pp_status status = PP_OK;
    MUST_OK(cuda->alloc(device, 64, (void **)&memory));
    MUST_OK(ops->mark_create(device, false, &mark));
    status = ops->clip_factor(device, queue, memory, 1, 1, (float *)&memory[1]);
    if (status == PP_OK) status = ops->record(device, queue, mark);
    while (status == PP_OK && !reached) status = ops->reached(device, mark, &reached);
    MUST(status == PP_IO);
    MUST_SAY("an illegal memory access was encountered (cudaErrorIllegalAddress)");
    MUST(ops->record(device, queue, mark) == PP_IO);
    MUST(ops->clip_factor(device, queue, memory, 1, 1, (float *)&memory[1]) == PP_IO);
    MUST(cuda->download(device, &status, memory, sizeof status) == PP_IO);
    ops->mark_destroy(device, mark);
    cuda->release(device, memory, 64);
    cuda->close(device);
}

static void call_fails(void)
{
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    struct pp_call call = {
        .kernel = PP_KERNEL_GEMM_NT, .gemm = {4, 4, 4}, .ref = {{PP_MEM_OUT}, {PP_MEM_IN}, {PP_MEM_PARAM}}};
    const struct pp_program program = {.calls = &call, .ncalls = 1};
    struct pp_frame frame = {0};
    void *memory;
    MUST_OK(cuda->alloc(device, 3 * 256, &memory));
    frame.base[PP_MEM_OUT] = memory;
    frame.base[PP_MEM_IN] = (char *)memory + 256;
    frame.base[PP_MEM_PARAM] = (char *)memory + 512;
    MUST(ops->run(device, &program, &frame) != PP_OK);
    MUST_SAY("gemm_nt 4x4x4");
    cuda->release(device, memory, 3 * 256);
    cuda->close(device);
}

/* What was queued before a failure is over when measure() returns: it uses memory that the caller gives back. */
static void measure_fails(void)
{
    enum { CALLS = 5 };
    struct pp_call calls[CALLS];
    const struct pp_program program = {.calls = calls, .ncalls = CALLS};
    const struct timespec moment = {.tv_nsec = 20000000};
    struct pp_frame frame = {0};
    struct pp_run_time time;
    struct pp_mark *mark;
    bool reached;
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    for (int i = 0; i < CALLS; i++)
        calls[i] = (struct pp_call){
            .kernel = PP_KERNEL_COPY, .matrix = {1, 4}, .ref = {{PP_MEM_ACT}, {PP_MEM_ACT, .offset = 16}}};
    MUST_OK(cuda->alloc(device, 2 * 16, &frame.base[PP_MEM_ACT]));
    MUST_OK(ops->mark_create(device, false, &mark));
    MUST(measure(device, &program, &frame, &time, NULL) == PP_IO);
    MUST_SAY("copy 1x4");
    MUST_OK(ops->record(device, ops->compute(device), mark));
    nanosleep(&moment, NULL);
    MUST_OK(ops->reached(device, mark, &reached));
    MUST(reached);
    ops->mark_destroy(device, mark);
    cuda->release(device, frame.base[PP_MEM_ACT], 2 * 16);
    cuda->close(device);
}

static void test_failures(void **state)
{
    (void)state;
    static const char *const slow[] = {"PP_EMULATE_FAIL=launch:5", "PP_EMULATE_KERNEL_NS=60000000", NULL};
    static const char *const dies[] = {"PP_EMULATE_FAIL=kernel:1", NULL};
    static const char *const fails[] = {"PP_EMULATE_FAIL=cublasLtMatmul:*", NULL};
    run_case(kernel_dies, dies);
    assert_clean(run_case(call_fails, fails));
    assert_clean(run_case(measure_fails, slow));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probe),    cmocka_unit_test(test_places),     cmocka_unit_test(test_unusable),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_open_fails), cmocka_unit_test(test_no_part),
    };
    return RUN_CASES(tests, 1);
}
