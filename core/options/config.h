/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of all programs (one table, config_rows.c) and the presets. A preset is a set of option values: whatever
 * it sets is an option, and an option that was given on the command line wins, wherever it stands there.
 *
 * The letters T, N, C, D, P, V and M are those of core/plan/plan.h.
 */
#ifndef PP_CORE_OPTIONS_CONFIG_H
#define PP_CORE_OPTIONS_CONFIG_H

#include <string.h>

#include "core/base/json.h"
#include "core/options/options.h"
#include "core/plan/plan_spec.h"
#include "core/shape/learning_rate.h"
#include "core/shape/shape.h"
#include "core/shape/split.h"

enum pp_format { PP_FORMAT_TABLE, PP_FORMAT_TSV, PP_FORMAT_JSON };
enum pp_style { PP_STYLE_TUTORIAL, PP_STYLE_LAB };

/* Default of --bucket-size, the same as that of torch.nn.parallel.DistributedDataParallel. */
enum { PP_BUCKET_BYTES = 25 << 20 };
enum { PP_MOST_OPTIONS = 192 }; /* room for so many rows of pp_config_rows */

/* The database, in the working folder, of programs that need one and were given none. */
#define PP_USUAL_DB "pp.db"

/* One field per option; those of the model are in its shape. The help texts in config_rows.c say more about each. */
struct pp_config {
    /* model */
    const char *preset;
    /* What the options of the model say. pp_config_shape() adds what follows from them and from other options: parts
     * and pieces, and the vocabulary's multiple and the positions where these are 0. */
    struct pp_shape model;
    int style; /* enum pp_style */
    /* batch and optimizer */
    int rows, tokens, epochs, max_batches, eval_batches, eval_rows; /* rows: of one replica */
    int warmup;                                                     /* -1: default */
    double lr, clip, lr_decay;
    struct pp_lr_options over_steps; /* how the learning rate changes from step to step */
    struct pp_adamw_options adamw;
    /* pipeline */
    struct pp_texts schedule;
    struct pp_ints tensor;           /* T */
    struct pp_ints stages;           /* P */
    struct pp_ints virtual_stages;   /* V; empty: as the schedule has it */
    struct pp_ints chunks;           /* see pp_chunk_rows() */
    struct pp_ints micro_batch_size; /* empty: `chunks` counts; else see pp_config_cut_rows() */
    struct pp_ints checkpoint;       /* enum pp_checkpoint */
    int batch_w;                     /* microbatches whose weight gradients are one W task */
    struct pp_ints overlap_tensor_sums;     /* pp_shape.sum_pieces */
    struct pp_ints overlap_expert_exchange; /* pp_shape.exchange_pieces */
    struct pp_ints zero;                    /* ZeRO stage, 0 to 3 */
    struct pp_ints shard_degree;            /* with ZeRO: of --replicas so many shard among each other; 0: all */
    bool overlap_param_gather;              /* parameters are gathered in parts, beside the first forward */
    bool overlap_grad_reduce;               /* gradients are summed in parts, beside the last backward */
    bool grad_reduce_in_bf16;               /* gradients are rounded to bfloat16 to be summed */
    int64_t bucket_size;                    /* with overlap_grad_reduce: least bytes of gradients of a part */
    int replicas;                           /* D */
    int recv_buffers;                /* receive slots per channel; -1: default (2; unlimited with --times alone) */
    struct pp_ints expert_parallel;  /* N: see pp_config_expert_parallel() */
    struct pp_ints context_parallel; /* C: see pp_config_context() */
    const char *split;
    const double *layer_ns; /* --split time: borrowed times of layers (core/database/split_time.h); else NULL */
    int even;               /* --split time: enum pp_even (core/plan/cut.h) */
    /* data and files */
    const char *data; /* NULL: generated text */
    uint64_t seed;
    const char *init, *save, *db;
    const char *points; /* file of configurations: core/job/points_file.h */
    int generated_tokens;
    int save_every;              /* 0: never */
    bool resume, resume_changed; /* the second means the first, too */
    /* running */
    const char *device, *transport, *blas_core;
    const char *algorithms; /* file that says by which algorithms the GPU computes products */
    int gpus;               /* GPUs of a host; 0: all there are; ppsim: one for each worker */
    int threads, trace_steps, log_interval;
    bool no_eval;
    /* simulating */
    const char *times, *straggler;  /* see core/job/given_times.h */
    const struct pp_blocks *blocks; /* of the file that --times names, once it was read: borrowed; else NULL */
    double jitter;                  /* percent */
    int library_attention;          /* 1: times of attention are those of other software */
    int host_order;                 /* hosts are filled with 0: the ranks of a replica, 1: the replicas of a rank */
    const char *profile, *emit;
    struct pp_texts machine; /* empty: not given; see pp_config_machine() */
    bool draw;
    int64_t memory;         /* bytes of a device; 0: not given */
    struct pp_ints workers; /* numbers of devices to use; empty: not given */
    int global_rows;        /* with workers: rows of the batch of all replicas; 0: not given */
    bool usual;             /* --auto: see pp_config_apply_usual() */
    int top;                /* with workers: configurations to show for each number of them; 0: all */
    struct pp_reals price;  /* of a device for an hour; one for all machines or one for each: pp_config_price() */
    double train_tokens;    /* tokens of the whole training; 0: not given */
    /* profiling */
    double seconds; /* time to measure each shape, in all rounds together */
    int rounds;
    /* reporting */
    const char *plots;  /* folder; NULL: beside the database */
    const char *chrome; /* file for Chrome trace JSON */
    bool no_plots, profiles;
    int run; /* number of the run to show; 0: the newest */
    bool why;
    /* all */
    int format; /* enum pp_format */
    bool list, version, help;
    bool set[PP_MOST_OPTIONS];    /* [pp_config_nrows] which rows of pp_config_rows were given on the command line */
    bool chosen[PP_MOST_OPTIONS]; /* the same: to which --auto has given a value */
};

extern const struct pp_opt pp_config_rows[];
extern const int pp_config_nrows;

/* Parses argv, applies the preset, and checks what can be checked without other folders (heads divide d_model, ...).
 * tool: one of enum pp_tool. *operand: set to the operand, if there is one; NULL: none is taken. If --help, --version
 * or --list was given, the rest of *out need not make sense: look at these flags first. PP_USAGE. */
pp_status pp_config_parse(unsigned tool, int argc, char **argv, struct pp_config *out,
                          const char **operand) PP_MUST_CHECK;
/* Prints the answer to --help or --version, and returns true, if either was given. */
bool pp_config_answer(const struct pp_config *config, const struct pp_program_info *program, FILE *out);
/* Sets the options that the preset has a value for and that were not given (presets.c; pp_config_parse() calls it). */
pp_status pp_config_apply_preset(struct pp_config *config) PP_MUST_CHECK;
/* With --auto: sets options that were not given to the values that are usually tried (usual.c; pp_config_parse() calls
 * it). */
pp_status pp_config_apply_usual(struct pp_config *config) PP_MUST_CHECK;
/* Names an option in the code, by its field: what is no field does not compile. No two options have the same field. */
#define PP_OPTION(field) offsetof(struct pp_config, field)
/* The row of the option with this field. */
const struct pp_opt *pp_config_row_of(size_t field);
/* The row of an option (without dashes); NULL if there is none. */
const struct pp_opt *pp_config_row(const char *option);
/* Was the option given on the command line? pp_config_given(config, chunks). */
#define pp_config_given(config, field) pp_config_given_of(config, PP_OPTION(field))
bool pp_config_given_of(const struct pp_config *config, size_t field);
/* Is --data a folder? Else data are constant, or generated (NULL, after pp_config_parse()). */
bool pp_config_reads_text(const struct pp_config *config);
/* --split time: are stages cut by how long their layers take? */
static inline bool pp_config_splits_by_time(const struct pp_config *config)
{
    return pp_split_of(config->split) == PP_SPLIT_BY_TIME;
}
/* --device auto has found `device`: sets vocab_multiple, which depends on the device, unless it was given. Call it
 * before any shape is made. */
void pp_config_found_device(struct pp_config *config, const char *device);
/* The model that the options describe. tensor is left 0, and of --overlap-tensor-sums, --zero and --shard-degree the
 * first value counts: these belong to a point (core/job/job.h). */
void pp_config_shape(const struct pp_config *config, struct pp_shape *out);
/* Makes the model as small as its options allow: those of trait PP_OPT_TENSORS get their defaults, and those that have
 * none their least values. */
pp_status pp_config_shrink_model(struct pp_config *config) PP_MUST_CHECK;
/* C and N. Only ppsim takes lists of them; it makes a config with one value of each for each way (sim/ways.h). Of a
 * list: the first. */
int pp_config_context(const struct pp_config *config);
int pp_config_expert_parallel(const struct pp_config *config);
/* Sets N. A preset's T makes tensor ranks share the experts: it does not apply where expert ranks do. */
void pp_config_set_expert_parallel(struct pp_config *config, int n);
/* The machine, and the price of a device for an hour; NULL, 0: not given. Only ppsim takes lists of them; it makes a
 * config with one value for each (sim/targets.h). Of a list: the first. */
const char *pp_config_machine(const struct pp_config *config);
double pp_config_price(const struct pp_config *config);
/* PP_USAGE if --expert-parallel n does not divide this number of replicas. (Whether it divides the experts, the model
 * checks.) */
pp_status pp_config_check_expert_parallel(int n, int replicas) PP_MUST_CHECK;
/* Replicas of the plan (pp_plan.replicas), each of which has all experts: D C / N. */
int pp_config_copies(const struct pp_config *config);
/* Workers that hold the same dense parameters (PP_DENSE): D C. */
int pp_config_holders(const struct pp_config *config);
/* pp_plan.shard_group: the replicas of the plan in a group, if each `degree` of the D replicas shard (0: all). */
int pp_config_shard_group(const struct pp_config *config, int degree);
/* Sets in `shape` how replicas share, for ZeRO stage `zero` and --shard-degree `degree`. */
void pp_config_share(const struct pp_config *config, int zero, int degree, struct pp_shape *shape);
/* PP_USAGE if `degree` does not divide the replicas, or would put workers that share experts into different groups. */
pp_status pp_config_check_shard_degree(const struct pp_config *config, int degree) PP_MUST_CHECK;
/* Are gradients summed in parts, beside the backward that makes them? Not with --times, which has whole tasks only. */
bool pp_config_sums_parts(const struct pp_config *config);
/* Are times of attention those of other software (--attention-kernel), and has that kernels for it? */
bool pp_config_library_attends(const struct pp_config *config);
/* Are gradients rounded to bfloat16 to be summed? */
bool pp_config_sums_bf16(const struct pp_config *config);
/* Learnt positions: number of positions that have a row of weights. */
int pp_config_max_positions(const struct pp_config *config);

/* A number of --chunks for so many rows: with --workers at most as many, if it is a preset's. */
int pp_config_chunks(const struct pp_config *config, int chunks, int rows);
/* Sets `chunks` from --micro-batch-size, if that was given, and `rows`. Else they become those of pp_config_chunks().
 * Call it again, for the config as it was parsed, when `rows` has changed. */
void pp_config_cut_rows(struct pp_config *config);

/* Chooses one of several values that describe the same model, so that equal models have equal options: 0 for a number
 * that is that of another option (--kv-heads, --head-dim, --dense-ff, --max-positions); the default for options that
 * were not given and have no meaning beside the others; the least of several counts beyond the last layer.
 * (config_additions.c; pp_config_parse() calls it.) */
pp_status pp_config_make_canonical(struct pp_config *config) PP_MUST_CHECK;

/* Checks options against each other, which the range of a single option cannot (config_check.c; pp_config_parse() calls
 * it). A list passes if at least one of its values is possible. tool: one of enum pp_tool. PP_USAGE. */
pp_status pp_config_check(const struct pp_config *config, unsigned tool) PP_MUST_CHECK;
/* Refuses options that were given and have no meaning beside the others (config_additions.c; pp_config_parse() calls it
 * before options are made canonical). PP_USAGE. */
pp_status pp_config_check_additions(const struct pp_config *config) PP_MUST_CHECK;
/* Checks the options of experts against each other (config_check_experts.c; pp_config_check() calls it). PP_USAGE. */
pp_status pp_config_check_experts(const struct pp_config *config) PP_MUST_CHECK;
/* Checks the options of latent attention against each other (config_latent.c; pp_config_check() calls it). PP_USAGE. */
pp_status pp_config_check_latent(const struct pp_config *config) PP_MUST_CHECK;
/* Checks one value of each list (of --context-parallel and --expert-parallel the first) against the other options.
 * PP_USAGE. */
pp_status pp_config_check_values(const struct pp_config *config, int checkpoint, int zero) PP_MUST_CHECK;
/* Does the config say how long the tasks of a rank take (--times, --device delay), instead of leaving it to a model? */
bool pp_config_gives_times(const struct pp_config *config);
/* PP_USAGE for names that SQLite does not take for the path of a file ("file:...", ":memory:"). */
pp_status pp_config_check_database(const char *path) PP_MUST_CHECK;

/* Warns of options that have no effect, such as --zero with one replica or --gpus without a GPU. */
void pp_config_remarks(const struct pp_config *config);

/* Receive slots per channel of a plan with so many microbatches: --recv-buffers, where 0 means one for each
 * microbatch; `standard` if the option was not given. */
int pp_config_recv_buffers(const struct pp_config *config, int microbatches, int standard);

/* The names of the presets (presets.c describes them). */
#define PP_PRESET_NAMES                                                                                                \
    "tutorial|tutorial-12|small|lab|gpt-small|gpt-1.3b|gpt-6.7b|gpt-175b|llama-2-7b|llama-3-8b|llama-3-70b|"           \
    "llama-3-405b|mistral-7b|mistral-nemo-12b|mixtral-8x7b|qwen3-8b|qwen3-30b-a3b|qwen2-57b-a14b|"                     \
    "glm-4.5-air|deepseek-v2-lite|deepseek-v3"
/* Their rows for --list (core/options/listing.h). */
json_t *pp_config_list_presets(void);

#endif
