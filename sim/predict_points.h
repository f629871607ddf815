/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts the configurations of a sweep in several threads. The calling thread gets the results one by one, in the
 * order of the points, so results do not depend on the number of threads.
 */
#ifndef PP_SIM_PREDICT_POINTS_H
#define PP_SIM_PREDICT_POINTS_H

#include "sim/row.h"
#include "sim/ways.h"

/* What a point is asked for: its prediction; that only if it fits into memory, else nothing; or pp_predict_least(). */
enum pp_asked { PP_ASK_ALL, PP_ASK_FITTING, PP_ASK_LEAST };

/* The result of one point. After take() whatever is left in it is released. */
struct pp_outcome {
    pp_status status;                /* PP_OK, or why the point cannot be predicted */
    char message[PP_MESSAGE_BYTES];  /* pp_message(), unless PP_OK */
    struct pp_row row;               /* of a prediction, else none. take() may keep it, and then zeroes it */
    struct pp_least least;           /* of PP_ASK_LEAST */
    struct pp_prediction prediction; /* empty unless pp_points_call.keep */
    /* Of the point: what the prediction was made with, and borrows. */
    struct pp_config config;
    struct pp_predictor predictor;
};

/* A point of a sweep; all is borrowed. impossible: why it cannot be predicted, which becomes a PP_USAGE; "": it may be
 * possible. The config of the point is made of the predictor's for the way (pp_way_config()) when the point is
 * predicted: a sweep has many ways, and a config is large. */
struct pp_listed_point {
    const struct pp_predictor *predictor;
    const struct pp_way *way;
    const struct pp_point *point;
    const char *impossible;
    enum pp_asked asked;
};

struct pp_points_call {
    const struct pp_listed_point *points;
    int64_t npoints;
    bool keep; /* outcomes have the predictions, too, with their traces. Only a few for each thread exist at a time */
    /* Called for every point. If it fails, the sweep ends. */
    pp_status (*take)(void *context, int64_t i, struct pp_outcome *outcome);
    /* Only of pp_race(), NULL is fine: called for each point that is possible, before any is predicted. */
    void (*look_at)(void *context, int64_t i, const struct pp_least *least);
    void *context;
};

/* As many threads as cores, or one if there is little work. */
int pp_points_threads(const struct pp_points_call *call);
/* Predicts all points. threads: 0 = pp_points_threads(). PP_NOMEM, or what take() returned. */
pp_status pp_predict_points(const struct pp_points_call *call, int threads) PP_MUST_CHECK;

#endif
