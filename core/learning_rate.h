/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rate over the steps of a training: it rises in the first ones, and then stays, or falls to a least rate
 * along half a cosine (Loshchilov and Hutter, arXiv:1608.03983, eq. 5, without restarts) or a line.
 */
#ifndef PP_CORE_LEARNING_RATE_H
#define PP_CORE_LEARNING_RATE_H

#include <stdint.h>

enum pp_lr_schedule { PP_LR_CONSTANT, PP_LR_COSINE, PP_LR_LINEAR };
#define PP_LR_SCHEDULE_NAMES "constant|cosine|linear"

struct pp_lr_options {
    int schedule;     /* enum pp_lr_schedule */
    int warmup_steps; /* 0: none */
    int steps;        /* not of constant: the step from which on the rate is the least, above warmup_steps */
    double least;     /* not of constant: that rate, at most --lr */
};

/* The rate in step `step` (from 0, counted over all epochs, and on where a run is resumed) as a part of lr, from 0 to
 * 1: in N warm-up steps (step + 1) / N; then k + (1 - k) * least / lr with k = 1 (constant), (1 + cos(pi x)) / 2
 * (cosine) or 1 - x (linear), where x goes from 0 in step N to 1 in step `steps`, and stays 1. Computed in double from
 * nothing but these numbers, so that all workers have the same bits; those of cos() are a matter of the C library. */
double pp_lr_share(const struct pp_lr_options *options, double lr, int64_t step);

#endif
