/* SPDX-License-Identifier: Apache-2.0
 *
 * What a step achieves: tokens a second, the share of the machine's peak that the model's own work is, and what that
 * comes to: days and cost of a training.
 */
#ifndef PP_SIM_THROUGHPUT_H
#define PP_SIM_THROUGHPUT_H

#include "sim/predict.h"

/* Floating-point operations of the products of forward and backward, for one row of so many tokens: those of the
 * weights and of attention, which is counted in full whatever the mask. Each product counts once: recomputation, and
 * columns of logits beyond the vocabulary, are no work of the model. */
double pp_model_flops(const struct pp_shape *shape, int tokens);

/* Of all replicas. 0: the prediction has no model, or a step takes no time. */
double pp_tokens_per_s(const struct pp_prediction *prediction);

/* GPUs that the workers have; without GPUs their threads, but no more than the cores of a machine that was named. 0:
 * the prediction has no model. */
int64_t pp_devices(const struct pp_predictor *p, const struct pp_prediction *prediction);

/* Of --train-tokens, at this speed all the time: no start, evaluation, checkpoint or failure counts. 0: unknown. */
double pp_train_days(const struct pp_predictor *p, const struct pp_prediction *prediction);

/* Of 10^9 tokens, by --price: in its currency, likewise. 0: unknown. */
double pp_cost_per_gtoken(const struct pp_predictor *p, const struct pp_prediction *prediction);

/* Model FLOPs utilisation, 0 to 1, of the devices (cores) that the workers have. 0: no machine was named, or it has no
 * peak of the precision, or as above. */
double pp_mfu(const struct pp_predictor *p, const struct pp_prediction *prediction);

#endif
