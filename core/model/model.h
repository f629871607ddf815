/* SPDX-License-Identifier: Apache-2.0
 *
 * The model as data: its tensors, its stages, and where both lie in a worker's memory; and what the model's side
 * (kernels/model.h) offers to programs that may not include kernels/.
 *
 * Words. A rank: the workers that hold one stage together. Tensor ranks: those of them that share its tensors
 * (pp_shape.tensor). Expert ranks: those that share its experts (pp_shape.expert_parallel). A share: what one of
 * several replicas keeps of each tensor (ZeRO, pp_shape.zero). A part of a stage: those of its layers, and what goes
 * with them, that one task of a plan is about (pp_class.part).
 */
#ifndef PP_CORE_MODEL_MODEL_H
#define PP_CORE_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/model/draw.h"
#include "core/model/program.h"
#include "core/plan/cut.h"
#include "core/plan/plan.h"
#include "core/shape/heads.h"
#include "core/shape/layers.h"
#include "core/shape/shape.h"
#include "core/shape/work.h"

/* What the workers of a rank share of a tensor. Rows: of each of its blocks an equal part, rounded up. */
enum pp_split { PP_SPLIT_NONE, PP_SPLIT_ROWS, PP_SPLIT_COLUMNS };
enum { PP_SPLIT_BLOCKS = 3 };

/* A parameter tensor; names and shapes are those of a plain torch.nn module, see docs/FORMATS.md. */
struct pp_tensor {
    char name[64];
    int ndim;
    int64_t shape[2];
    int64_t elements;
    /* What a worker holds of it: everything, or, where the workers of a rank share it, a part (core/model/slice.h). */
    int split; /* enum pp_split */
    /* Rows that are shared out together: of in_proj queries, keys, values; with swiglu of linear1 gates, then what they
     * open; 0: no more blocks. */
    int64_t blocks[PP_SPLIT_BLOCKS];
    int64_t local[2], local_elements; /* shape and elements of what the worker holds */
    int set;                          /* enum pp_param_set */
    /* Its gradient, in the stage's region PP_MEM_GRAD. Without shares the experts' are the last ones there. */
    int64_t offset;       /* bytes */
    int64_t bytes;        /* with what fills up its last share */
    int64_t value_offset; /* of its values, in PP_MEM_PARAM; -1: weights are split (pp_shape_splits_weights) */
    int64_t offset16;     /* of its bfloat16 copy, in PP_MEM_PARAM16; -1: it has none */
    /* The same three where a region holds nothing but the worker's share of each tensor, one behind the other; without
     * shares, all of each. */
    int64_t share_offset, share_value_offset, share_offset16;
    /* Of its FP8 copies in PP_MEM_PARAM16, behind all bfloat16 copies: E4M3 numbers as they lie, then each matrix
     * transposed, local_elements of both; then scale and amax, as float. -1: it has none, see pp_shape_keeps_fp8(). */
    int64_t offset8;
    /* Elements of each of pp_shape_parts() equal parts; zeros fill up the last ones. 0: there is one part. */
    int64_t part_elements;
    int stage;
    int init; /* enum pp_init */
    double bound;
    bool of_experts; /* its rows are experts': all members of a rank share it. Others are shared by tensor ranks */
    bool linear;     /* the weight of a layer's linear, but of a router or gate: its products may be FP8 */
    /* The copy of the embedding, the first tensor (pp_shape.tied): it counts in no norm and stands in no file. */
    bool copy;
    /* The bias of experts (pp_shape.expert_bias): in the place of its gradient are the loads, that is how many tokens
     * of the batch have chosen each expert. They are whole numbers in float32, so sums are exact in any order, as long
     * as a batch has 2^24 tokens at most. It counts in no norm, and steps by itself (PP_KERNEL_BALANCE): what the
     * optimizer keeps for it is never used. */
    bool loads;
};

struct pp_stage {
    int first_layer, layers;
    bool embed, decode;        /* it holds the embedding; it holds the decoder and the loss */
    int first_tensor, tensors; /* range in pp_model.tensors */
    /* [layers + 1] number, within the stage, of the first tensor of each layer; the last entry is the number of the
     * first tensor behind the layers. */
    const int *layer_at;
    /* Bytes of the stage's regions: of all gradients (and of the values, if all are whole), of those values that are
     * whole, of the bfloat16 and FP8 copies (0 unless bf16 or fp8). Then the same of a worker's share, or, without
     * shares, of all; FP8 copies are not shared. */
    int64_t param_bytes, value_bytes, param16_bytes;
    int64_t share_bytes, share_value_bytes, share_param16_bytes;
    /* So many first layers are of the same kinds in all stages of its rank that have layers: what they keep is the part
     * PP_ACT_LAYERS of a slot. 0: all of the slot is that part, as where each stage has a rank of its own. */
    int common;
    int group; /* the first stage with as many layers, of the same kinds in the same order, as many of them common, and
                * the same ends */
};

struct pp_model {
    struct pp_shape shape; /* of the model */
    struct pp_shape local; /* of what a worker computes: the same, or with its part of heads, d_ff and vocab */
    /* What a worker computes of a layer of each kind (enum pp_layer_kind): its part of pp_shape_of_kind(). */
    struct pp_shape local_kind[PP_LAYER_KINDS];
    int nstages;
    struct pp_stage *stages;
    int *layer_at; /* memory of pp_stage.layer_at */
    int ntensors;
    struct pp_tensor *tensors; /* in model order: the order in which norms are added */
    int64_t parameters;        /* elements, whole model */
};

/* Have the stages of two models, of which both have as many, as many layers as each other? */
static inline bool pp_same_cut(const struct pp_model *a, const struct pp_model *b)
{
    for (int s = 0; s < a->nstages; s++)
        if (a->stages[s].layers != b->stages[s].layers) return false;
    return true;
}

/* Of how many first layers are the kinds the same in both stages? They may be of two models of one shape, cut in two
 * ways. */
int pp_stages_layers_alike(const struct pp_shape *shape, const struct pp_stage *a, const struct pp_stage *b);
/* Are they of one group (pp_stage.group), or would be if they were of one model? */
bool pp_stages_alike(const struct pp_shape *shape, const struct pp_stage *a, const struct pp_stage *b);

/* How many of a stage's first n layers have experts. */
static inline int pp_stage_layers_with_experts(const struct pp_model *model, const struct pp_stage *stage, int n)
{
    const int first = stage->first_layer;
    return pp_layers_with_experts(&model->shape, first + n) - pp_layers_with_experts(&model->shape, first);
}

/* Checkpoints of a microbatch where the inputs of layers are kept: one for each layer, or one for the decoder of a
 * stage without layers. */
static inline int pp_stage_checkpoints(const struct pp_stage *stage)
{
    return stage->layers > 0 ? stage->layers : stage->decode;
}

/* ---- parts of a stage ---- */

/* The layers of a part: [begin, end), counted within the stage. Classes that go back begin with the last layers. */
struct pp_stage_part {
    int begin, end;
    bool lowest;  /* the part with the stage's input, and with the embedding, where the stage has it */
    bool highest; /* the part with the stage's output, and with the decoder, where the stage has it */
};
static inline struct pp_stage_part pp_stage_part_of(const struct pp_stage *stage, const struct pp_class *cls)
{
    const int64_t parts = cls->parts > 1 ? cls->parts : 1;
    const int64_t at = pp_goes_back(cls->kind) ? parts - 1 - cls->part : cls->part;
    return (struct pp_stage_part){(int)(stage->layers * at / parts), (int)(stage->layers * (at + 1) / parts), at == 0,
                                  at == parts - 1};
}

/* The tensors of a class's part: n of the stage's, from its tensor number `first` on. */
struct pp_tensor_range {
    int first, n;
};
static inline struct pp_tensor_range pp_part_tensors(const struct pp_stage *stage, const struct pp_class *cls)
{
    const struct pp_stage_part part = pp_stage_part_of(stage, cls);
    const int first = part.lowest ? 0 : stage->layer_at[part.begin];
    const int end = part.highest ? stage->tensors : stage->layer_at[part.end];
    return (struct pp_tensor_range){first, end - first};
}

/* A piece of a region. */
struct pp_extent {
    int64_t offset, bytes;
};

/* Where the gradients of a class's part lie: those of one set in the stage's PP_MEM_GRAD (without shards); all of them
 * there; what a worker keeps of them, where it keeps nothing but shares. */
struct pp_extent pp_part_sum(const struct pp_model *model, const struct pp_class *cls, enum pp_param_set set);
struct pp_extent pp_part_gradients(const struct pp_model *model, const struct pp_class *cls);
struct pp_extent pp_part_share(const struct pp_model *model, const struct pp_class *cls);

/* Bytes of the gradients of a set that the replicas sum in a task of this class; 0: there are none. PP_REDUCE_SHARE
 * sums the shares of all sets at once, and that is what it says of PP_DENSE; of other sets then 0. */
int64_t pp_summed_bytes(const struct pp_model *model, const struct pp_class *cls, enum pp_param_set set);

/* Of a class that sums over replicas, where gradients are rounded to bfloat16 for that (pp_shape.bf16_sums): bytes of
 * the rounded numbers, which have a place of their own (struct pp_layout.sent_offset); else 0. */
int64_t pp_sent_bytes(const struct pp_model *model, const struct pp_class *cls, enum pp_param_set set);

/* A slot of parameters of a part (PP_POOL_PARAM): values, and from copies_at on bfloat16 copies. */
struct pp_part_memory {
    struct pp_extent values, copies; /* where both begin in the stage's regions, and how much they are */
    int64_t copies_at, bytes;        /* in the slot; of the slot */
};
struct pp_part_memory pp_part_memory_of(const struct pp_model *model, const struct pp_class *cls);

/* Sets the regions of an F, R or B of a plan with shards, whose parameters and gradients lie in these slots. Where a
 * slot is NULL, and for tasks of other kinds, the regions stay as they are. */
void pp_frame_set_part(struct pp_frame *frame, const struct pp_model *model, const struct pp_class *cls, void *param,
                       void *grad);

/* ---- the embedding that the decoder has, too (pp_shape.tied) ---- */

/* The number of the tensor that is the embedding's copy. */
static inline int pp_tied_copy(const struct pp_model *model)
{
    int i = model->ntensors - 1;
    while (i > 0 && !model->tensors[i].copy) i--;
    return i;
}

/* The gradient of the embedding, or of its copy, that the two stages sum, in the stage's region: all of it, or share
 * number `share`. The copy is cut into the same shares as the embedding. */
static inline struct pp_extent pp_tied_gradient(const struct pp_model *model, int tensor, int share)
{
    const struct pp_tensor *t = &model->tensors[tensor];
    const bool shared = model->shape.zero && t->part_elements > 0;
    const int64_t bytes = (shared ? t->part_elements : t->local_elements) * (int64_t)sizeof(float);
    if (model->shape.zero >= PP_ZERO_GRADIENTS) return (struct pp_extent){t->share_offset, bytes};
    return (struct pp_extent){t->offset + (shared ? share * bytes : 0), bytes};
}

/* Bytes of what the optimizer keeps of a stage's parameters, or of the worker's share of them. */
static inline int64_t pp_states_bytes(const struct pp_model *model, const struct pp_stage *stage)
{
    const struct pp_optimizer_info *optimizer = &pp_optimizers[model->shape.optimizer];
    return stage->share_bytes / (int64_t)sizeof(float) * optimizer->state_bytes * optimizer->states;
}
/* Where the optimizer's state number `state` of a tensor begins in PP_MEM_STATE. */
static inline int64_t pp_state_offset(const struct pp_model *model, const struct pp_tensor *t, int state)
{
    const int64_t element = (state * model->stages[t->stage].share_bytes + t->share_offset) / (int64_t)sizeof(float);
    return element * pp_optimizers[model->shape.optimizer].state_bytes;
}
/* Where the worker's float32 share of a weight that is split (pp_shape_splits_weights) begins in PP_MEM_STATE. */
static inline int64_t pp_split_weight_offset(const struct pp_model *model, const struct pp_tensor *t)
{
    const int64_t elements = t->share_offset16 / pp_element_bytes(PP_BF16);
    return pp_states_bytes(model, &model->stages[t->stage]) + elements * (int64_t)sizeof(float);
}

/* ---- what the model's side offers ---- */

/* What a program is written for, beside its class. */
struct pp_program_spec {
    int seq;       /* tokens of a row, all of them */
    int slot_rows; /* rows that the activation slot has room for; offsets in it depend on that */
    bool training;
    bool split_backward; /* the plan has I and W tasks */
    /* Three ways to keep less for the backward, of which a plan has one at most: */
    bool checkpoint_layers; /* of every layer its input alone; not with split_backward */
    int again;              /* of so many first layers of a stage their inputs alone; not with split_backward */
    /* What activation functions make is not kept; not where it takes the place of what it is made of (relu), nor with
     * split_backward where I puts a gradient there (swiglu). */
    bool activation_again;
    bool clip; /* the plan has NORM tasks */
    /* The program is not to be run, and nobody asks for its signature and flops, which are not set. Of layers whose
     * calls do the same, those of one stand for all (pp_program.order), and operands are this layer's. */
    bool once;
};

/* How the layers are cut into stages. */
struct pp_cut {
    int stages;
    const char *split;      /* "uniform", "parameters", "time", or layers of each stage "3,5"; NULL: uniform */
    const double *layer_ns; /* for "time": [layers + 2], of the embedding, the layers, the decoder; else NULL */
    /* [stages] the rank of each stage. Where a rank has several, what they have together is as even as whole layers
     * allow, unless `split` is a list. NULL: each stage has a rank of its own. */
    const int *stage_rank;
    struct pp_cut_way way; /* of "time" */
};

/* kernels/model.c fills one; the programs (sim/ppsim.c, exec/ppexec.c, ...) hand it to code outside kernels/. */
struct pp_model_ops {
    /* PP_USAGE with a message if the cut is impossible. */
    pp_status (*create)(const struct pp_shape *shape, const struct pp_cut *cut, struct pp_model **out);
    void (*destroy)(struct pp_model *model);
    /* The program of a class. PP_NORM, PP_STEP: rows and seq do not matter. PP_W may span several microbatches:
     * cls->rows are those of all. Transfers and reductions have no program. Free with pp_program_free. */
    pp_status (*program)(const struct pp_model *model, const struct pp_class *cls, const struct pp_program_spec *spec,
                         struct pp_program *out);
    /* Bytes of the parts of an activation slot of spec->slot_rows rows; 0: the slot has no such part. */
    void (*act_bytes)(const struct pp_model *model, int stage, const struct pp_program_spec *spec,
                      int64_t bytes[PP_ACT_PARTS]);
    /* The name of a call ("gemm_nt 175x600x200"), the key of kernel times, in buf, which it returns. size is
     * PP_CALL_NAME, in which every name has room. */
    const char *(*call_name)(const struct pp_call *call, char *buf, size_t size);
    struct pp_work (*call_work)(const struct pp_call *call, bool gpu);
    struct pp_join_work (*call_join)(const struct pp_call *call);
};

#endif
