/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of an arena's slots is in use at a time.
 */
#include "core/model/layout.h"
#include "core/plan/plan_spec.h"

int64_t pp_phase_checkpoint_bytes(const struct pp_model *model, const struct pp_phase *phase, int stage, int rows)
{
    if (phase->plan->checkpoint != PP_CHECKPOINT_LAYERS) return pp_hidden_bytes(&model->shape, rows, phase->seq);
    return pp_stage_checkpoints(&model->stages[stage]) * pp_checkpoint_bytes(&model->shape, rows, phase->seq);
}

void pp_layout_task_bytes(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_phase *phase,
                          int32_t task, int64_t *taken, int64_t *freed)
{
    const struct pp_task *t = &phase->plan->tasks[task];
    *taken = *freed = 0;
    if (t->act < 0) return;
    const int rows = phase->plan->rows[t->microbatch];
    const struct pp_program_spec spec = pp_phase_spec(phase, pp_plan_slot_rows(phase->plan, t->microbatch));
    int64_t parts[PP_ACT_PARTS], act = 0;
    ops->act_bytes(model, t->stage, &spec, parts);
    for (int i = 0; i < PP_ACT_PARTS; i++) act += pp_layout_align(parts[i]);
    const int64_t ckpt = pp_layout_align(pp_phase_checkpoint_bytes(model, phase, t->stage, rows));
    if (t->flags & PP_TASK_TAKE_ACT) *taken += act;
    if (t->flags & PP_TASK_TAKE_CKPT) *taken += ckpt;
    if (t->flags & PP_TASK_FREE_ACT) *freed += act;
    if (t->flags & PP_TASK_FREE_CKPT) *freed += ckpt;
}

/* The most bytes of activation and checkpoint slots that are in use at once on a rank, in issue order. */
static int64_t most_live(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_phase *phase,
                         int rank)
{
    const struct pp_plan *plan = phase->plan;
    int64_t live = 0, most = 0, taken, freed;
    for (int64_t e = plan->issue_start[rank]; e < plan->issue_start[rank + 1]; e++) {
        pp_layout_task_bytes(model, ops, phase, pp_issue_task(plan->issue[e]), &taken, &freed);
        live += taken;
        if (live > most) most = live;
        live -= freed;
    }
    return most;
}

void pp_layout_live_peaks(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_phase *phases,
                          int n, struct pp_layout *layout)
{
    for (int r = 0; r < layout->ranks; r++) {
        const int64_t *bytes = layout->bytes[r];
        int64_t most = 0;
        for (int i = 0; i < n; i++) {
            const int64_t live = most_live(model, ops, &phases[i], r);
            if (live > most) most = live;
        }
        layout->live_peak_bytes[r] = layout->arena_bytes[r] - bytes[PP_BYTES_ACT] - bytes[PP_BYTES_CKPT] + most;
    }
}
