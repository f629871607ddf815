/* SPDX-License-Identifier: Apache-2.0
 *
 * What is left of sums over tensor ranks that run beside products (--overlap-tensor-sums), and of exchanges of experts
 * (--overlap-expert-exchange): by formulas of the layer, with products and sums of given lengths.
 */
#include "core/plan/movers.h"
#include "kernels/kernels.h"
#include "sim/machine_calls.h"
#include "sim/placement.h"
#include "tests/unit/cost_case.h"

/* Six layers in three stages, of which the middle one has neither embedding nor decoder. */
#define MODEL                                                                                                          \
    "--stages 3 --layers 6 --tensor 2 --heads 4 --d-model 16 --d-ff 32 --rows 8 --chunks 2 --tokens 12 "               \
    "--schedule gpipe --device cuda --precision fp32 --norm pre "

/* A product of rows of tokens takes so long for each row, one of weights so long, and all else no time. Where there are
 * experts, only their products take time, for each expert. */
struct lengths {
    double row_ns, weights_ns, expert_ns, expert_weights_ns;
};

static pp_status given_ns(void *from, const struct pp_call *call, double *out)
{
    const struct lengths *lengths = from;
    *out = 0;
    if (call->kernel == PP_KERNEL_GEMM_NT || call->kernel == PP_KERNEL_GEMM_NN) *out = lengths->row_ns * call->gemm.m;
    if (call->kernel == PP_KERNEL_GEMM_TN) *out = lengths->weights_ns;
    if (pp_kernel_is_product(call->kernel) && call->gemm.times > 1)
        *out = call->gemm.times * (call->kernel == PP_KERNEL_GEMM_TN ? lengths->expert_weights_ns : lengths->expert_ns);
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

/* What is left in a task of this kind of the middle stage. byte_ns: of a byte that a join carries. taken: by a join,
 * from what is beside it. */
static int64_t left_ns(const struct pp_job *job, int kind, struct lengths lengths, double byte_ns, bool beside,
                       double taken)
{
    const struct pp_call_times times = {given_ns, &lengths};
    const struct pp_sum_link link = {.ns_per_byte = byte_ns};
    struct pp_placement placement = pp_placement_of(job, NULL);
    placement.taken = taken;
    for (int c = 0; c < job->train->nclasses; c++) {
        const struct pp_class *class = &job->train->classes[c];
        if (class->kind != kind || class->stage != 1) continue;
        const int64_t kernels = llround(all_ns(&job->phase[PP_TRAIN].programs[c], &lengths));
        struct pp_class_cost cost = {.ns = kernels + 77, .loaded_ns = 2 * kernels + 77, .sums_ns = 77};
        /* of another clock: their proportions count */
        lengths.row_ns *= 3;
        lengths.weights_ns *= 3;
        lengths.expert_ns *= 3;
        lengths.expert_weights_ns *= 3;
        assert_int_equal(pp_placement_set_sums(&placement, job, c, link, beside ? &times : NULL, &cost), PP_OK);
        assert_int_equal(cost.ns, kernels + cost.sums_ns);
        assert_int_equal(cost.loaded_ns, 2 * kernels + cost.sums_ns);
        return cost.sums_ns;
    }
    fail_msg("no such task");
    return 0;
}

static double more(double a, double b) { return a > b ? a : b; }

/* Of a product in K pieces of t beside joins of j each: one piece of the shorter lane stands alone. Of K - 1 pieces
 * each is longer by what a join takes from it; where joins are the longer lane even so, that only fills idle time. */
static double left_of(int pieces, double t, double j, double taken)
{
    return t >= j * (1 - taken) ? j + (pieces - 1) * j * taken : pieces * j + t - pieces * t;
}

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
    const double each = left_of(pieces, t, j, 0), products = LAYERS * (parts ? 4 : 2);
    const double gathered = parts ? LAYERS * 2 * more(0, pieces * j - weights_ns) : 0;
    const double whole = LAYERS * pieces * j * (parts ? 4 : 2), back = whole + (parts ? LAYERS * 2 * pieces * j : 0);
    assert_in_range(left_ns(job, PP_F, lengths, byte_ns, true, 0), products * each - 2, products * each + 2);
    assert_in_range(left_ns(job, PP_B, lengths, byte_ns, true, 0), products * each + gathered - 2,
                    products * each + gathered + 2);
    assert_in_range(left_ns(job, PP_F, lengths, byte_ns, false, 0), whole - 2, whole + 2);
    assert_in_range(left_ns(job, PP_B, lengths, byte_ns, false, 0), back - 2, back + 2);
    for (double taken = 0.25; taken < 1; taken += 0.25) {
        const double slower = products * left_of(pieces, t, j, taken);
        assert_in_range(left_ns(job, PP_F, lengths, byte_ns, true, taken), slower - 2, slower + 2);
    }
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

/* Middle stages as above, of layers whose 24 experts two workers share; a worker's 12 are cut into `pieces` pieces. */
static struct pp_job *experts_job(int pieces)
{
    char line[512];
    snprintf(line, sizeof line,
             "--stages 3 --layers 6 --heads 4 --d-model 16 --d-ff 32 --rows 8 --chunks 2 --tokens 12 --schedule gpipe "
             "--device cuda --precision fp32 --norm pre --bias no --experts 24 --replicas 2 --expert-parallel 2 "
             "--overlap-expert-exchange %d",
             pieces);
    return create_job(line);
}

static void check_left(const struct pp_job *job, int kind, struct lengths lengths, double expected)
{
    const int64_t left = left_ns(job, kind, lengths, 500, true, 0);
    assert_in_range(left, expected - 4, expected + 4);
}

/* A piece's rows take j to come and j to go back, and its gates j / 16; its two products take p; the gradients of
 * weights of a layer w. Where products are long, the first rows and gates come, and the last rows go, beside nothing;
 * on the way back the last rows go beside the gradients of weights. Where products are short, each of them but the last
 * is hidden. */
static void test_exchanges(void **state)
{
    enum { LAYERS = 2, EXPERTS = 12 };
    static const int all_pieces[] = {2, 3, 4, 6};
    (void)state;
    struct pp_job *waiting = experts_job(0);
    const double all = (double)left_ns(waiting, PP_F, (struct lengths){0}, 500, true, 0) / LAYERS;
    check_left(waiting, PP_F, (struct lengths){.expert_ns = 1e5}, LAYERS * all);
    check_left(waiting, PP_B, (struct lengths){.expert_ns = 1e5, .expert_weights_ns = 1e5}, LAYERS * all);
    pp_job_free(waiting);
    for (int i = 0; i < 4; i++) {
        const int pieces = all_pieces[i];
        const double j = all / pieces / (2 + 1.0 / 16), gates = j / 16, p = 3 * j, short_p = j / 2;
        struct pp_job *job = experts_job(pieces);
        struct lengths lengths = {.expert_ns = p * pieces / EXPERTS / 2};
        check_left(job, PP_F, lengths, LAYERS * (gates + 2 * j));
        check_left(job, PP_B, lengths, LAYERS * 2 * j);
        lengths.expert_weights_ns = j / 2 / EXPERTS / 2;
        check_left(job, PP_B, lengths, LAYERS * (2 * j - j / 2));
        lengths.expert_weights_ns = 5 * j / EXPERTS / 2;
        check_left(job, PP_B, lengths, LAYERS * j);
        lengths = (struct lengths){.expert_ns = short_p * pieces / EXPERTS / 2};
        check_left(job, PP_F, lengths, LAYERS * pieces * (gates + 2 * j - short_p));
        pp_job_free(job);
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

/* Of a job whose tasks were measured, each a millisecond, and sums that take no latency. */
static int64_t measured_sums_ns(const struct pp_mover *mover, int pieces)
{
    const char *device = mover->moves == PP_OF_DEVICES ? "cuda" : "cpu";
    const struct pp_run run = {.tool = "ppprof", .device = device, .processes = 1, .cores = 64};
    const struct {
        const char *link, *parameter;
        double value;
    } figures[] = {{mover->p2p, "latency_ns", 1},       {mover->p2p, "send_overhead_ns", 1},
                   {mover->p2p, "recv_overhead_ns", 1}, {mover->p2p, "ns_per_byte", 1},
                   {mover->allreduce, "latency_ns", 0}, {mover->allreduce, "ns_per_byte", 10}};
    char line[512];
    struct pp_db *db;
    struct pp_cost_origin origin;
    int64_t id, sum = 0;
    unlink("beside.db");
    snprintf(line, sizeof line, MODEL "--device %s --transport %s --sequence-parallel --overlap-tensor-sums %d", device,
             mover->name, pieces);
    struct pp_job *job = create_job(line);
    assert_int_equal(pp_db_open("beside.db", PP_DB_WRITE, &db), PP_OK);
    assert_int_equal(pp_db_run_begin(db, &run, &config, NULL, &id), PP_OK);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        assert_int_equal(pp_db_add_link(db, id, figures[i].link, figures[i].parameter, figures[i].value), PP_OK);
    for (int c = 0; c < job->train->nclasses; c++)
        for (int load = 1; load <= 6 && pp_kinds[job->train->classes[c].kind].computes; load += 5) {
            const struct pp_sample task = {.name = job->phase[PP_TRAIN].programs[c].signature,
                                           .context = "gpipe never",
                                           .load = load,
                                           .count = 3,
                                           .median_ns = 1000000};
            assert_int_equal(pp_db_add_sample(db, id, PP_SAMPLE_TASK, &task), PP_OK);
        }
    assert_int_equal(pp_db_flush(db), PP_OK);
    struct pp_cost *cost = cost_of(job, db, &origin);
    assert_int_equal(origin.from[PP_COST_PROFILE], origin.classes);
    assert_string_equal(origin.transport, mover->name);
    for (int c = 0; c < cost->nclasses; c++) sum += cost->classes[c].sums_ns;
    pp_cost_free(cost);
    pp_job_free(job);
    assert_int_equal(pp_db_close(db), PP_OK);
    return sum;
}

/* By a profile a sum is hidden where queues carry it; hosts that wait for their sums hide none. */
static void test_profiles(void **state)
{
    (void)state;
    int hide = 0, wait = 0;
    for (int i = 0; i < pp_nmovers; i++) {
        const struct pp_mover *mover = &pp_movers[i];
        const bool hides = mover->moves == PP_OF_DEVICES && mover->host_wait != PP_HOST_FOLLOWS;
        const int64_t plain = measured_sums_ns(mover, 1), pieces = measured_sums_ns(mover, 4);
        if (hides && pieces > plain * 3 / 4)
            fail_msg("%s: %lld of %lld ns", mover->name, (long long)pieces, (long long)plain);
        if (!hides) assert_in_range(pieces, plain - 200, plain + 200);
        hide += hides;
        wait += !hides;
    }
    assert_true(hide > 0 && wait > 0);
}

/* An await is no launch, of the device or of its host, and takes no time. */
static void test_awaits(void **state)
{
    (void)state;
    static const char *const machines[] = {"h100", "cpu"};
    for (int i = 0; i < 2; i++) {
        struct pp_machine m;
        struct pp_cost *quick, *slow;
        struct pp_job *job = create_job(MODEL "--sequence-parallel --overlap-tensor-sums 4");
        assert_int_equal(pp_machine_find(machines[i], &m), PP_OK);
        m.call_overhead_ns = 0;
        m.issue_ns = 3000;
        assert_int_equal(pp_cost_from_machine(job, &m, &quick), PP_OK);
        m.call_overhead_ns = 2000;
        assert_int_equal(pp_cost_from_machine(job, &m, &slow), PP_OK);
        for (int c = 0; c < job->train->nclasses; c++) {
            const struct pp_program *program = &job->phase[PP_TRAIN].programs[c];
            const struct pp_class_cost *a = &quick->classes[c], *b = &slow->classes[c];
            struct pp_machine_calls calls;
            int awaits = 0;
            pp_machine_calls_begin(&calls, &m, job->model_ops, 1);
            if (job->train->classes[c].kind != PP_F && job->train->classes[c].kind != PP_B) continue;
            for (int k = 0; k < program->ncalls; k++) {
                const bool waits = program->calls[k].kernel == PP_KERNEL_AWAIT;
                double ns;
                assert_int_equal(pp_machine_call_ns(&calls, &program->calls[k], &ns), PP_OK);
                assert_true(waits ? ns == 0 : ns >= 2000);
                awaits += waits;
            }
            assert_true(awaits >= 4);
            assert_int_equal(b->host_ns, 3000 * (program->ncalls - awaits));
            assert_in_range(b->ns - b->sums_ns - (a->ns - a->sums_ns), 2000 * (program->ncalls - awaits) - 1,
                            2000 * (program->ncalls - awaits) + 1);
        }
        pp_cost_free(quick);
        pp_cost_free(slow);
        pp_job_free(job);
    }
}

/* What nothing that was asked for before can have a part in. */
static struct pp_roofline first_of(const struct pp_machine *m, const struct pp_call *call)
{
    static struct pp_machine_calls fresh;
    pp_machine_calls_begin(&fresh, m, &pp_model_ops, 2);
    return pp_machine_roofline(&fresh, call);
}

static void must_be_first(struct pp_machine_calls *kept, const struct pp_call *call)
{
    const struct pp_roofline times = pp_machine_roofline(kept, call), first = first_of(kept->machine, call);
    assert_true(times.ns == first.ns && times.loaded_ns == first.loaded_ns);
}

/* A call, and right after it one that differs in one of what times depend on, and takes another time. */
static void must_tell_apart(struct pp_machine_calls *kept, const struct pp_call *call, const struct pp_call *other)
{
    must_be_first(kept, call);
    must_be_first(kept, other);
    assert_true(first_of(kept->machine, call).ns != first_of(kept->machine, other).ns);
}

/* Times that are kept for calls are those of a call that is computed for the first time, alone and loaded, whatever
 * was asked for before; also if there are more different calls than places. */
static void test_kept_times(void **state)
{
    (void)state;
    struct pp_machine m;
    static struct pp_machine_calls kept;
    assert_int_equal(pp_machine_find("h100", &m), PP_OK);
    pp_machine_calls_begin(&kept, &m, &pp_model_ops, 2);
    for (int turn = 0; turn < 2; turn++)
        for (int n = 1; n <= 3 * PP_TIMED_CALLS; n++) {
            struct pp_call copy = {.kernel = PP_KERNEL_COPY, .precision = PP_BF16}, gemm = copy, other;
            copy.matrix = (struct pp_matrix_dims){.rows = 64 * n, .width = 4096};
            copy.at.copy = (struct pp_copy_refs){.to.region = PP_MEM_ACT, .from.region = PP_MEM_ACT};
            gemm.kernel = PP_KERNEL_GEMM_NT;
            gemm.gemm = (struct pp_gemm_dims){.m = 64 * n, .n = 4096, .k = 512};
            gemm.at.gemm =
                (struct pp_gemm_refs){.c.region = PP_MEM_ACT, .a.region = PP_MEM_ACT, .b.region = PP_MEM_PARAM};
            other = copy;
            other.at.copy.from.region = PP_MEM_NONE;
            must_tell_apart(&kept, &copy, &other);
            other = copy;
            other.matrix.width = 2048;
            must_tell_apart(&kept, &copy, &other);
            other = copy;
            other.precision = PP_FP32;
            must_tell_apart(&kept, &copy, &other);
            other = gemm;
            other.gemm.k = 4096;
            must_tell_apart(&kept, &gemm, &other);
            other = gemm;
            other.precision = PP_FP32;
            must_tell_apart(&kept, &gemm, &other);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formulas), cmocka_unit_test(test_exchanges),
                                       cmocka_unit_test(test_devices),  cmocka_unit_test(test_profiles),
                                       cmocka_unit_test(test_awaits),   cmocka_unit_test(test_kept_times)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
