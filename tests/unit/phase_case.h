/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of a phase, call by call.
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

/* The program of class c is what is written for the class alone. */
static inline void check_alone(const struct pp_job *job, const struct pp_phase *phase, int c)
{
    const struct pp_class *cls = &phase->plan->classes[c];
    const struct pp_program *made = &phase->programs[c];
    const int shared = phase->plan->slot_microbatches > 1 ? pp_plan_most_slot_rows(phase->plan) : 0;
    const struct pp_program_spec spec = pp_phase_spec(phase, shared ? shared : cls->rows);
    struct pp_program alone;
    assert_int_equal(pp_model_ops.program(job->model, cls, &spec, &alone), PP_OK);
    assert_int_equal(made->ncalls, alone.ncalls);
    assert_int_equal(made->work_bytes, alone.work_bytes);
    assert_true(made->flops == alone.flops);
    assert_string_equal(made->signature, alone.signature);
    for (int i = 0; i < alone.ncalls; i++) expect_same_call(&made->calls[i], &alone.calls[i]);
    pp_program_free(&alone);
}

#endif
