/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas that share the optimizer's work: the plan, the programs, what the collectives do, and what all of it costs.
 */
#include "core/model/layout.h"
#include "crew.h"
#include "exec/reduce.h"
#include "exec/routes.h"
#include "kernels/kernels.h"
#include "sim/costs.h"
#include "tests/unit/cost_case.h"

enum { LINE = 64 };

/* --- plans --- */

static int count(const struct pp_plan *plan, int kind)
{
    int n = 0;
    for (int64_t i = 0; i < plan->ntasks; i++) n += plan->tasks[i].kind == kind;
    return n;
}

/* Where replicas have shares: a GATHER_PARAM behind each STEP and nothing else; the next step of its rank waits for the
 * last one of each. */
static void test_plan(void **state)
{
    (void)state;
    struct pp_plan_spec spec = {.schedule = "interleaved",
                                .ranks = 4,
                                .virtual_stages = 2,
                                .microbatches = 8,
                                .replicas = 2,
                                .recv_buffers = 2,
                                .training = true,
                                .optimizer = true,
                                .clip = true};
    struct pp_plan *without = build_plan(&spec), *plan;
    int waits = 0;
    spec.zero = PP_ZERO_OPTIMIZER;
    plan = build_plan(&spec);
    assert_int_equal(plan->ntasks, without->ntasks + 8);
    assert_int_equal(count(plan, PP_GATHER_PARAM), 8);
    pp_plan_free(without);
    for (int32_t id = 0; id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        if (t->kind != PP_GATHER_PARAM) continue;
        assert_int_equal(plan->tasks[t->dep[0]].kind, PP_STEP);
        assert_int_equal(plan->tasks[t->dep[0]].stage, t->stage);
        assert_int_equal(plan->lanes[t->lane].kind, PP_LANE_REDUCE);
    }
    for (int i = 0; i < plan->nwraps; i++) {
        const struct pp_task *from = &plan->tasks[plan->wraps[i].from], *to = &plan->tasks[plan->wraps[i].to];
        if (from->kind != PP_GATHER_PARAM) continue;
        waits++;
        assert_int_equal(plan->lanes[from->lane].src, to->lane);
        for (int32_t id = 0; id < plan->ntasks; id++) {
            const struct pp_task *t = &plan->tasks[id];
            assert_true(t->lane != to->lane || id >= plan->wraps[i].to);
            assert_true(t->lane != from->lane || id <= plan->wraps[i].from);
        }
    }
    assert_int_equal(waits, plan->ranks);
    pp_plan_free(plan);
    spec.replicas = 1; /* nobody to share with */
    plan = build_plan(&spec);
    assert_int_equal(count(plan, PP_GATHER_PARAM), 0);
    pp_plan_free(plan);
}

/* --- programs --- */

/* How often each 64 bytes of a region are worked on by an operand of a program, of one share. */
static void mark_operand(const struct pp_program *program, int i, int region, int share, uint8_t *lines, int64_t bytes)
{
    for (int k = 0; k < program->ncalls; k++) {
        const struct pp_ref *ref = &program->calls[k].ref[i];
        if (ref->region != region) continue;
        const struct pp_operand o = pp_call_operand(&program->calls[k], i);
        const int64_t first = ref->offset + share * ref->row_bytes, end = first + o.elements * o.element_bytes;
        assert_true(first % LINE == 0 && end % LINE == 0 && end <= bytes);
        for (int64_t at = first; at < end; at += LINE) lines[at / LINE]++;
    }
}

static void expect_marks(const uint8_t *lines, int64_t bytes, int times)
{
    for (int64_t i = 0; i < bytes / LINE; i++) assert_int_equal(lines[i], times);
}

static void check_programs(const struct pp_model *model, int stage)
{
    enum { PARAM_BYTES = 1 << 17, SHARES = 3 };
    static uint8_t weights[PARAM_BYTES / LINE], gradients[sizeof weights], kept[3 * sizeof weights];
    static uint8_t copies[sizeof weights];
    const struct pp_program_spec spec = {5, 3, true, false};
    const struct pp_class norm_class = {PP_NORM, stage, 0}, step_class = {PP_STEP, stage, 0};
    const int64_t bytes = model->stages[stage].param_bytes, whole = model->stages[stage].value_bytes;
    const int shares = model->shape.zero ? SHARES : 1;
    const int64_t state_bytes = (2 * bytes + bytes - whole) / shares;
    struct pp_program norm, step;
    bool sums[SHARES * 64] = {false};
    assert_true(bytes <= PARAM_BYTES);
    assert_int_equal(pp_model_program(model, &norm_class, &spec, &norm), PP_OK);
    assert_int_equal(pp_model_program(model, &step_class, &spec, &step), PP_OK);
    memset(weights, 0, sizeof weights);
    memset(gradients, 0, sizeof gradients);
    memset(copies, 0, sizeof copies);
    for (int share = 0; share < shares; share++) {
        mark_operand(&norm, 0, PP_MEM_GRAD, share, gradients, bytes);
        for (int k = 0; k < norm.ncalls; k++) {
            assert_false(sums[norm.calls[k].sumsq.index + share]); /* exec/worker.c adds the share */
            sums[norm.calls[k].sumsq.index + share] = true;
        }
        memset(kept, 0, sizeof kept);
        if (!model->shape.zero) continue;
        mark_operand(&step, 0, PP_MEM_PARAM, share, weights, whole);
        mark_operand(&step, 2, PP_MEM_PARAM16, share, copies, model->stages[stage].param16_bytes);
        for (int i = 0; i < 5; i++) mark_operand(&step, i, PP_MEM_STATE, share, kept, state_bytes);
        expect_marks(kept, state_bytes, 1);
    }
    expect_marks(gradients, bytes, 1);
    assert_int_equal(whole < bytes, model->shape.zero && model->shape.precision == PP_BF16);
    if (model->shape.zero) expect_marks(weights, whole, 1);
    if (model->shape.zero) expect_marks(copies, model->stages[stage].param16_bytes, 1);
    for (int i = 0; i < SHARES * model->stages[stage].tensors; i++) assert_true(sums[i]);
    pp_program_free(&norm);
    pp_program_free(&step);
}

/* Three replicas: their shares together are all, no two have anything in common, and norms add up the same parts where
 * there are no shares. */
static void test_programs(void **state)
{
    (void)state;
    for (int zero = 0; zero < 4; zero++)
        for (int stages = 1; stages <= 2; stages++) {
            const struct pp_shape shape = {.d_model = 12,
                                           .heads = 3,
                                           .d_ff = 20,
                                           .layers = 4,
                                           .vocab = 101,
                                           .precision = zero < 2 ? PP_BF16 : PP_FP32,
                                           .optimizer = PP_ADAMW,
                                           .replicas = 3,
                                           .zero = zero % 2};
            struct pp_model *model;
            if (pp_model_create(&shape, stages, NULL, NULL, &model) != PP_OK) fail_msg("%s", pp_message());
            for (int s = 0; s < stages; s++) check_programs(model, s);
            pp_model_free(model);
        }
}

/* --- collectives --- */

/* Values of very different sizes, so that another order of additions gives other bits. */
static float value_of(int replica, int64_t i)
{
    uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)replica * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    return (float)(int32_t)x * (replica % 2 ? 1e-3f : 1e-9f);
}

struct sharing {
    int ranks;
    struct pp_reduce *reduces[CREW_MAX];
    float *values[CREW_MAX];
};

/* Parts from a line to more than two pieces, with gaps between the tensors. */
static void list_shares(struct pp_shares *shares, int use, int members)
{
    static const int64_t lines[] = {1, 40000, 3, 16384, 16385, 2};
    int64_t offset = 128;
    shares->use = use;
    shares->bytes = 0;
    for (shares->n = 0; shares->n < (int)(sizeof lines / sizeof *lines); shares->n++) {
        const int64_t part = lines[shares->n] * 64;
        shares->tensors[shares->n] = (struct pp_share_tensor){offset, part, shares->bytes};
        shares->bytes += part;
        offset += members * part + 64;
    }
}

static int64_t bytes_of(const struct pp_shares *shares, int members)
{
    const struct pp_share_tensor *last = &shares->tensors[shares->n - 1];
    return last->offset + members * last->part_bytes;
}

#ifdef __SANITIZE_THREAD__ /* looks at who touches memory when, and takes long to compare numbers */
enum { STRIDE = 5 };
#else
enum { STRIDE = 1 };
#endif

/* Element by element: its own share is the sum, the others' are as they were; or all have what their owners have; or
 * all are sums. */
static pp_status check_values(const struct pp_shares *shares, const float *values, int members, int own)
{
    for (int t = 0; t < shares->n; t++)
        for (int64_t i = 0; i < members * shares->tensors[t].part_bytes / 4; i += STRIDE) {
            const int64_t at = shares->tensors[t].offset / 4 + i;
            const int owner = (int)(i / (shares->tensors[t].part_bytes / 4));
            float expected = value_of(shares->use == PP_SHARES_GATHER ? owner : own, at);
            if (shares->use == PP_SHARES_SUM || (shares->use == PP_SHARES_SCATTER && owner == own)) {
                expected = value_of(0, at);
                for (int k = 1; k < members; k++) expected += value_of(k, at);
            }
            if (memcmp(&expected, &values[at], sizeof expected))
                return pp_fail(PP_INTERNAL, "use %d, tensor %d: element %lld is %g, not %g", shares->use, t,
                               (long long)i, values[at], expected);
        }
    return PP_OK;
}

static pp_status finish_reduce(struct pp_world *world, int me, struct pp_reduce *reduce)
{
    for (int64_t idle_since = 0; !reduce->done;) {
        unsigned seen = pp_bell_seen(world, me);
        PP_TRY(pp_reduce_poll(world, reduce));
        PP_TRY(pp_world_check(world));
        if (!reduce->done) pp_world_wait(world, me, seen, &idle_since);
    }
    return PP_OK;
}

static pp_status share(struct pp_world *world, int me, void *arg)
{
    struct sharing *r = arg;
    const int members = world->workers / r->ranks, own = me / r->ranks;
    struct pp_group group = {me % r->ranks, r->ranks, members};
    union { /* a member behind an array without a length is not C */
        struct pp_shares shares;
        char room[sizeof(struct pp_shares) + 8 * sizeof(struct pp_share_tensor)];
    } list;
    list_shares(&list.shares, PP_SHARES_SCATTER, members);
    PP_TRY(pp_reduce_create_host(group, me, PP_SUM_FLOAT, bytes_of(&list.shares, members), &r->reduces[me]));
    for (int use = PP_SHARES_SCATTER; use <= PP_SHARES_SUM; use++) {
        list_shares(&list.shares, use, members);
        const int64_t n = bytes_of(&list.shares, members) / 4;
        if (!r->values[me]) PP_TRY(pp_alloc_bytes(&r->values[me], (size_t)n, sizeof(float)));
        for (int64_t i = 0; i < n; i++) r->values[me][i] = value_of(own, i);
        PP_TRY(pp_reduce_start_shares(world, r->reduces[me], r->values[me], &list.shares));
        PP_TRY(finish_reduce(world, me, r->reduces[me]));
        PP_TRY(check_values(&list.shares, r->values[me], members, own));
    }
    return PP_OK;
}

static void test_collectives(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct sharing r = {.ranks = ranks};
        pp_status status = crew_run(3 * ranks, share, &r);
        for (int w = 0; w < CREW_MAX; w++) {
            pp_reduce_free(r.reduces[w]);
            free(r.values[w]);
        }
        if (status != PP_OK) fail_msg("%s", pp_message());
    }
}

/* --- costs --- */

/* Of a message, as predictions have it. */
static int64_t message_bytes(const char *options)
{
    struct pp_job *job = create_job(options);
    struct pp_machine m;
    struct pp_cost *cost;
    int64_t bytes = 0;
    assert_int_equal(pp_machine_find("cpu", &m), PP_OK);
    assert_int_equal(pp_cost_from_machine(job, &m, &cost), PP_OK);
    for (int c = 0; c < cost->nclasses; c++)
        if (job->train->classes[c].kind == PP_XFER_F) bytes = cost->classes[c].bytes;
    pp_cost_free(cost);
    pp_job_free(job);
    return bytes;
}

/* What travels between stages: of two tensor ranks that have parts of the tokens, of 35 in a row each 18. */
static void test_messages(void **state)
{
    (void)state;
    for (int parts = 0; parts < 2; parts++) {
        const char *options = parts ? "--tensor 2 --tokens 35 --chunks 2 --rows 6 --sequence-parallel"
                                    : "--tensor 2 --tokens 35 --chunks 2 --rows 6";
        struct pp_job *job = create_job(options);
        const int64_t bytes = 3 * (parts ? 18 : 35) * job->model->shape.d_model * 4;
        assert_int_equal(pp_hidden_bytes(&job->model->shape, 3, 35), bytes);
        pp_job_free(job);
        assert_int_equal(message_bytes(options), bytes);
    }
}

static double moved_bytes(const struct pp_program *program)
{
    double bytes = 0;
    for (int i = 0; i < program->ncalls; i++) bytes += pp_call_bytes(&program->calls[i]);
    return bytes;
}

/* Of three replicas in a ring: 2/3 of the bytes twice, or in each of the two halves of that once; half the latency. */
static void test_costs(void **state)
{
    (void)state;
    for (int zero = 0; zero < 2; zero++) {
        struct pp_job *job = create_job(zero ? "--replicas 3 --clip 1 --zero 1 --optimizer adamw"
                                             : "--replicas 3 --clip 1 --optimizer adamw");
        struct pp_machine m;
        struct pp_cost *cost;
        int gathers = 0;
        assert_int_equal(pp_machine_find("cpu", &m), PP_OK);
        assert_int_equal(pp_cost_from_machine(job, &m, &cost), PP_OK);
        for (int c = 0; c < cost->nclasses; c++) {
            const struct pp_class *cls = &job->train->classes[c];
            const double bytes = cls->stage >= 0 ? (double)job->model->stages[cls->stage].param_bytes : 0;
            const double ring = m.reduce_latency_ns + 4.0 / 3 * bytes / m.reduce_bytes_per_ns;
            const double hop = round(m.link_latency_ns) + 2 * round(m.link_overhead_ns);
            gathers += cls->kind == PP_GATHER_PARAM;
            if (cls->kind == PP_REDUCE_GRAD || cls->kind == PP_GATHER_PARAM)
                expect_near((double)cost->classes[c].ns, zero ? ring / 2 : ring, 0.51, pp_kinds[cls->kind].name);
            if (cls->kind == PP_NORM_ALL) /* of 2 ranks, or of 6 workers */
                expect_near((double)cost->classes[c].ns, zero ? 3 * hop : hop, 0.51, "NORM_ALL");
            /* A third of the weights, of 7 numbers each, and of the padding. */
            if (cls->kind == PP_STEP && zero)
                expect_near(moved_bytes(&job->phase[PP_TRAIN].programs[c]), 7 * bytes / 3, 1, "bytes of STEP");
        }
        assert_int_equal(gathers, zero ? 2 : 0);
        pp_cost_free(cost);
        pp_job_free(job);
    }
}

/* A step is its tasks one after the other, and the next one begins when the parameters are there; the last computation
 * ends before. */
static void test_simulated(void **state)
{
    (void)state;
    static const int64_t ns[PP_KINDS] = {[PP_F] = 100,       [PP_B] = 200,   [PP_REDUCE_GRAD] = 70,  [PP_NORM] = 5,
                                         [PP_NORM_ALL] = 11, [PP_STEP] = 13, [PP_GATHER_PARAM] = 170};
    for (int way = 0; way < 4; way++) {
        const struct pp_plan_spec spec = {.schedule = "gpipe",
                                          .ranks = 1,
                                          .virtual_stages = 1,
                                          .microbatches = 3,
                                          .replicas = 4,
                                          .zero = way % 2,
                                          .training = true,
                                          .optimizer = true,
                                          .clip = true};
        struct sim_case c = {.plan = build_plan(&spec)};
        const int64_t computed = 3 * 300 + 70 + 5 + 11 + 13;
        assert_int_equal(pp_cost_create(c.plan, PP_COST_TIMES, &c.cost), PP_OK);
        for (int k = 0; k < c.cost->nclasses; k++)
            c.cost->classes[k].ns = c.cost->classes[k].loaded_ns = ns[c.plan->classes[k].kind];
        simulate(&c, way / 2);
        assert_int_equal(c.result.metrics.makespan_ns, computed);
        assert_int_equal(c.result.batch_ns, computed + (way % 2 ? 170 : 0));
        release_case(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plan),        cmocka_unit_test(test_programs),
                                       cmocka_unit_test(test_collectives), cmocka_unit_test(test_costs),
                                       cmocka_unit_test(test_messages),    cmocka_unit_test(test_simulated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
