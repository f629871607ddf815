/* SPDX-License-Identifier: Apache-2.0
 *
 * Targets: what a sweep is predicted for. There is one for each machine of --machine; without --machine there is one,
 * for the machine that was measured, or for the given times. A target has its own memory, device, measured times, price
 * and times of layers.
 */
#ifndef PP_SIM_TARGETS_H
#define PP_SIM_TARGETS_H

#include "sim/predict.h"

struct pp_target {
    struct pp_config config; /* with one machine and its price; it borrows all other values from the user's config */
    double *layer_ns;        /* memory of config.layer_ns */
    struct pp_predictor predictor; /* for that config */
    struct pp_db *texts;           /* profiles as text, read into a database in memory; NULL: none */
    char device[32];               /* memory of config.device, if --device auto was found in a profile */
    char waits[32];                /* memory of predictor.waits */
    /* If there are several targets: why this one can do nothing of what is asked for; "": it may be possible. */
    char impossible[PP_MESSAGE_BYTES];
};

/* The number of targets, at least 1. */
int pp_targets_count(const struct pp_config *config);

/* PP_USAGE if --price has more than one price, and not one for each machine. */
pp_status pp_targets_check(const struct pp_config *config) PP_MUST_CHECK;

/* Makes the targets, in the order of --machine. common: what they share, with the user's config; its database is used
 * by targets that have no texts. PP_USAGE, PP_INPUT for a name or file that is no machine, and for a machine that is
 * named twice; if there is one target, also for what it cannot do. Call pp_targets_free() also after a failure. */
pp_status pp_targets_find(const struct pp_predictor *common, struct pp_target **targets, int *n) PP_MUST_CHECK;
void pp_targets_free(struct pp_target *targets, int n);

#endif
