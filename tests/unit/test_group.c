/* SPDX-License-Identifier: Apache-2.0
 *
 * How workers of a plan are numbered, and which of them meet: against a list of all workers, made by counting.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan/group.h"

enum { MOST_RANKS = 4, MOST_COPIES = 4, MOST_T = 3, MOST_N = 2, MOST_C = 4 };
enum { MOST_WORKERS = MOST_RANKS * MOST_COPIES * MOST_T * MOST_N * MOST_C };

/* What a worker is: copy: which of those that have other rows, as far as replicas have. */
struct worker {
    int copy, rank, context, expert, tensor;
    int replica, member;
};

/* A plan, and its workers in the order of their numbers. */
struct case_plan {
    struct pp_plan plan;
    int stage_rank[MOST_RANKS], T, N, C, n;
    struct worker workers[MOST_WORKERS];
};

/* The comment of core/plan/workers.h as loops: what is written first changes last. */
static void count_workers(struct case_plan *c)
{
    c->n = 0;
    for (int copy = 0; copy < c->plan.replicas / c->C; copy++)
        for (int rank = 0; rank < c->plan.ranks; rank++)
            for (int context = 0; context < c->C; context++)
                for (int expert = 0; expert < c->N; expert++)
                    for (int tensor = 0; tensor < c->T; tensor++)
                        c->workers[c->n++] = (struct worker){
                            copy, rank, context, expert, tensor, copy * c->C + context, expert * c->T + tensor};
}

/* With all numbers of equal groups that share. */
static void for_groups(struct case_plan *c, void (*check)(const struct case_plan *c))
{
    const int copies = c->plan.replicas / c->C;
    for (int groups = 1; groups <= copies; groups++) {
        if (copies % groups) continue;
        c->plan.shard_group = copies / groups * c->C;
        check(c);
    }
}

/* Calls back with a plan of each of many sizes. */
static void for_plans(void (*check)(const struct case_plan *c))
{
    static struct case_plan c;
    for (int i = 0; i < MOST_RANKS * MOST_COPIES * MOST_T * MOST_N * MOST_C; i++) {
        int left = i;
        const int ranks = 1 + left % MOST_RANKS, copies = 1 + (left /= MOST_RANKS) % MOST_COPIES;
        c.T = 1 + (left /= MOST_COPIES) % MOST_T;
        c.N = 1 + (left /= MOST_T) % MOST_N;
        c.C = 1 + left / MOST_N;
        for (int s = 0; s < ranks; s++) c.stage_rank[s] = s;
        c.plan = (struct pp_plan){.ranks = ranks,
                                  .stages = ranks,
                                  .stage_rank = c.stage_rank,
                                  .replicas = copies * c.C,
                                  .members = c.T * c.N,
                                  .expert_parallel = c.N,
                                  .context = c.C};
        count_workers(&c);
        for_groups(&c, check);
    }
}

static void check_numbers(const struct case_plan *c)
{
    const struct pp_plan *plan = &c->plan;
    assert_int_equal(pp_plan_workers(plan), c->n);
    assert_int_equal(pp_plan_neighbours(plan), c->T * c->N * c->C);
    assert_int_equal(pp_plan_tensor(plan), c->T);
    for (int w = 0; w < c->n; w++) {
        const struct worker *is = &c->workers[w];
        assert_int_equal(pp_worker_at(plan, is->replica, is->rank, is->member), w);
        assert_int_equal(pp_worker_replica(plan, w), is->replica);
        assert_int_equal(pp_worker_rank(plan, w), is->rank);
        assert_int_equal(pp_worker_member(plan, w), is->member);
        assert_int_equal(pp_worker_context_rank(plan, w), is->context);
        assert_int_equal(pp_worker_tensor_rank(plan, w), is->tensor);
        assert_int_equal(pp_worker_expert_rank(plan, w), is->expert);
    }
}

static void workers_are_numbered_as_the_comment_says(void **state)
{
    (void)state;
    for_plans(check_numbers);
}

/* Which group of those that share it is in. */
static int group_of_copy(const struct case_plan *c, const struct worker *w)
{
    return w->copy / (c->plan.shard_group / c->C);
}

/* Rows go to copies, and to expert ranks of each; tokens to context ranks of these. Where expert ranks have rows of
 * their own, context rank 1 of the first has its tokens behind those of all of them. */
static void check_data(const struct case_plan *c)
{
    const struct pp_plan *plan = &c->plan;
    const int rows = plan->replicas / c->C * c->N, parts = rows * c->C;
    struct pp_plan shards = *plan;
    shards.shard_params = true;
    int seen[MOST_WORKERS] = {0};
    assert_int_equal(pp_plan_data_parallel(plan), rows);
    assert_int_equal(pp_plan_token_parts(plan), parts);
    for (int w = 0; w < c->n; w++) {
        const struct worker *is = &c->workers[w];
        const int part = pp_worker_token_part(plan, w);
        assert_int_equal(pp_worker_data_rank(plan, w), is->copy * c->N + is->expert);
        assert_int_equal(part, (is->copy * c->C + is->context) * c->N + is->expert);
        assert_true(pp_worker_evaluates(plan, w) == (is->copy == 0));
        assert_true(pp_worker_evaluates(&shards, w) == (group_of_copy(c, is) == 0));
        seen[part]++;
        if (is->tensor == 0) assert_int_equal(pp_token_part_worker(plan, part, is->rank), w);
    }
    for (int part = 0; part < parts; part++) assert_int_equal(seen[part], plan->ranks * c->T);
}

static void rows_and_tokens_are_dealt_out_evenly(void **state)
{
    (void)state;
    for_plans(check_data);
}

/* ---- who meets ---- */

enum kind { TENSOR, EXPERT, CONTEXT, OF_DENSE, OF_EXPERTS, SHARES, NORM, NORM_OF_SHARES, TIED, KINDS };

static struct pp_group group_of(const struct pp_plan *plan, enum kind kind, int w)
{
    struct pp_plan shares = *plan;
    shares.zero = true;
    if (kind <= CONTEXT) return pp_join_members(plan, w, (enum pp_join_group)(PP_JOIN_TENSOR_RANKS + (int)kind));
    if (kind == OF_DENSE) return pp_replica_group(plan, w, PP_DENSE);
    if (kind == OF_EXPERTS) return pp_replica_group(plan, w, PP_EXPERTS);
    if (kind == SHARES) return pp_share_group(plan, w);
    if (kind == TIED) return pp_tied_group(plan, pp_worker_replica(plan, w), pp_worker_member(plan, w));
    return pp_norm_group(kind == NORM ? plan : &shares, w);
}

static bool is_tied(const struct case_plan *c, const struct worker *w)
{
    return w->rank == c->stage_rank[0] || w->rank == c->stage_rank[c->plan.stages - 1];
}

/* Are both in one group? */
static bool meet(const struct case_plan *c, enum kind kind, const struct worker *a, const struct worker *b)
{
    const bool copy = a->copy == b->copy, replica = copy & (a->context == b->context), rank = a->rank == b->rank;
    const bool expert = a->expert == b->expert, tensor = a->tensor == b->tensor, part = rank & tensor;
    const bool group = group_of_copy(c, a) == group_of_copy(c, b), member = part & expert;
    const bool share = a->replica % c->plan.shard_group == b->replica % c->plan.shard_group;
    const bool pairs[KINDS] = {[TENSOR] = replica && rank && expert,
                               [EXPERT] = replica && rank && tensor,
                               [CONTEXT] = copy && member,
                               [OF_DENSE] = group && part,
                               [OF_EXPERTS] = group && member,
                               [SHARES] = share && member,
                               [NORM] = replica,
                               [NORM_OF_SHARES] = group,
                               [TIED] = replica && expert && tensor && is_tied(c, b)};
    return pairs[kind];
}

/* Where it stands in its group. */
static int place_of(const struct case_plan *c, enum kind kind, const struct worker *w)
{
    const int *ranks = c->stage_rank, last = ranks[c->plan.stages - 1], low = ranks[0] < last ? ranks[0] : last;
    const int of_group = c->n / pp_plan_shard_groups(&c->plan);
    const int places[KINDS] = {[TENSOR] = w->tensor,
                               [EXPERT] = w->expert,
                               [CONTEXT] = w->context,
                               [OF_DENSE] = w->replica % c->plan.shard_group * c->N + w->expert,
                               [OF_EXPERTS] = w->replica % c->plan.shard_group,
                               [SHARES] = group_of_copy(c, w),
                               [NORM] = w->rank * c->T * c->N + w->member,
                               [NORM_OF_SHARES] = (int)(w - c->workers) % of_group,
                               [TIED] = w->rank > low};
    return places[kind];
}

/* All that meet are there, each at its place, and no others. */
static void check_group(const struct case_plan *c, enum kind kind, int w)
{
    const struct pp_group group = group_of(&c->plan, kind, w);
    int members = 0;
    for (int other = 0; other < c->n; other++) {
        if (!meet(c, kind, &c->workers[w], &c->workers[other])) continue;
        const int place = place_of(c, kind, &c->workers[other]);
        assert_int_equal(pp_group_worker(&group, place), other);
        assert_int_equal(pp_group_member(&group, other), place);
        members++;
    }
    assert_int_equal(group.n, members);
    assert_int_equal(pp_group_worker(&group, 0), group.first);
}

/* Its number among those who share is its place there, and belongs in the first group to the one that is alike. */
static void check_share(const struct case_plan *c, int w)
{
    const struct worker *is = &c->workers[w];
    for (int set = 0; set < PP_PARAM_SETS; set++) {
        const struct pp_group group = pp_replica_group(&c->plan, w, set);
        const int share = pp_worker_share(&c->plan, w, set);
        assert_int_equal(pp_plan_sharers(&c->plan, set), group.n);
        assert_int_equal(share, pp_group_member(&group, w));
        const int first = pp_share_worker(&c->plan, share, set, is->rank, is->member);
        assert_int_equal(pp_worker_share(&c->plan, first, set), share);
        assert_int_equal(group_of_copy(c, &c->workers[first]), 0);
        if (group_of_copy(c, is) == 0) assert_int_equal(first, w);
    }
}

static void check_groups(const struct case_plan *c)
{
    const int sizes[PP_JOIN_GROUPS] = {c->T, c->N, c->C};
    struct pp_plan shares = c->plan;
    shares.zero = true;
    for (int kind = 0; kind < PP_JOIN_GROUPS; kind++)
        assert_int_equal(pp_join_size(&c->plan, (enum pp_join_group)kind), sizes[kind]);
    assert_int_equal(pp_norm_workers(&c->plan), c->plan.ranks * c->T * c->N);
    assert_int_equal(pp_norm_workers(&shares) * pp_plan_shard_groups(&c->plan), c->n);
    for (int w = 0; w < c->n; w++) check_share(c, w);
    for (int kind = 0; kind < KINDS; kind++)
        for (int w = 0; w < c->n; w++)
            if (kind != TIED || is_tied(c, &c->workers[w])) check_group(c, (enum kind)kind, w);
}

static void groups_have_whom_their_comments_name(void **state)
{
    (void)state;
    for_plans(check_groups);
}

/* First and last stage on any ranks, as in a V. */
static void check_tied(const struct case_plan *c)
{
    struct case_plan other = *c;
    other.plan.stages = 2;
    other.plan.stage_rank = other.stage_rank;
    for (int first = 0; first < c->plan.ranks; first++)
        for (int last = 0; last < c->plan.ranks; last++) {
            other.stage_rank[0] = first;
            other.stage_rank[1] = last;
            for (int w = 0; w < c->n; w++)
                if (is_tied(&other, &c->workers[w])) check_group(&other, TIED, w);
        }
}

static void tied_weights_meet_wherever_their_stages_are(void **state)
{
    (void)state;
    for_plans(check_tied);
}

/* Each worker is in one group of a kind: groups of different first workers have no worker in common. */
static void check_partition(const struct case_plan *c)
{
    for (int kind = 0; kind < TIED; kind++) {
        int seen[MOST_WORKERS] = {0};
        for (int w = 0; w < c->n; w++) {
            const struct pp_group group = group_of(&c->plan, (enum kind)kind, w);
            for (int i = 0; i < group.n && group.first == w; i++) {
                const int worker = pp_group_worker(&group, i);
                assert_in_range(worker, 0, c->n - 1);
                seen[worker]++;
            }
        }
        for (int w = 0; w < c->n; w++) assert_int_equal(seen[w], 1);
    }
}

static void each_worker_is_in_one_group_of_a_kind(void **state)
{
    (void)state;
    for_plans(check_partition);
}

/* Two copies, groups that share, of two ranks of context ranks that are two members each, by hand:
 *     rank 0: 0 1, 2 3    rank 1: 4 5, 6 7    second copy: 8 9, 10 11 and 12 13, 14 15 */
static void numbers_by_hand(void **state)
{
    (void)state;
    int stage_rank[] = {0, 1};
    const struct pp_plan plan = {.ranks = 2,
                                 .stages = 2,
                                 .stage_rank = stage_rank,
                                 .replicas = 4,
                                 .members = 2,
                                 .expert_parallel = 1,
                                 .context = 2,
                                 .shard_group = 2};
    static const struct {
        enum kind kind;
        int worker, n, members[8];
    } groups[] = {{TENSOR, 7, 2, {6, 7}},        {EXPERT, 7, 1, {7}},
                  {CONTEXT, 7, 2, {5, 7}},       {OF_DENSE, 7, 2, {5, 7}},
                  {OF_EXPERTS, 8, 2, {8, 10}},   {SHARES, 7, 2, {7, 15}},
                  {SHARES, 8, 2, {0, 8}},        {NORM, 7, 4, {2, 3, 6, 7}},
                  {NORM, 12, 4, {8, 9, 12, 13}}, {NORM_OF_SHARES, 12, 8, {8, 9, 10, 11, 12, 13, 14, 15}},
                  {TIED, 3, 2, {3, 7}},          {TIED, 14, 2, {10, 14}}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        const struct pp_group group = group_of(&plan, groups[i].kind, groups[i].worker);
        assert_int_equal(group.n, groups[i].n);
        for (int k = 0; k < group.n; k++) assert_int_equal(pp_group_worker(&group, k), groups[i].members[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_are_numbered_as_the_comment_says),
        cmocka_unit_test(rows_and_tokens_are_dealt_out_evenly),
        cmocka_unit_test(groups_have_whom_their_comments_name),
        cmocka_unit_test(tied_weights_meet_wherever_their_stages_are),
        cmocka_unit_test(each_worker_is_in_one_group_of_a_kind),
        cmocka_unit_test(numbers_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
