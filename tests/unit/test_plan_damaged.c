/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans in which one number was overwritten, whichever it is: pp_plan_check() takes or refuses them, and reads and
 * writes nothing that is not the plan's. (AddressSanitizer would tell; damage to the heap shows without it, too.)
 */
#include "tests/unit/dice.h"
#include "tests/unit/plan_case.h"

enum { TRIES = 300 }; /* per array and plan */

/* Checks the plan with *at = value, and puts the number back. */
static pp_status check_with(struct pp_plan *plan, int32_t *at, int32_t value)
{
    const int32_t good = *at;
    *at = value;
    const pp_status status = pp_plan_check(plan);
    if (status != PP_OK && (status != PP_INPUT || strncmp(pp_message(), "the plan is wrong: ", 19) != 0))
        fail_msg("%d instead of %d: %s", value, good, pp_message());
    *at = good;
    return status;
}

/* An array of a plan as numbers: each element begins with some. */
struct numbers {
    const char *name;
    void *at;
    int64_t elements;
    size_t size, used; /* bytes of an element, and those of its numbers */
    bool strict;       /* no other number is right */
};

#define ARRAY(array, n) #array, plan->array, n, sizeof *plan->array

/* Overwrites numbers of the array, one after the other. */
static void damage(struct pp_plan *plan, const struct numbers *a, uint64_t *dice)
{
    static const int32_t values[] = {-1, -2, 7, 1000, 1 << 28, INT32_MIN, -100000000, INT32_MAX};
    const int numbers = (int)((a->used ? a->used : a->size) / sizeof(int32_t));
    int refused = 0;
    for (int k = 0; k < TRIES && a->elements > 0; k++) {
        char *element = (char *)a->at + (size_t)random_below(dice, (int)a->elements) * a->size;
        int32_t *at = (int32_t *)element + random_below(dice, numbers);
        const int32_t value = values[random_below(dice, sizeof values / sizeof *values)];
        const pp_status status = check_with(plan, at, value);
        if (status == PP_OK && a->strict && *at != value) fail_msg("%s: %d for %d was taken", a->name, value, *at);
        refused += status != PP_OK;
    }
    if (a->elements > 0 && refused == 0) fail_msg("%s: all was taken", a->name);
}

static void damage_arrays(struct pp_plan *plan, uint64_t *dice)
{
    const struct numbers arrays[] = {
        {ARRAY(tasks, plan->ntasks)},
        {ARRAY(lanes, plan->nlanes)},
        {ARRAY(classes, plan->nclasses), .used = offsetof(struct pp_class, rounds)},
        {ARRAY(pools, plan->npools)},
        {ARRAY(wraps, plan->nwraps)},
        {ARRAY(rows, plan->microbatches), .strict = true},
        {ARRAY(first_row, plan->microbatches), .strict = true},
        {ARRAY(stage_rank, plan->stages)},
        {ARRAY(act_pool, plan->stages)},
        {ARRAY(acts, plan->nacts)},
        {ARRAY(issue, plan->issue_start[plan->ranks])},
        {ARRAY(issue_start, plan->ranks + 1), .strict = true},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) damage(plan, &arrays[i], dice);
}

#define FIELD(field) #field, &plan->field

/* Other numbers than arrays; `lengths` are those of arrays, which a check cannot know to be too large. */
static void damage_fields(struct pp_plan *plan)
{
    static const int32_t small[] = {-1, 0, INT32_MIN}, any[] = {1, 2, 3, 5, 7, 1000, 1 << 28, INT32_MAX};
    const struct {
        const char *name;
        int *at;
    } lengths[] = {{FIELD(ranks)},    {FIELD(stages)}, {FIELD(microbatches)}, {FIELD(nacts)}, {FIELD(nlanes)},
                   {FIELD(nclasses)}, {FIELD(npools)}, {FIELD(nslots)},       {FIELD(nwraps)}},
      fields[] = {{FIELD(virtual_stages)},  {FIELD(replicas)},    {FIELD(members)},
                  {FIELD(expert_parallel)}, {FIELD(context)},     {FIELD(checkpoint)},
                  {FIELD(recv_buffers)},    {FIELD(shard_group)}, {FIELD(slot_microbatches)}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (size_t k = 0; k < sizeof small / sizeof *small; k++) (void)check_with(plan, lengths[i].at, small[k]);
        (void)check_with(plan, lengths[i].at, *lengths[i].at - 1);
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        for (size_t k = 0; k < sizeof small / sizeof *small; k++) {
            const bool may_be_0 = fields[i].at == &plan->checkpoint || fields[i].at == &plan->recv_buffers;
            const pp_status status = check_with(plan, fields[i].at, small[k]);
            if (status == PP_OK && !(small[k] == 0 && may_be_0))
                fail_msg("%s = %d was taken", fields[i].name, small[k]);
        }
        for (size_t k = 0; k < sizeof any / sizeof *any; k++) (void)check_with(plan, fields[i].at, any[k]);
    }
    const int64_t ntasks = plan->ntasks, wrong[] = {-1, 0, ntasks - 1, INT64_MIN};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        plan->ntasks = wrong[k];
        assert_int_equal(pp_plan_check(plan), PP_INPUT);
        plan->ntasks = ntasks;
    }
}

static void test_damaged(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int virtual_stages, batch_w;
    } schedules[] = {{"gpipe", 1, 0}, {"1f1b", 1, 0}, {"interleaved", 2, 0}, {"zb-h1", 1, 2}, {"zbv", 2, 0}};
    static const int rows[] = {3, 3, 2, 1};
    uint64_t dice = 20;
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (int zero = 0; zero <= 3; zero++) {
            struct pp_plan_spec spec = spec_of(schedules[i].name, 2, schedules[i].virtual_stages, 4);
            const bool splits = schedules[i].batch_w || strcmp(schedules[i].name, "zbv") == 0;
            if (splits && zero > 1) continue; /* ZeRO 2 and 3 have no split backwards */
            spec.rows = rows;
            spec.replicas = zero ? 4 : 1;
            spec.shard_group = zero ? 2 : 0;
            spec.zero = zero;
            spec.tied = true;
            spec.batch_w = schedules[i].batch_w;
            struct pp_plan *plan = build(&spec);
            if (pp_plan_check(plan) != PP_OK) fail_msg("%s, ZeRO %d: %s", spec.schedule, zero, pp_message());
            damage_arrays(plan, &dice);
            damage_fields(plan);
            assert_int_equal(pp_plan_check(plan), PP_OK);
            pp_plan_free(plan);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damaged)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
