/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rate over the steps of a training: it rises in the warm-up steps, and then stays constant, or falls to a
 * least rate, along half a cosine (Loshchilov and Hutter, arXiv:1608.03983, eq. 5, without restarts) or a line.
 */
#ifndef PP_CORE_SHAPE_LEARNING_RATE_H
#define PP_CORE_SHAPE_LEARNING_RATE_H

#include <stdint.h>

enum pp_lr_schedule { PP_LR_CONSTANT, PP_LR_COSINE, PP_LR_LINEAR };
#define PP_LR_SCHEDULE_NAMES "constant|cosine|linear"

struct pp_lr_options {
    int schedule;     /* enum pp_lr_schedule */
    int warmup_steps; /* 0: none */
    int steps;        /* cosine, linear: the rate is `least` from this step on; above warmup_steps */
    double least;     /* cosine, linear: the least rate, at most --lr */
};

/* The learning rate in step `step`, as a part of lr from 0 to 1. Steps are counted from 0 over all epochs, and go on
 * when a run is resumed.
 *   In the N warm-up steps:  (step + 1) / N.
 *   After them:              k + (1 - k) * least / lr, with
 *                            k = 1 (constant), (1 + cos(pi x)) / 2 (cosine), 1 - x (linear),
 *                            where x rises linearly from 0 in step N to 1 in step `steps`, and then stays 1.
 * It is computed in double from its arguments alone, so that all workers have the same bits (cos() is that of the C
 * library). */
double pp_lr_share(const struct pp_lr_options *options, double lr, int64_t step);

#endif
