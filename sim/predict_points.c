/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/predict_points.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/cores.h"
#include "core/base/log.h"

enum {
    MOST_THREADS = 64,
    AHEAD = 4,             /* outcomes of each thread that may wait to be taken */
    WORK_TO_SHARE = 50000, /* least stages x microbatches for several threads: counting the cores takes as long */
    WORK_OF_POINT = 200    /* added for each point */
};

struct place {
    struct pp_outcome outcome;
    bool ready;
};

struct team {
    const struct pp_points_call *call;
    struct place *places; /* point i uses place i % nplaces */
    int nplaces;
    pthread_mutex_t lock;
    pthread_cond_t ready, room; /* an outcome is ready; a place is free */
    int64_t next, taken;        /* the first point that no thread has begun; number of outcomes taken */
    bool stop;
    pthread_t threads[MOST_THREADS];
    int nthreads;
};

static pp_status answer(const struct pp_listed_point *at, bool keep, struct pp_outcome *out)
{
    const struct pp_predictor *p = &out->predictor;
    struct pp_prediction *prediction = &out->prediction;
    if (at->impossible[0]) return pp_fail(PP_USAGE, "%s", at->impossible);
    if (at->asked == PP_ASK_LEAST) return pp_predict_least(p, at->point, &out->least);
    if (at->asked == PP_ASK_FITTING)
        PP_TRY(pp_predict_fitting(p, at->point, prediction));
    else
        PP_TRY(pp_predict(p, at->point, keep, prediction));
    return prediction->job ? pp_row_create(p, prediction, &out->row) : PP_OK;
}

static void predict(const struct pp_points_call *call, int64_t i, struct pp_outcome *out)
{
    const struct pp_listed_point *at = &call->points[i];
    *out = (struct pp_outcome){.predictor = *at->predictor};
    pp_way_config(at->predictor->config, at->way, &out->config);
    out->predictor.config = &out->config;
    out->status = answer(at, call->keep, out);
    if (out->status != PP_OK) snprintf(out->message, sizeof out->message, "%s", pp_message());
    if (!call->keep || out->status != PP_OK) pp_prediction_free(&out->prediction);
}

static pp_status hand_over(const struct pp_points_call *call, int64_t i, struct pp_outcome *outcome)
{
    pp_status status = call->take(call->context, i, outcome);
    pp_row_free(&outcome->row);
    pp_prediction_free(&outcome->prediction);
    return status;
}

/* Waits until there is a place for the next point, and returns the point; -1: there is none left. */
static int64_t begin_point(struct team *t)
{
    pthread_mutex_lock(&t->lock);
    while (!t->stop && t->next < t->call->npoints && t->next >= t->taken + t->nplaces)
        pthread_cond_wait(&t->room, &t->lock);
    const int64_t i = t->stop || t->next == t->call->npoints ? -1 : t->next++;
    pthread_mutex_unlock(&t->lock);
    return i;
}

static void *run_thread(void *context)
{
    struct team *t = context;
    for (int64_t i; (i = begin_point(t)) >= 0;) {
        struct place *place = &t->places[i % t->nplaces];
        predict(t->call, i, &place->outcome);
        pthread_mutex_lock(&t->lock);
        place->ready = true;
        pthread_cond_signal(&t->ready);
        pthread_mutex_unlock(&t->lock);
    }
    return NULL;
}

static pp_status take_in_order(struct team *t)
{
    pp_status status = PP_OK;
    for (int64_t i = 0; i < t->call->npoints && status == PP_OK; i++) {
        struct place *place = &t->places[i % t->nplaces];
        pthread_mutex_lock(&t->lock);
        while (!place->ready) pthread_cond_wait(&t->ready, &t->lock);
        pthread_mutex_unlock(&t->lock);
        status = hand_over(t->call, i, &place->outcome);
        pthread_mutex_lock(&t->lock);
        place->ready = false;
        t->taken++;
        pthread_cond_broadcast(&t->room);
        pthread_mutex_unlock(&t->lock);
    }
    return status;
}

/* Starts threads with all signals blocked, so that the calling thread gets them. */
static void start_threads(struct team *t, int wanted)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (t->nthreads < wanted && pthread_create(&t->threads[t->nthreads], NULL, run_thread, t) == 0) t->nthreads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Ends the threads, and releases outcomes that were not taken. */
static void end_team(struct team *t)
{
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->room);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->nthreads; i++) pthread_join(t->threads[i], NULL);
    for (int i = 0; i < t->nplaces; i++) {
        if (!t->places[i].ready) continue;
        pp_row_free(&t->places[i].outcome.row);
        pp_prediction_free(&t->places[i].outcome.prediction);
    }
}

static pp_status one_by_one(const struct pp_points_call *call)
{
    struct pp_outcome outcome;
    for (int64_t i = 0; i < call->npoints; i++) {
        predict(call, i, &outcome);
        PP_TRY(hand_over(call, i, &outcome));
    }
    return PP_OK;
}

int pp_points_threads(const struct pp_points_call *call)
{
    int64_t work = 0;
    for (int64_t i = 0; i < call->npoints; i++) {
        const struct pp_point *point = call->points[i].point;
        work += (int64_t)point->ranks * point->virtual_stages * point->chunks + WORK_OF_POINT;
    }
    return call->npoints > 1 && work > WORK_TO_SHARE ? pp_cores_count() : 1;
}

pp_status pp_predict_points(const struct pp_points_call *call, int threads)
{
    struct team t = {.call = call,
                     .lock = PTHREAD_MUTEX_INITIALIZER,
                     .ready = PTHREAD_COND_INITIALIZER,
                     .room = PTHREAD_COND_INITIALIZER};
    if (threads == 0) threads = pp_points_threads(call);
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads > call->npoints) threads = (int)call->npoints;
    if (threads <= 1) return one_by_one(call);
    t.nplaces = AHEAD * threads;
    PP_TRY(PP_NEW(&t.places, t.nplaces));
    json_object_seed(0); /* before there are threads: it is not thread-safe */
    start_threads(&t, threads);
    pp_status status = t.nthreads > 0 ? take_in_order(&t) : one_by_one(call);
    end_team(&t);
    free(t.places);
    return status;
}
