/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job/job_row.h"
#include "core/shape/pieces.h"

static void set(json_t **row, const char *key, json_t *value) { *row = pp_json_set(*row, key, value); }

/* Of a model, or blocks of --times. */
static json_t *layers_by_stage(const struct pp_job *job)
{
    const int *blocks = job->times.stage_blocks;
    if (!job->model && !blocks) return json_null();
    json_t *array = json_array();
    for (int s = 0; s < job->train->stages; s++)
        array = pp_json_append(array, json_integer(job->model ? job->model->stages[s].layers : blocks[s]));
    return array;
}

/* What one replica computes in a batch. */
static void set_batch(json_t **row, const struct pp_job *job)
{
    const struct pp_config *config = job->config;
    const bool known = job->model;
    set(row, "rows", known ? json_integer(config->rows) : json_null());
    set(row, "tokens", known ? json_integer(config->tokens) : json_null());
    set(row, "experts", known ? json_integer(config->model.experts) : json_null());
    set(row, "precision", known ? json_string(pp_precision_names[config->model.precision]) : json_null());
}

json_t *pp_job_row(json_t *row, const struct pp_job *job)
{
    const struct pp_plan *plan = job->train;
    const int context_kind = plan->context > 1 ? job->model->shape.context_kind : 0;
    char mode[PP_CHECKPOINT_TEXT];
    set(&row, "schedule", json_string(plan->schedule));
    set(&row, "stages", json_integer(plan->ranks));
    set(&row, "tensor", json_integer(pp_plan_tensor(plan)));
    set(&row, "expert_parallel", json_integer(plan->expert_parallel));
    set(&row, "context_parallel", json_integer(plan->context));
    set(&row, "cp_comm_type", json_string(pp_context_kind_names[context_kind]));
    set(&row, "virtual", json_integer(plan->virtual_stages));
    set(&row, "chunks", json_integer(job->point.chunks));
    set(&row, "microbatches", json_integer(plan->microbatches));
    set(&row, "microbatch_rows", json_integer(plan->rows[0])); /* the first is one of the largest */
    set_batch(&row, job);
    set(&row, "replicas", json_integer(pp_plan_data_parallel(plan)));
    set(&row, "zero", json_integer(pp_plan_zero(plan)));
    set(&row, "shard_degree", json_integer(job->point.shard_degree));
    set(&row, "overlap_grad_reduce", json_boolean(pp_config_sums_parts(job->config) || plan->shards));
    set(&row, "grad_reduce_in_bf16", json_boolean(pp_config_sums_bf16(job->config)));
    set(&row, "overlap_param_gather", json_boolean(plan->gathers_first || plan->shard_params));
    set(&row, "sequence_parallel", json_boolean(job->model && pp_shape_parts_tokens(&job->model->shape)));
    set(&row, "overlap_tensor_sums", json_integer(job->model ? pp_shape_sum_pieces(&job->model->shape) : 1));
    set(&row, "tensor_sum_pieces", json_integer(job->model ? pp_job_sum_pieces(job) : 1));
    set(&row, "overlap_expert_exchange", json_integer(job->model ? pp_shape_exchange_pieces(&job->model->shape) : 0));
    set(&row, "expert_exchange_pieces", json_integer(job->model ? pp_exchange_pieces(&job->model->shape) : 1));
    set(&row, "checkpoint", json_string(pp_checkpoint_text(plan->checkpoint, mode)));
    set(&row, "stage_layers", layers_by_stage(job));
    return row;
}
