/* SPDX-License-Identifier: Apache-2.0
 *
 * How many launches attention that stores no scores takes, and the scratch that it gets.
 */
#include "device_case.h"

/* Forward: the bias, unless there is none, and all the rest. Backward: means, two kernels of gradients, and those that
 * waited in scratch to their place; wide heads have all three there, in two kernels, of 43 pairs at a time. On tensor
 * cores gradients of queries come with means. */
static const int flash_launches[] = {0, 2, 4, 10, 4, 2, 3, 1, 4};

/* SHAPE: nothing, flash or its gradient, in float arithmetic and on tensor cores; pairs of 4 heads share their keys. */
static void attend(void)
{
    static const struct {
        int kernel, heads, width, kv, plain, precision;
    } shapes[] = {{PP_KERNEL_FLASH, 0, 8, 0, 0, PP_FP32},       {PP_KERNEL_FLASH, 3, 8, 0, 0, PP_FP32},
                  {PP_KERNEL_FLASH_GRAD, 3, 8, 0, 0, PP_FP32},  {PP_KERNEL_FLASH_GRAD, 85, 260, 0, 0, PP_FP32},
                  {PP_KERNEL_FLASH_GRAD, 4, 8, 2, 0, PP_FP32},  {PP_KERNEL_FLASH, 3, 16, 0, 0, PP_BF16},
                  {PP_KERNEL_FLASH_GRAD, 3, 16, 0, 0, PP_BF16}, {PP_KERNEL_FLASH, 4, 16, 2, 1, PP_BF16},
                  {PP_KERNEL_FLASH_GRAD, 4, 16, 2, 0, PP_BF16}};
    enum { TOKENS = 64 };
    const int shape = atoi(getenv("SHAPE")), heads = shapes[shape].heads;
    const int64_t bytes = INT64_C(4) * 3 * TOKENS * (heads + 1) * shapes[shape].width;
    struct pp_call call = {.kernel = shapes[shape].kernel,
                           .precision = shapes[shape].precision,
                           .attention = {1, TOKENS, heads, shapes[shape].width, 0, shapes[shape].kv}};
    const struct pp_program program = {.calls = &call, .ncalls = heads > 0};
    struct pp_frame frame = {0};
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    for (int i = 0; i < 5; i++) {
        call.ref[i].region = 1 + i;
        MUST_OK(cuda->alloc(device, bytes, &frame.base[1 + i]));
    }
    if (shapes[shape].plain) call.at.flash.bias.region = PP_MEM_NONE; /* no bias */
    MUST_OK(ops->run(device, &program, &frame));
    MUST(ops->launches(device, &program) == flash_launches[shape]);
    drain(device, ops->compute(device));
    for (int i = 0; i < 5; i++) cuda->release(device, frame.base[1 + i], bytes);
    cuda->close(device);
}

/* As many as the device says before it launches any. */
static void test_flash(void **state)
{
    (void)state;
    enum { SHAPES = sizeof flash_launches / sizeof flash_launches[0] };
    const long long none = counted(run_case(attend, (const char *const[]){"SHAPE=0", NULL}), "launches");
    for (int i = 1; i < SHAPES; i++) {
        char name[24];
        snprintf(name, sizeof name, "SHAPE=%d", i);
        const long long launches = counted(run_case(attend, (const char *const[]){name, NULL}), "launches") - none;
        if (is_emulated()) assert_int_equal(launches, flash_launches[i]);
    }
}

/* A group of heads of long rows needs more scratch than others; there is as much from when its program is known. */
static void attend_long(void)
{
    struct pp_call call = {
        .kernel = PP_KERNEL_FLASH_GRAD, .precision = PP_BF16, .attention = {2, 1 << 17, 8, 128, 1, 2}};
    const struct pp_program program = {.calls = &call, .ncalls = 1};
    const bool little = is_emulated() && atoi(getenv("PP_EMULATE_MEMORY")) < 160 << 20;
    load_cuda();
    struct pp_device *device = open_device(0, 1);
    const pp_status status = ops->prepare(device, &program);
    MUST(status == (little ? PP_NOMEM : PP_OK));
    if (little) MUST_SAY("scratch of kernels: a worker needs 0.06 GiB");
    MUST(ops->launches(device, &program) == 4 * 4); /* one group after the other */
    cuda->close(device);
}

static void test_long_rows(void **state)
{
    (void)state;
    assert_clean(run_case(attend_long, (const char *const[]){"PP_EMULATE_MEMORY=134217728", NULL}));
    assert_clean(run_case(attend_long, (const char *const[]){"PP_EMULATE_MEMORY=268435456", NULL}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_flash), cmocka_unit_test(test_long_rows)};
    return RUN_CASES(tests, 2);
}
