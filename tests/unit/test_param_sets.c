/* SPDX-License-Identifier: Apache-2.0
 *
 * What is no expert's, and what is, where workers share experts: how many have the same, where it lies in memory, which
 * sums of squares who makes, and what sums of both take, against figures counted by hand.
 */
#include "core/job/process.h"
#include "core/plan/group.h"
#include "exec/shares.h"
#include "kernels/kernels.h"
#include "tests/unit/cost_case.h"

/* Two stages of two layers, of twelve replicas. */
#define OPTIONS                                                                                                        \
    "--preset lab --layers 4 --experts 24 --bias no --rows 2 --chunks 2 --device cuda --clip 1 --optimizer adamw "     \
    "--stages 2 --replicas 12 "

enum { D = 12, MOST_SUMS = 2 * D };

/* Expert ranks, tensor ranks, and of D replicas those that share. */
struct way {
    const char *options;
    int n, t, sharing;
};
static const struct way ways[] = {
    {"--expert-parallel 2", 2, 1, D},
    {"--expert-parallel 12", 12, 1, D},
    {"--expert-parallel 3 --tensor 2 --overlap-grad-reduce --bucket-size 1B", 3, 2, D},
    {"--expert-parallel 2 --tensor 2 --zero 1", 2, 2, D},
    {"--expert-parallel 12 --zero 1 --overlap-grad-reduce --bucket-size 1B", 12, 1, D},
    {"--expert-parallel 3 --zero 1 --shard-degree 6 --precision bf16", 3, 1, 6},
    {"--expert-parallel 4 --zero 3 --precision bf16", 4, 1, D},
    {"--expert-parallel 2 --zero 2", 2, 1, D},
    {"--expert-parallel 3 --tensor 2 --zero 3 --shard-degree 3", 3, 2, 3},
};
enum { WAYS = sizeof ways / sizeof *ways };

static struct pp_job *job_of(const struct way *way)
{
    char options[300];
    snprintf(options, sizeof options, OPTIONS "%s", way->options);
    return create_job(options);
}

static bool of_experts(const struct pp_tensor *t) { return strstr(t->name, "linear1") || strstr(t->name, "linear2"); }

/* ---- memory ---- */

/* Marks [offset, offset + bytes), in units of 64 bytes; nothing may be marked twice. */
static void mark(uint8_t *region, int64_t offset, int64_t bytes)
{
    assert_true(offset >= 0 && offset % 64 == 0 && bytes % 64 == 0);
    for (int64_t i = offset / 64; i < (offset + bytes) / 64; i++) assert_int_equal(region[i]++, 0);
}

/* Tensors fill regions, and shares of them regions of shares; each has as many parts as workers have it. */
static void check_stage(const struct pp_model *model, int stage, const struct way *way)
{
    const struct pp_stage *s = &model->stages[stage];
    uint8_t *whole = calloc(1, (size_t)s->param_bytes), *shares = calloc(1, (size_t)s->share_bytes);
    const bool zero = model->shape.zero;
    int64_t marked = 0, kept = 0;
    for (int i = s->first_tensor; i < s->first_tensor + s->tensors; i++) {
        const struct pp_tensor *t = &model->tensors[i];
        const int parts = of_experts(t) ? way->sharing / way->n : way->sharing;
        assert_int_equal(t->set, of_experts(t) ? PP_EXPERTS : PP_DENSE);
        assert_int_equal(pp_shape_parts(&model->shape, t->set), parts);
        if (zero || parts > 1) assert_int_equal(t->bytes, (int64_t)parts * t->part_elements * 4);
        assert_true(t->bytes >= t->local_elements * 4);
        mark(whole, t->offset, t->bytes);
        mark(shares, t->share_offset, t->bytes / (zero ? parts : 1));
        marked += t->bytes, kept += t->bytes / (zero ? parts : 1);
    }
    assert_int_equal(marked, s->param_bytes);
    assert_int_equal(kept, s->share_bytes);
    free(whole);
    free(shares);
}

/* What is summed at once, of a set, is of its tensors alone, and all of those of the part. */
static void check_sums(const struct pp_model *model, const struct pp_class *cls)
{
    const struct pp_stage *s = &model->stages[cls->stage];
    const struct pp_tensor_range range = pp_part_tensors(s, cls);
    int64_t bytes[PP_PARAM_SETS] = {0};
    for (int i = 0; i < s->tensors; i++) {
        const struct pp_tensor *t = &model->tensors[s->first_tensor + i];
        for (int set = 0; set < PP_PARAM_SETS; set++) {
            const struct pp_extent sum = pp_part_sum(model, cls, set);
            const bool in = t->offset >= sum.offset && t->offset < sum.offset + sum.bytes;
            assert_int_equal(in, t->set == set && i >= range.first && i < range.first + range.n);
            if (in) bytes[set] += t->bytes;
        }
    }
    for (int set = 0; set < PP_PARAM_SETS; set++) {
        assert_int_equal(bytes[set], pp_part_sum(model, cls, set).bytes);
        assert_int_equal(bytes[set], pp_summed_bytes(model, cls, set));
    }
}

static void sets_fill_their_memory(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        struct pp_job *job = job_of(&ways[i]);
        for (int s = 0; s < 2; s++) check_stage(job->model, s, &ways[i]);
        for (int c = 0; c < job->train->nclasses && !job->train->zero; c++)
            if (job->train->classes[c].kind == PP_REDUCE_GRAD) check_sums(job->model, &job->train->classes[c]);
        pp_job_free(job);
    }
}

/* A list of shares has the tensors of its set; with one worker for each of a set's shares nobody combines them. */
static void lists_are_of_their_sets(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        struct pp_job *job = job_of(&ways[i]);
        const struct pp_plan *plan = job->train;
        const bool several = ways[i].sharing > ways[i].n;
        assert_int_equal(pp_combines_set(plan, PP_REDUCE_GRAD, PP_EXPERTS), several);
        assert_int_equal(pp_combines_set(plan, PP_GATHER_PARAM, PP_EXPERTS), several);
        assert_false(pp_combines_set(plan, PP_REDUCE_SHARE, PP_EXPERTS));
        for (int c = 0; c < plan->nclasses && plan->zero; c++) {
            const struct pp_class *cls = &plan->classes[c];
            if (cls->kind != PP_REDUCE_GRAD) continue;
            const struct pp_tensor_range range = pp_part_tensors(&job->model->stages[cls->stage], cls);
            struct pp_shares *lists[PP_PARAM_SETS];
            int64_t bytes = 0;
            for (int set = 0; set < PP_PARAM_SETS; set++) {
                assert_int_equal(pp_shares_create(job, cls, set, 0, &lists[set]), PP_OK);
                bytes += lists[set]->bytes * pp_plan_sharers(plan, set);
            }
            assert_int_equal(lists[PP_DENSE]->n + lists[PP_EXPERTS]->n, range.n);
            assert_int_equal(lists[PP_EXPERTS]->n, 2 * (plan->shards || cls->parts ? 1 : 2));
            assert_int_equal(bytes, pp_part_gradients(job->model, cls).bytes);
            for (int set = 0; set < PP_PARAM_SETS; set++) free(lists[set]);
        }
        pp_job_free(job);
    }
}

/* ---- the norm ---- */

/* What a sum of squares is of: an expert rank's experts, or what all have (-1); which part. */
struct square {
    int expert, part;
};

/* The sums that all workers of a rank and a group make of a tensor of its stage: each at its place, once. */
static void collect(const struct pp_job *job, int stage, int tensor, struct square squares[MOST_SUMS])
{
    const struct pp_plan *plan = job->train;
    const struct pp_shape *shape = &job->model->shape;
    const struct pp_tensor *t = &job->model->tensors[job->model->stages[stage].first_tensor + tensor];
    for (int k = 0; k < MOST_SUMS; k++) squares[k] = (struct square){-1, -1};
    for (int w = 0; w < pp_norm_group(plan, 0).n; w++) {
        const int worker = plan->zero ? w : pp_group_worker(&(struct pp_group){0, 1, pp_norm_workers(plan)}, w);
        const struct pp_frame frame = {.tensor_rank = pp_worker_tensor_rank(plan, worker),
                                       .expert_rank = pp_worker_expert_rank(plan, worker)};
        const int share = pp_worker_share(plan, worker, PP_DENSE), of_set = pp_worker_share(plan, worker, t->set);
        if (pp_worker_rank(plan, worker) != stage) continue;
        for (int c = 0; c < plan->nclasses; c++) {
            if (plan->classes[c].kind != PP_NORM || plan->classes[c].stage != stage) continue;
            const struct pp_program *norm = &job->phase[PP_TRAIN].programs[c];
            int part = 0;
            for (int i = 0; i < norm->ncalls; i++) {
                const struct pp_call *call = &norm->calls[i];
                const int sums = pp_shape_sums(shape), at = pp_sum_index(call, &frame) - tensor * sums;
                if (pp_call_join(call).op != PP_JOIN_NONE || call->sumsq.index / sums != tensor) continue;
                const int k = plan->zero ? of_set : part++;
                if (pp_counts_elsewhere(call->sumsq.once, &frame)) continue;
                const int place = frame.tensor_rank * pp_shape_rank_sums(shape) + at + (plan->zero ? share : 0);
                assert_in_range(place, 0, sums - 1);
                assert_int_equal(squares[place].part, -1);
                squares[place] = (struct square){t->set == PP_EXPERTS ? frame.expert_rank : -1, k};
            }
        }
    }
}

/* With and without shares the same sums are at the same places: they are added in the same order. */
static void shares_and_parts_make_the_same_sums(void **state)
{
    (void)state;
    static const struct way pairs[][2] = {
        {{"--expert-parallel 2", 2, 1, D}, {"--expert-parallel 2 --zero 1", 2, 1, D}},
        {{"--expert-parallel 12", 12, 1, D}, {"--expert-parallel 12 --zero 3", 12, 1, D}},
        {{"--expert-parallel 3 --tensor 2", 3, 2, D}, {"--expert-parallel 3 --tensor 2 --zero 3", 3, 2, D}},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct pp_job *parts = job_of(&pairs[i][0]);
        struct square a[MOST_SUMS], b[MOST_SUMS];
        int n[PP_PARAM_SETS] = {0};
        struct pp_config kept = config;
        parts->config = &kept; /* the next job's options take its place */
        struct pp_job *shares = job_of(&pairs[i][1]);
        for (int t = 0; t < parts->model->stages[0].tensors; t++) {
            collect(parts, 0, t, a);
            collect(shares, 0, t, b);
            for (int k = 0; k < MOST_SUMS; k++) {
                assert_int_equal(a[k].expert, b[k].expert);
                assert_int_equal(a[k].part, b[k].part);
                n[parts->model->tensors[t].set] += a[k].part >= 0;
            }
        }
        assert_int_equal(n[PP_EXPERTS], 4 * D * pairs[i][0].t); /* two tensors of two layers, by all workers */
        assert_true(n[PP_DENSE] > 0 && n[PP_DENSE] % D == 0);
        pp_job_free(shares);
        pp_job_free(parts);
    }
}

/* ---- costs ---- */

/* One rank of twelve on hosts of six: what is no expert's goes around all of them, that of six expert ranks between the
 * two that have the same, each by its own port. */
static void sets_are_summed_one_after_the_other(void **state)
{
    (void)state;
    for (int zero = 0; zero < 2; zero++) {
        struct pp_job *job = create_job(zero ? OPTIONS "--expert-parallel 6 --zero 1 --stages 1"
                                             : OPTIONS "--expert-parallel 6 --stages 1");
        const struct pp_machine m = round_machine(6);
        struct pp_cost *cost;
        assert_int_equal(pp_cost_from_machine(job, &m, &cost), PP_OK);
        for (int c = 0; c < cost->nclasses; c++) {
            const struct pp_class *cls = &job->train->classes[c];
            if (cls->kind != PP_REDUCE_GRAD) continue;
            const double dense = (double)pp_summed_bytes(job->model, cls, PP_DENSE);
            const double experts = (double)pp_summed_bytes(job->model, cls, PP_EXPERTS);
            const double rounds = zero ? 1 : 2, latency = rounds * (1500 + 5000);
            assert_int_equal(cost->classes[c].bytes, (int64_t)(dense + experts));
            expect_near((double)cost->classes[c].ns,
                        latency + rounds * dense * 11 / 12 / 60 + latency + rounds * experts / 2 / 10, 2, "both");
        }
        pp_cost_free(cost);
        pp_job_free(job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_fill_their_memory),
        cmocka_unit_test(lists_are_of_their_sets),
        cmocka_unit_test(shares_and_parts_make_the_same_sums),
        cmocka_unit_test(sets_are_summed_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
