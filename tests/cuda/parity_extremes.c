/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels make of numbers that are not finite, and of zeros.
 */
#include "parity.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/calls/fp8.h"

/* Runs the call on `memory`, n floats, of which its operands are parts: ref[].offset. */
static void run_on(const struct pp_call *call, float *memory, int n, double *loss)
{
    const struct parity_device *d = &parity_devices[PP_FP32];
    struct pp_call mine = *call;
    const struct pp_program program = {.calls = &mine, .ncalls = 1};
    const int64_t bytes = n * (int64_t)sizeof *memory;
    void *base, *total;
    PARITY_OK(d->backend->alloc(d->device, bytes, &base));
    PARITY_OK(d->backend->alloc(d->device, sizeof *loss, &total));
    PARITY_OK(d->backend->upload(d->device, base, memory, bytes));
    for (int i = 0; i < PP_CALL_REFS; i++) mine.ref[i].region = PP_MEM_WORK;
    const struct pp_frame frame = {.base = {[PP_MEM_WORK] = base}, .loss = total, .loss_scale = 1};
    PARITY_OK(d->backend->run(d->device, &program, &frame, NULL, NULL));
    PARITY_OK(d->backend->download(d->device, memory, base, bytes));
    PARITY_OK(d->backend->download(d->device, loss, total, sizeof *loss));
    d->backend->release(d->device, base, bytes);
    d->backend->release(d->device, total, sizeof *loss);
}

/* relu passes it on, as the cpu's and PyTorch's do: a step that failed stays visible. */
void parity_relu_not_a_number(void **state)
{
    (void)state;
    enum { WIDTH = 7 };
    float memory[2 * WIDTH] = {NAN, -1, 2, -INFINITY, INFINITY, 3, NAN, 0, 0, 0, 0, 0, -4, 1};
    double loss;
    run_on(&(struct pp_call){PP_KERNEL_RELU, .activation = {1, 1, WIDTH}, .at.relu.bias.offset = WIDTH * 4}, memory,
           2 * WIDTH, &loss);
    assert_true(isnan(memory[0]) && isnan(memory[6]) && isinf(memory[4]));
    assert_true(memory[1] == 0 && memory[2] == 2 && memory[3] == 0 && memory[5] == 0);
}

/* Of two tokens: choices are experts whatever the logits are, so that places lie inside of memory. */
void parity_route_not_a_number(void **state)
{
    (void)state;
    enum { E = 3, CHOICES = 4, CAPACITY = 2, CHOICE = 6, GATE = 10, PLACE = 14, HELD = 18, COUNT = 24, BIAS = 27 };
    float memory[BIAS + E] = {NAN, -NAN, 1, INFINITY, -INFINITY, 2};
    static const int32_t choices[CHOICES] = {0, 1, 0, 1}, places[CHOICES] = {0, 2, 1, 3};
    struct pp_call call = {.kernel = PP_KERNEL_ROUTE, .route = {1, 2, E, 2, CAPACITY, E}};
    static const int at[] = {0, CHOICE, GATE, PLACE, HELD, COUNT, BIAS};
    double loss;
    for (int i = 0; i < PP_CALL_REFS && i < (int)(sizeof at / sizeof *at); i++) call.ref[i].offset = at[i] * 4;
    run_on(&call, memory, sizeof memory / sizeof *memory, &loss);
    assert_memory_equal(memory + CHOICE, choices, sizeof choices);
    assert_memory_equal(memory + PLACE, places, sizeof places);
    for (int i = 0; i < CHOICES; i++) assert_true(isnan(memory[GATE + i])); /* a failed step shows */
}

enum { WORDS = 8192 }; /* two quads for each thread */

/* The loss of one token whose logits are 0 but for the first `few`, each `x`; and the first word's gradient. */
static double loss_with(float x, int few, float *gradient)
{
    static float memory[3 * WORDS + 1]; /* logits, bias, gradient; the target */
    const int32_t target = WORDS - 1;
    double loss;
    for (int i = 0; i < 3 * WORDS; i++) memory[i] = i < few ? x : 0;
    memcpy(&memory[3 * WORDS], &target, sizeof target);
    run_on(&(struct pp_call){.kernel = PP_KERNEL_CROSS_ENTROPY,
                             .loss = {1, 1, WORDS, 1, WORDS},
                             .ref = {{0}, {.offset = WORDS * 4}, {.offset = 3 * WORDS * 4}, {.offset = 2 * WORDS * 4}}},
           memory, 3 * WORDS + 1, &loss);
    *gradient = memory[2 * WORDS];
    return loss;
}

/* Words of probability 0, also where a thread's first quad has no others; what is not a number shows. */
void parity_loss_of_the_impossible(void **state)
{
    (void)state;
    float gradient;
    assert_true(fabs(loss_with(-INFINITY, WORDS / 2 + 4, &gradient) - log(WORDS / 2 - 4)) < 1e-5 && gradient == 0);
    assert_true(isnan(loss_with(NAN, 1, &gradient)) && isnan(gradient));
}

/* One FP8 factor: amax of two rows of bfloat16, then the codes both ways, and the scale. */
enum { ROWS = 2, COLUMNS = 3, NUMBERS = ROWS * COLUMNS };
struct rounded {
    float amax, scale;
    uint8_t q[NUMBERS], turned[NUMBERS];
};

static struct rounded rounded_of(const float *numbers, bool gradient)
{
    /* in memory: amax, scale, x as bfloat16, then q and turned */
    enum { AMAX, SCALE, X, Q = X + NUMBERS / 2, TURNED = Q + (NUMBERS + 3) / 4, WORDS_OF_ALL = TURNED + 2 };
    float memory[WORDS_OF_ALL] = {0};
    uint16_t x[NUMBERS];
    struct rounded out;
    double loss;
    for (int i = 0; i < NUMBERS; i++) x[i] = parity_to_bf16(numbers[i]);
    memcpy(memory + X, x, sizeof x);
    struct pp_call call = {.kernel = PP_KERNEL_AMAX, .fp8 = {ROWS, COLUMNS, 0, gradient}, .precision = PP_BF16};
    call.at.amax.x.offset = X * 4;
    run_on(&call, memory, WORDS_OF_ALL, &loss);
    call.kernel = PP_KERNEL_TO_FP8;
    call.at.to_fp8 = (struct pp_to_fp8_refs){
        .q.offset = Q * 4, .turned.offset = TURNED * 4, .scale.offset = SCALE * 4, .x.offset = X * 4};
    run_on(&call, memory, WORDS_OF_ALL, &loss);
    out.amax = memory[AMAX];
    out.scale = memory[SCALE];
    memcpy(out.q, memory + Q, sizeof out.q);
    memcpy(out.turned, memory + TURNED, sizeof out.turned);
    for (int i = 0; i < NUMBERS; i++) assert_int_equal(out.q[i], out.turned[i % COLUMNS * ROWS + i / COLUMNS]);
    return out;
}

static bool is_nan(const struct rounded *r, int i, bool gradient) { return isnan(pp_fp8_float(r->q[i], gradient)); }

/* Where all is 0, the scale is 1. Where all is tiny, the scale and the factor that it undoes are normal numbers. */
static void check_small(bool gradient)
{
    struct rounded r = rounded_of((const float[NUMBERS]){0, -0.0f}, gradient);
    assert_true(r.amax == 0 && r.scale == 1 && r.q[0] == 0 && r.q[1] == 0x80 && r.q[5] == 0);
    r = rounded_of((const float[NUMBERS]){0x1p-130f, -0x1p-133f}, gradient);
    assert_true(r.amax == 0x1p-130f && r.scale == 0x1p-126f);
    assert_true(r.q[0] == pp_fp8(0x1p-4f, gradient) && r.q[1] == pp_fp8(-0x1p-7f, gradient));
}

/* amax leaves NaN aside, which stays NaN. An infinity becomes NaN and makes 0 of the other numbers. */
static void check_not_finite(bool gradient)
{
    const float largest = pp_fp8_format(gradient).largest;
    struct rounded r = rounded_of((const float[NUMBERS]){1, NAN, -4, 0.5f, -NAN, 2}, gradient);
    assert_true(r.amax == 4 && r.scale == 1 / (largest / 4) && is_nan(&r, 1, gradient) && is_nan(&r, 4, gradient));
    assert_true(r.q[2] == pp_fp8(-largest, gradient) && r.q[0] == pp_fp8(largest / 4, gradient));
    r = rounded_of((const float[NUMBERS]){NAN, NAN, NAN, NAN, NAN, NAN}, gradient);
    assert_true(r.amax == 0 && r.scale == 1 && is_nan(&r, 0, gradient) && is_nan(&r, 5, gradient));
    r = rounded_of((const float[NUMBERS]){1, INFINITY, -4, 0.5f, -INFINITY, 2}, gradient);
    assert_true(isinf(r.amax) && isinf(r.scale) && is_nan(&r, 1, gradient) && is_nan(&r, 4, gradient));
    assert_true(r.q[0] == 0 && r.q[2] == 0x80);
}

void parity_fp8_extremes(void **state)
{
    (void)state;
    for (int gradient = 0; gradient < 2; gradient++) {
        check_small(gradient);
        check_not_finite(gradient);
    }
}
