/* SPDX-License-Identifier: Apache-2.0
 *
 * The scratch of a training program.
 */
#ifndef PP_TESTS_PROGRAM_SCRATCH_H
#define PP_TESTS_PROGRAM_SCRATCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/model.h"

/* Bytes, of stage 1 and 16 rows of `seq` tokens. split: the backward is I and W. */
static inline int64_t scratch_of(const struct pp_model *model, int kind, bool split, int seq)
{
    const struct pp_class cls = {kind, 1, 16};
    struct pp_program program;
    assert_int_equal(pp_model_program(model, &cls, &(struct pp_program_spec){seq, 16, true, split}, &program), PP_OK);
    const int64_t bytes = program.work_bytes;
    pp_program_free(&program);
    return bytes;
}

#endif
