/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets where a task finds its memory; used by the executor and by the profiler.
 */
#include "core/job/job.h"

static void *at(const struct pp_arena *arena, int64_t offset) { return offset < 0 ? NULL : arena->base + offset; }

static void place_microbatch(const struct pp_job *job, const struct pp_phase *phase, const struct pp_arena *arena,
                             int microbatch, struct pp_frame *frame)
{
    const struct pp_layout *layout = job->layout;
    const struct pp_plan *plan = phase->plan;
    const int64_t row = plan->first_row[microbatch];
    int32_t *tokens = at(arena, layout->data_offset[arena->rank]);
    tokens += row * pp_own_tokens(&job->model->shape, phase->seq);
    frame->base[PP_MEM_TOKENS] = tokens;
    frame->base[PP_MEM_TARGETS] = tokens + layout->data_elements;
    frame->act_row = row - plan->first_row[pp_slot_first(plan, microbatch)];
    frame->first_row += row;
}

void pp_frame_place(const struct pp_job *job, const struct pp_phase *phase, const struct pp_arena *arena,
                    const struct pp_task *task, struct pp_frame *frame)
{
    const struct pp_layout *layout = job->layout;
    const struct pp_plan *plan = phase->plan;
    frame->base[PP_MEM_PARAM] = at(arena, layout->param_offset[task->stage]);
    frame->base[PP_MEM_PARAM16] = at(arena, layout->param16_offset[task->stage]);
    frame->base[PP_MEM_GRAD] = at(arena, layout->grad_offset[task->stage]);
    frame->base[PP_MEM_STATE] = at(arena, layout->state_offset[task->stage]);
    for (int i = 0; i < PP_ACT_PARTS; i++)
        frame->base[PP_MEM_ACT + i] = task->act < 0 ? NULL : pp_arena_slot(arena, plan->acts[task->act][i]);
    frame->base[PP_MEM_CKPT] = pp_arena_slot(arena, task->ckpt);
    frame->base[PP_MEM_IN] = pp_arena_slot(arena, task->in);
    frame->base[PP_MEM_OUT] = pp_arena_slot(arena, task->out);
    frame->base[PP_MEM_WORK] = at(arena, layout->work_offset[arena->rank]);
    if (plan->shards || plan->shard_params)
        pp_frame_set_part(frame, job->model, &plan->classes[task->cls], pp_arena_slot(arena, pp_task_param(plan, task)),
                          pp_arena_slot(arena, pp_task_grad(plan, task)));
    if (task->microbatch >= 0) place_microbatch(job, phase, arena, task->microbatch, frame);
}
