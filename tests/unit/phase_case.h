/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of a phase, call by call or place by place.
 */
#ifndef PP_TESTS_PHASE_CASE_H
#define PP_TESTS_PHASE_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/job/job.h"
#include "core/plan/plan_spec.h"
#include "kernels/model.h"

/* Field by field: there are bytes between fields that nobody sets. */
static inline void expect_same_call(const struct pp_call *a, const struct pp_call *b)
{
    assert_int_equal(a->kernel, b->kernel);
    assert_memory_equal(a->n, b->n, sizeof a->n);
    assert_int_equal(a->site, b->site);
    assert_int_equal(a->precision, b->precision);
    assert_int_equal(a->adds, b->adds);
    assert_true(a->p == b->p);
    assert_memory_equal(&a->turns, &b->turns, sizeof a->turns);
    for (int i = 0; i < PP_CALL_REFS; i++) {
        assert_int_equal(a->ref[i].region, b->ref[i].region);
        assert_int_equal(a->ref[i].offset, b->ref[i].offset);
        assert_int_equal(a->ref[i].row_bytes, b->ref[i].row_bytes);
        assert_int_equal(a->ref[i].part_bytes, b->ref[i].part_bytes);
        assert_int_equal(a->ref[i].expert_bytes, b->ref[i].expert_bytes);
    }
}

/* Their work is the same, and how workers meet: all that times depend on. */
static inline void expect_same_work(const struct pp_call *a, const struct pp_call *b)
{
    const struct pp_join_work x = pp_model_ops.call_join(a), y = pp_model_ops.call_join(b);
    assert_int_equal(a->kernel, b->kernel);
    assert_memory_equal(a->n, b->n, sizeof a->n);
    assert_int_equal(a->precision, b->precision);
    assert_int_equal(a->adds, b->adds);
    for (int i = 0; i < PP_CALL_REFS; i++)
        assert_int_equal(a->ref[i].region != PP_MEM_NONE, b->ref[i].region != PP_MEM_NONE);
    assert_true(x.op == y.op && x.type == y.type && x.bytes == y.bytes && x.rounds == y.rounds);
    assert_true(x.pieces == y.pieces && x.group == y.group && x.beside == y.beside);
}

/* `once`, in which calls may stand once, does what the whole program does. */
static inline void expect_same_program(const struct pp_program *once, const struct pp_program *whole)
{
    assert_null(whole->order);
    assert_int_equal(pp_program_length(once), whole->ncalls);
    assert_int_equal(once->work_bytes, whole->work_bytes);
    for (int i = 0; i < whole->ncalls; i++) {
        const int at = pp_program_at(once, i);
        assert_in_range(at, 0, once->ncalls - 1);
        expect_same_work(&once->calls[at], &whole->calls[i]);
    }
}

/* The program of class c is what is written for the class alone; or, where calls stand once, does the same. */
static inline void check_alone(const struct pp_job *job, const struct pp_phase *phase, int c)
{
    const struct pp_class *cls = &phase->plan->classes[c];
    const struct pp_program *made = &phase->programs[c];
    const int shared = phase->plan->slot_microbatches > 1 ? pp_plan_most_slot_rows(phase->plan) : 0;
    struct pp_program_spec spec = pp_phase_spec(phase, shared ? shared : cls->rows);
    struct pp_program alone;
    spec.once = false;
    assert_int_equal(pp_model_ops.program(job->model, cls, &spec, &alone), PP_OK);
    if (phase->once) {
        expect_same_program(made, &alone);
        pp_program_free(&alone);
        return;
    }
    assert_int_equal(made->ncalls, alone.ncalls);
    assert_int_equal(made->work_bytes, alone.work_bytes);
    assert_true(made->flops == alone.flops);
    assert_string_equal(made->signature, alone.signature);
    for (int i = 0; i < alone.ncalls; i++) expect_same_call(&made->calls[i], &alone.calls[i]);
    pp_program_free(&alone);
}

#endif
