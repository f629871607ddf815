/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of rotations and of experts: what is refused, and numbers that follow from others.
 */
#include "core/shape/heads.h"
#include "tests/unit/config_case.h"

static void combinations_without_sense_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } cases[] = {
        {"--positions rope --rope-scaling yarn", "--rope-scaling is of --rope-factor"},
        {"--positions rope --rope-factor 8 --rope-truncate no",
         "--rope-truncate is of --rope-factor and --rope-scaling"},
        {"--positions rope --rope-factor 8 --rope-attention-factor 2", "--rope-scaling yarn; add both"},
        {"--positions rope --rope-factor 8 --rope-scaling linear --rope-original-tokens 9",
         "--rope-original-tokens is of --rope-factor with --rope-scaling llama3 or yarn"},
        {"--positions rope --rope-factor 8 --rope-scaling yarn --rope-low-freq-factor 33", "32 must be at least"},
        {"--positions rope --rope-factor 8 --rope-low-freq-factor 4", "4 must be more than"},
        {"--score-factor 0", "is below"},
        {"--rotary-dim 32", "--rotary-dim is of --positions rope"},
        {"--positions rope --rotary-dim 31", "--rotary-dim 31: pairs of columns are rotated; choose an even number"},
        {"--positions rope --rotary-dim 102", "--rotary-dim 102: heads have 100 columns"},
        {"--expert-groups 2", "--expert-groups is of --experts"},
        {"--experts 4 --bias no --group-score best", "--group-score is of --expert-groups"},
        {"--experts 8 --bias no --expert-groups 3", "cannot be in so many equal groups of two or more"},
        {"--experts 8 --bias no --expert-groups 8", "cannot be in so many equal groups of two or more"},
        {"--experts 8 --bias no --expert-groups 4 --groups-per-token 5",
         "--groups-per-token 5: there are --expert-groups 4; choose as many at most"},
        {"--experts 8 --bias no --experts-per-token 3 --expert-groups 4",
         "so many of the groups have 2 experts, and a token chooses --experts-per-token 3"},
        {"--expert-bias yes", "--expert-bias is of --experts"},
        {"--experts 4 --bias no --expert-bias-rate 0.1", "--expert-bias-rate is of --expert-bias"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) refused(cases[i].line, cases[i].message);
}

/* What is not given of a kind of scaling is that kind's. */
static void kinds_of_scaling_have_numbers_of_their_own(void **state)
{
    (void)state;
    struct pp_config c;
    assert_int_equal(parse(PP_PPSIM, "--positions rope --rope-factor 8", &c), PP_OK);
    assert_true(c.model.rope_scaling.kind == PP_ROPE_LLAMA3 && c.model.rope_scaling.low == 1 &&
                c.model.rope_scaling.high == 4);
    assert_true(pp_rope_magnitude(&c.model.rope_scaling) == 1);
    assert_int_equal(parse(PP_PPSIM, "--positions rope --rope-factor 40 --rope-scaling yarn", &c), PP_OK);
    assert_true(c.model.rope_scaling.low == 1 && c.model.rope_scaling.high == 32 && c.model.rope_scaling.truncate);
    assert_true(fabs(pp_rope_magnitude(&c.model.rope_scaling) - 1.36888794541139) < 1e-14);
    assert_int_equal(parse(PP_PPSIM,
                           "--positions rope --rope-factor 40 --rope-scaling yarn --rope-high-freq-factor 5 "
                           "--rope-low-freq-factor 5 "
                           "--rope-attention-factor 0.5",
                           &c),
                     PP_OK);
    assert_true(c.model.rope_scaling.high == 5 && pp_rope_magnitude(&c.model.rope_scaling) == 0.5);
    assert_int_equal(parse(PP_PPSIM, "--positions rope", &c), PP_OK);
    assert_true(!pp_rope_scales(&c.model.rope_scaling) && pp_rope_magnitude(&c.model.rope_scaling) == 1);
}

/* Columns that are all rotated are as if nothing was said; options of experts count with experts only. */
static void shapes_have_what_counts(void **state)
{
    (void)state;
    struct pp_config c;
    struct pp_shape shape;
    assert_int_equal(parse(PP_PPSIM, "--positions rope --d-model 8 --heads 3 --head-dim 4 --rotary-dim 4", &c), PP_OK);
    assert_int_equal(c.model.rotary_dim, 0); /* also where heads do not divide --d-model */
    assert_int_equal(c.model.head_dim, 4);
    assert_int_equal(parse(PP_PPSIM, "--positions rope --head-dim 64 --rotary-dim 64", &c), PP_OK);
    pp_config_shape(&c, &shape);
    assert_true(shape.rotary_dim == 0 && pp_rotary_dim(&shape) == 64);
    assert_int_equal(parse(PP_PPSIM, "--positions rope --head-dim 64 --rotary-dim 32", &c), PP_OK);
    pp_config_shape(&c, &shape);
    assert_int_equal(pp_rotary_dim(&shape), 32);
    assert_int_equal(
        parse(PP_PPSIM, "--bias no --experts 8 --expert-bias yes --expert-groups 4 --groups-per-token 2", &c), PP_OK);
    pp_config_shape(&c, &shape);
    assert_true(shape.expert_bias && shape.expert_bias_rate == 0.001 && pp_shape_expert_groups(&shape) == 4);
    assert_int_equal(parse(PP_PPSIM, "--bias no --experts 8 --expert-groups 4 --groups-per-token 4", &c), PP_OK);
    pp_config_shape(&c, &shape);
    assert_int_equal(pp_shape_expert_groups(&shape), 0); /* of all groups */
    assert_int_equal(parse(PP_PPSIM, "", &c), PP_OK);
    pp_config_shape(&c, &shape);
    assert_true(!shape.expert_bias && shape.expert_bias_rate == 0 && !shape.expert_groups);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(combinations_without_sense_are_refused),
                                       cmocka_unit_test(kinds_of_scaling_have_numbers_of_their_own),
                                       cmocka_unit_test(shapes_have_what_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
