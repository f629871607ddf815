/* SPDX-License-Identifier: Apache-2.0
 *
 * How many launches calls take, and what they spare. Norm and optimizer step of many tensors are one launch: the same
 * bits as call by call.
 */
#include <math.h>

#include "core/base/clock.h"
#include "core/calls/bf16.h"
#include "device_case.h"

enum { CALLS = 230, GROUP = 64, GROUPS = 4 }; /* more than a launch takes, and more than two */

/* Elements: less than a quad, odd, a block, several blocks, several whole or broken pieces of a norm. */
static const int sizes[][2] = {{1, 1}, {3, 1}, {200, 1}, {64, 64}, {131, 7}, {5, 1000}, {256, 513}, {1003, 131}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

struct tensors {
    struct pp_call norm[CALLS], step[CALLS];
    int64_t bytes, bytes16;
    float *param, *grad, *state; /* state: what adamw keeps, [2][bytes] */
    uint16_t *param16;
    double *sums;
    struct pp_device *device;
    struct pp_frame frame;
};

/* What a step leaves. */
struct outcome {
    char *param, *param16, *state, sums[CALLS * sizeof(double)];
};

/* Every third tensor lies beside the quads, every second one has a copy. */
static void list_calls(struct tensors *t, int kernel)
{
    for (int i = 0; i < CALLS; i++) {
        const int rows = sizes[i % SIZES][0], width = sizes[i % SIZES][1], beside = i % 3 == 1;
        const struct pp_ref g = {PP_MEM_GRAD, .offset = t->bytes + beside * 4},
                            w = {PP_MEM_PARAM, .offset = t->bytes + beside * 4};
        t->norm[i] = (struct pp_call){.kernel = PP_KERNEL_SUMSQ, .sumsq = {rows, width, i, i % 5 == 2}, .ref = {g}};
        t->step[i] = (struct pp_call){.kernel = kernel, .step = {rows, width}, .ref = {w, g}};
        if (i % 2)
            t->step[i].at.step.copy = (struct pp_ref){.region = PP_MEM_PARAM16, .offset = t->bytes16 + beside * 2};
        t->bytes += (rows * width + 8) / 4 * 16;
        t->bytes16 += (rows * width + 8) / 4 * 8;
    }
    for (int i = 0; i < CALLS && kernel != PP_KERNEL_SGD; i++)
        for (int s = 0; s < 2; s++)
            t->step[i].ref[(int)PP_OPERAND(step, m) + s] =
                (struct pp_ref){.region = PP_MEM_STATE, .offset = s * t->bytes + t->step[i].at.step.w.offset};
}

static void fill(struct tensors *t)
{
    float *values = calloc(1, (size_t)t->bytes);
    MUST(values);
    for (int64_t i = 0; i < t->bytes / 4; i++) values[i] = (float)(i * 2654435761u % 2001) * 1e-3f - 1;
    MUST_OK(cuda->upload(t->device, t->grad, values, t->bytes));
    for (int64_t i = 0; i < t->bytes / 4; i++) values[i] = 3 * values[i] + 0.1f;
    MUST_OK(cuda->upload(t->device, t->param, values, t->bytes));
    for (int64_t i = 0; i < t->bytes / 4; i++) { /* read as bfloat16, it is twice the same number */
        const uint32_t rounded = pp_bf16(fabsf(values[i])), twice = rounded << 16 | rounded;
        memcpy(&values[i], &twice, sizeof twice);
    }
    for (int i = 0; i < 2; i++) MUST_OK(cuda->upload(t->device, (char *)t->state + i * t->bytes, values, t->bytes));
    memset(values, 0, (size_t)t->bytes);
    MUST_OK(cuda->upload(t->device, t->param16, values, t->bytes16));
    memset(values, 0xff, CALLS * sizeof(double));
    MUST_OK(cuda->upload(t->device, t->sums, values, CALLS * sizeof(double)));
    free(values);
}

static void open_tensors(struct tensors *t, int kernel)
{
    *t = (struct tensors){0};
    load_cuda();
    t->device = open_device(0, 1);
    list_calls(t, kernel);
    MUST_OK(cuda->alloc(t->device, t->bytes, (void **)&t->param));
    MUST_OK(cuda->alloc(t->device, t->bytes, (void **)&t->grad));
    MUST_OK(cuda->alloc(t->device, 2 * t->bytes, (void **)&t->state));
    MUST_OK(cuda->alloc(t->device, t->bytes16, (void **)&t->param16));
    MUST_OK(cuda->alloc(t->device, CALLS * sizeof(double), (void **)&t->sums));
    t->frame = (struct pp_frame){.learning_rate = 0.25f,
                                 .adamw = {0.9f, 0.25f, 0.75f, 0.125f, 0.5f, 0.7f, 0.01f},
                                 .clip_factor = 0.3f,
                                 .tensor = 2,
                                 .tensor_rank = 1, /* where sums that count once are 0 */
                                 .sums = t->sums};
    t->frame.base[PP_MEM_PARAM] = t->param;
    t->frame.base[PP_MEM_GRAD] = t->grad;
    t->frame.base[PP_MEM_PARAM16] = t->param16;
    t->frame.base[PP_MEM_STATE] = t->state;
    fill(t);
}

static void close_tensors(struct tensors *t)
{
    cuda->release(t->device, t->param, t->bytes);
    cuda->release(t->device, t->grad, t->bytes);
    cuda->release(t->device, t->state, 2 * t->bytes);
    cuda->release(t->device, t->param16, t->bytes16);
    cuda->release(t->device, t->sums, CALLS * sizeof(double));
    cuda->close(t->device);
}

static void read_outcome(const struct tensors *t, struct outcome *o)
{
    o->param = malloc((size_t)t->bytes);
    o->param16 = malloc((size_t)t->bytes16);
    o->state = malloc(2 * (size_t)t->bytes);
    MUST(o->param && o->param16 && o->state);
    MUST_OK(cuda->download(t->device, o->state, t->state, 2 * t->bytes));
    MUST_OK(cuda->download(t->device, o->param, t->param, t->bytes));
    MUST_OK(cuda->download(t->device, o->param16, t->param16, t->bytes16));
    MUST_OK(cuda->download(t->device, o->sums, t->sums, sizeof o->sums));
}

/* Runs with times of calls queue each call by itself; all others, groups. */
static void same_bits_of(int kernel)
{
    static struct tensors t;
    static int64_t ns[CALLS];
    struct outcome single, grouped;
    open_tensors(&t, kernel);
    const struct pp_program norm = {.calls = t.norm, .ncalls = CALLS}, step = {.calls = t.step, .ncalls = CALLS};
    MUST_OK(cuda->run(t.device, &norm, &t.frame, NULL, ns));
    MUST_OK(cuda->run(t.device, &step, &t.frame, NULL, ns));
    read_outcome(&t, &single);
    fill(&t);
    MUST_OK(ops->run(t.device, &norm, &t.frame));
    MUST_OK(ops->run(t.device, &step, &t.frame));
    read_outcome(&t, &grouped);
    MUST(!memcmp(single.sums, grouped.sums, sizeof single.sums));
    MUST(!memcmp(single.param, grouped.param, (size_t)t.bytes));
    MUST(!memcmp(single.state, grouped.state, 2 * (size_t)t.bytes));
    MUST(!memcmp(single.param16, grouped.param16, (size_t)t.bytes16));
    for (int i = 0; i < CALLS; i++) {
        const double sum = ((double *)grouped.sums)[i];
        MUST(t.norm[i].sumsq.once ? sum == 0 : sum > 0);
    }
    struct outcome *const outcomes[] = {&single, &grouped};
    for (int i = 0; i < 2; i++) {
        free(outcomes[i]->param);
        free(outcomes[i]->param16);
        free(outcomes[i]->state);
    }
    close_tensors(&t);
}

static void same_bits(void)
{
    same_bits_of(PP_KERNEL_SGD);
    same_bits_of(PP_KERNEL_ADAMW);
    same_bits_of(PP_KERNEL_ADAMW_BF16);
}

static void test_same_bits(void **state)
{
    (void)state;
    assert_clean(run_case(same_bits, NULL));
}

/* WAY: nothing, a run, a run with one time, a measured run. */
static void runs(void)
{
    static struct tensors t;
    struct pp_run_time time;
    open_tensors(&t, PP_KERNEL_SGD);
    const struct pp_program norm = {.calls = t.norm, .ncalls = CALLS}, step = {.calls = t.step, .ncalls = CALLS};
    const struct pp_program *const programs[] = {&norm, &step};
    for (int i = 0; i < 2; i++) {
        switch (atoi(getenv("WAY"))) {
        case 1:
            MUST_OK(ops->run(t.device, programs[i], &t.frame));
            break;
        case 2:
            MUST_OK(cuda->run(t.device, programs[i], &t.frame, NULL, NULL));
            break;
        case 3:
            MUST_OK(measure(t.device, programs[i], &t.frame, &time, NULL));
            break;
        default:
            break;
        }
    }
    drain(t.device, ops->compute(t.device));
    close_tensors(&t);
}

/* A group of norms adds the sums of blocks in a second launch. What is measured waits behind a gate: one more. */
static void test_groups(void **state)
{
    (void)state;
    static const char *const ways[][2] = {{"WAY=0", NULL}, {"WAY=1", NULL}, {"WAY=2", NULL}, {"WAY=3", NULL}};
    const long long none = counted(run_case(runs, ways[0]), "launches");
    for (int i = 1; i < 4; i++) {
        const long long launches = counted(run_case(runs, ways[i]), "launches") - none;
        if (is_emulated()) assert_int_equal(launches, 3 * GROUPS + (i == 3 ? 2 : 0));
    }
    assert_true(GROUPS == (CALLS + GROUP - 1) / GROUP);
}

/* Column sums: of few rows, one launch; of more, slices and their sum. */
static void columns(void)
{
    const int rows = atoi(getenv("ROWS"));
    struct pp_call call = {.kernel = PP_KERNEL_COLSUM, .ref = {{PP_MEM_GRAD}, {PP_MEM_IN}}};
    const struct pp_program program = {.calls = &call, .ncalls = rows > 0};
    struct pp_frame frame = {0};
    enum { COLUMNS = 64, MOST_ROWS = 200 };
    float *memory;
    call.matrix.rows = rows;
    call.matrix.width = COLUMNS;
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    MUST_OK(cuda->alloc(device, 4 * COLUMNS * (MOST_ROWS + 1), (void **)&memory));
    frame.base[PP_MEM_GRAD] = memory;
    frame.base[PP_MEM_IN] = memory + COLUMNS;
    MUST_OK(ops->run(device, &program, &frame));
    drain(device, ops->compute(device));
    cuda->release(device, memory, 4 * COLUMNS * (MOST_ROWS + 1));
    cuda->close(device);
}

static void test_columns(void **state)
{
    (void)state;
    static const char *const no_rows[] = {"ROWS=0", NULL}, *const few[] = {"ROWS=128", NULL},
                             *const many[] = {"ROWS=129", NULL};
    const long long none = counted(run_case(columns, no_rows), "launches");
    const long long one = counted(run_case(columns, few), "launches") - none;
    const long long two = counted(run_case(columns, many), "launches") - none;
    if (!is_emulated()) return;
    assert_int_equal(one, 1);
    assert_int_equal(two, 2);
}

enum { WORDS = 9, WIDTH = 1000, STEP_BYTES = WORDS * WIDTH * 4 };

/* Zeros of both signs and denormal numbers as weights, no gradient in two of three rows, single zeros elsewhere. */
static void fill_step(uint32_t *w, float *g)
{
    static const uint32_t odd[] = {0, 0x80000000, 1, 0x80000001, 0x3f800000, 0xff7fffff, 0x7f800000};
    for (int i = 0; i < WORDS * WIDTH; i++) {
        w[i] = odd[i % (int)(sizeof odd / sizeof odd[0])];
        g[i] = i / WIDTH % 3 ? 0.0f : i % 5 ? (float)(i % 11) - 5 : -0.0f;
    }
}

static void step_words(struct pp_device *device, const struct pp_frame *frame, const uint32_t *w, bool sparse,
                       uint32_t *after)
{
    struct pp_call call = {
        .kernel = PP_KERNEL_SGD, .step = {WORDS, WIDTH, sparse}, .ref = {{PP_MEM_PARAM}, {PP_MEM_GRAD}}};
    const struct pp_program program = {.calls = &call, .ncalls = 1};
    MUST_OK(cuda->upload(device, frame->base[PP_MEM_PARAM], w, STEP_BYTES));
    MUST_OK(ops->run(device, &program, frame));
    MUST_OK(cuda->download(device, after, frame->base[PP_MEM_PARAM], STEP_BYTES));
}

/* Whatever the rate, a step that leaves out rows without a gradient gives the bits of one that does not. */
static void sparse(void)
{
    static uint32_t w[WORDS * WIDTH], dense[WORDS * WIDTH], spared[WORDS * WIDTH];
    static float g[WORDS * WIDTH];
    const float rates[] = {0.25f, 0, -0.0f, -0.25f, INFINITY, NAN};
    const uint32_t signalling = 0x7f800001; /* any arithmetic changes it */
    struct pp_frame frame = {.clip_factor = 1};
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    fill_step(w, g);
    MUST_OK(cuda->alloc(device, STEP_BYTES, &frame.base[PP_MEM_PARAM]));
    MUST_OK(cuda->alloc(device, STEP_BYTES, &frame.base[PP_MEM_GRAD]));
    MUST_OK(cuda->upload(device, frame.base[PP_MEM_GRAD], g, STEP_BYTES));
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        frame.learning_rate = rates[i];
        step_words(device, &frame, w, false, dense);
        step_words(device, &frame, w, true, spared);
        MUST(!memcmp(dense, spared, STEP_BYTES));
    }
    frame.learning_rate = 0.25f;
    for (int i = 0; i < WORDS * WIDTH; i++) w[i] = signalling;
    step_words(device, &frame, w, true, spared);
    for (int i = 0; i < WORDS * WIDTH; i++) MUST((spared[i] == signalling) == (i / WIDTH % 3 != 0));
    cuda->release(device, frame.base[PP_MEM_PARAM], STEP_BYTES);
    cuda->release(device, frame.base[PP_MEM_GRAD], STEP_BYTES);
    cuda->close(device);
}

static void test_sparse(void **state)
{
    (void)state;
    assert_clean(run_case(sparse, NULL));
}

/* The last call cannot be queued. Those before it end before measure() does, for they use memory of the caller. */
static void failed_measure(void)
{
    enum { FEW = 5, ROW_BYTES = 16 };
    struct pp_call calls[FEW];
    const struct pp_program program = {.calls = calls, .ncalls = FEW};
    const int64_t least = atoll(getenv("PP_EMULATE_KERNEL_NS"));
    const float first[] = {1, 2, 3, 4};
    struct pp_run_time time;
    struct pp_frame frame = {0};
    float last[4];
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    for (int i = 0; i < FEW; i++)
        calls[i] = (struct pp_call){
            .kernel = PP_KERNEL_COPY,
            .matrix = {1, 4},
            .ref = {{PP_MEM_ACT, .offset = ROW_BYTES * (i + 1)}, {PP_MEM_ACT, .offset = ROW_BYTES * i}}};
    MUST_OK(cuda->alloc(device, ROW_BYTES * (FEW + 1), &frame.base[PP_MEM_ACT]));
    MUST_OK(ops->prepare(device, &program));
    MUST_OK(cuda->upload(device, frame.base[PP_MEM_ACT], first, sizeof first));
    const int64_t begin = pp_now_ns();
    MUST(measure(device, &program, &frame, &time, NULL) == PP_IO);
    MUST(pp_now_ns() - begin >= (FEW - 1) * least);
    MUST_OK(cuda->download(device, last, (char *)frame.base[PP_MEM_ACT] + (FEW - 1) * ROW_BYTES, sizeof last));
    MUST(!memcmp(last, first, sizeof last));
    cuda->release(device, frame.base[PP_MEM_ACT], ROW_BYTES * (FEW + 1));
    cuda->close(device);
}

static void test_failed_measure(void **state)
{
    (void)state;
    /* the gate is a launch, too */
    static const char *const env[] = {"PP_EMULATE_FAIL=launch:6", "PP_EMULATE_KERNEL_NS=20000000", NULL};
    assert_clean(run_case(failed_measure, env));
}

/* A gradient of weights in TF32 of which a factor may be turned first (kernels/cuda/tf32.h). */
static void make_gradient(void)
{
    enum { M = 1024, N = 2048, K = 256, BYTES = 4 * M * N };
    struct pp_call call = {.kernel = PP_KERNEL_GEMM_TN, .precision = PP_TF32, .gemm = {M, N, K, PP_GEMM_GRADIENT, 1}};
    const struct pp_program program = {.calls = &call, .ncalls = 1};
    struct pp_frame frame = {0};
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    for (int i = 0; i < 3; i++) {
        call.ref[i].region = 1 + i;
        MUST_OK(cuda->alloc(device, BYTES, &frame.base[1 + i]));
    }
    MUST_OK(ops->run(device, &program, &frame));
    MUST(ops->launches(device, &program) == 3); /* at most: the copy, and two of the product */
    drain(device, ops->compute(device));
    for (int i = 0; i < 3; i++) cuda->release(device, frame.base[1 + i], BYTES);
    cuda->close(device);
}

/* Only where the GPU wants it so: there are two launches, where the emulator's cublasLt, which launches nothing,
 * computes it elsewhere. */
static void test_turned(void **state)
{
    long long launches[2];
    (void)state;
    for (int i = 0; i < 2; i++)
        launches[i] =
            counted(run_case(make_gradient,
                             (const char *const[]){i ? "PP_EMULATE_CAPABILITY=90" : "PP_EMULATE_CAPABILITY=80", NULL}),
                    "launches");
    assert_int_equal(launches[1] - launches[0], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits),      cmocka_unit_test(test_groups),
                                       cmocka_unit_test(test_columns),        cmocka_unit_test(test_sparse),
                                       cmocka_unit_test(test_failed_measure), cmocka_unit_test(test_turned)};
    return RUN_CASES(tests, 4);
}
