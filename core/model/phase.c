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

pp_status pp_phase_create(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_plan *plan,
                          int seq, struct pp_phase *out)
{
    *out = (struct pp_phase){.plan = plan, .seq = seq};
    PP_TRY(PP_NEW(&out->programs, plan->nclasses));
    const int shared = plan->slot_microbatches > 1 ? pp_plan_most_slot_rows(plan) : 0;
    for (int c = 0; c < plan->nclasses; c++) {
        const struct pp_class *cls = &plan->classes[c];
        if (!pp_kinds[cls->kind].computes) continue;
        const struct pp_program_spec spec = pp_phase_spec(out, shared ? shared : cls->rows);
        PP_TRY(ops->program(model, cls, &spec, &out->programs[c]));
    }
    return PP_OK;
}

void pp_phase_free(struct pp_phase *phase)
{
    for (int c = 0; phase->programs && c < phase->plan->nclasses; c++) pp_program_free(&phase->programs[c]);
    free(phase->programs);
    *phase = (struct pp_phase){0};
}
