/* SPDX-License-Identifier: Apache-2.0
 *
 * Throughput: tokens per second, model FLOPs utilisation, and the days and cost of a training.
 */
#ifndef PP_SIM_THROUGHPUT_H
#define PP_SIM_THROUGHPUT_H

#include "sim/predict.h"

/* Floating-point operations of the model for one row of `tokens` tokens, forward and backward: the products with
 * weights and those of attention, which counts in full whatever the mask. Recomputation, and padding of the vocabulary,
 * do not count. */
double pp_model_flops(const struct pp_shape *shape, int tokens);

/* Tokens per second of all replicas. 0: the prediction has no model, or a step takes no time. */
double pp_tokens_per_s(const struct pp_prediction *prediction);

/* Number of devices: GPUs of all workers; without GPUs the threads of all workers, but at most the cores of a machine
 * that was named. 0: the prediction has no model. */
int64_t pp_devices(const struct pp_predictor *p, const struct pp_prediction *prediction);

/* Days of a training of --train-tokens, if it always has this speed: start, evaluations, checkpoints and failures do
 * not count. 0: not known. */
double pp_train_days(const struct pp_predictor *p, const struct pp_prediction *prediction);

/* Cost of 10^9 tokens at this speed, in the currency of --price. 0: not known. */
double pp_cost_per_gtoken(const struct pp_predictor *p, const struct pp_prediction *prediction);

/* What predictions are compared by, less is better: pp_cost_per_gtoken() with --price, else milliseconds of a batch. */
double pp_prediction_value(const struct pp_predictor *p, const struct pp_prediction *prediction);

/* Model FLOPs utilisation of the devices, 0 to 1. 0: no machine was named, or it has no peak in the precision, or
 * pp_tokens_per_s() is 0. */
double pp_mfu(const struct pp_predictor *p, const struct pp_prediction *prediction);

#endif
