/* SPDX-License-Identifier: Apache-2.0
 *
 * Column sums, sums of squares, the optimizer step, copies and additions, rounding; and the cpu backend as a whole.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/calls/bf16.h"
#include "kernels/backend.h"
#include "tests/unit/kernel_case.h"

static const int widths[] = {1, 15, 36, 200, 1003};
enum { WIDTHS = 5 };

static void check_sums(const struct pp_cpu_isa *isa, int rows, int width)
{
    float *in = case_floats((int64_t)rows * width, 1), *out = case_floats(width, 2);
    double *expected = calloc((size_t)width, sizeof *expected), sums[2] = {0}, square = 0;
    assert_non_null(expected);
    for (int i = 0; i < rows * width; i++) {
        expected[i % width] += in[i];
        square += (double)in[i] * in[i];
    }
    struct pp_frame frame = case_frame();
    frame.sums = sums;
    struct pp_call call = {.sumsq = {rows, width, 1}};
    struct pp_cpu_call columns = {&call, &frame, .p = {out, in}}, squares = {&call, &frame, .p = {in}};
    isa->run[PP_KERNEL_COLSUM](&columns);
    assert_near(out, expected, width, 1e-5);
    call.adds = true;
    isa->run[PP_KERNEL_COLSUM](&columns);
    for (int j = 0; j < width; j++) expected[j] *= 2;
    assert_near(out, expected, width, 1e-5);
    isa->run[PP_KERNEL_SUMSQ](&squares);
    assert_near(&sums[1], &square, 1, 1e-13);
    assert_true(sums[0] == 0);
    case_free(in, out, expected, NULL);
}

static void test_sums(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int i = 0; i < WIDTHS; i++)
        for (int rows = 1; rows < 30; rows += 7) check_sums(isa, rows, widths[i]);
}

/* Exact: it is a copy, zeros, or a sum of two. */
static void check_take(const struct pp_cpu_isa *isa, int rows, int width)
{
    const int n = rows * width;
    float *in = case_floats(n, 1), *out = case_floats(n, 2), *before = case_floats(n, 2);
    struct pp_frame frame = case_frame();
    struct pp_call call = {.matrix = {rows, width}};
    struct pp_cpu_call take = {&call, &frame, .p = {out, in}}, nothing = {&call, &frame, .p = {out, NULL}};
    call.adds = true;
    isa->run[PP_KERNEL_TAKE](&take);
    for (int i = 0; i < n; i++) assert_true(out[i] == before[i] + in[i]);
    isa->run[PP_KERNEL_TAKE](&nothing);
    for (int i = 0; i < n; i++) assert_true(out[i] == before[i] + in[i]);
    call.adds = false;
    isa->run[PP_KERNEL_TAKE](&take);
    for (int i = 0; i < n; i++) assert_true(out[i] == in[i]);
    isa->run[PP_KERNEL_TAKE](&nothing);
    for (int i = 0; i < n; i++) assert_true(out[i] == 0);
    case_free(in, out, before, NULL);
}

static void test_take(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int i = 0; i < WIDTHS; i++) check_take(isa, 3, widths[i]);
}

static void test_step_and_copies(void **state)
{
    (void)state;
    enum { ROWS = 3 };
    FOR_EACH_ISA(isa)
    for (int i = 0; i < WIDTHS; i++) {
        const int n = ROWS * widths[i];
        float *w = case_floats(n, 1), *g = case_floats(n, 2), *before = case_copy(w, n), *sum = case_floats(n, 3);
        struct pp_frame frame = case_frame();
        frame.learning_rate = 0.5f;
        frame.clip_factor = 0.25f;
        struct pp_call call = {.matrix = {ROWS, widths[i]}};
        struct pp_cpu_call step = {&call, &frame, .p = {w, g}}, copy = {&call, &frame, .p = {w, before}},
                           none = {&call, &frame, .p = {NULL, g}};
        isa->run[PP_KERNEL_SGD](&step);
        for (int k = 0; k < n; k++) assert_true(fabsf(w[k] - (before[k] - 0.125f * g[k])) <= 1e-7f);
        isa->run[PP_KERNEL_COPY](&copy);
        isa->run[PP_KERNEL_COPY](&none);
        assert_memory_equal(w, before, sizeof *w * (size_t)n);
        isa->add(sum, w, g, n);
        for (int k = 0; k < n; k++) assert_true(sum[k] == w[k] + g[k]);
        isa->add(w, w, g, n); /* in place */
        assert_memory_equal(w, sum, sizeof *w * (size_t)n);
        case_free(w, g, before, sum, NULL);
    }
}

/* One step of AdamW in double, as PyTorch writes it: t counts from 1. */
static void adamw_oracle(double *w, double *m, double *v, double g, const struct pp_adamw_options *o, double lr, int t)
{
    *w -= lr * o->weight_decay * *w;
    *m = o->beta1 * *m + (1 - o->beta1) * g;
    *v = o->beta2 * *v + (1 - o->beta2) * g * g;
    const double mean = *m / (1 - pow(o->beta1, t)), square = *v / (1 - pow(o->beta2, t));
    *w -= lr * mean / (sqrt(square) + o->epsilon);
}

/* Several steps with new gradients, some of them zero, so that what it keeps counts. */
static void check_adamw(const struct pp_cpu_isa *isa, int width)
{
    enum { ROWS = 3, STEPS = 4 };
    static const struct pp_adamw_options options = {0.8, 0.95, 1e-3, 0.1};
    const int n = ROWS * width;
    float *w = case_floats(n, 1), *m = calloc((size_t)n, sizeof *m), *v = calloc((size_t)n, sizeof *v);
    double *expected = calloc(3 * (size_t)n, sizeof *expected), *mean = expected + n, *square = mean + n;
    struct pp_call call = {.matrix = {ROWS, width}};
    struct pp_frame frame = case_frame();
    frame.clip_factor = 0.25f;
    assert_true(m && v && expected);
    for (int i = 0; i < n; i++) expected[i] = w[i];
    for (int step = 0; step < STEPS; step++) {
        float *g = case_floats(n, 10 + (uint32_t)step);
        frame.adamw = pp_adamw_at(&options, 0.05, step);
        for (int i = 0; i < n; i++) {
            if ((i + step) % 5 == 0) g[i] = 0;
            adamw_oracle(&expected[i], &mean[i], &square[i], 0.25 * g[i], &options, 0.05, step + 1);
        }
        isa->run[PP_KERNEL_ADAMW](&(struct pp_cpu_call){&call, &frame, .p = {w, g, NULL, m, v}});
        free(g);
    }
    assert_near(w, expected, n, 2e-6);
    assert_near(m, mean, n, 1e-7);
    assert_near(v, square, n, 1e-7);
    case_free(w, m, v, expected, NULL);
}

static void test_adamw(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int i = 0; i < WIDTHS; i++) check_adamw(isa, widths[i]);
}

/* The same step as adamw's, from moments that are bfloat16 numbers; the new moments are rounded, and nothing else is.
 * Among the moments are NaN, an infinity and a number that rounding makes infinite. */
static void check_adamw_bf16(const struct pp_cpu_isa *isa, int width)
{
    enum { ROWS = 3, ODD = 4 };
    static const float odd[ODD] = {NAN, INFINITY, 3.4e38f, 0};
    static const struct pp_adamw_options options = {0.5, 0.5, 1e-3, 0.1};
    const int n = ROWS * width;
    float *w = case_floats(n, 1), *m = case_floats(n, 2), *v = case_floats(n, 3), *g = case_floats(n, 4);
    float *other = case_floats(n, 1);
    uint16_t *m16 = calloc((size_t)n, sizeof *m16), *v16 = calloc((size_t)n, sizeof *v16);
    struct pp_call call = {.matrix = {ROWS, width}};
    struct pp_frame frame = case_frame();
    assert_true(m16 && v16);
    frame.adamw = pp_adamw_at(&options, 0.05, 2);
    for (int i = 0; i < n; i++) {
        if (i % 7 == 3) m[i] = odd[i / 7 % ODD];
        m16[i] = pp_bf16(m[i]);
        v16[i] = pp_bf16(fabsf(v[i]));
        m[i] = pp_bf16_float(m16[i]);
        v[i] = pp_bf16_float(v16[i]);
    }
    isa->run[PP_KERNEL_ADAMW](&(struct pp_cpu_call){&call, &frame, .p = {w, g, NULL, m, v}});
    isa->run[PP_KERNEL_ADAMW_BF16](&(struct pp_cpu_call){&call, &frame, .p = {other, g, NULL, m16, v16}});
    assert_memory_equal(w, other, sizeof *w * (size_t)n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(m16[i], pp_bf16(m[i]));
        assert_int_equal(v16[i], pp_bf16(v[i]));
    }
    case_free(w, m, v, g, other, m16, v16, NULL);
}

static void test_adamw_bf16(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int i = 0; i < WIDTHS; i++) check_adamw_bf16(isa, widths[i]);
}

/* Rates that float32 does not have, or that nothing can be divided by. */
static void test_adamw_numbers(void **state)
{
    (void)state;
    const struct pp_adamw first = pp_adamw_at(&(struct pp_adamw_options){0.9, 0.999, 1e-8, 0.01}, 1e-3, 0),
                          late = pp_adamw_at(&(struct pp_adamw_options){0.9, 0.999, 1e-8, 0.01}, 1e-3, 1000000),
                          huge = pp_adamw_at(&(struct pp_adamw_options){0.9, 0.999, 1e-8, 1e30}, 1e38, 0),
                          none = pp_adamw_at(&(struct pp_adamw_options){0, 0, 0, 0}, 1, 0);
    assert_true(fabsf(first.rate - 1e-2f) < 1e-9f && fabsf(first.square_root - sqrtf(1e-3f)) < 1e-8f);
    assert_true(late.rate == 1e-3f && late.square_root == 1 && late.keep == (float)(1 - 1e-5));
    assert_true(isfinite(huge.rate) && isfinite(huge.keep) && huge.keep < 0);
    assert_true(none.rate == 1 && none.square_root == 1 && none.mean_gain == 1 && none.keep == 1);
}

static void test_backend(void **state)
{
    (void)state;
    const struct pp_backend *backend;
    struct pp_device *device;
    assert_int_equal(pp_backend_find("gpu9", &backend), PP_USAGE);
    assert_non_null(strstr(pp_message(), "cpu"));
    assert_int_equal(pp_backend_find("cpu", &backend), PP_OK);
    assert_int_equal(pp_backend_find(NULL, &backend), PP_OK);
    assert_int_equal(backend->open(&(struct pp_device_spec){.workers = 1, .threads = 1}, &device), PP_OK);
    assert_non_null(strstr(backend->describe(device), "OpenBLAS"));
    assert_non_null(strstr(backend->describe(device), pp_cpu_isa_best()->name));
    assert_true(backend->reference_ns(device) > 0);

    void *memory;
    assert_int_equal(backend->alloc(device, 12345, &memory), PP_OK);
    assert_int_equal((uintptr_t)memory % 4096, 0);
    for (int i = 0; i < 12345; i++) assert_int_equal(((char *)memory)[i], 0);
    char text[8] = "ppkit";
    assert_int_equal(backend->upload(device, memory, text, sizeof text), PP_OK);
    memset(text, 0, sizeof text);
    assert_int_equal(backend->download(device, text, memory, sizeof text), PP_OK);
    assert_string_equal(text, "ppkit");
    backend->release(device, memory, 12345);
    assert_int_equal(backend->alloc(device, (int64_t)1 << 50, &memory), PP_NOMEM);
    assert_null(memory);
    backend->close(device);
}

static void count_poll(void *arg) { ++*(int *)arg; }

/* Each call is timed and followed by a poll. */
static void test_run(void **state)
{
    (void)state;
    float from[6] = {1, 2, 3, 4, 5, 6}, to[6] = {0};
    const struct pp_backend *backend;
    struct pp_device *device;
    assert_int_equal(pp_backend_find("cpu", &backend), PP_OK);
    assert_int_equal(backend->open(&(struct pp_device_spec){.workers = 1, .threads = 1}, &device), PP_OK);
    struct pp_call calls[2] = {
        {.kernel = PP_KERNEL_COPY, .matrix = {1, 3}, .ref = {{PP_MEM_OUT}, {PP_MEM_IN}}},
        {.kernel = PP_KERNEL_COPY, .matrix = {1, 3}, .ref = {{PP_MEM_OUT, .offset = 12}, {PP_MEM_IN, .offset = 12}}}};
    const struct pp_program program = {.calls = calls, .ncalls = 2};
    struct pp_frame frame = case_frame();
    frame.base[PP_MEM_IN] = from;
    frame.base[PP_MEM_OUT] = to;
    int polls = 0;
    int64_t ns[2] = {-1, -1};
    const struct pp_progress progress = {count_poll, &polls};
    assert_int_equal(backend->run(device, &program, &frame, &progress, ns), PP_OK);
    assert_memory_equal(to, from, sizeof to);
    assert_int_equal(polls, 2);
    assert_true(ns[0] >= 0 && ns[1] >= 0);
    char name[64];
    assert_string_equal(pp_call_text(&calls[0], name, sizeof name), "copy 1x3");
    backend->close(device);
}

/* Every bfloat16 keeps its value; what lies between two goes to the nearer, a tie to the even one. */
static void test_rounding(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x10000; i++) {
        const float value = pp_bf16_float((uint16_t)i), next = pp_bf16_float((uint16_t)(i + 1));
        if (isnan(value)) {
            assert_true(isnan(pp_bf16_float(pp_bf16(value))));
            continue;
        }
        assert_int_equal(pp_bf16(value), i);
        if (!isfinite(value) || !isfinite(next)) continue;
        const float middle = value / 2 + next / 2;
        assert_int_equal(pp_bf16(middle), i + i % 2);
        assert_int_equal(pp_bf16(nextafterf(middle, value)), i);
        assert_int_equal(pp_bf16(nextafterf(middle, next)), i + 1);
    }
    const float largest = 0x1.fffffep127f;
    assert_true(isinf(pp_bf16_float(pp_bf16(largest))));
    const uint32_t quiet = 0x7f800001; /* a NaN whose upper half alone is infinity */
    float nan;
    memcpy(&nan, &quiet, sizeof nan);
    assert_true(isnan(pp_bf16_float(pp_bf16(nan))));
}

/* Biases go up below the mean load, and down above it; in the mean they stay. */
static void test_balance(void **state)
{
    (void)state;
    static const float loads[] = {0, 5, 6, 7, 16777216, 6.5f};
    enum { N = sizeof loads / sizeof *loads };
    FOR_EACH_ISA(isa)
    for (int chosen = 1; chosen <= 2; chosen++) {
        float bias[N];
        struct pp_frame frame = {.tokens = 6 * N / chosen}; /* the mean is 6 */
        const struct pp_call call = {.balance = {1, N, N, chosen}, .scale = 0.125f};
        for (int i = 0; i < N; i++) bias[i] = (float)i - 2;
        isa->run[PP_KERNEL_BALANCE](&(struct pp_cpu_call){&call, &frame, .p = {bias, (void *)(uintptr_t)loads}});
        for (int i = 0; i < N; i++)
            assert_true(bias[i] == (float)i - 2 + (loads[i] < 6 ? 0.125f : loads[i] > 6 ? -0.125f : 0));
    }
    /* Batches of more tokens than float has whole numbers for. */
    float bias[3] = {0}, many[3] = {16777214, 16777215, 16777216};
    struct pp_frame frame = {.tokens = 16777215};
    const struct pp_call call = {.balance = {1, 3, 3, 3}, .scale = 1};
    FOR_EACH_ISA(isa) isa->run[PP_KERNEL_BALANCE](&(struct pp_cpu_call){&call, &frame, .p = {bias, many}});
    assert_true(bias[0] >= 1 && bias[1] == 0 && bias[0] == -bias[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),     cmocka_unit_test(test_take),       cmocka_unit_test(test_step_and_copies),
        cmocka_unit_test(test_adamw),    cmocka_unit_test(test_adamw_bf16), cmocka_unit_test(test_adamw_numbers),
        cmocka_unit_test(test_balance),  cmocka_unit_test(test_backend),    cmocka_unit_test(test_run),
        cmocka_unit_test(test_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
