/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job/plan_stages.h"

#include <stdlib.h>
#include <string.h>

/* Number of parts of a stage. With ZeRO 2 and 3 a part is one layer. With --overlap-grad-reduce it is as few layers as
 * have bucket_size bytes, and parts are as even as possible. Embedding and decoder belong to the first and last part.
 */
static int parts_of(const struct pp_config *config, const struct pp_model *model, int stage)
{
    const struct pp_stage *s = &model->stages[stage];
    if (s->layers == 0) return 1;
    if (model->shape.zero >= PP_ZERO_GRADIENTS) return s->layers;
    if (!pp_config_sums_parts(config)) return 1;
    const struct pp_tensor *first = &model->tensors[s->first_tensor];
    int64_t bytes = 0; /* of the gradients of all layers */
    for (int i = s->layer_at[0]; i < s->layer_at[s->layers]; i++) bytes += first[i].bytes;
    const int64_t layers = (config->bucket_size - 1) / (bytes / s->layers) + 1; /* layers of a part */
    return layers < s->layers ? (int)(s->layers / layers) : 1;
}

/* Bytes of the parts of slots of `rows` rows, by stage. split: in a plan with I and W tasks. */
static pp_status make_act_bytes(const struct pp_job *job, int rows, bool training, bool split,
                                int64_t (**out)[PP_ACT_PARTS])
{
    const struct pp_model *model = job->model;
    struct pp_program_spec spec = pp_slot_spec(job->config->tokens, rows, training, job->point.checkpoint);
    spec.split_backward = split;
    PP_TRY(PP_NEW(out, model->nstages));
    for (int s = 0; s < model->nstages; s++) {
        const int same = model->stages[s].group;
        if (same < s)
            memcpy((*out)[s], (*out)[same], sizeof **out);
        else
            job->model_ops->act_bytes(model, s, &spec, (*out)[s]);
    }
    return PP_OK;
}

pp_status pp_plan_stages_make(const struct pp_job *job, int rows, bool evaluate, struct pp_plan_stages *out)
{
    const struct pp_model *model = job->model;
    const int checkpoint = job->point.checkpoint;
    /* Layers that are made again are those of a whole B. */
    const bool may_split = checkpoint != PP_CHECKPOINT_LAYERS && pp_checkpoint_some(checkpoint) == 0;
    PP_TRY(make_act_bytes(job, rows, true, false, &out->act_bytes[0]));
    if (may_split) PP_TRY(make_act_bytes(job, rows, true, true, &out->act_bytes[1]));
    if (evaluate) PP_TRY(make_act_bytes(job, rows, false, false, &out->eval_act_bytes));
    PP_TRY(PP_NEW(&out->parts, model->nstages));
    for (int s = 0; s < model->nstages; s++) out->parts[s] = parts_of(job->config, model, s);
    return PP_OK;
}

void pp_plan_stages_free(struct pp_plan_stages *stages)
{
    free(stages->act_bytes[0]);
    free(stages->act_bytes[1]);
    free(stages->eval_act_bytes);
    free(stages->parts);
}
