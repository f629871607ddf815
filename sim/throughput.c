/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/throughput.h"

double pp_model_flops(const struct pp_shape *shape, int tokens)
{
    const double d = shape->d_model, t = tokens, context = pp_context_width(shape);
    /* query, key, value; output; feed-forward */
    const double forward = (double)pp_linear1_width(shape) + shape->d_ff;
    const double layer_weights = d * (double)pp_qkv_width(shape) + context * d + d * forward;
    const double attention = 2 * t * context; /* Q K', and P V: multiplications for one token */
    const double decoder = d * shape->vocab;
    const double multiplications = shape->layers * (layer_weights + attention) + decoder;
    return 3 * 2 * multiplications * t; /* forward, and for both factors' gradients as much again each */
}

static double batch_rows(const struct pp_job *job) { return (double)job->config->rows * job->train->replicas; }

double pp_tokens_per_s(const struct pp_prediction *prediction)
{
    const struct pp_job *job = prediction->job;
    const int64_t ns = prediction->result.batch_ns;
    return job->model && ns > 0 ? batch_rows(job) * job->config->tokens * 1e9 / (double)ns : 0;
}

static int devices(const struct pp_machine *m, const struct pp_prediction *prediction)
{
    const struct pp_job *job = prediction->job;
    const int workers = pp_plan_workers(job->train), sharers = prediction->cost->sharers;
    const double cores = (double)workers * job->config->threads;
    if (m->cores > 0) return cores < m->cores ? (int)cores : m->cores;
    return sharers > 1 ? workers / sharers : workers;
}

double pp_mfu(const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    const struct pp_job *job = prediction->job;
    const double ns = (double)prediction->result.batch_ns;
    if (!p->config->machine || !job->model || ns <= 0) return 0;
    const double peak = p->machine.peak_flops_per_ns[job->model->shape.precision];
    if (peak <= 0) return 0;
    return batch_rows(job) * pp_model_flops(&job->model->shape, job->config->tokens) /
           (ns * peak * devices(&p->machine, prediction));
}
