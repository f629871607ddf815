/* SPDX-License-Identifier: Apache-2.0
 *
 * The prediction of one configuration: its job, cost and simulation.
 */
#ifndef PP_SIM_PREDICT_H
#define PP_SIM_PREDICT_H

#include <pthread.h>

#include "sim/cost_waits.h"
#include "sim/engine.h"
#include "sim/process.h"

/* What all predictions, in all threads, share. Everything is borrowed. */
struct pp_predictor {
    const struct pp_config *config;
    const struct pp_schedules *schedules;
    const struct pp_model_ops *ops;
    const char *waits;         /* --device delay without --times: the device whose profile gives the times; else NULL */
    struct pp_machine machine; /* computes times that were not measured */
    struct pp_db *db;          /* measured times; NULL = none */
    int64_t data_bytes;        /* memory for training data in each process */
    pthread_mutex_t *db_lock;  /* that of db, which its look-ups take (pp_db_share()); NULL: only one thread uses it */
};

struct pp_prediction {
    struct pp_job *job; /* if pp_predict_only_times(): it has only the training plan, and no model */
    struct pp_cost *cost;
    struct pp_cost_origin origin; /* all zeros unless the database had times */
    struct pp_process_cost process;
    struct pp_sim_result result;
};

/* Are --times given, without --device delay? Then the pipeline has no model. */
bool pp_predict_only_times(const struct pp_config *config);

/* Bytes that a device has for its workers: --memory, else those of --machine; 0: not known. */
int64_t pp_predict_memory(const struct pp_predictor *p);

/* Number of workers that share a device. */
int pp_predict_sharers(const struct pp_predictor *p, const struct pp_job *job);

/* Bytes of the device that needs most, for the kinds of memory whose bit 1 << PP_BYTES_... is set in `kinds`; the
 * `sharers` workers that share a device (0, 1: none do) are added up. The job must have a layout. */
enum { PP_ALL_BYTES = (1 << PP_BYTES_KINDS) - 1 };
int64_t pp_device_bytes(const struct pp_job *job, int sharers, unsigned kinds);

/* Predicts a point. trace: fill in result.trace. PP_USAGE if the configuration is impossible. After a failure there is
 * nothing to free. */
pp_status pp_predict(const struct pp_predictor *p, const struct pp_point *point, bool trace,
                     struct pp_prediction *out) PP_MUST_CHECK;
/* The same, without a trace, for who wants none that does not fit into memory: then *out is empty. */
pp_status pp_predict_fitting(const struct pp_predictor *p, const struct pp_point *point,
                             struct pp_prediction *out) PP_MUST_CHECK;

/* What is known of a point before it is simulated. Values are those of pp_prediction_value() (sim/throughput.h). */
struct pp_least {
    double first; /* the cut that is tried first has no smaller value; INFINITY: no cut fits into memory */
    double any;   /* nor has any other cut a smaller one than this */
    bool first_fits; /* the first cut fits into memory, or that is not known */
    bool measured;   /* the first cut has some measured times */
    bool all;        /* ... and no others (pp_cost_measured_all()) */
};
/* Status as of pp_predict(). */
pp_status pp_predict_least(const struct pp_predictor *p, const struct pp_point *point,
                           struct pp_least *out) PP_MUST_CHECK;

/* The job of a point, as pp_predict() has it (--emit). */
pp_status pp_predict_job(const struct pp_predictor *p, const struct pp_point *point, struct pp_job **out) PP_MUST_CHECK;
void pp_prediction_free(struct pp_prediction *prediction);

#endif
