/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table of all programs. A new option is a field of struct pp_config and one row here; a preset that sets it
 * names it in presets.c.
 */
#include "core/config.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/devices.h"
#include "core/movers.h"

#define AT(field) offsetof(struct pp_config, field)
#define COUNT 1, 1 << 24 /* range of a number of things */

#define MODEL "Model (defaults come from the preset)"
#define BATCH "Batch and optimizer (defaults come from the preset)"
#define PIPELINE "Pipeline"
#define TRAINING "Training"
#define RUNNING "Where it runs"
#define PREDICTING "Predicting"
#define MEASURING "Measuring"
#define REPORTING "Reporting"
#define GENERAL "General"

const struct pp_opt pp_config_rows[] = {
    {"preset", PP_OPT_TEXT, AT(preset), PP_RUNS, MODEL, "NAME", "small", 0, 0, PP_PRESET_NAMES,
     "numbers to begin with; --list describes them. Any other option beats the preset, wherever it stands"},
    {"d-model", PP_OPT_INT, AT(d_model), PP_RUNS, MODEL, NULL, NULL, COUNT, NULL, "width of the model"},
    {"heads", PP_OPT_INT, AT(heads), PP_RUNS, MODEL, NULL, NULL, COUNT, NULL, "attention heads; divides --d-model"},
    {"d-ff", PP_OPT_INT, AT(d_ff), PP_RUNS, MODEL, NULL, NULL, COUNT, NULL, "width of the feed-forward part"},
    {"layers", PP_OPT_INT, AT(layers), PP_RUNS, MODEL, NULL, NULL, 1, 65536, NULL, "encoder layers"},
    {"norm", PP_OPT_CHOICE, AT(norm), PP_RUNS, MODEL, NULL, "post", 0, 0, "post|pre",
     "a layer normalises behind its residuals (post), or before its parts, as GPT does, with one more norm before the "
     "decoder (pre)"},
    {"activation", PP_OPT_CHOICE, AT(activation), PP_RUNS, MODEL, NULL, "relu", 0, 0, "relu|gelu",
     "of the feed-forward part; gelu is the exact one"},
    {"vocab", PP_OPT_INT, AT(vocab), PP_RUNS, MODEL, NULL, NULL, 2, 1 << 24, NULL,
     "words in the vocabulary; a text folder sets it"},
    {"mask", PP_OPT_CHOICE, AT(mask), PP_RUNS, MODEL, NULL, NULL, 0, 0, "none|causal", "attention mask"},
    {"attention", PP_OPT_CHOICE, AT(attention), PP_RUNS, MODEL, NULL, "math", 0, 0, "math|flash",
     "keep the probabilities of each layer for the backward, tokens x tokens of each head (math), or make them again: "
     "far less memory for long rows, some more arithmetic (flash)"},
    {"dropout", PP_OPT_REAL, AT(dropout), PP_RUNS, MODEL, "P", NULL, 0, 1, NULL,
     "probability that an element is dropped; below 1"},
    {"style", PP_OPT_CHOICE, AT(style), PP_RUNS, MODEL, NULL, NULL, 0, 0, "tutorial|lab",
     "details of model and initial weights: as the PyTorch tutorials, or as the lab (no sqrt(d), less dropout)"},
    {"precision", PP_OPT_CHOICE, AT(precision), PP_RUNS, MODEL, NULL, "fp32", 0, 0, "fp32|tf32|bf16",
     "of products (tf32), or of activations and products with fp32 master weights (bf16); the cpu has fp32 only"},
    {"vocab-multiple", PP_OPT_INT, AT(vocab_multiple), PP_RUNS, MODEL, NULL, "0", 0, 65536, NULL,
     "give the decoder memory for a multiple of so many words, for aligned products (0 = 128 on cuda, 1 on the cpu)"},

    {"rows", PP_OPT_INT, AT(rows), PP_RUNS, BATCH, NULL, NULL, COUNT, NULL, "rows of a batch, for each replica"},
    {"tokens", PP_OPT_INT, AT(tokens), PP_RUNS, BATCH, NULL, NULL, COUNT, NULL, "tokens in a row"},
    {"lr", PP_OPT_REAL, AT(lr), PP_RUNS, BATCH, NULL, NULL, 0, FLT_MAX, NULL,
     "learning rate (default from the preset; 0.001 with --optimizer adamw where that is not the preset's)"},
    {"optimizer", PP_OPT_CHOICE, AT(optimizer), PP_RUNS, BATCH, NULL, "sgd", 0, 0, PP_OPTIMIZER_NAMES,
     "what a step does with the gradients; adamw keeps two more numbers for each weight"},
    {"adam-beta1", PP_OPT_REAL, AT(adamw.beta1), PP_RUNS, BATCH, NULL, "0.9", 0, 1, NULL,
     "of adamw: what stays of the mean of gradients in a step; below 1"},
    {"adam-beta2", PP_OPT_REAL, AT(adamw.beta2), PP_RUNS, BATCH, NULL, "0.999", 0, 1, NULL,
     "of adamw: what stays of the mean of their squares; below 1"},
    {"adam-eps", PP_OPT_REAL, AT(adamw.epsilon), PP_RUNS, BATCH, NULL, "1e-8", 0, FLT_MAX, NULL,
     "of adamw: added to the root of that mean"},
    {"weight-decay", PP_OPT_REAL, AT(adamw.weight_decay), PP_RUNS, BATCH, NULL, "0.01", 0, FLT_MAX, NULL,
     "of adamw: weights shrink by this times the learning rate in each step"},
    {"clip", PP_OPT_REAL, AT(clip), PP_RUNS, BATCH, "NORM", NULL, 0, INFINITY, NULL,
     "largest norm of all gradients together; 0 = do not clip"},
    {"lr-decay", PP_OPT_REAL, AT(lr_decay), PP_RUNS, BATCH, NULL, NULL, 0, INFINITY, NULL,
     "factor on the learning rate after each epoch"},
    {"eval-rows", PP_OPT_INT, AT(eval_rows), PP_RUNS, BATCH, NULL, "10", COUNT, NULL, "rows of an evaluation batch"},

    {"schedule", PP_OPT_TEXTS, AT(schedule), PP_RUNS, PIPELINE, NULL, "gpipe", 0, 0, NULL,
     "order of forwards and backwards; --list names them, and FILE.csv is an order of your own, as "
     "PyTorch's CSV. A list is a sweep, here, in the next three and in --checkpoint; what it names twice is done once"},
    {"stages", PP_OPT_INTS, AT(stages), PP_RUNS, PIPELINE, NULL, NULL, 1, 65536, NULL,
     "ranks of the pipeline, P (default from the preset)"},
    {"virtual", PP_OPT_INTS, AT(virtual_stages), PP_RUNS, PIPELINE, NULL, NULL, 1, 65536, NULL,
     "stages on each rank, V (default 2 for schedules that run several, those of the file for FILE.csv, 1 for others)"},
    {"chunks", PP_OPT_INTS, AT(chunks), PP_RUNS, PIPELINE, NULL, NULL, COUNT, NULL,
     "microbatches to cut the rows of a batch into (default from the preset)"},
    {"micro-batch-size", PP_OPT_INTS, AT(micro_batch_size), PP_RUNS, PIPELINE, "ROWS", NULL, COUNT, NULL,
     "rows of a microbatch, instead of --chunks: as many chunks as the rows of a replica then take"},
    {"replicas", PP_OPT_INT, AT(replicas), PP_RUNS, PIPELINE, NULL, NULL, 1, 65536, NULL,
     "data-parallel copies of the pipeline, D (default from the preset)"},
    {"checkpoint", PP_OPT_CHOICES, AT(checkpoint), PP_RUNS, PIPELINE, NULL, NULL, 0, 0, "never|except_last|always",
     "which microbatches are computed again for the backward instead of kept (default from the preset)"},
    {"split", PP_OPT_TEXT, AT(split), PP_RUNS, PIPELINE, "HOW", "uniform", 0, 0, NULL,
     "how layers are cut into stages: uniform, parameters, time (of measured kernels, or with --machine of a data "
     "sheet), or layers of each stage such as 3,5"},
    {"batch-w", PP_OPT_INT, AT(batch_w), PP_RUNS, PIPELINE, NULL, "1", 1, UINT16_MAX, NULL,
     "weight gradients of so many microbatches are computed at once: weights' gradients are read and written less "
     "often, activations are kept longer"},
    {"in-flight", PP_OPT_INT, AT(in_flight), PP_RUNS, PIPELINE, NULL, NULL, 1, 1 << 24, NULL,
     "microbatches that a rank may hold at once, of schedules that ask: zb-auto (default P), 1f1b-eager (P to 2P-1, "
     "the default)"},
    {"recv-buffers", PP_OPT_INT, AT(recv_buffers), PP_RUNS, PIPELINE, NULL, NULL, 0, 65536, NULL,
     "receive buffers of each channel; 0 = one for each microbatch (default 2; unlimited with --times, unless --device "
     "delay)"},

    {"epochs", PP_OPT_INT, AT(epochs), PP_PPEXEC, TRAINING, NULL, NULL, COUNT, NULL,
     "times through the data (default from the preset)"},
    {"max-batches", PP_OPT_INT, AT(max_batches), PP_PPEXEC, TRAINING, NULL, NULL, 0, INT32_MAX, NULL,
     "batches of an epoch; 0 = all (default from the preset)"},
    {"eval-batches", PP_OPT_INT, AT(eval_batches), PP_PPEXEC, TRAINING, NULL, NULL, 0, INT32_MAX, NULL,
     "batches of an evaluation; 0 = all (default from the preset)"},
    {"no-eval", PP_OPT_FLAG, AT(no_eval), PP_RUNS, TRAINING, NULL, NULL, 0, 0, NULL,
     "never evaluate (an evaluation needs memory too)"},
    {"warmup", PP_OPT_INT, AT(warmup), PP_PPEXEC, TRAINING, NULL, NULL, 0, INT32_MAX, NULL,
     "first steps that do not count as measured (default the smaller of 3 and a quarter of the steps)"},
    {"data", PP_OPT_TEXT, AT(data), PP_RUNS, TRAINING, "WHAT", NULL, 0, 0, NULL,
     "a folder with train.txt, valid.txt and test.txt, or constant, or generated (default generated; lab: constant)"},
    {"generated-tokens", PP_OPT_INT, AT(generated_tokens), PP_PPEXEC, TRAINING, NULL, "200000", 1000, 1 << 30, NULL,
     "length of the generated training text"},
    {"seed", PP_OPT_SEED, AT(seed), PP_PPEXEC | PP_PPSIM, TRAINING, NULL, "1", 0, 0, NULL,
     "of initial weights, dropout, generated text and jitter"},
    {"init", PP_OPT_TEXT, AT(init), PP_PPEXEC, TRAINING, "FILE", NULL, 0, 0, NULL,
     "begin with these weights (safetensors, PyTorch's names)"},
    {"save", PP_OPT_TEXT, AT(save), PP_PPEXEC, TRAINING, "FILE", NULL, 0, 0, NULL,
     "write the best weights here at the end (safetensors)"},
    {"save-every", PP_OPT_INT, AT(save_every), PP_PPEXEC, TRAINING, NULL, NULL, 1, INT32_MAX, NULL,
     "write a checkpoint, FILE.checkpoint beside the FILE of --save, after every N steps and at the end"},
    {"resume", PP_OPT_FLAG, AT(resume), PP_PPEXEC, TRAINING, NULL, NULL, 0, 0, NULL,
     "go on from the checkpoint of --save, if there is one, to the same bits as without the stop; only --epochs and "
     "what bits do not depend on may be other than before"},
    {"log-interval", PP_OPT_INT, AT(log_interval), PP_PPEXEC, TRAINING, NULL, "10", COUNT, NULL,
     "batches between two log lines"},

    {"device", PP_OPT_TEXT, AT(device), PP_RUNS, RUNNING, "NAME", "cpu", 0, 0, pp_device_names,
     "what computes; auto takes a GPU if one can be used, and says why if not; delay only waits as long as --times "
     "says, or without it the newest profile in --db"},
    {"gpus", PP_OPT_INT, AT(gpus), PP_RUNS, RUNNING, NULL, "0", 0, 65536, NULL,
     "GPUs of a host that may be used; more workers than GPUs share them evenly (0 = all; ppsim: one for each worker)"},
    {"algorithms", PP_OPT_TEXT, AT(algorithms), PP_PPEXEC | PP_PPPROF, RUNNING, "FILE", NULL, 0, 0, NULL,
     "on cuda: compute products by the algorithms that this file names, not by those that cuBLAS thinks best; ppprof "
     "times them for products that the file lacks, and adds the fastest"},
    {"transport", PP_OPT_TEXT, AT(transport), PP_RUNS, RUNNING, "NAME", "auto", 0, 0, pp_mover_names,
     "what moves data between ranks: threads of one process, MPI, or between GPUs of several processes NCCL or host "
     "memory and MPI (staged); auto takes what the start allows, and ppsim what was measured"},
    {"threads", PP_OPT_INT, AT(threads), PP_RUNS, RUNNING, NULL, "1", 1, 4096, NULL, "threads of each worker's BLAS"},
    {"blas-core", PP_OPT_TEXT, AT(blas_core), PP_PPEXEC | PP_PPPROF, RUNNING, "NAME", NULL, 0, 0, NULL,
     "processor that OpenBLAS takes this machine for, such as Haswell (default the best that it can run)"},

    {"times", PP_OPT_TEXT, AT(times), PP_PPSIM | PP_PPEXEC, PREDICTING, "F,I,W[,C]", NULL, 0, 0, NULL,
     "ms of forward, input gradient and weight gradient of a microbatch on a whole rank, and of a hop between "
     "ranks; no model, memory or transport counts, unless --device delay runs or is to run it"},
    {"straggler", PP_OPT_TEXT, AT(straggler), PP_PPSIM | PP_PPEXEC, PREDICTING, "RANK:FACTOR", NULL, 0, 0, NULL,
     "with --times or --device delay: multiply the times of one rank (counted from 0)"},
    {"jitter", PP_OPT_REAL, AT(jitter), PP_PPSIM | PP_PPEXEC, PREDICTING, "PERCENT", "0", 0, 100, NULL,
     "with --times or --device delay: make each task so much longer or shorter at most, evenly spread; --seed draws "
     "it"},
    {"machine", PP_OPT_TEXT, AT(machine), PP_PPSIM, PREDICTING, "NAME", NULL, 0, 0, NULL,
     "machine to predict for: by profiles that came with ppkit (--list) and by its data sheet; a name from --list or a "
     "JSON file"},
    {"profile", PP_OPT_TEXT, AT(profile), PP_PPSIM, PREDICTING, "FILE", NULL, 0, 0, NULL,
     "take measured times from this file, such as ppreport --profiles writes, and from no database"},
    {"memory", PP_OPT_BYTES, AT(memory), PP_PPSIM, PREDICTING, NULL, NULL, 1, 0x1p62, NULL,
     "memory of a device, such as 80G (G = 2^30 bytes): say which configurations fit, adding up the workers that share "
     "a GPU (--gpus). CUDA and NCCL take some of a GPU besides, so name a GiB or two less than it has (not with "
     "--times alone)"},
    {"workers", PP_OPT_INT, AT(workers), PP_PPSIM, PREDICTING, NULL, NULL, 1, 65536, NULL,
     "predict all ways to use so many devices for the batch of --global-rows: for each P of --stages (default: each "
     "divisor of N, up to --layers) N / P replicas, which share the rows; fastest first, with --memory those that do "
     "not fit last"},
    {"global-rows", PP_OPT_INT, AT(global_rows), PP_PPSIM, PREDICTING, NULL, NULL, COUNT, NULL,
     "rows of a batch, of all replicas together: with --workers, in place of --rows and --replicas"},
    {"draw", PP_OPT_FLAG, AT(draw), PP_PPSIM, PREDICTING, NULL, NULL, 0, 0, NULL, "draw the timeline as text"},
    {"emit", PP_OPT_TEXT, AT(emit), PP_PPSIM, PREDICTING, NULL, NULL, 0, 0, "csv",
     "print only the schedule, as PyTorch's compute-only CSV"},

    {"trace-steps", PP_OPT_INT, AT(trace_steps), PP_PPEXEC, MEASURING, NULL, "3", 0, 100000, NULL,
     "last steps of the run whose every task is recorded"},
    {"seconds", PP_OPT_REAL, AT(seconds), PP_PPPROF, MEASURING, NULL, "0.2", 0.001, 3600, NULL,
     "time to spend on each shape"},
    {"rounds", PP_OPT_INT, AT(rounds), PP_PPPROF, MEASURING, NULL, "3", 1, 100, NULL,
     "times to go over all shapes, so that a short disturbance spoils a part of the samples only"},

    {"plots", PP_OPT_TEXT, AT(plots), PP_PPREPORT, REPORTING, "FOLDER", NULL, 0, 0, NULL,
     "where pictures go (default beside the database)"},
    {"no-plots", PP_OPT_FLAG, AT(no_plots), PP_PPREPORT, REPORTING, NULL, NULL, 0, 0, NULL, "draw no pictures"},
    {"chrome", PP_OPT_TEXT, AT(chrome), PP_PPREPORT, REPORTING, "FILE", NULL, 0, 0, NULL,
     "write the timeline as Chrome trace JSON, which Perfetto opens"},
    {"run", PP_OPT_INT, AT(run), PP_PPREPORT, REPORTING, NULL, NULL, 1, INT32_MAX, NULL,
     "number of the run to show (default the newest)"},
    {"profiles", PP_OPT_FLAG, AT(profiles), PP_PPREPORT, REPORTING, NULL, NULL, 0, 0, NULL,
     "print only the profiles of the database, as text for ppsim --profile"},
    {"why", PP_OPT_FLAG, AT(why), PP_PPREPORT, REPORTING, NULL, NULL, 0, 0, NULL,
     "split the gap between predicted and measured ms/batch into causes, and compare the critical paths (no pictures "
     "unless --plots asks for them)"},

    {"db", PP_OPT_TEXT, AT(db), PP_RUNS, GENERAL, "FILE", NULL, 0, 0, NULL,
     "database to write to (ppsim, and --device delay without --times: to read too; ppsim reads pp.db of this folder "
     "where none is named)"},
    {"format", PP_OPT_CHOICE, AT(format), PP_ALL_TOOLS, GENERAL, NULL, "table", 0, 0, "table|tsv|json",
     "form of the results on standard output"},
    {"list", PP_OPT_FLAG, AT(list), PP_RUNS, GENERAL, NULL, NULL, 0, 0, NULL,
     "list what can be named (schedules, presets, devices, ...), and exit"},
    {"version", PP_OPT_FLAG, AT(version), PP_ALL_TOOLS, GENERAL, NULL, NULL, 0, 0, NULL, "print the version and exit"},
    {"help", PP_OPT_FLAG, AT(help), PP_ALL_TOOLS, GENERAL, NULL, NULL, 0, 0, NULL, "print this and exit"},
};

const int pp_config_nrows = sizeof pp_config_rows / sizeof *pp_config_rows;

_Static_assert(sizeof pp_config_rows / sizeof *pp_config_rows <= sizeof((struct pp_config *)0)->set,
               "struct pp_config.set needs room for every option");

static pp_status check_optimizer(const struct pp_config *config)
{
    static const char *const of_adamw[] = {"adam-beta1", "adam-beta2", "adam-eps", "weight-decay"};
    for (size_t i = 0; i < sizeof of_adamw / sizeof *of_adamw; i++)
        if (config->optimizer != PP_ADAMW && pp_config_given(config, of_adamw[i]))
            return pp_fail(PP_USAGE, "--%s is of --optimizer adamw; add that, or leave it out", of_adamw[i]);
    if (config->adamw.beta1 >= 1 || config->adamw.beta2 >= 1)
        return pp_fail(PP_USAGE, "--adam-beta%d: with 1 nothing would be learnt; choose less",
                       config->adamw.beta1 >= 1 ? 1 : 2);
    return PP_OK;
}

static pp_status check_cut(const struct pp_config *config)
{
    if (pp_config_given(config, "micro-batch-size") && pp_config_given(config, "chunks"))
        return pp_fail(PP_USAGE, "--micro-batch-size and --chunks both say how rows are cut; leave one out");
    if (config->in_flight && config->batch_w > 1)
        return pp_fail(PP_USAGE, "--in-flight: --batch-w %d keeps activations longer than that says; leave one out",
                       config->batch_w);
    return PP_OK;
}

/* What no range of one option can say. */
static pp_status check(const struct pp_config *config)
{
    if (config->d_model % config->heads != 0)
        return pp_fail(PP_USAGE, "--heads: %d heads do not divide --d-model %d; choose a divisor", config->heads,
                       config->d_model);
    if (config->dropout >= 1)
        return pp_fail(PP_USAGE, "--dropout: %g leaves nothing; choose less than 1", config->dropout);
    PP_TRY(check_optimizer(config));
    PP_TRY(check_cut(config));
    if (!config->times && !pp_device_kind(config->device)->waits && (config->straggler || config->jitter > 0))
        return pp_fail(PP_USAGE, "%s changes the times that --times gives; add --times, or use --device delay",
                       config->straggler ? "--straggler" : "--jitter");
    if ((config->save_every || config->resume) && !config->save)
        return pp_fail(PP_USAGE, "--%s: the checkpoint lies beside the file of --save; name that too",
                       config->resume ? "resume" : "save-every");
    return PP_OK;
}

pp_status pp_config_parse(unsigned tool, int argc, char **argv, struct pp_config *out, const char **operands,
                          int max_operands, int *noperands)
{
    *out = (struct pp_config){.warmup = -1, .recv_buffers = -1};
    PP_TRY(pp_options_parse(pp_config_rows, pp_config_nrows, tool, argc, argv, out, out->set, operands, max_operands,
                            noperands));
    PP_TRY(pp_config_apply_preset(out));
    if (out->data && strcmp(out->data, "generated") == 0) out->data = NULL;
    if (out->help || out->version || out->list) return PP_OK;
    pp_config_cut_rows(out);
    return check(out);
}

void pp_config_cut_rows(struct pp_config *config)
{
    struct pp_ints *chunks = &config->chunks;
    if (config->micro_batch_size.n == 0) return;
    chunks->n = 0;
    for (int i = 0; i < config->micro_batch_size.n; i++) {
        const int size = config->micro_batch_size.v[i], n = (config->rows + size - 1) / size;
        int same = 0;
        while (same < chunks->n && chunks->v[same] != n) same++;
        if (same == chunks->n) chunks->v[chunks->n++] = n;
    }
}

bool pp_config_answer(const struct pp_config *config, const struct pp_program_info *program, FILE *out)
{
    if (config->help)
        pp_options_help(pp_config_rows, pp_config_nrows, program, out);
    else if (config->version)
        fprintf(out, "%s (ppkit) %s\n", program->name, PP_VERSION);
    return config->help || config->version;
}

static int vocab_multiple(const struct pp_config *config, const char *device)
{
    return config->vocab_multiple ? config->vocab_multiple : pp_device_kind(device)->vocab_multiple;
}

void pp_config_found_device(struct pp_config *config, const char *device)
{
    const int found = vocab_multiple(config, device);
    if (found > 1) config->vocab_multiple = found;
}

void pp_config_shape(const struct pp_config *config, struct pp_shape *out)
{
    bool lab = config->style == PP_STYLE_LAB;
    *out = (struct pp_shape){
        .d_model = config->d_model,
        .heads = config->heads,
        .d_ff = config->d_ff,
        .norm = config->norm,
        .activation = config->activation,
        .layers = config->layers,
        .vocab = config->vocab,
        .mask = config->mask,
        .attention = config->attention,
        .dropout = config->dropout,
        .scale_embedding = !lab,
        .residual_only = lab,
        .lab_init = lab,
        .precision = config->precision,
        .optimizer = config->optimizer,
        .vocab_multiple = vocab_multiple(config, config->device),
    };
}

int pp_config_virtual(const struct pp_config *config, int standard, int i, int *n)
{
    const struct pp_ints *asked = &config->virtual_stages;
    *n = asked->n ? asked->n : 1;
    if (asked->n) return asked->v[i];
    return standard;
}

int pp_config_recv_buffers(const struct pp_config *config, int microbatches, int standard)
{
    if (config->recv_buffers < 0) return standard;
    return config->recv_buffers == 0 ? microbatches : config->recv_buffers;
}
