/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated devices: what the tests of the backend `cuda` rely on. NCCL: test_emulator_nccl.c.
 */
#include "test_emulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <cudaTypedefs.h>

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static cudaStream_t new_stream(void)
{
    cudaStream_t stream;
    EXPECT(!cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static void *device_memory(size_t bytes)
{
    void *p;
    EXPECT(!cudaMalloc(&p, bytes));
    return p;
}

static void run_kernel(const char *name, int threads, int shared_bytes, double *out)
{
    cudaStream_t stream = new_stream();
    double *memory = device_memory(64 * sizeof(double));
    EXPECT(!test_kernel(name, memory, threads, shared_bytes, stream));
    EXPECT(!cudaStreamSynchronize(stream));
    EXPECT(!cudaMemcpy(out, memory, 64 * sizeof(double), cudaMemcpyDeviceToHost));
    EXPECT(!cudaFree(memory));
    EXPECT(!cudaStreamDestroy(stream));
}

/* ---- kernels ---- */

static void barriers(int process)
{
    enum { N = 777, BLOCKS = 5 };
    float in[N * BLOCKS], out[BLOCKS];
    cudaStream_t stream = new_stream();
    float *d_in = device_memory(sizeof(in)), *d_out = device_memory(sizeof(out));
    (void)process;
    for (int i = 0; i < N * BLOCKS; i++) in[i] = (float)(i % 13);
    EXPECT(!cudaMemcpy(d_in, in, sizeof(in), cudaMemcpyHostToDevice));
    EXPECT(!test_sum(d_in, d_out, N, BLOCKS, 256, stream));
    EXPECT(!cudaStreamSynchronize(stream));
    EXPECT(!cudaMemcpy(out, d_out, sizeof(out), cudaMemcpyDeviceToHost));
    for (int b = 0; b < BLOCKS; b++) {
        float want = 0;
        for (int i = 0; i < N; i++) want += in[b * N + i];
        EXPECT(out[b] == want);
    }
    double numbers[64];
    run_kernel("warp", 32, 0, numbers);
    for (int t = 0; t < 32; t++) EXPECT(numbers[t] == (t ^ 1) + 0.5 + 7500 + 1e6);
    run_kernel("early", 64, 0, numbers);
    for (int t = 0; t < 64; t++) EXPECT(numbers[t] == (t % 3 ? 3 : 1));
    run_kernel("fresh", 32, 256, numbers);
    for (int t = 0; t < 32; t++) EXPECT(numbers[t] != numbers[t]);
}

static void missing_barrier(int process)
{
    double numbers[64];
    (void)process;
    run_kernel("racy", 32, 0, numbers);
    const char *order = getenv("PP_EMULATE_ORDER");
    EXPECT(order ? numbers[0] == 2 : numbers[0] != 2);
}

static void faulty(const char *name, int threads, int shared_bytes)
{
    cudaStream_t stream = new_stream();
    double *memory = device_memory(64 * sizeof(double));
    EXPECT(!test_kernel(name, memory, threads, shared_bytes, stream));
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
    EXPECT(cudaMalloc((void **)&memory, 8) == cudaErrorLaunchFailure); /* and so on for ever */
    EXPECT(cudaGetLastError() == cudaErrorLaunchFailure && cudaGetLastError() == cudaErrorLaunchFailure);
}

static void divergent(int process)
{
    (void)process;
    faulty("divergent", 64, 0);
}

static void overrun(int process)
{
    (void)process;
    faulty("overrun", 33, 32 * sizeof(double));
}

static void launches(int process)
{
    cudaStream_t stream = new_stream();
    double *memory = device_memory(64 * sizeof(double));
    (void)process;
    EXPECT(test_kernel("warp", memory, 1025, 0, stream) == cudaErrorInvalidConfiguration);
    EXPECT(test_kernel("warp", memory, 32, 60000, stream) == cudaErrorInvalidValue);
    EXPECT(!cudaGetLastError());
    EXPECT(!cudaSetDevice(1));
    EXPECT(test_kernel("warp", memory, 32, 0, stream) == cudaErrorInvalidResourceHandle);
    EXPECT(!test_kernel("warp", memory, 32, 0, NULL));
}

static void test_kernels(void **state)
{
    (void)state;
    in_processes(1, barriers, NULL);
    in_processes(1, barriers, SETTINGS("PP_EMULATE_ORDER=reverse"));
    in_processes(1, missing_barrier, NULL);
    in_processes(1, missing_barrier, SETTINGS("PP_EMULATE_ORDER=reverse"));
    in_processes(1, divergent, NULL);
    in_processes(1, overrun, NULL);
    in_processes(1, launches, NULL);
}

/* ---- streams and events ---- */

enum { NUMBERS = 1000 };

static float first_of(const float *memory)
{
    float x;
    EXPECT(!cudaMemcpy(&x, memory, sizeof(x), cudaMemcpyDeviceToHost));
    return x;
}

/* A wait sees the record before it, not a later one; one stream holds the other back. */
static void events(int process)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t first, second;
    float *memory = device_memory(NUMBERS * sizeof(float)), ms;
    (void)process;
    EXPECT(!cudaEventCreate(&first) && !cudaEventCreate(&second));
    EXPECT(!cudaEventQuery(first)); /* never recorded: reached */
    EXPECT(cudaEventElapsedTime(&ms, first, second) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle); /* else the next launch reports it */
    EXPECT(!cudaMemsetAsync(memory, 0, NUMBERS * sizeof(float), a));
    EXPECT(!cudaEventRecord(first, a));
    for (int i = 0; i < 5; i++) EXPECT(!test_add(memory, 1, NUMBERS, a));
    EXPECT(!cudaStreamWaitEvent(b, first, 0));
    EXPECT(!cudaEventRecord(second, a));
    EXPECT(cudaEventQuery(second) == cudaErrorNotReady && cudaStreamQuery(a) == cudaErrorNotReady);
    EXPECT(!cudaStreamSynchronize(b)); /* long before `a` is through */
    EXPECT(cudaEventQuery(second) == cudaErrorNotReady);
    EXPECT(cudaGetLastError() == cudaErrorNotReady && !cudaGetLastError()); /* else the next launch reports it */
    EXPECT(!cudaStreamWaitEvent(b, second, 0));
    EXPECT(!test_add(memory, 100, NUMBERS, b));
    EXPECT(!cudaStreamSynchronize(b));
    EXPECT(!cudaStreamQuery(a) && !cudaEventQuery(second));
    EXPECT(first_of(memory) == 105);
    EXPECT(!cudaEventElapsedTime(&ms, first, second) && ms >= 250);
    EXPECT(!cudaEventDestroy(first) && !cudaStreamDestroy(a));
    EXPECT(cudaEventRecord(first, b) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaEventRecord(second, a) == cudaErrorInvalidResourceHandle);
}

static void add_one(void *number) { ++*(int *)number; }

/* Copies of pinned memory run later, those of pageable memory take it now; sizes and kinds are checked. */
static void copies(int process)
{
    cudaStream_t stream = new_stream();
    float *device = device_memory(NUMBERS * sizeof(float)), *pinned, pageable[NUMBERS];
    int calls = 0;
    (void)process;
    EXPECT(!cudaMallocHost((void **)&pinned, NUMBERS * sizeof(float)));
    EXPECT(first_of(device) != first_of(device)); /* NaN */
    pinned[0] = pageable[0] = 1;
    EXPECT(!test_add(device, 0, NUMBERS, stream)); /* keeps the stream busy */
    EXPECT(!cudaMemcpyAsync(device, pinned, sizeof(float), cudaMemcpyHostToDevice, stream));
    EXPECT(!cudaMemcpyAsync(device + 1, pageable, sizeof(float), cudaMemcpyDefault, stream));
    EXPECT(!cudaLaunchHostFunc(stream, add_one, &calls));
    pinned[0] = pageable[0] = 2;
    EXPECT(!cudaStreamSynchronize(stream));
    EXPECT(first_of(device) == 2 && first_of(device + 1) == 1 && calls == 1);
    const size_t all = NUMBERS * sizeof(float);
    EXPECT(cudaMemcpy(device + 1, pinned, all, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    EXPECT(cudaMemcpy(device, pinned, all, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    EXPECT(cudaMemset(pinned, 0, all) == cudaErrorInvalidValue);
    EXPECT(cudaFree(device + 1) == cudaErrorInvalidValue && cudaFree(pinned) == cudaErrorInvalidValue);
    EXPECT(!cudaFree(device) && cudaFree(device) == cudaErrorInvalidValue && !cudaFreeHost(pinned));
}

static atomic_int inside, most_inside;

static void stay(void *unused)
{
    const struct timespec nap = {.tv_nsec = 20000000};
    const int now = atomic_fetch_add(&inside, 1) + 1;
    (void)unused;
    if (now > atomic_load(&most_inside)) atomic_store(&most_inside, now);
    nanosleep(&nap, NULL);
    atomic_fetch_sub(&inside, 1);
}

/* Host functions run one after another, whatever their streams. */
static void host_functions(int process)
{
    cudaStream_t streams[4];
    (void)process;
    for (int i = 0; i < 4; i++) EXPECT(!cudaLaunchHostFunc(streams[i] = new_stream(), stay, NULL));
    for (int i = 0; i < 4; i++) EXPECT(!cudaStreamSynchronize(streams[i]));
    EXPECT(atomic_load(&most_inside) == 1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* A stream has room for so much (8 here); then a launch waits until there is some again. */
static void full_queue(int process)
{
    cudaStream_t stream = new_stream();
    float *memory = device_memory(NUMBERS * sizeof(float));
    const int64_t start = now_ns();
    (void)process;
    for (int i = 0; i < 8; i++) EXPECT(!test_add(memory, 1, NUMBERS, stream));
    EXPECT(cudaStreamQuery(stream) == cudaErrorNotReady && cudaGetLastError() == cudaErrorNotReady);
    for (int i = 0; i < 4; i++) EXPECT(!test_add(memory, 1, NUMBERS, stream));
    EXPECT(now_ns() - start > 4 * 60000000);
    EXPECT(!cudaStreamSynchronize(stream));
}

static int64_t time_spin(int blocks, int64_t ns, cudaStream_t stream)
{
    const int64_t start = now_ns();
    EXPECT(!test_spin(blocks, ns, stream) && !cudaStreamSynchronize(stream));
    return now_ns() - start;
}

/* As many blocks as a device holds take the time of one, the next one that of two. */
static void waves(int process)
{
    enum { ALL = 132 * 32, NS = 100000000, TRIES = 20 };
    cudaStream_t stream = new_stream();
    int64_t one = 2 * NS;
    (void)process;
    for (int i = 0; i < TRIES && one >= 2 * NS; i++) one = time_spin(ALL, NS, stream); /* others may have the core */
    EXPECT(one >= NS && one < 2 * NS);
    EXPECT(time_spin(ALL + 1, NS, stream) >= 2 * NS);
}

static void test_streams(void **state)
{
    (void)state;
    in_processes(1, host_functions, NULL);
    in_processes(1, full_queue, SETTINGS("PP_EMULATE_KERNEL_NS=60000000", "PP_EMULATE_QUEUE=8"));
    in_processes(1, waves, NULL);
    in_processes(1, events, SETTINGS("PP_EMULATE_KERNEL_NS=60000000"));
    in_processes(1, copies, SETTINGS("PP_EMULATE_KERNEL_NS=60000000"));
}

/* ---- what a GPU would let pass, and then punish ---- */

/* Does it make the emulator complain? */
static int complains(void (*misuse)(cudaStream_t stream))
{
    char line[200] = "";
    FILE *said = tmpfile();
    const int before = dup(STDERR_FILENO);
    cudaStream_t stream = new_stream();
    EXPECT(said && dup2(fileno(said), STDERR_FILENO) >= 0);
    misuse(stream);
    EXPECT(dup2(before, STDERR_FILENO) >= 0 && !close(before));
    rewind(said);
    const int any = fgets(line, sizeof(line), said) && !strncmp(line, "emulator: ", 10);
    fclose(said);
    return any;
}

static cudaEvent_t event;

static void wait_for_event(cudaStream_t stream) { EXPECT(!cudaStreamWaitEvent(stream, event, 0)); }

static void first_launch_loads(cudaStream_t stream)
{
    EXPECT(!test_add(device_memory(sizeof(float)), 1, 1, stream) && !cudaStreamSynchronize(stream));
}

static void *driver_function(const char *name, unsigned version)
{
    enum cudaDriverEntryPointQueryResult found;
    void *function;
    EXPECT(!cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found) && function);
    return function;
}

static int ends_first; /* the context, not its stream */

static void end_context(cudaStream_t stream)
{
    const PFN_cuDeviceGetDevResource_v12040 get = driver_function("cuDeviceGetDevResource", 12040);
    const PFN_cuDevResourceGenerateDesc_v12040 describe = driver_function("cuDevResourceGenerateDesc", 12040);
    const PFN_cuGreenCtxCreate_v12040 create = driver_function("cuGreenCtxCreate", 12040);
    const PFN_cuGreenCtxStreamCreate_v12050 add = driver_function("cuGreenCtxStreamCreate", 12050);
    CUdevResource whole;
    CUdevResourceDesc descriptor;
    CUgreenCtx green;
    EXPECT(!get(0, &whole, CU_DEV_RESOURCE_TYPE_SM) && !describe(&descriptor, &whole, 1));
    EXPECT(!create(&green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    EXPECT(!add(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    EXPECT(ends_first || !cudaStreamDestroy(stream));
    EXPECT(!((PFN_cuGreenCtxDestroy_v12040)driver_function("cuGreenCtxDestroy", 12040))(green));
}

static void misuses(int process)
{
    (void)process;
    EXPECT(!cudaEventCreate(&event) && complains(wait_for_event));
    EXPECT(!cudaEventRecord(event, new_stream()) && !complains(wait_for_event));
    EXPECT(complains(first_launch_loads));
    EXPECT(!complains(end_context));
    ends_first = 1;
    EXPECT(complains(end_context));
}

static void test_misuses(void **state)
{
    (void)state;
    in_processes(1, misuses, SETTINGS("PP_EMULATE_STRICT=1"));
}

/* ---- failures ---- */

static void no_driver(int process)
{
    int count = -7, version = -7;
    void *p;
    (void)process;
    EXPECT(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver && count == -7);
    EXPECT(!cudaDriverGetVersion(&version) && version == 0);
    EXPECT(cudaMallocHost(&p, 8) == cudaErrorInsufficientDriver);
}

static void no_device(int process)
{
    int count = -7;
    (void)process;
    EXPECT(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
}

static void injected(int process)
{
    void *p;
    cudaStream_t stream = new_stream();
    (void)process;
    EXPECT(!cudaMalloc(&p, 8) && cudaMalloc(&p, 8) == cudaErrorMemoryAllocation && !cudaMalloc(&p, 8));
    EXPECT(cudaStreamQuery(stream) == 46 && cudaGetLastError() == 46 && !cudaGetLastError());
    const cudaError_t launched = test_add(p, 1, 2, stream); /* it may have failed by the time that is asked */
    EXPECT(!launched || launched == cudaErrorIllegalAddress);
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
    EXPECT(cudaGetLastError() == cudaErrorIllegalAddress && cudaMalloc(&p, 8) == cudaErrorIllegalAddress);
}

static void little_memory(int process)
{
    void *p;
    size_t free_bytes, total;
    (void)process;
    EXPECT(cudaMalloc(&p, 5000) == cudaErrorMemoryAllocation && !p);
    EXPECT(!cudaMalloc(&p, 3000) && !cudaMemGetInfo(&free_bytes, &total) && total == 4096 && free_bytes <= 1096);
    EXPECT(cudaMalloc(&p, 3000) == cudaErrorMemoryAllocation);
}

static void test_failures(void **state)
{
    (void)state;
    in_processes(1, no_driver, SETTINGS("PP_EMULATE_DRIVER=0"));
    in_processes(1, no_device, SETTINGS("PP_EMULATE_DEVICES=0"));
    in_processes(1, injected, SETTINGS("PP_EMULATE_FAIL=cudaMalloc:2,cudaStreamQuery:1=46,kernel:1"));
    in_processes(1, little_memory, SETTINGS("PP_EMULATE_MEMORY=4096"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels), cmocka_unit_test(test_streams),
                                       cmocka_unit_test(test_misuses), cmocka_unit_test(test_failures)};
    return cmocka_run_group_tests_name("emulator", tests, NULL, NULL);
}
