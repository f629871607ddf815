/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sweep is predicted for: each machine of --machine; without any the one that was measured, or for which times
 * are given. A target is told its own memory, device, measured times, price, and times of layers.
 */
#ifndef PP_SIM_TARGETS_H
#define PP_SIM_TARGETS_H

#include "sim/predict.h"

struct pp_target {
    struct pp_config config;           /* of one machine, with its price; it borrows all else that the asked one owns */
    struct pp_predictor predictor;     /* of that config */
    struct pp_db *texts;               /* in memory: what was measured, from text; NULL: none */
    char device[32], waits[32];        /* measured last: to be predicted, to be waited for */
    char impossible[PP_MESSAGE_BYTES]; /* of several: why this one can do nothing of what is asked; "": nothing is known
                                        * against it */
};

/* How many there will be: 1 at least. */
int pp_targets_count(const struct pp_config *config);

/* PP_USAGE for prices that are neither one nor as many as the machines. */
pp_status pp_targets_check(const struct pp_config *config) PP_MUST_CHECK;

/* In the order of --machine. `common`: what they share; its config is the asked one, and its database counts for what
 * has no texts. PP_USAGE, PP_INPUT for a name or a file that is no machine, or one machine twice; where there is one,
 * for what it cannot do, too. Release with pp_targets_free(), after a failure too. */
pp_status pp_targets_find(const struct pp_predictor *common, struct pp_target **targets, int *n) PP_MUST_CHECK;
void pp_targets_free(struct pp_target *targets, int n);

#endif
