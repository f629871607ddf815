/* SPDX-License-Identifier: Apache-2.0
 *
 * Training with FP8 products: the same bits however the model is cut, and losses near those of the cpu in fp32.
 */
#include "training.h"

#include "tests/cuda/emulated.h"

/* Sizes that FP8 products can have. */
#define FP8 SHORT "--rows 4 --tokens 16 --chunks 2 --d-model 32 --d-ff 64 --dropout 0.2 --precision fp8 "

/* The same bits as `one`, however the model is cut: B in one piece or as I and W, and whatever is computed again. */
static void check_fp8_cuts(const char *model, const struct outcome *one)
{
    static const struct {
        int stages;
        const char *options;
    } others[] = {{2, "--stages 2 --schedule zb-h1"},
                  {1, "--stages 1 --schedule gpipe --checkpoint always"},
                  {2, "--stages 2 --schedule 1f1b --checkpoint except_last"},
                  {4, "--stages 4 --schedule 1f1b --checkpoint layers"}};
    struct outcome other;
    char options[OPTIONS];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(options, sizeof options, FP8 "%s %s", model, others[i].options);
        training_run(cuda, options, &other);
        training_compare(one, 1, &other, others[i].stages, 0.02, options);
        free(other.weights);
    }
}

/* Losses near those of the cpu, which has fp32, but not those of bf16; and the same bits for all cuts, and again. */
static void check_fp8(const char *model)
{
    struct outcome here, bf16, one;
    char options[OPTIONS];
    snprintf(options, sizeof options, FP8 "%s --precision fp32 --stages 1", model);
    training_run(&pp_backend_cpu, options, &here);
    snprintf(options, sizeof options, FP8 "%s --precision bf16 --stages 1", model);
    training_run(cuda, options, &bf16);
    snprintf(options, sizeof options, FP8 "%s --stages 1", model);
    training_run(cuda, options, &one);
    training_near(&here, &one, 0.03, options);
    assert_true(one.losses[0] != bf16.losses[0]);
    check_fp8_cuts(model, &one);
    free(here.weights);
    free(bf16.weights);
    free(one.weights);
}

/* Workers that share tensors or the optimizer's work: near the losses of one worker, or its bits. */
static void check_fp8_shared(const char *model, const char *shared, double tolerance)
{
    struct outcome whole, parts;
    char options[OPTIONS];
    snprintf(options, sizeof options, FP8 "%s --stages 1", model);
    training_run(cuda, options, &whole);
    snprintf(options, sizeof options, FP8 "%s --stages 1 %s", model, shared);
    training_run(cuda, options, &parts);
    if (tolerance > 0)
        training_near(&whole, &parts, tolerance, options);
    else
        expect_equal(&whole, &parts, options);
    free(whole.weights);
    free(parts.weights);
}

/* GPUs before compute capability 8.9 have no FP8 products, emulated ones do. */
static bool has_fp8(void)
{
    const struct pp_device_spec spec = {.workers = 1, .on_host = 1, .precision = PP_FP8};
    struct pp_device *device;
    const pp_status status = cuda->open(&spec, &device);
    if (status == PP_OK) cuda->close(device);
    return status != PP_UNSUPPORTED || is_emulated();
}

void training_in_fp8(void **state)
{
    (void)state;
    leave_out_where_slow();
    if (!has_fp8()) skip();
    check_fp8("");
    check_fp8(LLAMA "--experts 4 --experts-per-token 2 --capacity-factor 2 --shared-ff 32 --attention flash");
    check_fp8(LLAMA "--positions rope --kv-lora-rank 16 --q-lora-rank 16 --qk-nope-head-dim 16 --qk-rope-head-dim 16 "
                    "--v-head-dim 16");
    check_fp8_shared("", "--tensor 2", 0.02);
    check_fp8_shared(LLAMA, "--tensor 2 --sequence-parallel --overlap-tensor-sums 2", 0.02);
    check_fp8_shared("--replicas 2", "--zero 1", 0);
}
