/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/throughput.h"

#include "core/options/devices.h"
#include "core/shape/layers.h"

/* Keys that a token counts in attention, summed over the layers: all of its row, masked or not, but no more than a
 * layer's window has. */
static double keys_of_layers(const struct pp_shape *shape, int tokens)
{
    double sum = 0;
    for (int l = 0; l < shape->layers; l++) {
        const int window = pp_layer_window(shape, l);
        sum += window && window < tokens ? window : tokens;
    }
    return sum;
}

/* Multiplications for one token and one column of the stream in the feed-forward of a layer of a kind (see
 * pp_shape_of_kind()). With experts: those that take the token, the router, and the shared expert with its gate. */
static double feed_forward(const struct pp_shape *shape)
{
    const double one = (double)pp_linear1_width(shape) + shape->d_ff;
    const double shared = (double)pp_gated_width(shape, shape->shared_ff) + shape->shared_ff;
    const double chosen = shape->experts_per_token * (shape->capacity_factor < 1 ? shape->capacity_factor : 1);
    return shape->experts ? one * chosen + shape->experts + shared + shape->shared_gate : one;
}

/* Multiplications for one token in the products that make queries, keys and values of a layer's attention. */
static double projections(const struct pp_shape *shape)
{
    const double d = shape->d_model, q_rank = shape->q_lora_rank, kv_rank = shape->kv_lora_rank;
    const double queries = pp_query_width(shape), keys = pp_latent_kv_width(shape);
    if (!pp_shape_is_latent(shape)) return d * (double)pp_qkv_width(shape);
    return (q_rank > 0 ? (d + queries) * q_rank : d * queries) + d * (kv_rank + shape->qk_rope_head_dim) +
           kv_rank * keys;
}

double pp_model_flops(const struct pp_shape *shape, int tokens)
{
    const double d = shape->d_model, t = tokens, attended = pp_attended_width(shape);
    /* Multiplications for one token. Of a layer: queries, keys and values, and attention's output; feed-forward. Of all
     * layers together: Q K^T, and P V. */
    const double linears = projections(shape) + attended * d,
                 attention = keys_of_layers(shape, tokens) * (pp_query_width(shape) + attended);
    double layers = attention;
    for (int kind = 0; kind < PP_LAYER_KINDS; kind++) {
        const struct pp_shape of_kind = pp_shape_of_kind(shape, kind);
        layers += pp_layers_of_kind(shape, kind) * (linears + d * feed_forward(&of_kind));
    }
    const double multiplications = layers + d * shape->vocab;
    return 3 * 2 * multiplications * t; /* the gradient of each factor takes as much as the forward */
}

static double batch_rows(const struct pp_job *job)
{
    return (double)job->config->rows * pp_plan_data_parallel(job->train);
}

double pp_tokens_per_s(const struct pp_prediction *prediction)
{
    const struct pp_job *job = prediction->job;
    const int64_t ns = prediction->result.batch_ns;
    return job->model && ns > 0 ? batch_rows(job) * job->config->tokens * 1e9 / (double)ns : 0;
}

int64_t pp_devices(const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    const struct pp_job *job = prediction->job;
    const int workers = pp_plan_workers(job->train), sharers = prediction->cost->sharers;
    const int64_t cores = (int64_t)workers * job->config->threads, there = p->machine.cores;
    if (!job->model) return 0;
    if (pp_device_kind(p->waits ? p->waits : job->config->device)->queue)
        return sharers > 1 ? workers / sharers : workers;
    return pp_config_machine(p->config) && there > 0 && there < cores ? there : cores;
}

double pp_prediction_value(const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    const bool priced = pp_config_price(p->config) > 0;
    return priced ? pp_cost_per_gtoken(p, prediction) : (double)prediction->result.batch_ns / 1e6;
}

double pp_mfu(const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    const struct pp_job *job = prediction->job;
    const double ns = (double)prediction->result.batch_ns;
    if (!pp_config_machine(p->config) || !job->model || ns <= 0) return 0;
    const double peak = p->machine.peak_flops_per_ns[job->model->shape.precision];
    if (peak <= 0) return 0;
    return batch_rows(job) * pp_model_flops(&job->model->shape, job->config->tokens) /
           (ns * peak * (double)pp_devices(p, prediction));
}

double pp_train_days(const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    const double speed = pp_tokens_per_s(prediction);
    return speed > 0 ? p->config->train_tokens / speed / 86400 : 0;
}

double pp_cost_per_gtoken(const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    const double speed = pp_tokens_per_s(prediction);
    return speed > 0 ? pp_config_price(p->config) * (double)pp_devices(p, prediction) * 1e9 / speed / 3600 : 0;
}
