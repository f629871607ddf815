/* SPDX-License-Identifier: Apache-2.0
 *
 * The model as data: tensors, stages, and for each cost class of a plan a program, that is a list of kernel calls.
 *
 * One description, three uses: the executor runs a program, ppprof times it, the simulator adds up what was timed;
 * memory is computed from the same offsets. kernels/program_forward.c, program_backward.c and model_program.c write
 * programs, devices run them (struct pp_backend); exec/ and sim/ see only this file.
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

#include "core/optimizer.h"
#include "core/plan.h"
#include "core/status.h"

/* Where an operand lies. */
enum pp_region {
    PP_MEM_NONE,
    PP_MEM_PARAM,   /* the stage's parameters (pp_tensor.value_offset) */
    PP_MEM_GRAD,    /* the stage's gradients (pp_tensor.offset) */
    PP_MEM_ACT,     /* activation slot of (stage, microbatch) */
    PP_MEM_CKPT,    /* checkpoint: the input of the stage, or of each of its layers (pp_checkpoint_bytes) */
    PP_MEM_IN,      /* received (or local) input of the task: [rows*seq, d], or a part (pp_hidden_bytes) */
    PP_MEM_OUT,     /* output slot of the task: the same */
    PP_MEM_WORK,    /* scratch of the rank, contents undefined between tasks */
    PP_MEM_TOKENS,  /* int32 [rows, seq] input tokens of the microbatch */
    PP_MEM_TARGETS, /* int32 [rows, seq] */
    PP_MEM_PARAM16, /* bf16: copies of the weights that products read (pp_tensor.offset16); else no memory */
    /* What the optimizer keeps, same offsets as the gradients: all first tensors, then all second ones from
     * param_bytes on. Of a share (pp_shape.zero) as many times less: one part of each tensor; behind that, where the
     * bfloat16 copies are all that is whole (pp_shape_splits_weights), the parts of weights, in the order of copies */
    PP_MEM_STATE,
    PP_MEM_REGIONS
};

enum pp_precision { PP_FP32, PP_TF32, PP_BF16, PP_PRECISIONS };
extern const char *const pp_precision_names[];
/* Bytes of an element of an activation. */
static inline int pp_element_bytes(int precision) { return precision == PP_BF16 ? 2 : 4; }

/* What pp_ref_address() says. row_bytes is 0 but for activation slots (a slot may hold several microbatches, one behind
 * the other in each of its buffers) and for tensors of which a share is meant: there it is a part, and act_row the
 * share's number. part_bytes is 0 but where the tensor rank's own part of what all of them have is meant. */
struct pp_ref {
    int32_t region; /* enum pp_region */
    int64_t offset; /* bytes */
    int64_t row_bytes, part_bytes;
};

enum { PP_CALL_DIMS = 6, PP_CALL_REFS = 8, PP_SIGNATURE_BYTES = 160 };

/* One kernel call. What n[], ref[], f[] mean is said where the kernel is declared (kernels/kernels.h). */
struct pp_call {
    int32_t kernel;          /* index into the kernel table */
    int32_t n[PP_CALL_DIMS]; /* dimensions */
    int32_t site;            /* dropout site, see pp_frame; 0 = none */
    int32_t precision;       /* enum pp_precision */
    float f[2];              /* scalars: scale, probability, ... */
    struct pp_ref ref[PP_CALL_REFS];
};

/* What a device does for a call. */
struct pp_work {
    double flops[PP_PRECISIONS]; /* by the arithmetic that does them: of GPUs fp32 is all that no tensor core does */
    double bytes;                /* of operands read and written */
    double again_bytes;          /* added to bytes where the frame accumulates gradients; may be negative */
    double shared_bytes;         /* of a GPU: moved inside its multiprocessors, where that may take longest */
};

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

/* Of what sums are made; bfloat16 numbers are added as float32, and each sum of two is rounded. */
enum pp_sum_type { PP_SUM_FLOAT, PP_SUM_DOUBLE, PP_SUM_BF16, PP_SUM_TYPES };
/* Bytes of an element. */
static inline int pp_sum_bytes(int type) { return type == PP_SUM_DOUBLE ? 8 : type == PP_SUM_BF16 ? 2 : 4; }

/* What the workers of a rank make together of memory[elements] that each of them has: the sum over all of them, added
 * in their order, the same bits in each; or, of as many equal parts as there are workers, the sum of each one's own part
 * alone (the others hold nothing of use then); or in each worker all parts, each as its owner has it. */
enum pp_join_op { PP_JOIN_ALL_REDUCE, PP_JOIN_REDUCE_SCATTER, PP_JOIN_ALL_GATHER };

/* Where the workers of a rank meet inside a task (pp_shape.tensor). run(): in memory of the device, and on a queue
 * device behind what its compute queue holds, and before what comes next. Keeps failures for after the program. */
struct pp_join {
    void (*run)(void *arg, enum pp_join_op op, void *memory, int64_t elements, int type);
    void *arg;
    bool failed; /* set by run(): others may still read the memory, so the device leaves the rest of a program out */
};

/* A call's: bytes of all parts, and how often a ring of the workers carries them around; 0 of calls that are none. */
struct pp_join_work {
    int64_t bytes;
    int rounds; /* 2 of an all-reduce, 1 of the others */
};

/* What changes from task to task while the program stays. */
struct pp_frame {
    void *base[PP_MEM_REGIONS];
    /* Rows of the activation slot before the (first) microbatch of the task; NORM, STEP: the worker's share */
    int64_t act_row;
    uint64_t seed;
    uint32_t step;     /* training step, counted over the whole run: part of the dropout key */
    int64_t first_row; /* global row of the microbatch's first row: replica * rows + row. Part of the dropout key */
    bool training;     /* dropout on */
    bool accumulate;   /* add to the gradients instead of writing them */
    float loss_scale;  /* 1 / tokens of the whole batch over all replicas */
    float learning_rate;
    struct pp_adamw adamw;
    float clip_factor; /* 1 where nothing is clipped */
    const float *clip; /* the factor in the device's memory, instead of clip_factor; NULL: clip_factor counts */
    /* Both in memory of the device. */
    double *loss; /* decode+loss: *loss = sum over the microbatch's tokens of -log p */
    /* NORM: sums[i * tensor * parts + k] = sum of squares of part k of the stage's i-th gradient tensor
     * (pp_shape_parts). Of a share, or of a tensor rank, whose number is then in the address: of its part alone */
    double *sums;
    struct pp_wait wait;
    /* So many workers share the stage's tensors, and which of them this is; 0 and 1: it has them whole. Part of the
     * dropout key, of words in the vocabulary, and of where products add. */
    int tensor, tensor_rank;
    const struct pp_join *join; /* NULL: sums over them are left out, as in profiles */
};

/* Workers that share the stage's tensors. */
static inline int pp_frame_tensor(const struct pp_frame *frame) { return frame->tensor > 1 ? frame->tensor : 1; }

/* Where an operand lies; NULL: nowhere. */
static inline void *pp_ref_address(const struct pp_ref *ref, const struct pp_frame *frame)
{
    char *base = (char *)frame->base[ref->region];
    return base ? base + ref->offset + frame->act_row * ref->row_bytes + frame->tensor_rank * ref->part_bytes : NULL;
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
    int64_t offset; /* bytes, within its stage's gradient region */
    /* Of its values, within the stage's parameter region: `offset`, or less where weights are split; -1: they are */
    int64_t value_offset;
    int64_t offset16;      /* of its bfloat16 copy, within its stage's PP_MEM_PARAM16; -1: it has none */
    int64_t part_elements; /* of each of pp_shape_parts(): all, and zeros that fill the last ones up; 0: there is one */
    int stage;
    int init; /* enum pp_init */
    double bound;
};

enum pp_mask { PP_MASK_NONE, PP_MASK_CAUSAL };
/* What attention keeps for its backward: the probabilities, or (flash) what they are made again from. */
enum pp_attention_kind { PP_ATTENTION_MATH, PP_ATTENTION_FLASH };
enum pp_norm { PP_NORM_LAST, PP_NORM_FIRST };
enum pp_normalization { PP_LAYERNORM, PP_RMSNORM };
enum pp_activation { PP_RELU, PP_GELU, PP_SWIGLU };
enum pp_bias { PP_BIAS, PP_NO_BIAS };
/* How a model knows where a word stands: sines and cosines added to the embedding (Vaswani et al. 2017), or queries and
 * keys of each layer rotated (Su et al. 2021). */
enum pp_positions { PP_POSITIONS_SINUSOIDAL, PP_POSITIONS_ROPE };

/* The Transformer language model: embedding, positions, encoder layers, a norm where the layers begin with theirs,
 * decoder (torch.nn.TransformerEncoderLayer, but for what is said of kv_heads, head_dim and positions). swiglu:
 * linear1 makes 2 d_ff numbers of a token, of which the first d_ff are gates (Shazeer, 2020, "GLU Variants Improve
 * Transformer"). */
struct pp_shape {
    int d_model, heads, d_ff, layers, vocab;
    int mask;      /* enum pp_mask */
    int attention; /* enum pp_attention_kind */
    double dropout;
    bool scale_embedding; /* multiply by sqrt(d_model) */
    /* dropout only on the two residual branches (the lab's layer), else everywhere torch has it */
    bool residual_only;
    bool lab_init; /* the lab's initialisation, see kernels/model.h */
    int precision; /* enum pp_precision */
    int optimizer; /* enum pp_optimizer */
    /* The decoder has memory for a multiple of so many words, zero beyond the vocabulary: aligned rows of logits.
     * 0 and 1: none. */
    int vocab_multiple;
    int norm, activation; /* enum pp_norm (post, pre), enum pp_activation: of the layers */
    int normalization;    /* enum pp_normalization: of all norms */
    int bias;             /* enum pp_bias: of all linears; norms keep theirs */
    int replicas;         /* that train the model together; 0 and 1: one */
    bool zero;            /* of several replicas each keeps and steps a share (struct pp_plan) */
    /* Heads of keys and values, a divisor of heads: each serves the queries of heads / kv_heads (Ainslie et al. 2023).
     * 0: as many as heads. */
    int kv_heads;
    int head_dim;      /* columns of a head; 0: d_model / heads */
    int positions;     /* enum pp_positions */
    double rope_theta; /* of rotations: the base of their frequencies */
    /* Workers that share the tensors of a stage (struct pp_plan); 0 and 1: one has them. As Megatron-LM cuts them:
     * heads and columns of linear1 by rows of in_proj and linear1 and by columns of out_proj and linear2, the
     * vocabulary by rows of embedding and decoder. Norms, and biases behind sums, are whole in each. */
    int tensor;
    /* Sequence parallelism (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models"):
     * of what is not cut so, norms, dropout of residuals and the stream between layers and stages, each of these workers
     * has a part of the tokens. All tokens are gathered before products over a part of the tensors, and summed by parts
     * behind them. Without effect on one worker. */
    bool sequence;
};

/* Columns of linear1's output. */
static inline int pp_linear1_width(const struct pp_shape *shape)
{
    return shape->activation == PP_SWIGLU ? 2 * shape->d_ff : shape->d_ff;
}

/* Equal parts in which each tensor lies in memory: the shares of the replicas. A norm is made of the sums of parts,
 * also where there are no shares, so that both ways have the same bits; not of so many that these sums would matter. */
enum { PP_NORM_PARTS = 16, PP_PART_LINE = 32 /* elements, of which a part has a multiple */ };
static inline int pp_shape_parts(const struct pp_shape *shape)
{
    const bool parts = shape->replicas > 1 && (shape->zero || shape->replicas <= PP_NORM_PARTS);
    return parts ? shape->replicas : 1;
}

/* Workers that share the tensors of a stage. */
static inline int pp_shape_tensor(const struct pp_shape *shape) { return shape->tensor > 1 ? shape->tensor : 1; }

/* Does each of these workers have a part of the tokens, where tensors are whole? */
static inline bool pp_shape_parts_tokens(const struct pp_shape *shape)
{
    return shape->sequence && pp_shape_tensor(shape) > 1;
}

/* Tokens of a row of `seq` for which a worker has room there: all, or a part, rounded up. A microbatch's part is as many
 * for each of its rows, all in one piece: of its tokens, row after row, those from tensor rank times the part on. */
static inline int pp_part_tokens(const struct pp_shape *shape, int seq)
{
    const int parts = pp_shape_parts_tokens(shape) ? pp_shape_tensor(shape) : 1;
    return (seq + parts - 1) / parts;
}

/* Sums of squares that make a tensor's norm: for each worker that shares it, of each of its parts. */
static inline int pp_shape_sums(const struct pp_shape *shape) { return pp_shape_tensor(shape) * pp_shape_parts(shape); }

/* Weights that have a bfloat16 copy are there in float32 for the share alone: only the step reads them so. */
static inline bool pp_shape_splits_weights(const struct pp_shape *shape)
{
    return shape->zero && shape->precision == PP_BF16;
}

static inline int pp_kv_heads(const struct pp_shape *shape) { return shape->kv_heads ? shape->kv_heads : shape->heads; }

static inline int pp_head_dim(const struct pp_shape *shape)
{
    return shape->head_dim ? shape->head_dim : shape->d_model / shape->heads;
}

/* What attention makes of a token, all heads together; d_model, unless heads have columns of their own number. */
static inline int pp_context_width(const struct pp_shape *shape) { return shape->heads * pp_head_dim(shape); }

/* Queries, keys and values of a token. */
static inline int64_t pp_qkv_width(const struct pp_shape *shape)
{
    return (shape->heads + 2 * (int64_t)pp_kv_heads(shape)) * pp_head_dim(shape);
}

/* Columns of a row of logits in memory. */
static inline int pp_padded_vocab(const struct pp_shape *shape)
{
    const int m = shape->vocab_multiple > 1 ? shape->vocab_multiple : 1;
    return (shape->vocab + m - 1) / m * m;
}

/* What a worker sends to another stage, and keeps at checkpoints, of so many rows of so many tokens. */
static inline int64_t pp_hidden_bytes(const struct pp_shape *shape, int64_t rows, int seq)
{
    return rows * pp_part_tokens(shape, seq) * shape->d_model * pp_element_bytes(shape->precision);
}

/* Of a checkpoint of layers: from the input of one to that of the next. */
static inline int64_t pp_checkpoint_bytes(const struct pp_shape *shape, int64_t rows, int seq)
{
    return (pp_hidden_bytes(shape, rows, seq) + 63) / 64 * 64;
}

struct pp_stage {
    int first_layer, layers;
    bool embed, decode;        /* holds the embedding; holds decoder and loss */
    int first_tensor, tensors; /* range in pp_model.tensors */
    int64_t param_bytes;       /* of the gradients, and of the values if all are whole */
    int64_t value_bytes;       /* of the values that are whole */
    int64_t param16_bytes;     /* of the bfloat16 copies; 0 unless bf16 */
    int group;                 /* stages with equal activation sizes have equal numbers */
};

struct pp_model {
    struct pp_shape shape; /* of the model */
    struct pp_shape local; /* of what a worker computes: the same, or with its part of heads, d_ff and vocab */
    int nstages;
    struct pp_stage *stages;
    int ntensors;
    struct pp_tensor *tensors; /* in model order: the order in which norms are added */
    int64_t parameters;        /* elements, whole model */
};

/* Where the share of a weight that is split begins in its stage's PP_MEM_STATE. */
static inline int64_t pp_split_weight_offset(const struct pp_model *model, const struct pp_tensor *t)
{
    const int states = pp_optimizers[model->shape.optimizer].states;
    const int64_t before = states * model->stages[t->stage].param_bytes;
    return (before + t->offset16 / pp_element_bytes(PP_BF16) * (int64_t)sizeof(float)) / pp_shape_parts(&model->shape);
}

/* What a program is written for. */
struct pp_program_spec {
    int seq;       /* tokens per row */
    int slot_rows; /* rows that the activation slot has room for; offsets in it depend on that */
    bool training;
    bool split_backward;    /* the plan has I and W tasks */
    bool checkpoint_layers; /* it keeps the inputs of layers alone; not with split_backward */
    bool clip;              /* it has NORM tasks */
};

/* What the model side offers. kernels/model.c fills one; programs hand it to those who may not include kernels/. */
struct pp_model_ops {
    /* Cuts `layers` into `stages`. split: "uniform", "parameters", "time" (needs layer_ns: [layers + 2], embedding,
     * layers, decoder; else NULL) or a list of layers per stage "3,5". PP_USAGE with a message if impossible. */
    pp_status (*create)(const struct pp_shape *shape, int stages, const char *split, const double *layer_ns,
                        struct pp_model **out);
    void (*destroy)(struct pp_model *model);
    /* The program of one class. PP_NORM, PP_STEP: rows and seq do not matter. PP_W may span several microbatches:
     * cls->rows are those of all. Transfers and reductions have no program. Free with program_free. */
    pp_status (*program)(const struct pp_model *model, const struct pp_class *cls, const struct pp_program_spec *spec,
                         struct pp_program *out);
    /* Bytes of an activation slot of spec->slot_rows rows. */
    int64_t (*act_bytes)(const struct pp_model *model, int stage, const struct pp_program_spec *spec);
    /* Text that names a call's shape ("gemm_nt 175x600x200"), the key of kernel times. */
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
    pp_status (*upload)(struct pp_device *device, void *to, const void *from, int64_t bytes);
    pp_status (*download)(struct pp_device *device, void *to, const void *from, int64_t bytes);
    /* Runs all calls, and returns when they have run. kernel_ns: NULL, or [ncalls] durations to fill in. progress:
     * NULL, or polled after each call. */
    pp_status (*run)(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                     const struct pp_progress *progress, int64_t *kernel_ns);
    /* to[i] = a[i] + b[i]: gradient reduction. */
    void (*add)(struct pp_device *device, float *to, const float *a, const float *b, int64_t n);
    /* "OpenBLAS 0.3.21 SkylakeX, avx512 kernels": for run headers, and part of the accumulation key. */
    const char *(*describe)(struct pp_device *device);
    /* A fixed piece of register-only work (a few hundred microseconds); its duration in ns. Brackets profiles and
     * runs. */
    int64_t (*reference_ns)(struct pp_device *device);
};

#endif
