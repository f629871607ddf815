/* SPDX-License-Identifier: Apache-2.0
 *
 * Ways to train, or to evaluate, and the classes of tasks that they have.
 */
#ifndef PP_TESTS_PROGRAM_WAYS_H
#define PP_TESTS_PROGRAM_WAYS_H

#include "kernels/model.h"
#include "tests/unit/random_shape.h"

struct way {
    struct pp_program_spec spec;
    int kinds[5], n;
};

static inline const struct way *random_way(const struct pp_shape *shape, uint64_t *dice)
{
    static const struct way ways[] = {
        {{.training = true}, {PP_F, PP_R, PP_B, PP_NORM, PP_STEP}, 5},
        {{.training = true, .clip = true, .split_backward = true}, {PP_F, PP_I, PP_W, PP_B, PP_STEP}, 5},
        {{.training = true, .checkpoint_layers = true}, {PP_F, PP_B}, 2},
        {{.training = true, .again = 1}, {PP_F, PP_B}, 2},
        {{.training = true, .again = 4}, {PP_F, PP_B}, 2},
        {{.training = false}, {PP_F}, 1},
        {{.training = true, .activation_again = true}, {PP_F, PP_B}, 2}, /* the last two: not of relu */
        {{.training = true, .activation_again = true, .split_backward = true}, {PP_F, PP_I, PP_W}, 3},
    };
    const int n = (int)(sizeof ways / sizeof *ways);
    return &ways[random_below(dice, shape->activation == PP_RELU ? n - 2 : n)];
}

/* Hands check() each class of a random way of the model, with tasks in random numbers of parts. */
static inline void with_classes(const struct pp_model *model, uint64_t *dice,
                                void (*check)(void *arg, const struct pp_class *cls, const struct pp_program_spec *spec,
                                              uint64_t *dice),
                                void *arg)
{
    const struct way *way = random_way(&model->shape, dice);
    const int rows = 1 << random_below(dice, 3), microbatches = 1 + random_below(dice, 2);
    struct pp_program_spec spec = way->spec;
    spec.seq = random_size(dice, 2);
    spec.slot_rows = rows * microbatches;
    for (int stage = 0; stage < model->nstages; stage++)
        for (int i = 0; i < way->n; i++) {
            const int kind = way->kinds[i], layers = model->stages[stage].layers;
            const bool cut = (kind == PP_F || kind == PP_B || kind == PP_W) && layers > 1;
            struct pp_class cls = {.kind = kind, .stage = stage, .parts = cut ? 1 + random_below(dice, layers) : 1};
            if (kind != PP_NORM && kind != PP_STEP) cls.rows = rows;
            cls.rounds = kind == PP_F && model->shape.zero < PP_ZERO_PARAMETERS && random_below(dice, 2);
            for (cls.part = 0; cls.part < cls.parts; cls.part++) check(arg, &cls, &spec, dice);
        }
}

#endif
