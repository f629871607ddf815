/* SPDX-License-Identifier: Apache-2.0
 *
 * The model as data: tensors, stages, and for each cost class of a plan a program, that is a list of kernel calls.
 *
 * One description, three uses: the executor runs a program, ppprof times it, the simulator adds up what was timed;
 * memory is computed from the same offsets. kernels/model_program.c and program_*.c write programs, devices run them
 * (struct pp_backend); exec/ and sim/ see only this file.
 *
 * A call names a kernel, its dimensions and its operands. Operands are (region, byte offset): no pointers, so one
 * program serves every microbatch; struct pp_frame says where the regions of one task lie. All data is row-major.
 *
 * Precision. fp32 and tf32: all data is float32; tf32 lets products round their operands. bf16: activations, their
 * gradients and what travels between stages are bfloat16; parameters, their gradients, statistics (rstd), logits and
 * all sums are float32; products read bfloat16 copies of the weights (PP_MEM_PARAM16), renewed by the optimizer step.
 */
#ifndef PP_CORE_PROGRAM_H
#define PP_CORE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/call.h"
#include "core/join.h"
#include "core/shape.h"
#include "core/status.h"
#include "core/work.h"

enum { PP_CALL_NAME = 64, PP_SIGNATURE_BYTES = 256 };

struct pp_program {
    struct pp_call *calls;
    int ncalls;
    int64_t work_bytes;  /* scratch it needs */
    double flops, bytes; /* arithmetic, and bytes of operands read and written, summed over its calls */
    /* Names the work: equal for equal call lists on any stage, plan or chunk count ("F 2l 5x35 d200 h2 f200 causal
     * p0.2"). The key of measured task times. */
    char signature[PP_SIGNATURE_BYTES];
};

/* For a device that waits instead of computing (pp_backend.waits). A task's output begins with the time at which it
 * ended, on the clock of the run's first process: so its receiver knows when it was sent. */
struct pp_wait {
    int64_t duration_ns;
    int64_t hop_ns;    /* the input is there so long after its sender's end, or after posted_ns; -1: it was not sent */
    int64_t posted_ns; /* on our clock: when there was a buffer to receive it */
    int64_t clock_offset_ns; /* this process's clock + offset = the first process's */
    bool waited;             /* the worker had to wait before this task */
    int64_t *begun_ns;       /* the device sets it: when the input was there */
};

/* How long calls take: *out in ns. */
struct pp_call_times {
    pp_status (*ns)(void *from, const struct pp_call *call, double *out);
    void *from;
};

/* What changes from task to task while the program stays. */
struct pp_frame {
    void *base[PP_MEM_REGIONS];
    /* Rows of the activation slot before the (first) microbatch of the task; NORM, STEP, PUT_PARAM, ADD_GRAD: the
     * worker's replica, of those that share */
    int64_t act_row;
    uint64_t seed;
    uint32_t step;     /* training step, counted over the whole run: part of the dropout key */
    int64_t first_row; /* global row of the microbatch's first row: data rank * rows + row. Part of the dropout key */
    bool training;     /* dropout on */
    bool accumulate;   /* add to the gradients instead of writing them */
    float loss_scale;  /* 1 / tokens of the whole batch over all replicas */
    float learning_rate;
    struct pp_adamw adamw;
    float clip_factor; /* 1 where nothing is clipped */
    const float *clip; /* the factor in the device's memory, instead of clip_factor; NULL: clip_factor counts */
    /* Both in memory of the device. */
    double *loss; /* decode+loss: *loss = sum over the microbatch's tokens of -log p */
    /* NORM: sums[i * pp_shape_sums + k] = sum of squares of part k of the stage's i-th gradient tensor
     * (pp_shape_parts); of expert ranks' experts those of all, part after part. Of a share, or of one of several tensor
     * ranks, whose number is then in the address: of its part alone. What a worker has no part of is 0 */
    double *sums;
    struct pp_wait wait;
    /* So many workers share the stage's tensors, and which of them this is; 0 and 1: it has them whole. Part of the
     * dropout key, of words in the vocabulary, and of where products add. */
    int tensor, tensor_rank;
    int expert_rank; /* which of those that share experts it is; else 0 */
    /* So many have parts of the same rows, and which of them this is; 0 and 1: it has all tokens. Part of the dropout
     * key, and of where a token stands in its row. halves: of each row it has two chunks (pp_shape_gathers_keys). */
    int context, context_rank;
    bool halves;
    const struct pp_join *join; /* NULL: sums over them are left out, as in profiles */
};

/* Workers that share the stage's tensors; that have parts of the same rows. */
static inline int pp_frame_tensor(const struct pp_frame *frame) { return frame->tensor > 1 ? frame->tensor : 1; }
static inline int pp_frame_context(const struct pp_frame *frame) { return frame->context > 1 ? frame->context : 1; }

/* Where an operand lies; NULL: nowhere. */
static inline void *pp_ref_address(const struct pp_ref *ref, const struct pp_frame *frame)
{
    char *base = (char *)frame->base[ref->region];
    if (!base) return NULL;
    return base + ref->offset + frame->act_row * ref->row_bytes + frame->tensor_rank * ref->part_bytes +
           frame->expert_rank * ref->expert_bytes;
}

/* How a tensor is initialised. bound: uniform +-bound, or the standard deviation. */
enum pp_init { PP_INIT_ZERO, PP_INIT_ONE, PP_INIT_UNIFORM, PP_INIT_NORMAL };

/* What the workers of a rank share of a tensor. Rows: of each of its blocks an equal part, rounded up. */
enum pp_split { PP_SPLIT_NONE, PP_SPLIT_ROWS, PP_SPLIT_COLUMNS };
enum { PP_SPLIT_BLOCKS = 3 };

/* A parameter tensor; names and shapes are those of a plain torch.nn module, see docs/FORMATS.md. */
struct pp_tensor {
    char name[64];
    int ndim;
    int64_t shape[2];
    int64_t elements;
    /* What a worker holds of it, in memory: all, or (pp_shape.tensor) a part, see core/slice.h */
    int split;                       /* enum pp_split */
    int64_t blocks[PP_SPLIT_BLOCKS]; /* rows: queries, keys, values; gates and what they open; 0: no more */
    int64_t local[2], local_elements;
    int set;        /* enum pp_param_set */
    int64_t offset; /* bytes, within its stage's gradient region; where nothing is shared, experts are the last there */
    int64_t bytes;  /* of its gradient, with what fills it up */
    int64_t value_offset; /* of its values, within the stage's parameter region; -1: weights are split */
    int64_t offset16;     /* of its bfloat16 copy, within its stage's PP_MEM_PARAM16; -1: it has none */
    /* The same places in memory for nothing but a worker's share of each tensor, or, where nothing is shared, all of
     * it: in their order */
    int64_t share_offset, share_value_offset, share_offset16;
    int64_t part_elements; /* of each of pp_shape_parts(): all, and zeros that fill the last ones up; 0: there is one */
    int stage;
    int init; /* enum pp_init */
    double bound;
    bool of_experts; /* its rows are experts': all members of a rank share these, of others the tensor ranks do */
    bool copy; /* of the model's first tensor, the embedding (pp_shape.tied): counts in no norm, stands in no file */
};

struct pp_stage {
    int first_layer, layers;
    bool embed, decode;        /* holds the embedding; holds decoder and loss */
    int embed_tensors;         /* of the embedding, before those of layers; 0: it has none */
    int first_tensor, tensors; /* range in pp_model.tensors */
    int layer_tensors;         /* of each of its layers */
    int64_t param_bytes;       /* of the gradients, and of the values if all are whole */
    int64_t value_bytes;       /* of the values that are whole */
    int64_t param16_bytes;     /* of the bfloat16 copies; 0 unless bf16 */
    int64_t share_bytes, share_value_bytes, share_param16_bytes; /* of a worker's share of the three; or of all */
    int group; /* stages with equal activation sizes have equal numbers */
};

/* Of a microbatch where the inputs of layers are kept: of each, or of the decoder alone. */
static inline int pp_stage_checkpoints(const struct pp_stage *stage)
{
    return stage->layers > 0 ? stage->layers : stage->decode;
}

/* Layers of a stage, counted within it, that a task of a class is about: those of its part. Ways back begin with the
 * last ones. lowest, highest: the part with the stage's input, and the embedding where the stage has it; the one with
 * its output, and the decoder. */
struct pp_stage_part {
    int begin, end;
    bool lowest, highest;
};
static inline struct pp_stage_part pp_stage_part_of(const struct pp_stage *stage, const struct pp_class *cls)
{
    const int64_t parts = cls->parts > 1 ? cls->parts : 1;
    const int64_t at = pp_goes_back(cls->kind) ? parts - 1 - cls->part : cls->part;
    return (struct pp_stage_part){(int)(stage->layers * at / parts), (int)(stage->layers * (at + 1) / parts), at == 0,
                                  at == parts - 1};
}

/* The tensors of these layers, with what goes with them: n of the stage's, from number `first` on. */
struct pp_tensor_range {
    int first, n;
};
static inline struct pp_tensor_range pp_part_tensors(const struct pp_stage *stage, const struct pp_class *cls)
{
    const struct pp_stage_part part = pp_stage_part_of(stage, cls);
    const int first = part.lowest ? 0 : stage->embed_tensors + part.begin * stage->layer_tensors;
    const int end = part.highest ? stage->tensors : stage->embed_tensors + part.end * stage->layer_tensors;
    return (struct pp_tensor_range){first, end - first};
}

struct pp_model {
    struct pp_shape shape; /* of the model */
    struct pp_shape local; /* of what a worker computes: the same, or with its part of heads, d_ff and vocab */
    int nstages;
    struct pp_stage *stages;
    int ntensors;
    struct pp_tensor *tensors; /* in model order: the order in which norms are added */
    int64_t parameters;        /* elements, whole model */
};

struct pp_extent {
    int64_t offset, bytes;
};
/* Where their gradients lie in the stage's region: those of a set, where nothing is shared; with shards, those of all,
 * and what a worker keeps of them. */
struct pp_extent pp_part_sum(const struct pp_model *model, const struct pp_class *cls, enum pp_param_set set);
struct pp_extent pp_part_gradients(const struct pp_model *model, const struct pp_class *cls);
struct pp_extent pp_part_share(const struct pp_model *model, const struct pp_class *cls);

/* Bytes of their gradients of a set, which replicas sum; 0: there are none, or (shares of them, over groups) they are
 * summed with those of the first set. Of shares: of all sets. */
int64_t pp_summed_bytes(const struct pp_model *model, const struct pp_class *cls, enum pp_param_set set);

/* Of a class that sums over replicas, where gradients are rounded to sum them: bytes of these numbers, which have a
 * place of their own (struct pp_layout.sent_offset); else 0. */
int64_t pp_sent_bytes(const struct pp_model *model, const struct pp_class *cls, enum pp_param_set set);

/* A slot of parameters of a part (PP_POOL_PARAM): its values, then its bfloat16 copies. Where these begin in the
 * stage's regions, and how much they are; where copies begin in the slot; bytes of that. */
struct pp_part_memory {
    struct pp_extent values, copies;
    int64_t copies_at, bytes;
};
struct pp_part_memory pp_part_memory_of(const struct pp_model *model, const struct pp_class *cls);

/* Sets the regions of an F, R or B of a plan with shards, whose parameters and gradients are in these slots; where they
 * are NULL, and of other tasks, they are elsewhere. */
void pp_frame_set_part(struct pp_frame *frame, const struct pp_model *model, const struct pp_class *cls, void *param,
                       void *grad);

/* Of the embedding, or of its copy: the gradient that the two stages sum, in the stage's region; of shares the one with
 * this number. Copies are shared out as what they are copies of. */
static inline struct pp_extent pp_tied_gradient(const struct pp_model *model, int tensor, int share)
{
    const struct pp_tensor *t = &model->tensors[tensor];
    const bool shared = model->shape.zero && t->part_elements > 0;
    const int64_t bytes = (shared ? t->part_elements : t->local_elements) * (int64_t)sizeof(float);
    if (model->shape.shards) return (struct pp_extent){t->share_offset, bytes};
    return (struct pp_extent){t->offset + (shared ? share * bytes : 0), bytes};
}

/* The embedding's copy; only where pp_shape.tied. */
static inline int pp_tied_copy(const struct pp_model *model)
{
    int i = model->ntensors - 1;
    while (i > 0 && !model->tensors[i].copy) i--;
    return i;
}

/* Where the share of a weight that is split begins in its stage's PP_MEM_STATE. */
static inline int64_t pp_split_weight_offset(const struct pp_model *model, const struct pp_tensor *t)
{
    const int states = pp_optimizers[model->shape.optimizer].states;
    const int64_t elements = t->share_offset16 / pp_element_bytes(PP_BF16);
    return states * model->stages[t->stage].share_bytes + elements * (int64_t)sizeof(float);
}

/* What a program is written for. */
struct pp_program_spec {
    int seq;       /* tokens of a row, all of them */
    int slot_rows; /* rows that the activation slot has room for; offsets in it depend on that */
    bool training;
    bool split_backward;    /* the plan has I and W tasks */
    bool checkpoint_layers; /* it keeps the inputs of layers alone; not with split_backward */
    int again;              /* of so many first layers of a stage it does, in the slot; not with either */
    bool activation_again;  /* what activation functions make is not kept; not with the two before, nor where it takes
                             * the place of what it is made of (relu), nor where I puts a gradient there (swiglu) */
    bool clip;              /* it has NORM tasks */
};

/* How the layers are cut into stages. */
struct pp_cut {
    int stages;
    const char *split;      /* "uniform", "parameters", "time", or layers of each stage "3,5"; NULL: uniform */
    const double *layer_ns; /* [layers + 2] of the embedding, the layers, the decoder, which "time" needs; else NULL */
    /* [stages]; where a rank has several, what these have together is as even as whole layers allow, unless a list says
     * otherwise. NULL: each stage has a rank of its own. */
    const int *stage_rank;
};

/* What the model side offers. kernels/model.c fills one; programs hand it to those who may not include kernels/. */
struct pp_model_ops {
    /* PP_USAGE with a message if the cut is impossible. */
    pp_status (*create)(const struct pp_shape *shape, const struct pp_cut *cut, struct pp_model **out);
    void (*destroy)(struct pp_model *model);
    /* The program of one class. PP_NORM, PP_STEP: rows and seq do not matter. PP_W may span several microbatches:
     * cls->rows are those of all. Transfers and reductions have no program. Free with pp_program_free. */
    pp_status (*program)(const struct pp_model *model, const struct pp_class *cls, const struct pp_program_spec *spec,
                         struct pp_program *out);
    /* Bytes of an activation slot of spec->slot_rows rows. */
    int64_t (*act_bytes)(const struct pp_model *model, int stage, const struct pp_program_spec *spec);
    /* Text that names a call's shape ("gemm_nt 175x600x200"), the key of kernel times: into PP_CALL_NAME bytes, so that
     * whoever looks one up cuts it off where it was cut off when it was measured. */
    const char *(*call_name)(const struct pp_call *call, char *buf, size_t size);
    struct pp_work (*call_work)(const struct pp_call *call, bool gpu);
    struct pp_join_work (*call_join)(const struct pp_call *call);
};

void pp_program_free(struct pp_program *program);

/* A device that runs programs: `cpu` always, `cuda` where it was built. One context per worker, used by one thread. */
struct pp_device; /* of the backend */

/* Called by run() between kernels, so that transfers progress while a program runs. */
struct pp_progress {
    void (*poll)(void *arg);
    void *arg;
    /* Polls until this time of pp_now_ns(), asleep while nothing comes in; earlier if the run is to end. For devices
     * that wait; else NULL. */
    void (*wait)(void *arg, int64_t until_ns);
};

/* Which device a worker opens. */
struct pp_device_spec {
    int worker, workers;       /* index in the process; workers of the process in this configuration */
    int host_index, on_host;   /* the process among those of its host; 0 of 1 where there is only one */
    int threads;               /* of BLAS */
    int gpus;                  /* --gpus: devices of the host that may be used; 0 = all there are */
    int precision;             /* enum pp_precision */
    bool (*interrupted)(void); /* long work that is not run() ends early when it says so: PP_INTERRUPTED. NULL: never */
    const char *algorithms;    /* --algorithms: a file that says how products are computed; NULL: none */
};

struct pp_queue_ops;

/* How the text of describe() ends where workers of a process compute on several kinds of GPU: exec/ looks for it. */
#define PP_GPUS_DIFFER "GPUs differ"

struct pp_backend {
    const char *name, *summary;
    /* NULL: the device computes while run() is called, in memory that the host can read. Else it works through queues
     * (core/queue.h). */
    const struct pp_queue_ops *queue;
    bool waits; /* computes nothing: run() takes the time of frame->wait */
    /* Can this machine use it? PP_UNSUPPORTED with a message that says in one line what is missing. NULL: always. */
    pp_status (*available)(void);
    /* Workers of one host that share the worker's device, itself included; 1: it has a device to itself. NULL: 1. */
    int (*sharers)(const struct pp_device_spec *spec);
    pp_status (*open)(const struct pp_device_spec *spec, struct pp_device **out);
    void (*close)(struct pp_device *device);
    /* Memory of the device; zeroed. Page-faulted in by this call, so that no step pays for it, unless the device
     * waits. upload and download return when the bytes are there. */
    pp_status (*alloc)(struct pp_device *device, int64_t bytes, void **out);
    void (*release)(struct pp_device *device, void *memory, int64_t bytes);
    /* What alloc() could still hand out to all workers together; -1: not known. NULL: never known. */
    int64_t (*available_bytes)(void);
    pp_status (*upload)(struct pp_device *device, void *to, const void *from, int64_t bytes);
    pp_status (*download)(struct pp_device *device, void *to, const void *from, int64_t bytes);
    /* Runs all calls, and returns when they have run. kernel_ns: NULL, or [ncalls] durations to fill in. progress:
     * NULL, or polled after each call. */
    pp_status (*run)(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                     const struct pp_progress *progress, int64_t *kernel_ns);
    /* to[i] = a[i] + b[i]: gradient reduction. */
    void (*add)(struct pp_device *device, float *to, const float *a, const float *b, int64_t n);
    /* "OpenBLAS 0.3.21 SkylakeX, avx512 kernels": for run headers, and part of the accumulation key. Of the first
     * worker of a process it ends in PP_GPUS_DIFFER where others compute on another kind of GPU. */
    const char *(*describe)(struct pp_device *device);
    /* A fixed piece of register-only work (a few hundred microseconds); its duration in ns. Brackets profiles and
     * runs. A GPU that may have been idle works for some 30 ms before. */
    int64_t (*reference_ns)(struct pp_device *device);
};

#endif
