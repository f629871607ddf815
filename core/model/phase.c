/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "core/model/layout.h"
#include "core/plan/plan_spec.h"

struct pp_program_spec pp_phase_spec(const struct pp_phase *phase, int rows)
{
    return (struct pp_program_spec){
        .seq = phase->seq,
        .slot_rows = rows,
        .training = phase->plan->training,
        .clip = phase->plan->clip,
        .split_backward = phase->plan->split_backward,
        .checkpoint_layers = phase->plan->training && phase->plan->checkpoint == PP_CHECKPOINT_LAYERS,
        .again = phase->plan->training ? pp_checkpoint_some(phase->plan->checkpoint) : 0,
        .activation_again = phase->plan->training && phase->plan->checkpoint == PP_CHECKPOINT_ACTIVATION};
}

/* Do layers of both stages make the same calls, for the same operands in the stage's memory? Dropout asks for the
 * number of the layer. */
static bool stages_alike(const struct pp_model *model, int a, int b)
{
    const struct pp_stage *stages = model->stages;
    const int between = stages[b].first_layer - stages[a].first_layer, skip = model->shape.window_skip;
    if (stages[a].group != stages[b].group) return false;
    return between == 0 || (model->shape.dropout == 0 && (skip == 0 || between % skip == 0));
}

static bool classes_alike(const struct pp_model *model, const struct pp_class *a, const struct pp_class *b)
{
    return a->kind == b->kind && a->rows == b->rows && a->part == b->part && a->parts == b->parts &&
           a->rounds == b->rounds && a->adds == b->adds && stages_alike(model, a->stage, b->stage);
}

/* The programs written so far, of stages of one group (of one stage, where dropout tells all apart): chains of classes.
 */
struct written {
    int *last;   /* [stages] of each group, or stage; -1: none */
    int *before; /* [nclasses] the class before it in the chain; -1: none */
};

/* The class in the chain whose program is that of class c; c itself, which is put into the chain, if there is none. */
static int find_same(struct written *written, const struct pp_model *model, const struct pp_plan *plan, int c)
{
    const int stage = plan->classes[c].stage;
    int *last = &written->last[model->shape.dropout > 0 ? stage : model->stages[stage].group], at = *last;
    while (at >= 0 && !classes_alike(model, &plan->classes[at], &plan->classes[c])) at = written->before[at];
    if (at >= 0) return at;
    written->before[c] = *last;
    return *last = c;
}

static pp_status write_programs(const struct pp_model *model, const struct pp_model_ops *ops, struct written *written,
                                struct pp_phase *out)
{
    const struct pp_plan *plan = out->plan;
    const int shared = plan->slot_microbatches > 1 ? pp_plan_most_slot_rows(plan) : 0;
    for (int s = 0; s < model->nstages; s++) written->last[s] = -1;
    for (int c = 0; c < plan->nclasses; c++) {
        const struct pp_class *cls = &plan->classes[c];
        out->same_as[c] = c;
        if (!pp_kinds[cls->kind].computes) continue;
        const struct pp_program_spec spec = pp_phase_spec(out, shared ? shared : cls->rows);
        out->same_as[c] = find_same(written, model, plan, c);
        if (out->same_as[c] < c)
            out->programs[c] = out->programs[out->same_as[c]];
        else
            PP_TRY(ops->program(model, cls, &spec, &out->programs[c]));
    }
    return PP_OK;
}

pp_status pp_phase_create(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_plan *plan,
                          int seq, struct pp_phase *out)
{
    struct written written = {0};
    pp_status status;
    *out = (struct pp_phase){.plan = plan, .seq = seq};
    PP_TRY_DONE(PP_NEW(&out->same_as, plan->nclasses));
    PP_TRY_DONE(PP_NEW(&out->programs, plan->nclasses));
    PP_TRY_DONE(PP_NEW(&written.last, model->nstages));
    PP_TRY_DONE(PP_NEW(&written.before, plan->nclasses));
    status = write_programs(model, ops, &written, out);
done:
    free(written.last);
    free(written.before);
    return status;
}

void pp_phase_free(struct pp_phase *phase)
{
    for (int c = 0; phase->programs && c < phase->plan->nclasses; c++)
        if (phase->same_as[c] == c) pp_program_free(&phase->programs[c]);
    free(phase->programs);
    free(phase->same_as);
    *phase = (struct pp_phase){0};
}
