/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's walk of a plan: both rules for posting a receive, and that every stop finds what it waits for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exec/walk.h"
#include "schedules/schedule.h"

/* The stop that reads a receive. */
static int reader_of(const struct pp_walk *walk, int lane, int index)
{
    for (int i = 0; i < walk->nstops; i++)
        if (walk->stops[i].recv_lane == lane && walk->stops[i].recv_index == index) return i;
    fail_msg("nobody reads receive %d of channel %d", index, lane);
    return -1;
}

/* Computations of the rank before a receive's place in its list. */
static int32_t last_compute_before(const struct pp_walk *walk, int32_t transfer)
{
    const struct pp_plan *plan = walk->plan;
    int32_t last = -1;
    for (int64_t e = plan->issue_start[walk->rank]; plan->issue[e] != (transfer << 1 | 1); e++)
        if (pp_kinds[plan->tasks[pp_issue_task(plan->issue[e])].kind].computes) last = pp_issue_task(plan->issue[e]);
    return last;
}

static void check_receives(const struct pp_walk *walk, int lane)
{
    const struct pp_channel_end *end = &walk->recv[lane];
    for (int i = 0; i < end->n; i++) {
        int32_t place = end->place[i], before = last_compute_before(walk, end->tasks[i]);
        assert_true(place >= end->after[i]); /* its slot is free there */
        assert_true(i == 0 || place >= end->place[i - 1]);
        assert_true(place < reader_of(walk, lane, i));
        assert_int_equal(place < 0 ? -1 : walk->stops[place].task, before);
    }
}

/* Of the slot's earlier send, this step's or the last one's. */
static void check_sends(const struct pp_channel_end *end)
{
    assert_null(end->place);
    for (int i = 0; i < end->n; i++) assert_true(end->after[i] < i && end->after[i] >= i - end->n);
}

static void check_walks(const struct pp_plan_spec *spec)
{
    struct pp_plan *plan;
    assert_int_equal(pp_schedules.build(spec, &plan), PP_OK);
    for (int rank = 0; rank < plan->ranks; rank++) {
        struct pp_walk *walk;
        assert_int_equal(pp_walk_create(plan, rank, &walk), PP_OK);
        for (int i = 0; i < walk->nrecv; i++) check_receives(walk, i);
        for (int i = 0; i < walk->nsend; i++) check_sends(&walk->send[i]);
        pp_walk_free(walk);
    }
    pp_plan_free(plan);
}

static void receives_have_a_slot_and_a_place(void **state)
{
    (void)state;
    int checked = 0;
    for (int i = 0; pp_schedule_at(i); i++)
        for (int p = 1; p <= 5; p++)
            for (int v = 1; v <= 3; v++)
                for (int m = 1; m <= 12; m++) {
                    if (pp_schedules.check(pp_schedule_at(i)->name, p, v, m) != PP_OK) continue;
                    struct pp_plan_spec spec = {.schedule = pp_schedule_at(i)->name,
                                                .ranks = p,
                                                .virtual_stages = v,
                                                .microbatches = m,
                                                .replicas = 1 + m % 2,
                                                .recv_buffers = 1 + m % 3,
                                                .checkpoint = m % 3,
                                                .training = m % 4 != 0,
                                                .optimizer = true,
                                                .clip = m % 2};
                    check_walks(&spec);
                    checked++;
                }
    assert_true(checked > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(receives_have_a_slot_and_a_place)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
