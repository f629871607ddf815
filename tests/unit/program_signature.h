/* SPDX-License-Identifier: Apache-2.0
 *
 * Signatures of the programs of models with two stages, in rows of SEQ tokens.
 */
#ifndef PP_TESTS_PROGRAM_SIGNATURE_H
#define PP_TESTS_PROGRAM_SIGNATURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/model.h"

enum { SEQ = 5 };

static inline struct pp_model *make_model(const struct pp_shape *shape, int stages)
{
    struct pp_model *model;
    if (pp_model_create(shape, stages, NULL, NULL, &model) != PP_OK) fail_msg("%s", pp_message());
    return model;
}

static inline void check_part(struct pp_shape shape, struct pp_class cls, const char *expected)
{
    struct pp_model *model = make_model(&shape, 2);
    struct pp_program program;
    if (pp_model_program(model, &cls, &(struct pp_program_spec){SEQ, 3, true, false}, &program) != PP_OK)
        fail_msg("%s", pp_message());
    assert_string_equal(program.signature, expected);
    pp_program_free(&program);
    pp_model_free(model);
}

/* A backward adds to gradients. */
static inline void check_signature(struct pp_shape shape, int kind, int stage, const char *expected)
{
    check_part(shape, (struct pp_class){kind, stage, kind == PP_STEP ? 0 : 3, .adds = true}, expected);
}

#endif
