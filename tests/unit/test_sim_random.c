/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator on random plans: against a longest path by plain relaxation, and its two ways against each other.
 */
#include <stdio.h>

#include "tests/unit/sim_case.h"

enum { RANKS = 4, CHANNELS = 3, LANES = RANKS + CHANNELS, MOST_TASKS = 40, STEPS = 50, MOST_ROWS = 15 };

/* A plan that no schedule would make: any lanes, any edges to earlier tasks, any edges into the next step. */
static struct pp_plan *random_plan(uint64_t *seed)
{
    struct pp_plan *plan;
    assert_int_equal(PP_NEW(&plan, 1), PP_OK);
    *plan = (struct pp_plan){.ranks = RANKS,
                             .virtual_stages = 1,
                             .stages = RANKS,
                             .microbatches = 1,
                             .training = true,
                             .nlanes = LANES,
                             .nclasses = 12,
                             .ntasks = 1 + random_below(seed, MOST_TASKS)};
    plan->replicas = plan->members = plan->expert_parallel = plan->context = 1;
    assert_int_equal(PP_NEW(&plan->tasks, plan->ntasks), PP_OK);
    assert_int_equal(PP_NEW(&plan->lanes, LANES), PP_OK);
    assert_int_equal(PP_NEW(&plan->classes, plan->nclasses), PP_OK);
    assert_int_equal(PP_NEW(&plan->wraps, 8), PP_OK);
    assert_int_equal(PP_NEW(&plan->rows, 1), PP_OK);
    assert_int_equal(PP_NEW(&plan->stage_rank, RANKS), PP_OK);
    for (int l = 0; l < LANES; l++)
        plan->lanes[l] = l < RANKS ? (struct pp_lane){PP_LANE_COMPUTE, l, l, -1}
                                   : (struct pp_lane){PP_LANE_CHANNEL, l - RANKS, l - RANKS + 1, PP_XFER_F};
    for (int c = 0; c < plan->nclasses; c++)
        plan->classes[c] =
            c % 2 ? (struct pp_class){PP_XFER_F, c / 2 % CHANNELS, 1} : (struct pp_class){PP_F, c % RANKS, 1};
    plan->rows[0] = 1;
    for (int r = 0; r < RANKS; r++) plan->stage_rank[r] = r;
    for (int id = 0; id < plan->ntasks; id++) {
        int lane = random_below(seed, LANES), cls = 2 * random_below(seed, 6);
        if (lane >= RANKS) cls = 2 * (lane - RANKS + CHANNELS * random_below(seed, 2)) + 1;
        struct pp_task *t = &plan->tasks[id];
        *t = (struct pp_task){.kind = (uint8_t)plan->classes[cls].kind,
                              .count = 1,
                              .lane = lane,
                              .cls = cls,
                              .dep = {-1, -1, -1},
                              .act = -1,
                              .ckpt = -1,
                              .in = -1,
                              .out = -1};
        for (int i = 0; i < 3 && id > 0; i++)
            if (random_below(seed, 2)) t->dep[i] = random_below(seed, id);
        if (t->dep[0] >= 0 && t->dep[1] >= t->dep[0] && random_below(seed, 4) == 0) t->flags = PP_TASK_DEP_RANGE;
    }
    plan->nwraps = random_below(seed, 9);
    for (int w = 0; w < plan->nwraps; w++)
        plan->wraps[w] = (struct pp_wrap){random_below(seed, (int)plan->ntasks), random_below(seed, (int)plan->ntasks)};
    return plan;
}

/* A transfer from one host to another, of so many ranks each. */
static bool leaves_host(const struct pp_plan *plan, const struct pp_class *cls, int devices)
{
    if (cls->kind != PP_XFER_F && cls->kind != PP_XFER_B) return false;
    const int to = cls->kind == PP_XFER_F ? cls->stage + 1 : cls->stage - 1;
    return plan->stage_rank[cls->stage] / devices != plan->stage_rank[to] / devices;
}

static struct pp_cost *random_cost(const struct pp_plan *plan, uint64_t *seed)
{
    struct pp_cost *cost;
    assert_int_equal(pp_cost_create(plan, PP_COST_TIMES, &cost), PP_OK);
    const int devices = 1 + random_below(seed, 4);
    for (int c = 0; c < plan->nclasses; c++) {
        cost->classes[c].ns = cost->classes[c].loaded_ns = random_below(seed, 5) ? random_below(seed, 1000) : 0;
        cost->classes[c].bytes = random_below(seed, 200);
        cost->classes[c].between_hosts = leaves_host(plan, &plan->classes[c], devices);
    }
    cost->network = (struct pp_network_cost){random_below(seed, 400), random_below(seed, 4) * 0.5};
    cost->link = (struct pp_link_cost){.latency_ns = random_below(seed, 3) ? random_below(seed, 300) : 0,
                                       .ns_per_byte = random_below(seed, 3) * 0.5,
                                       .posts_in_order = random_below(seed, 2)};
    cost->launch_ns = random_below(seed, 2) * random_below(seed, 20);
    cost->step_overhead_ns = random_below(seed, 2) * random_below(seed, 50);
    return cost;
}

/* The same rules once more, as plainly as possible: start times of STEPS steps, raised until every rule holds. */
struct oracle {
    const struct pp_plan *plan;
    const struct pp_cost *cost;
    int64_t start[STEPS][MOST_TASKS];
};

static bool on_channel(const struct oracle *o, int id) { return o->plan->tasks[id].lane >= RANKS; }

static int64_t wire(const struct oracle *o, int id)
{
    const int cls = o->plan->tasks[id].cls;
    return llround((double)o->cost->classes[cls].bytes * pp_cost_ns_per_byte(o->cost, cls));
}

static int64_t end_of(const struct oracle *o, int step, int id)
{
    const int cls = o->plan->tasks[id].cls;
    if (!on_channel(o, id)) return o->start[step][id] + o->cost->classes[cls].ns;
    return o->start[step][id] + wire(o, id) + pp_cost_latency_ns(o->cost, cls);
}

static int64_t sent_of(const struct oracle *o, int step, int id)
{
    return on_channel(o, id) ? o->start[step][id] + wire(o, id) : end_of(o, step, id);
}

/* The lane's next task may start. */
static int64_t freed_of(const struct oracle *o, int step, int id)
{
    return on_channel(o, id) ? sent_of(o, step, id) : end_of(o, step, id) + o->cost->launch_ns;
}

static void raise(int64_t *start, int64_t to, bool *changed)
{
    if (to <= *start) return;
    *start = to;
    *changed = true;
}

/* Edges of the plan. */
static void relax_deps(const struct oracle *o, int step, int id, int64_t *start, bool *changed)
{
    const struct pp_task *t = &o->plan->tasks[id];
    if (t->flags & PP_TASK_DEP_RANGE) {
        for (int other = t->dep[0]; other <= t->dep[1]; other++) raise(start, end_of(o, step, other), changed);
        return;
    }
    if (t->dep[0] >= 0) raise(start, end_of(o, step, t->dep[0]), changed);
    if (t->dep[1] >= 0)
        raise(start, on_channel(o, id) ? end_of(o, step, t->dep[1]) : sent_of(o, step, t->dep[1]), changed);
    bool in_order = !on_channel(o, id) || o->cost->link.posts_in_order;
    if (t->dep[2] >= 0 && in_order) raise(start, end_of(o, step, t->dep[2]), changed);
}

static bool relax_task(struct oracle *o, int step, int id)
{
    const struct pp_plan *plan = o->plan;
    bool changed = false;
    int64_t *start = &o->start[step][id], between = on_channel(o, id) ? 0 : o->cost->step_overhead_ns;
    for (int other = 0; other < plan->ntasks; other++) {
        if (plan->tasks[other].lane != plan->tasks[id].lane) continue;
        if (other < id) raise(start, freed_of(o, step, other), &changed);
        if (step > 0) raise(start, freed_of(o, step - 1, other) + between, &changed);
    }
    relax_deps(o, step, id, start, &changed);
    for (int w = 0; w < plan->nwraps && step > 0; w++) {
        if (plan->wraps[w].to != id) continue;
        int from = plan->wraps[w].from;
        raise(start, on_channel(o, id) ? end_of(o, step - 1, from) : sent_of(o, step - 1, from), &changed);
    }
    return changed;
}

static void solve(struct oracle *o, int steps)
{
    memset(o->start, 0, sizeof o->start);
    for (bool changed = true; changed;) {
        changed = false;
        for (int step = steps - 1; step >= 0; step--)
            for (int id = (int)o->plan->ntasks - 1; id >= 0; id--) changed = relax_task(o, step, id) || changed;
    }
}

/* Start and end of every task of the reported step, counted from the step's first computation. */
static void compare(const struct oracle *o, const struct pp_sim_result *result, uint64_t seed)
{
    int step = result->steps - 1;
    int64_t first = INT64_MAX;
    for (int id = 0; id < o->plan->ntasks; id++)
        if (!on_channel(o, id) && o->start[step][id] < first) first = o->start[step][id];
    for (int64_t i = 0; i < result->trace.nevents && first < INT64_MAX; i++) {
        const struct pp_event *e = &result->trace.events[i];
        assert_true(e->posted_ns <= e->start_ns);
        int64_t end = e->side == PP_SIDE_SEND ? sent_of(o, step, e->task) : end_of(o, step, e->task);
        if (e->start_ns != o->start[step][e->task] - first || e->end_ns != end - first)
            fail_msg("seed %llu, task %d: %lld to %lld, expected %lld to %lld", (unsigned long long)seed, e->task,
                     (long long)e->start_ns, (long long)e->end_ns, (long long)(o->start[step][e->task] - first),
                     (long long)(end - first));
    }
}

static void release_random(struct sim_case *c)
{
    pp_sim_result_free(&c->result);
    pp_cost_free(c->cost);
    pp_plan_free(c->plan);
}

static void test_longest_path(void **state)
{
    (void)state;
    static struct oracle o;
    for (uint64_t seed = 1; seed <= 500 / SCARCE; seed++) {
        uint64_t random = seed;
        struct sim_case c = {.plan = random_plan(&random)};
        c.cost = random_cost(c.plan, &random);
        for (int events = 0; events < 2; events++) {
            simulate(&c, events);
            o.plan = c.plan;
            o.cost = c.cost;
            solve(&o, c.result.steps);
            compare(&o, &c.result, seed);
        }
        release_random(&c);
    }
}

/* What the sweep calls steady goes on for ever: later steps are copies. */
static void test_steady_means_steady(void **state)
{
    (void)state;
    static struct oracle o;
    int steady = 0;
    for (uint64_t seed = 1; seed <= 300 / SCARCE; seed++) {
        uint64_t random = seed;
        struct sim_case c = {.plan = random_plan(&random)};
        c.cost = random_cost(c.plan, &random);
        simulate(&c, false);
        o.plan = c.plan;
        o.cost = c.cost;
        if (c.result.steady && c.result.steps + 4 <= STEPS) {
            steady++;
            solve(&o, c.result.steps + 4);
            for (int k = c.result.steps; k < c.result.steps + 4; k++)
                for (int id = 0; id < c.plan->ntasks; id++)
                    assert_int_equal(end_of(&o, k, id) - end_of(&o, k - 1, id), c.result.batch_ns);
        }
        release_random(&c);
    }
    assert_true(steady > 30 / SCARCE);
}

static void expect_equal(const struct pp_sim_result *a, const struct pp_sim_result *b, const char *what)
{
    if (a->batch_ns != b->batch_ns || a->steps != b->steps || a->steady != b->steady ||
        memcmp(&a->metrics, &b->metrics, sizeof a->metrics) != 0 || a->path.n != b->path.n ||
        memcmp(a->path.tasks, b->path.tasks, (size_t)a->path.n * sizeof *a->path.tasks) != 0 ||
        a->path.waiting_ns != b->path.waiting_ns || a->path.host_ns != b->path.host_ns ||
        a->trace.nevents != b->trace.nevents ||
        memcmp(a->trace.events, b->trace.events, (size_t)a->trace.nevents * sizeof *a->trace.events) != 0)
        fail_msg("%s: sweep and events differ", what);
}

/* A schedule of the registry and a shape that it takes. */
static struct pp_plan_spec random_shape(uint64_t *seed)
{
    struct pp_plan_spec spec;
    int schedules = 0;
    while (pp_schedule_at(schedules)) schedules++;
    do
        spec = (struct pp_plan_spec){.schedule = pp_schedule_at(random_below(seed, schedules))->name,
                                     .ranks = 1 + random_below(seed, 5),
                                     .virtual_stages = 1 + random_below(seed, 3),
                                     .microbatches = 1 + random_below(seed, MOST_ROWS)};
    while (pp_schedules.check(spec.schedule, spec.ranks, spec.virtual_stages, spec.microbatches) != PP_OK);
    return spec;
}

/* A random but legal job: schedule, shape, checkpoints, replicas, uneven rows; random durations. */
static struct sim_case random_case(uint64_t *seed)
{
    static int rows[MOST_ROWS];
    struct pp_plan_spec spec = random_shape(seed);
    for (int i = 0; i < spec.microbatches; i++) rows[i] = i == spec.microbatches - 1 ? 2 : 3;
    spec.replicas = 1 + random_below(seed, 2);
    spec.rows = rows;
    spec.checkpoint = random_below(seed, 3);
    spec.recv_buffers = random_below(seed, 3);
    spec.training = true;
    spec.optimizer = random_below(seed, 2);
    spec.clip = random_below(seed, 2);
    struct sim_case c = {.plan = build_plan(&spec)};
    c.cost = random_cost(c.plan, seed);
    for (int k = 0; k < c.plan->nclasses; k++) c.cost->classes[k].ns *= 1000, c.cost->classes[k].loaded_ns *= 1000;
    return c;
}

static void test_both_ways(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 600 / SCARCE; seed++) {
        uint64_t random = seed;
        char what[64];
        struct sim_case c = random_case(&random);
        struct sim_case e = {.plan = c.plan, .cost = c.cost};
        simulate(&c, false);
        simulate(&e, true);
        snprintf(what, sizeof what, "seed %llu, %s", (unsigned long long)seed, c.plan->schedule);
        expect_equal(&c.result, &e.result, what);
        /* A domain with a core for each worker changes nothing where load costs nothing. */
        c.cost->cores = c.cost->workers;
        simulate(&e, false);
        expect_equal(&c.result, &e.result, what);
        pp_sim_result_free(&e.result);
        release_case(&c);
    }
}

static void make_hosts_issue(struct pp_cost *cost, uint64_t *seed)
{
    cost->host_issues = true;
    cost->issue_latency_ns = random_below(seed, 2) * random_below(seed, 20000);
    cost->link.host_wait = random_below(seed, 3);
    int most = random_below(seed, 2) ? 300000 : 1500000; /* beside tasks of up to a million */
    for (int c = 0; c < cost->nclasses; c++)
        cost->classes[c].host_ns = random_below(seed, 4) ? random_below(seed, most) : 0;
}

/* The simulator's hosts issue by ascending ids; so do the lists of plans. */
static void check_issue_order(const struct pp_plan *plan)
{
    for (int r = 0; r < plan->ranks; r++)
        for (int64_t i = plan->issue_start[r] + 1; i < plan->issue_start[r + 1]; i++)
            assert_true(pp_issue_task(plan->issue[i - 1]) < pp_issue_task(plan->issue[i]));
}

static void test_hosts_both_ways(void **state)
{
    (void)state;
    int by_host = 0;
    for (uint64_t seed = 1; seed <= 900 / SCARCE; seed++) {
        uint64_t random = seed;
        char what[64];
        struct sim_case c = random_case(&random);
        check_issue_order(c.plan);
        make_hosts_issue(c.cost, &random);
        struct sim_case e = {.plan = c.plan, .cost = c.cost};
        simulate(&c, false);
        simulate(&e, true);
        snprintf(what, sizeof what, "hosts, seed %llu, %s", (unsigned long long)seed, c.plan->schedule);
        expect_equal(&c.result, &e.result, what);
        if (c.result.lower_bound_ns > c.result.metrics.makespan_ns)
            fail_msg("%s: bound %lld above makespan %lld", what, (long long)c.result.lower_bound_ns,
                     (long long)c.result.metrics.makespan_ns);
        int64_t parts = c.result.path.host_ns + c.result.path.waiting_ns;
        for (int kind = 0; kind < PP_KINDS; kind++) parts += c.result.path.kind_ns[kind];
        assert_int_equal(parts, c.result.path.length_ns);
        by_host += c.result.path.host_ns > 0;
        pp_sim_result_free(&e.result);
        release_case(&c);
    }
    assert_true(by_host > 100 / SCARCE);
}

/* A host that takes no time only keeps transfers from running into the next step before it has begun there. */
static void test_hosts_without_time(void **state)
{
    (void)state;
    int equal = 0;
    for (uint64_t seed = 1; seed <= 300 / SCARCE; seed++) {
        uint64_t random = seed;
        struct sim_case c = random_case(&random);
        simulate(&c, false);
        struct sim_case h = {.plan = c.plan, .cost = c.cost};
        h.cost->host_issues = true;
        simulate(&h, false);
        assert_true(h.result.batch_ns >= c.result.batch_ns);
        equal += h.result.batch_ns == c.result.batch_ns;
        pp_sim_result_free(&h.result);
        release_case(&c);
    }
    assert_true(equal > 200 / SCARCE);
}

static void test_bound_holds(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 1500 / SCARCE; seed++) {
        uint64_t random = seed;
        struct sim_case c = random_case(&random);
        if (random_below(&random, 2)) {
            c.cost->cores = 1 + random_below(&random, 4);
            c.cost->link.receiver_copies = random_below(&random, 2);
            c.cost->link.recv_overhead_ns = random_below(&random, 100);
        }
        simulate(&c, false);
        if (c.result.lower_bound_ns > c.result.metrics.makespan_ns)
            fail_msg("seed %llu, %s: bound %lld above makespan %lld", (unsigned long long)seed, c.plan->schedule,
                     (long long)c.result.lower_bound_ns, (long long)c.result.metrics.makespan_ns);
        release_case(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest_path),       cmocka_unit_test(test_steady_means_steady),
        cmocka_unit_test(test_both_ways),          cmocka_unit_test(test_hosts_both_ways),
        cmocka_unit_test(test_hosts_without_time), cmocka_unit_test(test_bound_holds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
