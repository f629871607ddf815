/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts one configuration: job, cost, simulation.
 */
#ifndef PP_SIM_PREDICT_H
#define PP_SIM_PREDICT_H

#include <pthread.h>

#include "sim/cost_waits.h"
#include "sim/engine.h"
#include "sim/process.h"

/* What all configurations of a call share, and its threads too. Everything is borrowed. */
struct pp_predictor {
    const struct pp_config *config;
    const struct pp_schedules *schedules;
    const struct pp_model_ops *ops;
    const char *waits;         /* --device delay without --times: whose profile says how long; else NULL */
    struct pp_machine machine; /* for what was not measured */
    struct pp_db *db;          /* measured times; NULL = none */
    int64_t data_bytes;        /* of the training data in each process */
    pthread_mutex_t *db_lock;  /* held by whoever uses the database; NULL: one thread does */
};

struct pp_prediction {
    struct pp_job *job; /* pp_predict_only_times(): only the training plan, no model */
    struct pp_cost *cost;
    struct pp_cost_origin origin; /* zeroed unless the database had times */
    struct pp_process_cost process;
    struct pp_sim_result result;
};

/* --times, and no device is named that runs them: the pipeline has no model. */
bool pp_predict_only_times(const struct pp_config *config);

/* Bytes that a device has for its workers: --memory, else what --machine says; 0: nobody says. */
int64_t pp_predict_memory(const struct pp_predictor *p);

/* trace: fill in result.trace. PP_USAGE where the configuration is impossible. On failure there is nothing to free. */
pp_status pp_predict(const struct pp_predictor *p, const struct pp_point *point, bool trace,
                     struct pp_prediction *out) PP_MUST_CHECK;
/* Only job: for --emit. */
pp_status pp_predict_job(const struct pp_predictor *p, const struct pp_point *point, struct pp_job **out) PP_MUST_CHECK;
void pp_prediction_free(struct pp_prediction *prediction);

#endif
