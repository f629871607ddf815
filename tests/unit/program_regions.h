/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of the memory regions that programs work in.
 */
#ifndef PP_TESTS_PROGRAM_REGIONS_H
#define PP_TESTS_PROGRAM_REGIONS_H

#include <string.h>

#include "kernels/model.h"

enum { SEQ = 5 };

/* rows: of the class. */
static inline void count_regions(const struct pp_model *model, int of, const struct pp_program_spec *spec, int rows,
                                 const struct pp_program *program, int64_t bytes[PP_MEM_REGIONS])
{
    const struct pp_shape *shape = &model->shape;
    const struct pp_stage *stage = &model->stages[of];
    const int64_t ids = (int64_t)rows * pp_own_tokens(shape, SEQ) * (int64_t)sizeof(int32_t);
    const int64_t hidden = pp_hidden_bytes(shape, rows, SEQ);
    const int64_t counted[PP_MEM_REGIONS] = {
        [PP_MEM_PARAM] = stage->param_bytes,
        [PP_MEM_GRAD] = stage->param_bytes,
        [PP_MEM_CKPT] = spec->checkpoint_layers ? stage->layers * pp_checkpoint_bytes(shape, rows, SEQ) : hidden,
        [PP_MEM_IN] = hidden,
        [PP_MEM_OUT] = hidden,
        [PP_MEM_WORK] = program->work_bytes,
        [PP_MEM_TOKENS] = ids,
        [PP_MEM_TARGETS] = ids,
        [PP_MEM_PARAM16] = stage->param16_bytes,
        [PP_MEM_STATE] = pp_states_bytes(model, stage)};
    memcpy(bytes, counted, sizeof counted);
    pp_model_act_parts(model, of, spec, &bytes[PP_MEM_ACT]);
}

/* Is it a part of the activation slot? */
static inline bool in_slot(int region) { return region >= PP_MEM_ACT && region < PP_MEM_ACT + PP_ACT_PARTS; }

#endif
