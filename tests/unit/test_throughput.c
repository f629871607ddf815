/* SPDX-License-Identifier: Apache-2.0
 *
 * The model's work in a step: what the products of its programs add up to, whatever the schedule computes again, and
 * what a hand adds up for one small model.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/model.h"
#include "schedules/schedule.h"
#include "sim/throughput.h"

static double product_flops(const struct pp_call *call)
{
    const double entries =
        (double)call->attention.rows * call->attention.heads * call->attention.seq * PP_SEEN_KEYS(&call->attention);
    if (pp_kernel_is_product(call->kernel)) return pp_call_flops(call);
    if (call->kernel == PP_KERNEL_FLASH_GRAD)
        return pp_call_flops(call) - (PP_SOFTMAX_AGAIN_FLOPS + 2.0 * call->attention.dh) * entries;
    if (call->kernel >= PP_KERNEL_ATTENTION && call->kernel <= PP_KERNEL_FLASH)
        return pp_call_flops(call) - PP_SOFTMAX_FLOPS * entries;
    return 0;
}

/* Of one step of one replica; *again: of it what is computed a second time by tasks of its own. */
static double step_flops(const struct pp_job *job, double *again)
{
    double sum = 0;
    *again = 0;
    for (int32_t t = 0; t < job->train->ntasks; t++) {
        const int cls = job->train->tasks[t].cls, kind = job->train->classes[cls].kind;
        const struct pp_program *program = &job->phase[PP_TRAIN].programs[cls];
        for (int i = 0; pp_kinds[kind].computes && i < program->ncalls; i++)
            *(kind == PP_R ? again : &sum) += product_flops(&program->calls[i]);
    }
    return sum;
}

struct fixture {
    struct pp_config config;
    struct pp_predictor predictor;
    struct pp_prediction prediction;
};

static void predict(struct fixture *f, int n, char **options, const struct pp_point *point)
{
    *f = (struct fixture){0};
    if (pp_config_parse(PP_PPSIM, n, options, &f->config, NULL) != PP_OK) fail_msg("%s", pp_message());
    f->predictor = (struct pp_predictor){.config = &f->config, .schedules = &pp_schedules, .ops = &pp_model_ops};
    if (pp_machine_find(pp_config_machine(&f->config), &f->predictor.machine) != PP_OK) fail_msg("%s", pp_message());
    if (pp_predict(&f->predictor, point, false, &f->prediction) != PP_OK) fail_msg("%s", pp_message());
}

static void test_products_of_the_programs(void **state)
{
    static const struct pp_point points[] = {{"gpipe", 1, 1, 1}, {"1f1b", 3, 1, 4}, {"zbv", 2, 2, 5}};
    static char *options[] = {"ppsim", "--layers",     "7",    "--heads",       "4",      "--d-ff",
                              "72",    "--rows",       "11",   "--mask",        "causal", "--d-model",
                              "64",    "--vocab",      "99",   "--tokens",      "13",     "--precision",
                              "fp32",  "--activation", "relu", "--kv-heads",    "0",      "--attention",
                              "math",  "--head-dim",   "0",    "--window-size", "0",      "--window-attn-skip-freq",
                              "3"};
    enum { OPTIONS = sizeof options / sizeof *options };
    (void)state;
    for (int i = 0; i < 3; i++)
        for (int turn = 0; turn < 6; turn++) {
            const bool checkpoints = turn % 2;
            struct fixture f;
            double again;
            struct pp_point point = points[i];
            options[OPTIONS - 3] = turn / 4 ? "5" : "20"; /* more tokens than a row has */
            options[OPTIONS - 5] = turn / 2 ? "24" : "0"; /* wider together than the model */
            options[OPTIONS - 7] = turn / 2 ? "flash" : "math";
            options[OPTIONS - 9] = turn / 2 ? "2" : "0";
            options[OPTIONS - 11] = turn / 2 ? "swiglu" : "gelu";
            point.checkpoint = checkpoints ? PP_CHECKPOINT_ALWAYS : PP_CHECKPOINT_NEVER;
            predict(&f, OPTIONS, options, &point);
            const double work = step_flops(f.prediction.job, &again);
            assert_true(fabs(f.config.rows * pp_model_flops(&f.prediction.job->model->shape, 13) / work - 1) < 1e-12);
            assert_true((again > 0) == checkpoints);
            pp_prediction_free(&f.prediction);
        }
}

/* Layers of two kinds: the sum of what each has alone. */
static void test_two_kinds(void **state)
{
    (void)state;
    struct pp_shape shape = {.d_model = 8, .heads = 2, .d_ff = 16, .layers = 7, .vocab = 10, .bias = PP_NO_BIAS};
    struct pp_shape bare = shape, dense = shape;
    shape.experts = 4;
    shape.experts_per_token = 2;
    shape.capacity_factor = 1.25;
    struct pp_shape experts = shape;
    shape.dense_layers = 2;
    shape.experts_every = 2; /* layers 2, 4 and 6 */
    shape.dense_ff = 24;
    dense.d_ff = 24;
    dense.layers = 4;
    experts.layers = 3;
    bare.layers = 0;
    assert_true(pp_model_flops(&shape, 3) ==
                pp_model_flops(&dense, 3) + pp_model_flops(&experts, 3) - pp_model_flops(&bare, 3));
}

/* Two layers, d 8, ff 16, 10 words, 3 tokens. A token's multiplications: of a layer 4 64 + 2 128 for the weights, and
 * 2 3 8 in attention; 80 in the decoder: 2 (512 + 48) + 80 = 1200. 3 tokens, 2 operations each, 3 times: 21600. */
static void test_by_hand(void **state)
{
    static char *options[] = {"ppsim",    "--layers",   "2",           "--heads",  "2",       "--d-ff",    "16",
                              "--rows",   "4",          "--d-model",   "8",        "--vocab", "10",        "--tokens",
                              "3",        "--replicas", "2",           "--stages", "2",       "--machine", "h100",
                              "--device", "cuda",       "--precision", "bf16",     "--gpus",  "2"};
    const struct pp_point point = {"1f1b", 2, 1, 2};
    struct fixture f;
    (void)state;
    predict(&f, sizeof options / sizeof *options, options, &point);
    assert_true(pp_model_flops(&f.prediction.job->model->shape, 3) == 21600);
    const double seconds = (double)f.prediction.result.batch_ns / 1e9;
    assert_true(fabs(pp_tokens_per_s(&f.prediction) * seconds - 2 * 4 * 3) < 1e-9);
    /* 8 rows on 2 GPUs of 989e12 a second, which the 4 workers share */
    assert_true(fabs(pp_mfu(&f.predictor, &f.prediction) / (8 * 21600 / (seconds * 2 * 989e12)) - 1) < 1e-9);
    assert_int_equal(pp_devices(&f.predictor, &f.prediction), 2);
    f.config.machine.n = 0;
    assert_true(pp_mfu(&f.predictor, &f.prediction) == 0);
    pp_prediction_free(&f.prediction);
}

/* With a window of 2 of 3 tokens a token has 2 2 8 multiplications in attention; in every second layer 2 3 8. */
static void test_windows_by_hand(void **state)
{
    (void)state;
    struct pp_shape shape = {.d_model = 8, .heads = 2, .d_ff = 16, .layers = 3, .vocab = 10, .mask = PP_MASK_CAUSAL};
    const double full = pp_model_flops(&shape, 3);
    shape.window = 2;
    assert_true(pp_model_flops(&shape, 3) == full - 3 * 6 * 3 * 2 * 8);
    shape.window_skip = 2;
    assert_true(pp_model_flops(&shape, 3) == full - 3 * 6 * 2 * 2 * 8);
    shape.window = 3;
    assert_true(pp_model_flops(&shape, 3) == full);
    shape.window = 1000;
    assert_true(pp_model_flops(&shape, 3) == full);
}

/* A token's own two experts and the router; not places that nobody has, nor experts of others: twice 2 128 and 4 8 for
 * each layer in the place of 2 128. */
static void test_experts_by_hand(void **state)
{
    (void)state;
    struct pp_shape shape = {.d_model = 8, .heads = 2, .d_ff = 16, .layers = 2, .vocab = 10, .bias = PP_NO_BIAS};
    assert_true(pp_model_flops(&shape, 3) == 21600);
    shape.experts = 4;
    shape.experts_per_token = 2;
    shape.capacity_factor = 3;
    assert_true(pp_model_flops(&shape, 3) == 21600 + 3 * 6 * 2 * (256 + 32));
    shape.capacity_factor = 0.5; /* there is no room for more than one */
    assert_true(pp_model_flops(&shape, 3) == 21600 + 3 * 6 * 2 * 32);
    /* beside them 2 8 5, of swiglu 3 8 5, where an expert has 3 8 16; and a gate */
    shape.shared_ff = 5;
    assert_true(pp_model_flops(&shape, 3) == 21600 + 3 * 6 * 2 * (32 + 80));
    shape.activation = PP_SWIGLU;
    shape.shared_gate = true;
    assert_true(pp_model_flops(&shape, 3) == 21600 + 3 * 6 * 2 * (32 + 128 + 120 + 8));
}

/* Four workers of two threads are 8 cores, of 5 that a machine has 5; a waited-for GPU is one. */
static void test_days_and_cost(void **state)
{
    static char *options[] = {"ppsim", "--layers", "2",  "--rows",    "4", "--tokens",  "3",   "--replicas",
                              "2",     "--stages", "2",  "--threads", "2", "--machine", "cpu", "--train-tokens",
                              "48e12", "--price",  "0.5"};
    const struct pp_point point = {"1f1b", 2, 1, 2};
    struct fixture f;
    (void)state;
    predict(&f, sizeof options / sizeof *options, options, &point);
    const double seconds = (double)f.prediction.result.batch_ns / 1e9; /* of 24 tokens */
    assert_true(fabs(pp_train_days(&f.predictor, &f.prediction) / (2e12 * seconds / 86400) - 1) < 1e-12);
    f.predictor.machine.cores = 5;
    assert_int_equal(pp_devices(&f.predictor, &f.prediction), 5);
    assert_true(fabs(pp_cost_per_gtoken(&f.predictor, &f.prediction) / (1e9 / 24 * seconds / 3600 * 5 * 0.5) - 1) <
                1e-12);
    f.config.machine.n = 0; /* the device was measured: the machine is not that of the workers */
    assert_int_equal(pp_devices(&f.predictor, &f.prediction), 8);
    f.config.device = "delay";
    f.predictor.waits = "cuda";
    assert_int_equal(pp_devices(&f.predictor, &f.prediction), 4);
    f.config.price.n = 0;
    f.config.train_tokens = 0;
    assert_true(pp_cost_per_gtoken(&f.predictor, &f.prediction) == 0);
    assert_true(pp_train_days(&f.predictor, &f.prediction) == 0);
    pp_prediction_free(&f.prediction);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products_of_the_programs),
                                       cmocka_unit_test(test_two_kinds),
                                       cmocka_unit_test(test_by_hand),
                                       cmocka_unit_test(test_windows_by_hand),
                                       cmocka_unit_test(test_experts_by_hand),
                                       cmocka_unit_test(test_days_and_cost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
