/* SPDX-License-Identifier: Apache-2.0
 *
 * What a job borrows from that of another cut of the same point: its programs are, call by call, those written for it
 * alone, and it costs what it costs without a lender, and with the calls of each program once.
 */
#include "phase_case.h"
#include "sim/bound.h"
#include "tests/unit/cost_case.h"

#define SMALL                                                                                                          \
    "--preset small --d-model 64 --heads 8 --d-ff 64 --vocab 21 --tokens 12 --rows 4 --dropout 0 --device cuda "

/* The job of the options with another split, of which only what a step costs is asked. */
static struct pp_job *borrow(const struct pp_config *other, const struct pp_job_lender *lender, bool once)
{
    struct pp_job *job;
    assert_int_equal(pp_job_begin(other, &lender->job->point, &pp_schedules, &pp_model_ops, &job), PP_OK);
    job->once = once;
    if (pp_job_train(job, &pp_schedules, lender) != PP_OK) fail_msg("%s", pp_message());
    return job;
}

/* The same without a lender. once: its programs have their calls once. */
static struct pp_job *make(const struct pp_config *asked, const struct pp_point *point, bool once)
{
    struct pp_job *job;
    assert_int_equal(pp_job_begin(asked, point, &pp_schedules, &pp_model_ops, &job), PP_OK);
    job->once = once;
    if (pp_job_complete(job, &pp_schedules, false, NULL) != PP_OK) fail_msg("%s", pp_message());
    return job;
}

static struct pp_cost *cost_by(const struct pp_job *job, const struct pp_machine *m)
{
    struct pp_cost *cost;
    if (pp_cost_from_machine(job, m, &cost) != PP_OK) fail_msg("%s", pp_message());
    return cost;
}

static void expect_same_costs(const struct pp_cost *a, const struct pp_cost *b)
{
    assert_int_equal(a->nclasses, b->nclasses);
    for (int c = 0; c < a->nclasses; c++) {
        const struct pp_class_cost *x = &a->classes[c], *y = &b->classes[c];
        assert_int_equal(x->ns, y->ns);
        assert_int_equal(x->loaded_ns, y->loaded_ns);
        assert_int_equal(x->host_ns, y->host_ns);
        assert_int_equal(x->bytes, y->bytes);
        assert_int_equal(x->sums_ns, y->sums_ns);
        assert_int_equal(x->source, y->source);
        assert_int_equal(x->between_hosts, y->between_hosts);
    }
}

/* Checks the programs; returns how many F have one that was lent. */
static int check_programs(const struct pp_job *job)
{
    const struct pp_phase *phase = &job->phase[PP_TRAIN];
    int lent = 0;
    for (int c = 0; c < job->train->nclasses; c++) {
        const int kind = job->train->classes[c].kind;
        if (pp_kinds[kind].computes) check_alone(job, phase, c);
        lent += kind == PP_F && phase->lent[c] >= 0;
    }
    return lent;
}

/* Programs in which calls stand once: with joins beside kernels; of several parts of a stage. */
static struct {
    int beside, parts;
} met;

static bool is_beside(const struct pp_program *program)
{
    int i = 0;
    while (i < program->ncalls && !pp_model_ops.call_join(&program->calls[i]).beside) i++;
    return i < program->ncalls;
}

static void meet(const struct pp_job *once)
{
    const struct pp_phase *phase = &once->phase[PP_TRAIN];
    const struct pp_class *classes = once->train->classes;
    for (int c = 0; c < once->train->nclasses; c++) {
        met.beside += phase->programs[c].order && is_beside(&phase->programs[c]);
        met.parts += classes[phase->same_as[c]].part != classes[c].part;
    }
}

/* Returns how many F of the cut `split` have a program of the job of these options. devices: of a host. */
static int check(const char *options, const char *split, int devices)
{
    char text[512];
    snprintf(text, sizeof text, SMALL "%s", options);
    const struct pp_machine m = round_machine(devices);
    struct pp_job *first = create_job(text);
    struct pp_config other = config;
    other.split = split;
    struct pp_job *first_once = make(&config, &first->point, true);
    struct pp_cost *cost = cost_by(first, &m), *cost_once = cost_by(first_once, &m);
    const struct pp_job_lender all = {first, cost}, programs = {first, NULL}, sweeps = {first_once, cost_once};
    enum { WHOLE, LENT, LENT_PROGRAMS, LENT_ONCE, ONCE, ONCE_ALL, JOBS };
    struct pp_job *jobs[JOBS] = {[WHOLE] = make(&other, &first->point, false),
                                 [LENT] = borrow(&other, &all, false),
                                 [LENT_PROGRAMS] = borrow(&other, &programs, false),
                                 [LENT_ONCE] = borrow(&other, &all, true),
                                 [ONCE] = make(&other, &first->point, true),
                                 [ONCE_ALL] = borrow(&other, &sweeps, true)}; /* as sweeps do */
    struct pp_cost *costs[JOBS];
    int64_t least[JOBS];
    for (int i = 0; i < JOBS; i++) {
        costs[i] = cost_by(jobs[i], &m);
        assert_int_equal(pp_sim_lower_bound(jobs[i]->train, costs[i], &least[i]), PP_OK);
        expect_same_costs(costs[i], costs[0]);
        assert_int_equal(least[i], least[0]);
    }
    const int lent = check_programs(jobs[LENT]);
    assert_int_equal(check_programs(jobs[WHOLE]), 0);
    assert_int_equal(check_programs(jobs[ONCE]), 0);
    assert_true(check_programs(jobs[LENT_ONCE]) >= lent);
    assert_true(check_programs(jobs[ONCE_ALL]) >= lent);
    expect_same_costs(cost_once, cost);
    meet(jobs[ONCE]);
    for (int i = 0; i < JOBS; i++) pp_cost_free(costs[i]);
    for (int i = 0; i < JOBS; i++) pp_job_free(jobs[i]);
    pp_cost_free(cost);
    pp_cost_free(cost_once);
    pp_job_free(first);
    pp_job_free(first_once);
    return lent;
}

static void test_alike(void **state)
{
    static const struct {
        const char *options, *split;
        int lent; /* number of F */
    } cases[] = {
        {"--layers 8 --stages 4 --chunks 2", "1,2,3,2", 2}, /* the second stage and the last */
        {"--layers 8 --stages 4 --chunks 2 --split 1,2,3,2", "2,1,3,2", 2},
        {"--layers 8 --stages 4 --chunks 2 --split 1,2,3,2", "2,3,2,1", 2},
        {"--layers 8 --stages 4 --rows 5 --chunks 3 --checkpoint always", "1,2,3,2", 4}, /* microbatches of two sizes */
        {"--layers 8 --stages 4 --chunks 2 --checkpoint layers:1", "1,2,3,2", 2},
        {"--layers 8 --stages 4 --chunks 2 --replicas 2 --zero 3", "1,2,3,2", 4}, /* parts, one for each layer */
        {"--layers 8 --stages 4 --chunks 2 --tensor 2 --sequence-parallel", "1,2,3,2", 2},
        {"--layers 8 --stages 4 --chunks 2 --context-parallel 2", "1,2,3,2", 2},
        {"--layers 8 --stages 4 --chunks 2 --schedule zb-h1", "1,2,3,2", 2},
        {"--layers 8 --stages 2 --virtual 2 --schedule interleaved --chunks 2", "1,2,3,2", 2},
        {"--layers 8 --stages 4 --chunks 2 --experts 3 --experts-every 2 --bias no", "2,2,1,3", 2},
        /* joins beside kernels, in the order of calls */
        {"--layers 8 --stages 4 --chunks 2 --tensor 2 --sequence-parallel --overlap-tensor-sums 2", "1,2,3,2", 2},
        {"--layers 8 --stages 4 --chunks 2 --context-parallel 2 --cp-comm-type p2p --attention flash", "1,2,3,2", 2},
        {"--layers 8 --stages 4 --chunks 2 --replicas 2 --expert-parallel 2 --experts 4 --bias no "
         "--overlap-expert-exchange 2",
         "1,2,3,2", 2},
        /* several parts between the ends of a stage */
        {"--layers 20 --stages 4 --chunks 2 --replicas 2 --zero 3 --split 4,6,6,4", "6,4,6,4", 10},
        {"--layers 20 --stages 4 --chunks 2 --replicas 2 --zero 3 --checkpoint layers:2", "4,6,6,4", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int lent = check(cases[i].options, cases[i].split, 8);
        if (lent != cases[i].lent) fail_msg("%s: %d", cases[i].options, lent);
    }
    assert_true(met.beside > 20 && met.parts > 20);
}

/* Stages of as many layers, of which some begin with another layer than the lender's: layers 1 and 3. */
static void test_different(void **state)
{
#define SHIFTED "--layers 8 --stages 4 --chunks 2 --split 1,2,3,2 "
    (void)state;
    assert_int_equal(check("--layers 8 --stages 4 --chunks 2 --dropout 0.2", "2,2,1,3", 8), 2); /* the first two */
    assert_int_equal(check(SHIFTED "--dropout 0.2", "3,2,2,1", 8), 0);
    assert_int_equal(check(SHIFTED "--window-size 3 --window-attn-skip-freq 2", "3,2,2,1", 8), 2); /* 3 and 5 */
    assert_int_equal(check(SHIFTED "--window-size 3 --window-attn-skip-freq 2", "2,3,2,1", 8), 1); /* 5, but not 2 */
    assert_int_equal(check(SHIFTED "--experts 3 --experts-every 2 --bias no", "3,2,2,1", 8), 2);
    assert_int_equal(check(SHIFTED "--experts 3 --experts-every 2 --bias no", "2,2,3,1", 8), 0); /* 2 and 4 */
#undef SHIFTED
}

/* With three devices in a host the two workers of the second rank are on two hosts, and sum over the network. So only
 * programs are lent to another rank. */
static void test_hosts(void **state)
{
    (void)state;
    assert_int_equal(check("--layers 8 --stages 4 --chunks 2 --tensor 2 --split 1,2,3,2", "2,3,2,1", 3), 2);
    assert_int_equal(check("--layers 8 --stages 4 --chunks 2 --tensor 2 --split 1,2,3,2", "2,3,2,1", 4), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alike),
        cmocka_unit_test(test_different),
        cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
