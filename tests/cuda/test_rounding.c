/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers rounded to bfloat16 and read again: as core/calls/bf16.h does it, wherever they lie, and nothing else is
 * written.
 */
#include <math.h>

#include "core/calls/bf16.h"
#include "device_case.h"

enum { N = 5000, TURNS = 6 };

/* All that rounding can meet: ties both ways, what becomes infinite, subnormal numbers, both zeros, no number. */
static float value_of(int i)
{
    static const uint32_t rare[] = {0x3f808000, 0x3f818000, 0x7f7fffff, 0xff7fffff, 0x00000001,
                                    0x80007fff, 0x80000000, 0x7f800000, 0x7fc00000, 0x7f800001};
    const uint32_t bits = i % 16 < 10 ? rare[i % 16] : (uint32_t)i * 2654435761u;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* From element `first` on, n of them. */
static void check(struct pp_device *device, float *floats, uint16_t *halves, int first, int n)
{
    static float values[N], wide[N];
    static uint16_t narrow[N];
    struct pp_queue *queue = ops->compute(device);
    for (int i = 0; i < N; i++) values[i] = value_of(i);
    memset(narrow, 0x55, sizeof narrow);
    MUST_OK(cuda->upload(device, floats, values, sizeof values));
    MUST_OK(cuda->upload(device, halves, narrow, sizeof narrow));
    MUST_OK(ops->narrow(device, queue, halves + first, floats + first, n));
    MUST_OK(ops->widen(device, queue, floats + first, halves + first, n));
    drain(device, queue);
    MUST_OK(cuda->download(device, narrow, halves, sizeof narrow));
    MUST_OK(cuda->download(device, wide, floats, sizeof wide));
    for (int i = 0; i < N; i++) {
        const bool inside = i >= first && i < first + n, number = !isnan(values[i]);
        const float rounded = inside ? pp_bf16_float(pp_bf16(values[i])) : values[i];
        MUST(inside || narrow[i] == 0x5555);
        MUST(!inside || !number || narrow[i] == pp_bf16(values[i]));
        MUST(number ? memcmp(&wide[i], &rounded, sizeof rounded) == 0 : isnan(wide[i]));
    }
}

static void rounding(void)
{
    static const int from[TURNS][2] = {{0, N}, {0, 1}, {0, 0}, {4, 4096}, {1, 4096}, {3, N - 3}};
    float *floats;
    uint16_t *halves;
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    MUST_OK(cuda->alloc(device, N * sizeof *floats, (void **)&floats));
    MUST_OK(cuda->alloc(device, N * sizeof *halves, (void **)&halves));
    for (int i = 0; i < TURNS; i++) check(device, floats, halves, from[i][0], from[i][1]);
    cuda->release(device, floats, N * sizeof *floats);
    cuda->release(device, halves, N * sizeof *halves);
    cuda->close(device);
}

static void test_rounding(void **state)
{
    (void)state;
    static const char *const strict[] = {"PP_EMULATE_STRICT=1", NULL};
    assert_clean(run_case(rounding, strict));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounding)};
    return RUN_CASES(tests, 1);
}
