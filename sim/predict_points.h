/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts the configurations of a sweep, shared out over the cores. The results come back one by one to the thread
 * that asked, in the order of the points: whoever takes them cannot tell how many threads there were.
 */
#ifndef PP_SIM_PREDICT_POINTS_H
#define PP_SIM_PREDICT_POINTS_H

#include <jansson.h>

#include "sim/predict.h"

/* Of one point. What is left in it is released after it was taken. */
struct pp_outcome {
    pp_status status; /* PP_OK, or what made the point impossible: */
    char message[PP_MESSAGE_BYTES];
    json_t *row;                     /* its figures; NULL unless PP_OK, or when the taker has taken it */
    struct pp_cost_origin origin;    /* as in the prediction */
    char remark[256];                /* pp_checkpoint_remark() */
    struct pp_prediction prediction; /* empty unless it was to be kept */
};

struct pp_points_call {
    const struct pp_predictor *predictor;
    const struct pp_point *points;
    int npoints;
    bool keep; /* the predictions too, with their traces: no more of them live at once than a few for each thread */
    /* Called for every point. A failure ends the sweep: no other point is begun. */
    pp_status (*take)(void *context, int point, struct pp_outcome *outcome);
    void *context;
};

/* threads: 0 = as many as there are cores and work for. PP_NOMEM, or what take() returned. */
pp_status pp_predict_points(const struct pp_points_call *call, int threads) PP_MUST_CHECK;

#endif
