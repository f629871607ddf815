/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job/stage_costs.h"

#include <math.h>

/* arrays: [3 * stages] */
static struct pp_stage_costs costs_of(const int64_t *arrays, int stages, int64_t hop)
{
    const int64_t *input = arrays + stages;
    return (struct pp_stage_costs){.forward = arrays, .input = input, .weight = input + stages, .hop = hop};
}

static void add_recomputed(int64_t *arrays, int stages, int checkpoint)
{
    if (checkpoint == PP_CHECKPOINT_NEVER || pp_checkpoint_in_slots(checkpoint)) return;
    for (int s = 0; s < stages; s++) arrays[stages + s] += arrays[s];
}

pp_status pp_stage_costs_given(const struct pp_given_times *times, int stages, int virtual_stages, int checkpoint,
                               int64_t **arrays, struct pp_stage_costs *out)
{
    PP_TRY(PP_NEW(arrays, 3 * (int64_t)stages));
    for (int s = 0; s < stages; s++) {
        const struct pp_block stage = pp_given_stage(times, s, virtual_stages);
        (*arrays)[s] = llround(stage.forward_ms * 1e6);
        (*arrays)[stages + s] = llround(stage.input_ms * 1e6);
        (*arrays)[2 * stages + s] = llround(stage.weight_ms * 1e6);
    }
    add_recomputed(*arrays, stages, checkpoint);
    *out = costs_of(*arrays, stages, pp_given_hop_ns(times));
    return PP_OK;
}

pp_status pp_stage_costs_counted(const struct pp_model *model, const struct pp_model_ops *ops, int rows, int seq,
                                 int checkpoint, int64_t **arrays, struct pp_stage_costs *out)
{
    static const int kinds[] = {PP_F, PP_I, PP_W};
    const struct pp_program_spec spec = {.seq = seq, .slot_rows = rows, .training = true, .split_backward = true};
    const int stages = model->nstages;
    PP_TRY(PP_NEW(arrays, 3 * (int64_t)stages));
    for (int k = 0; k < 3; k++)
        for (int s = 0; s < stages; s++) {
            const struct pp_class cls = {.kind = kinds[k], .stage = s, .rows = rows};
            struct pp_program program;
            PP_TRY(ops->program(model, &cls, &spec, &program));
            (*arrays)[k * stages + s] = llround(fmin(program.flops, 0x1p60)); /* whole, so the same on all machines */
            pp_program_free(&program);
        }
    add_recomputed(*arrays, stages, checkpoint);
    *out = costs_of(*arrays, stages, 0);
    return PP_OK;
}
