/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs of GPUs that a data sheet gives: by precision, by the arithmetic of each kernel, call after call.
 */
#include <math.h>

#include "kernels/kernels.h"
#include "sim/machine_calls.h"
#include "tests/unit/cost_case.h"

static int64_t longest_class(const char *options)
{
    struct pp_job *job = create_job(options);
    struct pp_machine m;
    struct pp_cost *cost;
    int64_t longest = 0;
    assert_int_equal(pp_machine_find("h200", &m), PP_OK);
    if (pp_cost_from_machine(job, &m, &cost) != PP_OK) fail_msg("%s", pp_message());
    assert_true(cost->host_issues && cost->issue_latency_ns > 0);
    for (int c = 0; c < cost->nclasses; c++) {
        longest = cost->classes[c].ns > longest ? cost->classes[c].ns : longest;
        assert_true(!pp_kinds[job->train->classes[c].kind].computes || cost->classes[c].host_ns > 0);
    }
    pp_cost_free(cost);
    pp_job_free(job);
    return longest;
}

#define WIDE "--device cuda --d-model 4096 --d-ff 16384 --tokens 4096 --rows 1 --chunks 1 "
/* Each precision has its own rate, a share of a GPU a part of it. */
static void test_machine_precisions(void **state)
{
    (void)state;
    int64_t fp32 = longest_class("--preset tutorial --device cuda --rows 400 --chunks 1 --precision fp32"),
            tf32 = longest_class("--preset tutorial --device cuda --rows 400 --chunks 1 --precision tf32"),
            bf16 = longest_class("--preset tutorial --device cuda --rows 400 --chunks 1 --precision bf16"),
            wide = longest_class(WIDE "--precision bf16"), fp8 = longest_class(WIDE "--precision fp8"),
            part = longest_class("--preset tutorial --device cuda --rows 400 --chunks 1 --precision fp32 --gpus 1");
    assert_true(fp32 > 4 * tf32 && tf32 > bf16 && wide > fp8);
    expect_near((double)part / (double)fp32, 4, 0.2, "a quarter of a GPU"); /* but for whole tiles, and their start */
    struct pp_job *job = create_job("--precision tf32");
    struct pp_machine m;
    struct pp_cost *cost;
    assert_int_equal(pp_machine_find("cpu", &m), PP_OK);
    assert_int_equal(pp_cost_from_machine(job, &m, &cost), PP_USAGE);
    assert_non_null(strstr(pp_message(), "tf32"));
    pp_job_free(job);
}

/* Of all tasks of the job, by this data sheet with so much bandwidth, products at a share of the peak. */
static double all_tasks_ns(const struct pp_job *job, struct pp_machine m, double bytes_per_ns)
{
    struct pp_cost *cost;
    double ns = 0;
    memset(m.tiles, 0, sizeof m.tiles);
    m.bytes_per_ns = bytes_per_ns;
    m.call_overhead_ns = 0;
    if (pp_cost_from_machine(job, &m, &cost) != PP_OK) fail_msg("%s", pp_message());
    for (int c = 0; c < cost->nclasses; c++)
        if (job->train->classes[c].kind == PP_F || job->train->classes[c].kind == PP_B)
            ns += (double)cost->classes[c].ns;
    pp_cost_free(cost);
    return ns;
}

/* Calls run one after another: what only moves data is not hidden behind the products of its task. Rows of 35 tokens:
 * attention, in float arithmetic, is quick. */
static void test_machine_calls_in_turn(void **state)
{
    (void)state;
    struct pp_job *job = create_job("--preset tutorial --device cuda --rows 400 --chunks 1 --precision bf16");
    const double bf16_per_ns = 989000 * 0.8, fp32_per_ns = 67000 * 0.75, bytes_per_ns = 4300;
    double products = 0, moved = 0, computed = 0;
    struct pp_machine m;
    assert_int_equal(pp_machine_find("h200", &m), PP_OK);
    for (int c = 0; c < job->train->nclasses; c++) {
        const struct pp_program *program = &job->phase[PP_TRAIN].programs[c];
        if (job->train->classes[c].kind != PP_F && job->train->classes[c].kind != PP_B) continue;
        for (int i = 0; i < program->ncalls; i++) {
            const struct pp_work work = job->model_ops->call_work(&program->calls[i], true);
            const double ns = fmax(work.flops[PP_BF16] / bf16_per_ns, work.flops[PP_FP32] / fp32_per_ns);
            computed += ns;
            if (ns > work.bytes / bytes_per_ns)
                products += ns;
            else
                moved += work.bytes / bytes_per_ns;
        }
    }
    assert_true(products > 3 * moved && moved > 0); /* such tasks, as a whole, compute longer than they move data */
    expect_near(all_tasks_ns(job, m, bytes_per_ns) / (products + moved), 1, 1e-6, "one call after another");
    expect_near(all_tasks_ns(job, m, 1e9) / computed, 1, 1e-4, "no time for data");
    pp_job_free(job);
}

/* Attention has the rate of the arithmetic in which its kernel computes: half of that, and it takes twice as long. */
static void test_rate_of_attention(void **state)
{
    (void)state;
    enum { SHARED = PP_PRECISIONS, RATES };
    static const struct {
        const char *options, *machine;
        int rate;
    } cases[] = {{"--precision fp32 --d-model 64", "h200", PP_FP32},
                 {"--precision bf16 --d-model 64", "h200", PP_FP32},
                 {"--precision bf16 --d-model 64 --attention flash", "h200", SHARED},
                 {"--precision bf16 --d-model 64 --attention flash", "a100", PP_BF16},
                 {"--precision bf16 --d-model 272 --attention flash", "a100", PP_FP32},
                 {"--precision tf32 --d-model 64 --attention flash", "h200", PP_FP32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_machine m;
        char options[256];
        snprintf(options, sizeof options,
                 "--device cuda --layers 1 --stages 1 --heads 1 --d-ff 64 --vocab 64 --tokens 8192 --rows 1 --chunks 1 "
                 "--mask causal %s",
                 cases[i].options);
        struct pp_job *job = create_job(options);
        assert_int_equal(pp_machine_find(cases[i].machine, &m), PP_OK);
        if (cases[i].rate == PP_BF16) m.shared_bytes_per_ns = 0; /* does not count */
        const double ns = all_tasks_ns(job, m, 1e9);
        for (int rate = 0; rate < RATES; rate++) {
            struct pp_machine half = m;
            if (rate == SHARED)
                half.shared_bytes_per_ns /= 2;
            else
                half.flops_per_ns[rate] /= 2;
            const double longer = all_tasks_ns(job, half, 1e9) / ns;
            if (!(rate == cases[i].rate ? longer >= 1.85 : longer <= 1.85))
                fail_msg("%s on %s: half of rate %d, %.2f times as long", cases[i].options, cases[i].machine, rate,
                         longer);
        }
        pp_job_free(job);
    }
}

/* A product of few tokens takes what moving the weight takes: twice as long at half of the bandwidth. One of many
 * tokens computes all the while. */
static void test_products_move_at_a_share_of_the_bandwidth(void **state)
{
    (void)state;
    for (int tokens = 16; tokens <= 16384; tokens *= 1024) {
        struct pp_machine m, half;
        struct pp_call call = {.kernel = PP_KERNEL_GEMM_NT, .precision = PP_BF16, .gemm = {tokens, 16384, 16384}};
        call.at.gemm.a.region = call.at.gemm.b.region = call.at.gemm.c.region = PP_MEM_WORK;
        const struct pp_work work = pp_call_work(&call, true);
        assert_int_equal(pp_machine_find("h100", &m), PP_OK);
        half = m;
        half.tiles[PP_BF16].memory /= 2;
        const double start = m.tiles[PP_BF16].start_ns, whole = pp_machine_work_ns(&m, &work) - start;
        const double longer = (pp_machine_work_ns(&half, &work) - start) / whole;
        assert_true(fabs(longer - (tokens == 16 ? 2 : 1)) < 1e-9);
    }
}

/* Operations of a precision in all tasks of the job */
static double all_flops(const struct pp_job *job, int precision)
{
    double flops = 0;
    for (int c = 0; c < job->train->nclasses; c++) {
        const struct pp_program *program = &job->phase[PP_TRAIN].programs[c];
        for (int i = 0; i < program->ncalls; i++)
            flops += job->model_ops->call_work(&program->calls[i], true).flops[precision];
    }
    return flops;
}

/* Products of layers' linears have the rate of FP8, the decoder's that of bf16. Attention (math) is in plain float. */
static void test_rate_of_linears_in_fp8(void **state)
{
    (void)state;
    const double t = 1024, d = 128, ff = 256, v = 512;
    struct pp_job *job =
        create_job("--device cuda --layers 1 --stages 1 --heads 2 --d-model 128 --d-ff 256 --vocab 512 "
                   "--tokens 1024 --rows 1 --chunks 1 --mask causal --precision fp8");
    struct pp_machine m;
    assert_int_equal(pp_machine_find("h200", &m), PP_OK);
    const double linears = 3 * 2 * t * (4 * d * d + 2 * d * ff), decoder = 3 * 2 * t * d * v;
    assert_true(all_flops(job, PP_FP8) == linears && all_flops(job, PP_BF16) == decoder);
    m.shared_bytes_per_ns = 0;
    const double ns = all_tasks_ns(job, m, 1e9);
    struct pp_machine half = m;
    half.flops_per_ns[PP_FP8] /= 2;
    expect_near(all_tasks_ns(job, half, 1e9) - ns, linears / m.flops_per_ns[PP_FP8], 2, "half the rate of FP8");
    half = m;
    half.flops_per_ns[PP_BF16] /= 2;
    expect_near(all_tasks_ns(job, half, 1e9) - ns, decoder / m.flops_per_ns[PP_BF16], 2, "half the rate of bf16");
    pp_job_free(job);
}

/* Bytes of the passes that round factors, in all tasks of a step. */
static double rounding_bytes(const struct pp_job *job)
{
    double bytes = 0;
    for (int64_t id = 0; id < job->train->ntasks; id++) {
        const struct pp_program *program = &job->phase[PP_TRAIN].programs[job->train->tasks[id].cls];
        for (int i = 0; i < program->ncalls; i++) {
            const struct pp_call *call = &program->calls[i];
            if (call->kernel == PP_KERNEL_AMAX || call->kernel == PP_KERNEL_TO_FP8)
                bytes += job->model_ops->call_work(call, true).bytes;
        }
    }
    return bytes;
}

/* As docs/TIMES.md counts them: of a linear with k columns in and n out, 10 t k + 6 t n in each microbatch, and 6 n k
 * once. Tensor ranks have parts of n, or of k. Where products are made in pieces, gradients are rounded in pieces, and
 * once more as a whole: 10 t n. */
static void check_rounding(const char *options, double tensor, double gradient_bytes, double weight_bytes)
{
    enum { MICROBATCHES = 2 };
    const double t = 2 * 128, d = 128, ff = 256, k[] = {d, d / tensor, d, ff / tensor},
                 n[] = {3 * d / tensor, d, ff / tensor, d};
    char all[512];
    double expected = 0;
    snprintf(all, sizeof all,
             "--device cuda --layers 1 --stages 1 --heads 2 --d-model 128 --d-ff 256 --vocab 512 --tokens 128 --rows 4 "
             "--chunks 2 --schedule 1f1b --precision fp8 %s",
             options);
    struct pp_job *job = create_job(all);
    for (int i = 0; i < 4; i++)
        expected += MICROBATCHES * t * (10 * k[i] + gradient_bytes * n[i]) + weight_bytes * n[i] * k[i];
    expect_near(rounding_bytes(job), expected, 0, options);
    pp_job_free(job);
}

static void test_bytes_of_rounding(void **state)
{
    (void)state;
    check_rounding("", 1, 6, 6);
    check_rounding("--replicas 2 --zero 2", 1, 6, 6);
    check_rounding("--replicas 2 --zero 3", 1, 6, 2 * (5 + 5)); /* F and B of each microbatch */
    check_rounding("--tensor 2", 2, 6, 6);
    check_rounding("--tensor 2 --sequence-parallel", 2, 6, 6);
    check_rounding("--tensor 2 --sequence-parallel --overlap-tensor-sums 4", 2, 10, 6);
}

static void check_no_rate(const char *machine, int without, const char *words)
{
    struct pp_job *job = create_job("--device cuda --precision fp8");
    struct pp_machine m;
    struct pp_cost *cost;
    assert_int_equal(pp_machine_find(machine, &m), PP_OK);
    m.flops_per_ns[without] = 0;
    assert_int_equal(pp_cost_from_machine(job, &m, &cost), PP_USAGE);
    assert_null(cost);
    if (!strstr(pp_message(), words)) fail_msg("%s", pp_message());
    pp_job_free(job);
}

static void test_machines_that_lack_a_rate_of_fp8(void **state)
{
    (void)state;
    check_no_rate("a100", PP_FP8, "machine a100 has no rate for --precision fp8");
    check_no_rate("h100", PP_FP8, "machine h100 has no rate for --precision fp8");
    check_no_rate("h100", PP_BF16, "machine h100 has no rate for bf16, in which --precision fp8 has");
}

/* What is neither a product nor attention takes as long as memory, as docs/TIMES.md says. */
static void test_others_wait_for_memory(void **state)
{
    (void)state;
    static const char *const machines[] = {"a100", "h100", "h200"},
                             *const models[] = {"tutorial", "gpt-small", "llama-3-8b", "tutorial --activation gelu"},
                             *const precisions[] = {"fp32", "bf16"};
    int others = 0;
    for (int i = 0; i < 3 * 4 * 2; i++) {
        char options[128];
        struct pp_machine m;
        snprintf(options, sizeof options, "--device cuda --precision %s --replicas 1 --stages 1 --chunks 1 --preset %s",
                 precisions[i / 12], models[i / 3 % 4]);
        struct pp_job *job = create_job(options);
        assert_int_equal(pp_machine_find(machines[i % 3], &m), PP_OK);
        for (int c = 0; c < job->train->nclasses; c++)
            for (int k = 0; k < job->phase[PP_TRAIN].programs[c].ncalls; k++) {
                const struct pp_call *call = &job->phase[PP_TRAIN].programs[c].calls[k];
                const struct pp_work work = pp_call_work(call, true);
                if (pp_kernel_is_product(call->kernel) ||
                    (call->kernel >= PP_KERNEL_ATTENTION && call->kernel <= PP_KERNEL_FLASH_GRAD))
                    continue;
                others++;
                if (work.flops[PP_FP32] / m.flops_per_ns[PP_FP32] > work.bytes / m.bytes_per_ns)
                    fail_msg("%s of %s computes on %s", pp_kernel_table[call->kernel].name, options, machines[i % 3]);
            }
        pp_job_free(job);
    }
    assert_true(others > 1000);
}

/* The step of up to 64 tensors is one launch, their norm two; on a cpu each tensor is a call. With parts of the tokens
 * a sum stands before them for each layer, in the norm if there is one. */
static void test_machine_launches(void **state)
{
    (void)state;
    static const struct {
        const char *options, *machine;
        int norm, step; /* 0: one for each call */
    } cases[] = {{"--device cuda --stages 1", "h200", 2, 1},
                 {"--device cuda --stages 1 --layers 12 --optimizer adamw", "h200", 6, 3},
                 {"--device cuda --stages 1 --tensor 2 --sequence-parallel", "h200", 2 + 2, 1},
                 {"--device cuda --stages 1 --tensor 2 --sequence-parallel --norm pre --clip 0", "h200", 2, 1 + 3},
                 {"--stages 1", "epyc-zen4", 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_job *job = create_job(cases[i].options);
        struct pp_machine m;
        struct pp_cost *cost;
        assert_int_equal(pp_machine_find(cases[i].machine, &m), PP_OK);
        m.issue_ns = 1000;
        if (pp_cost_from_machine(job, &m, &cost) != PP_OK) fail_msg("%s", pp_message());
        for (int c = 0; c < cost->nclasses; c++) {
            const int kind = job->train->classes[c].kind, calls = job->phase[PP_TRAIN].programs[c].ncalls;
            const int launches = kind == PP_NORM ? cases[i].norm : cases[i].step;
            if (kind == PP_NORM || kind == PP_STEP)
                assert_int_equal(cost->classes[c].host_ns, 1000 * (launches ? launches : calls));
        }
        pp_cost_free(cost);
        pp_job_free(job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products_move_at_a_share_of_the_bandwidth),
                                       cmocka_unit_test(test_machine_precisions),
                                       cmocka_unit_test(test_machine_calls_in_turn),
                                       cmocka_unit_test(test_rate_of_attention),
                                       cmocka_unit_test(test_others_wait_for_memory),
                                       cmocka_unit_test(test_machine_launches),
                                       cmocka_unit_test(test_rate_of_linears_in_fp8),
                                       cmocka_unit_test(test_bytes_of_rounding),
                                       cmocka_unit_test(test_machines_that_lack_a_rate_of_fp8)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
