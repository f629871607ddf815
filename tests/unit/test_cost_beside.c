/* SPDX-License-Identifier: Apache-2.0
 *
 * What is left of sums over tensor ranks that run beside products (--overlap-tensor-sums): by formulas of the layer,
 * with products and sums of given lengths.
 */
#include "kernels/kernels.h"
#include "sim/placement.h"
#include "tests/unit/cost_case.h"

/* Six layers in three stages, of which the middle one has neither embedding nor decoder. */
#define MODEL                                                                                                          \
    "--stages 3 --layers 6 --tensor 2 --heads 4 --d-model 16 --d-ff 32 --rows 8 --chunks 2 --tokens 12 "               \
    "--schedule gpipe --device cuda --precision fp32 --norm pre "

/* A product of rows of tokens takes so long for each row, one of weights so long, and all else no time. */
struct lengths {
    double row_ns, weights_ns;
};

static pp_status given_ns(void *from, const struct pp_call *call, double *out)
{
    const struct lengths *lengths = from;
    *out = 0;
    if (call->kernel == PP_KERNEL_GEMM_NT || call->kernel == PP_KERNEL_GEMM_NN) *out = lengths->row_ns * call->n[0];
    if (call->kernel == PP_KERNEL_GEMM_TN) *out = lengths->weights_ns;
    return PP_OK;
}

static double all_ns(const struct pp_program *program, const struct lengths *lengths)
{
    double sum = 0, ns;
    for (int i = 0; i < program->ncalls; i++) {
        assert_int_equal(given_ns((void *)lengths, &program->calls[i], &ns), PP_OK);
        sum += ns;
    }
    return sum;
}

/* What is left in a task of this kind of the middle stage. byte_ns: of a byte that a join carries. */
static int64_t left_ns(const struct pp_job *job, int kind, struct lengths lengths, double byte_ns, bool beside)
{
    const struct pp_call_times times = {given_ns, &lengths};
    const struct pp_placement placement = pp_placement_of(job, NULL);
    for (int c = 0; c < job->train->nclasses; c++) {
        const struct pp_class *class = &job->train->classes[c];
        if (class->kind != kind || class->stage != 1) continue;
        const int64_t kernels = llround(all_ns(&job->phase[PP_TRAIN].programs[c], &lengths));
        struct pp_class_cost cost = {.ns = kernels + 77, .loaded_ns = 2 * kernels + 77, .sums_ns = 77};
        /* of another clock: their proportions count */
        lengths.row_ns *= 3;
        lengths.weights_ns *= 3;
        assert_int_equal(pp_placement_set_sums(&placement, job, c, 0, byte_ns, beside ? &times : NULL, &cost), PP_OK);
        assert_int_equal(cost.ns, kernels + cost.sums_ns);
        assert_int_equal(cost.loaded_ns, 2 * kernels + cost.sums_ns);
        return cost.sums_ns;
    }
    fail_msg("no such task");
    return 0;
}

static double more(double a, double b) { return a > b ? a : b; }

/* Of a product in K pieces of t beside joins of j each: one piece of the shorter lane stands alone. */
static double left_of(int pieces, double t, double j) { return t >= j ? j : pieces * j + t - pieces * t; }

/* A layer forward: without parts of the tokens two products are summed, with them two more read what is gathered. On
 * the way back the same; the inputs that the weights of two linears read are gathered beside those of the other two. */
static void check_pieces(int pieces, bool parts, double t, double j, double weights_ns)
{
    enum { TOKENS = 4 * 12, LAYERS = 2 };
    char line[512];
    snprintf(line, sizeof line, MODEL "--overlap-tensor-sums %d %s", pieces, parts ? "--sequence-parallel" : "");
    struct pp_job *job = create_job(line);
    const double row_ns = t * pieces / TOKENS, bytes = TOKENS * 16 * 4;
    const double byte_ns = j * pieces / (bytes * (parts ? 1 : 2) / 2); /* a ring of two carries half of them */
    const struct lengths lengths = {row_ns, weights_ns};
    const double each = left_of(pieces, t, j), products = LAYERS * (parts ? 4 : 2);
    const double gathered = parts ? LAYERS * 2 * more(0, pieces * j - weights_ns) : 0;
    const double whole = LAYERS * pieces * j * (parts ? 4 : 2), back = whole + (parts ? LAYERS * 2 * pieces * j : 0);
    assert_in_range(left_ns(job, PP_F, lengths, byte_ns, true), products * each - 2, products * each + 2);
    assert_in_range(left_ns(job, PP_B, lengths, byte_ns, true), products * each + gathered - 2,
                    products * each + gathered + 2);
    assert_in_range(left_ns(job, PP_F, lengths, byte_ns, false), whole - 2, whole + 2);
    assert_in_range(left_ns(job, PP_B, lengths, byte_ns, false), back - 2, back + 2);
    pp_job_free(job);
}

static void test_formulas(void **state)
{
    (void)state;
    for (int parts = 0; parts < 2; parts++)
        for (int pieces = 2; pieces <= 6; pieces += 2) {
            check_pieces(pieces, parts, 9000, 4000, 100000); /* products take longer */
            check_pieces(pieces, parts, 9000, 4000, 5000);
            check_pieces(pieces, parts, 2000, 4000, 100000); /* sums do */
            check_pieces(pieces, parts, 2000, 4000, 0);
            check_pieces(pieces, parts, 4000, 4000, 1000);
        }
}

static int64_t tensor_ns(const char *machine, const char *options, const char *pieces)
{
    char line[512];
    struct pp_machine m;
    struct pp_cost *cost;
    int64_t sum = 0;
    snprintf(line, sizeof line, MODEL "--sequence-parallel --d-model 4096 --d-ff 16384 --tokens 2048 %s %s", options,
             pieces);
    assert_int_equal(pp_machine_find(machine, &m), PP_OK);
    struct pp_job *job = create_job(line);
    if (pp_cost_from_machine(job, &m, &cost) != PP_OK) fail_msg("%s", pp_message());
    for (int c = 0; c < cost->nclasses; c++) sum += cost->classes[c].sums_ns;
    pp_cost_free(cost);
    pp_job_free(job);
    return sum;
}

/* GPUs have queues; on a CPU a worker has one thread, and all sums take their time. */
static void test_devices(void **state)
{
    (void)state;
    const int64_t plain = tensor_ns("h100", "", ""), beside = tensor_ns("h100", "", "--overlap-tensor-sums 4");
    assert_in_range(beside, plain / 10, plain / 2);
    assert_int_equal(tensor_ns("h100", "", "--overlap-tensor-sums 1"), plain);
    const int64_t cpu = tensor_ns("cpu", "--device cpu", "");
    assert_true(tensor_ns("cpu", "--device cpu", "--overlap-tensor-sums 4") > cpu); /* more latencies */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formulas), cmocka_unit_test(test_devices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
