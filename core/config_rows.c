/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table of all programs. A new option is a field of struct pp_config and one row here; a preset that sets it
 * names it in presets.c, and one that names a file has a row in distinct_files.c.
 */
#include "core/config.h"

#include <float.h>
#include <math.h>

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

/* short names for enum pp_opt_trait */
#define FIXED PP_OPT_FIXED
#define LATER PP_OPT_FIXED | PP_OPT_LATER
#define CHANGES PP_OPT_FIXED | PP_OPT_CHANGES
#define TIMED PP_OPT_TIMED
#define ALWAYS_TIMED PP_OPT_TIMED | PP_OPT_ALWAYS_TIMED
#define OWN PP_OPT_OWN
#define PATH PP_OPT_PATH

const struct pp_opt pp_config_rows[] = {
    {"preset", PP_OPT_TEXT, AT(preset), PP_RUNS, MODEL, "NAME", "small", 0, 0, PP_PRESET_NAMES,
     "numbers to begin with; --list describes them. Any other option beats the preset, wherever it stands", OWN},
#include "core/config_model.def"
    {"rows", PP_OPT_INT, AT(rows), PP_RUNS, BATCH, NULL, NULL, COUNT, NULL, "rows of a batch, for each replica",
     CHANGES | TIMED},
    {"tokens", PP_OPT_INT, AT(tokens), PP_RUNS, BATCH, NULL, NULL, COUNT, NULL, "tokens in a row", CHANGES | TIMED},
    {"lr", PP_OPT_REAL, AT(lr), PP_RUNS, BATCH, NULL, NULL, 0, FLT_MAX, NULL,
     "learning rate (default from the preset; 0.001 with --optimizer adamw where that is not the preset's)", CHANGES},
    {"optimizer", PP_OPT_CHOICE, AT(optimizer), PP_RUNS, BATCH, NULL, "sgd", 0, 0, PP_OPTIMIZER_NAMES,
     "what a step does with the gradients; adamw keeps two more numbers for each weight", LATER | TIMED},
    {"adam-beta1", PP_OPT_REAL, AT(adamw.beta1), PP_RUNS, BATCH, NULL, "0.9", 0, 1, NULL,
     "of adamw: what stays of the mean of gradients in a step; below 1", LATER | CHANGES},
    {"adam-beta2", PP_OPT_REAL, AT(adamw.beta2), PP_RUNS, BATCH, NULL, "0.999", 0, 1, NULL,
     "of adamw: what stays of the mean of their squares; below 1", LATER | CHANGES},
    {"adam-eps", PP_OPT_REAL, AT(adamw.epsilon), PP_RUNS, BATCH, NULL, "1e-8", 0, FLT_MAX, NULL,
     "of adamw: added to the root of that mean", LATER | CHANGES},
    {"weight-decay", PP_OPT_REAL, AT(adamw.weight_decay), PP_RUNS, BATCH, NULL, "0.01", 0, FLT_MAX, NULL,
     "of adamw: weights shrink by this times the learning rate in each step", LATER | CHANGES},
    {"clip", PP_OPT_REAL, AT(clip), PP_RUNS, BATCH, "NORM", NULL, 0, INFINITY, NULL,
     "largest norm of all gradients together; 0 = do not clip", CHANGES},
    {"lr-decay", PP_OPT_REAL, AT(lr_decay), PP_RUNS, BATCH, NULL, NULL, 0, INFINITY, NULL,
     "factor on the learning rate after each epoch", CHANGES},
    {"warmup-steps", PP_OPT_INT, AT(over_steps.warmup_steps), PP_RUNS, BATCH, NULL, "0", 0, INT32_MAX, NULL,
     "the learning rate rises to --lr in the first N steps of the training, in equal parts", LATER | CHANGES},
    {"lr-schedule", PP_OPT_CHOICE, AT(over_steps.schedule), PP_RUNS, BATCH, NULL, "constant", 0, 0,
     PP_LR_SCHEDULE_NAMES,
     "what it does then: stays, or falls to --min-lr in step --lr-steps, by half a cosine or a line, and stays there; "
     "--lr-decay counts beside this",
     LATER | CHANGES},
    {"lr-steps", PP_OPT_INT, AT(over_steps.steps), PP_RUNS, BATCH, NULL, "0", 0, INT32_MAX, NULL,
     "of cosine and linear: the step in which --min-lr is reached, counted with --warmup-steps and over all epochs",
     LATER | CHANGES},
    {"min-lr", PP_OPT_REAL, AT(over_steps.least), PP_RUNS, BATCH, NULL, "0", 0, FLT_MAX, NULL,
     "of cosine and linear: what the learning rate falls to, at most --lr", LATER | CHANGES},
    {"eval-rows", PP_OPT_INT, AT(eval_rows), PP_RUNS, BATCH, NULL, "10", COUNT, NULL,
     "rows of an evaluation batch, which is cut into as many microbatches as one of training", CHANGES},

    {"schedule", PP_OPT_TEXTS, AT(schedule), PP_RUNS, PIPELINE, NULL, "gpipe", 0, 0, NULL,
     "order of forwards and backwards; --list names them, PyTorch's names for them are known, and FILE.csv is an "
     "order of your own, as PyTorch's CSV. NAME:N: of zb-auto (default P) and 1f1b-eager (P to 2P-1, the default) the "
     "microbatches that a rank may hold at once; of interleaved and interleaved-zb how many run through a stage "
     "before the rank turns to its next one, P to M (default P, or a few more where P does not divide M). A list is a "
     "sweep, here, in options that end in ,... and in --checkpoint; what it names twice is done once. Presets from "
     "gpt-1.3b on begin with 1f1b",
     OWN},
    {"stages", PP_OPT_INTS, AT(stages), PP_RUNS, PIPELINE, NULL, NULL, 1, 65536, NULL,
     "ranks of the pipeline, P (default from the preset)", 0},
    {"tensor", PP_OPT_INTS, AT(tensor), PP_RUNS, PIPELINE, NULL, "1", 1, 65536, NULL,
     "workers of each rank, T, that share the tensors of its layers (tensor parallelism, as Megatron-LM cuts them): a "
     "divisor of --heads, --kv-heads and --d-ff / 4 (with --experts: of these, and of --dense-ff / 4), far below "
     "--vocab",
     0},
    {"sequence-parallel", PP_OPT_FLAG, AT(sequence_parallel), PP_RUNS, PIPELINE, NULL, NULL, 0, 0, NULL,
     "with --tensor: norms, dropout and the stream between layers and stages are of a part of the tokens in each of "
     "the T workers, as in Megatron-LM: less memory, and smaller messages",
     TIMED},
    {"overlap-tensor-sums", PP_OPT_INTS, AT(overlap_tensor_sums), PP_RUNS, PIPELINE, NULL, "1", 1, PP_SUM_PIECES_MAX,
     NULL,
     "with --tensor: sums over the T workers, and gathering of their tokens, are cut into so many pieces and run "
     "beside products of these, as with Megatron-LM's --tp-comm-overlap (at most so many, as divide the tokens); on "
     "GPUs",
     TIMED},
    {"virtual", PP_OPT_INTS, AT(virtual_stages), PP_RUNS, PIPELINE, NULL, NULL, 1, 65536, NULL,
     "stages on each rank, V (default 2 for schedules that run several, those of the file for FILE.csv, 1 for others)",
     0},
    {"chunks", PP_OPT_INTS, AT(chunks), PP_RUNS, PIPELINE, NULL, NULL, COUNT, NULL,
     "microbatches to cut the rows of a batch into (default from the preset)", 0},
    {"micro-batch-size", PP_OPT_INTS, AT(micro_batch_size), PP_RUNS, PIPELINE, NULL, NULL, COUNT, NULL,
     "rows of a microbatch, instead of --chunks: as many chunks as the rows of a replica then take", TIMED},
    {"replicas", PP_OPT_INT, AT(replicas), PP_RUNS, PIPELINE, NULL, NULL, 1, 65536, NULL,
     "data-parallel copies of the pipeline, D (default from the preset)", 0},
    {"expert-parallel", PP_OPT_INTS, AT(expert_parallel), PP_RUNS, PIPELINE, NULL, "1", 1, 4096, NULL,
     "with --experts: each N of the --replicas share the experts of a layer, an equal number each, and send tokens to "
     "where their experts are (Megatron-LM's --expert-model-parallel-size); N divides --replicas, and N times --tensor "
     "(1 unless given) the --experts. Of ppsim a list",
     TIMED},
    {"context-parallel", PP_OPT_INTS, AT(context_parallel), PP_RUNS, PIPELINE, NULL, "1", 1, 4096, NULL,
     "so many workers, C, have the same rows and an equal part of the tokens of each, and get from each other what "
     "attention needs (--cp-comm-type; Megatron-LM's --context-parallel-size). C divides --tokens; there are C times "
     "as many workers. Of ppsim a list",
     TIMED},
    {"cp-comm-type", PP_OPT_CHOICE, AT(cp_comm_type), PP_RUNS, PIPELINE, NULL, "a2a", 0, 0, "a2a|all_gather",
     "with --context-parallel: exchange the worker's tokens for all tokens of a part of the heads (a2a, "
     "DeepSpeed-Ulysses: C times --tensor divides --heads and --kv-heads), or gather the keys and values of all tokens "
     "(all_gather, as Llama 3: with --attention flash, and 2 C divides --tokens)",
     TIMED},
    {"zero", PP_OPT_INTS, AT(zero), PP_RUNS, PIPELINE, NULL, "0", 0, 3, NULL,
     "1: of several replicas (D C with --context-parallel C; of experts those that have the same) each keeps and steps "
     "an equal share of what the optimizer keeps, sums only the gradients of that, and gets the others' new parameters "
     "(ZeRO stage 1); the same bits with up to 16 replicas. 2: each also keeps only its share of gradients, which are "
     "summed behind the backward of each layer, of each microbatch (ZeRO stage 2). 3: and of parameters, which are "
     "gathered before each layer works (ZeRO stage 3, PyTorch's FSDP)",
     TIMED},
    {"shard-degree", PP_OPT_INTS, AT(shard_degree), PP_RUNS, PIPELINE, NULL, "0", 0, 65536, NULL,
     "with --zero: each so many replicas, a divisor of --replicas, share, not all (0, and any number from --replicas "
     "on); gradients are then summed in each group, and its shares over the groups, so only these sums leave a host "
     "that holds a group (FSDP's HYBRID_SHARD, torchtitan's data_parallel_shard_degree, Megatron-LM's "
     "--num-distributed-optimizer-instances)",
     TIMED},
    {"overlap-grad-reduce", PP_OPT_FLAG, AT(overlap_grad_reduce), PP_RUNS, PIPELINE, NULL, NULL, 0, 0, NULL,
     "with --replicas or --context-parallel: sum a stage's gradients in parts beside its last backward, each as soon "
     "as it is made, as PyTorch's DDP and Megatron-LM do, not all behind it; the same bits",
     TIMED},
    {"overlap-param-gather", PP_OPT_FLAG, AT(overlap_param_gather), PP_RUNS, PIPELINE, NULL, NULL, 0, 0, NULL,
     "with --zero 2, or 1 and --overlap-grad-reduce: gather new parameters in parts, too, beside the first forward of "
     "the next step, as Megatron-LM does, not all at the end of a step; the same bits",
     TIMED},
    {"grad-reduce-in-bf16", PP_OPT_FLAG, AT(grad_reduce_in_bf16), PP_RUNS, PIPELINE, NULL, NULL, 0, 0, NULL,
     "with --replicas or --context-parallel: round gradients to bfloat16 to sum them, whatever the --precision, which "
     "halves what is sent (Megatron-LM's option of this name, FSDP's reduce_dtype, DDP's bf16_compress_hook)",
     TIMED},
    {"bucket-size", PP_OPT_BYTES, AT(bucket_size), PP_RUNS, PIPELINE, NULL, "25M", 1, 0x1p62, NULL,
     "with --overlap-grad-reduce: a part is of so many layers that their gradients have so many bytes or more (or all "
     "layers of the stage); embedding and decoder do not count, and go with the first and the last part",
     TIMED},
    {"checkpoint", PP_OPT_CHOICES, AT(checkpoint), PP_RUNS, PIPELINE, NULL, NULL, 0, 0,
     "never|except_last|always|layers|activation|layers:N",
     "which microbatches keep only the input of their stage, and run its forward again before the backward; layers: "
     "all keep the input of each layer, and the backward runs one layer again at a time; layers:N: so of the first N "
     "layers of each stage; activation: all keep all but the outputs of activation functions (default from the preset)",
     0},
    {"split", PP_OPT_TEXT, AT(split), PP_RUNS, PIPELINE, "HOW", "uniform", 0, 0, NULL,
     "how layers are cut into stages: uniform, parameters, time (of measured kernels, or with --machine of a data "
     "sheet), or layers of each stage such as 3,5 (the first and the last may have 0: embedding or decoder alone)",
     TIMED},
    {"batch-w", PP_OPT_INT, AT(batch_w), PP_RUNS, PIPELINE, NULL, "1", 1, UINT16_MAX, NULL,
     "weight gradients of so many microbatches are computed at once: weights' gradients are read and written less "
     "often, activations are kept longer",
     ALWAYS_TIMED},
    {"recv-buffers", PP_OPT_INT, AT(recv_buffers), PP_RUNS, PIPELINE, NULL, NULL, 0, 65536, NULL,
     "receive buffers of each channel; 0 = one for each microbatch (default 2; unlimited with --times, unless --device "
     "delay)",
     0},

    {"epochs", PP_OPT_INT, AT(epochs), PP_PPEXEC, TRAINING, NULL, NULL, COUNT, NULL,
     "times through the data (default from the preset)", 0},
    {"max-batches", PP_OPT_INT, AT(max_batches), PP_PPEXEC, TRAINING, NULL, NULL, 0, INT32_MAX, NULL,
     "batches of an epoch; 0 = all (default from the preset)", CHANGES},
    {"eval-batches", PP_OPT_INT, AT(eval_batches), PP_PPEXEC, TRAINING, NULL, NULL, 0, INT32_MAX, NULL,
     "batches of an evaluation; 0 = all (default from the preset)", CHANGES},
    {"no-eval", PP_OPT_FLAG, AT(no_eval), PP_RUNS, TRAINING, NULL, NULL, 0, 0, NULL,
     "never evaluate (an evaluation needs memory too)", FIXED},
    {"warmup", PP_OPT_INT, AT(warmup), PP_PPEXEC, TRAINING, NULL, NULL, 0, INT32_MAX, NULL,
     "first steps that do not count as measured (default the smaller of 3 and a quarter of the steps)", 0},
    {"data", PP_OPT_TEXT, AT(data), PP_RUNS, TRAINING, "WHAT", NULL, 0, 0, NULL,
     "a folder with train.txt, valid.txt and test.txt, or with tokens in train.bin, val.bin and test.bin (it may be "
     "missing), or constant, or generated (default generated; lab: constant)",
     OWN},
    {"generated-tokens", PP_OPT_INT, AT(generated_tokens), PP_PPEXEC, TRAINING, NULL, "200000", 1000, 1 << 30, NULL,
     "length of the generated training text", OWN},
    {"seed", PP_OPT_SEED, AT(seed), PP_PPEXEC | PP_PPSIM, TRAINING, NULL, "1", 0, 0, NULL,
     "of initial weights, dropout, generated text and jitter", CHANGES},
    {"init", PP_OPT_TEXT, AT(init), PP_PPEXEC, TRAINING, "FILE", NULL, 0, 0, NULL,
     "begin with these weights (safetensors, PyTorch's names)", PATH},
    {"save", PP_OPT_TEXT, AT(save), PP_PPEXEC, TRAINING, "FILE", NULL, 0, 0, NULL,
     "write the best weights here at the end (safetensors)", PATH},
    {"save-every", PP_OPT_INT, AT(save_every), PP_PPEXEC, TRAINING, NULL, NULL, 1, INT32_MAX, NULL,
     "write a checkpoint, FILE.checkpoint beside the FILE of --save, after every N steps and at the end", 0},
    {"resume", PP_OPT_FLAG, AT(resume), PP_PPEXEC, TRAINING, NULL, NULL, 0, 0, NULL,
     "go on from the checkpoint of --save, if there is one, to the same bits as without the stop; only --epochs and "
     "what bits do not depend on may be other than before",
     0},
    {"resume-changed", PP_OPT_FLAG, AT(resume_changed), PP_PPEXEC, TRAINING, NULL, NULL, 0, 0, NULL,
     "as --resume, but other options may have changed, too, such as the learning rate or the number of replicas; those "
     "that have are named. --tokens, and --rows times --replicas, may change between two epochs only",
     0},
    {"log-interval", PP_OPT_INT, AT(log_interval), PP_PPEXEC, TRAINING, NULL, "10", COUNT, NULL,
     "batches between two log lines", OWN},

    {"device", PP_OPT_TEXT, AT(device), PP_RUNS, RUNNING, "NAME", "cpu", 0, 0, pp_device_names,
     "what computes; auto takes a GPU if one can be used, and says why if not; delay only waits as long as --times "
     "says, or without it the newest profile in --db",
     OWN},
    {"gpus", PP_OPT_INT, AT(gpus), PP_RUNS, RUNNING, NULL, "0", 0, 65536, NULL,
     "GPUs of a host that may be used; more workers than GPUs share them evenly (0 = all; ppsim: one for each worker)",
     ALWAYS_TIMED | OWN},
    {"algorithms", PP_OPT_TEXT, AT(algorithms), PP_PPEXEC | PP_PPPROF, RUNNING, "FILE", NULL, 0, 0, NULL,
     "on cuda: compute products by the algorithms that this file names, not by those that cuBLAS thinks best; ppprof "
     "times them for products that the file lacks, and adds the fastest",
     OWN},
    {"transport", PP_OPT_TEXT, AT(transport), PP_RUNS, RUNNING, "NAME", "auto", 0, 0, pp_mover_names,
     "what moves data between ranks: threads of one process, MPI, or between GPUs of several processes NCCL or host "
     "memory and MPI (staged); auto takes what the start allows, and ppsim what was measured",
     TIMED | OWN},
    {"threads", PP_OPT_INT, AT(threads), PP_RUNS, RUNNING, NULL, "1", 1, 4096, NULL, "threads of each worker's BLAS",
     TIMED},
    {"blas-core", PP_OPT_TEXT, AT(blas_core), PP_PPEXEC | PP_PPPROF, RUNNING, "NAME", NULL, 0, 0, NULL,
     "processor that OpenBLAS takes this machine for, such as Haswell (default the best that it can run)", OWN},

    {"times", PP_OPT_TEXT, AT(times), PP_PPSIM | PP_PPEXEC, PREDICTING, "F,I,W[,C]", NULL, 0, 0, NULL,
     "ms of forward, input gradient and weight gradient of a microbatch on a whole rank, and of a hop between "
     "ranks; no model, memory or transport counts, unless --device delay runs or is to run it",
     0},
    {"straggler", PP_OPT_TEXT, AT(straggler), PP_PPSIM | PP_PPEXEC, PREDICTING, "RANK:FACTOR", NULL, 0, 0, NULL,
     "with --times or --device delay: multiply the times of one rank (counted from 0)", 0},
    {"jitter", PP_OPT_REAL, AT(jitter), PP_PPSIM | PP_PPEXEC, PREDICTING, "PERCENT", "0", 0, 100, NULL,
     "with --times or --device delay: make each task so much longer or shorter at most, evenly spread; --seed draws "
     "it",
     0},
    {"machine", PP_OPT_TEXTS, AT(machine), PP_PPSIM, PREDICTING, NULL, NULL, 0, 0, NULL,
     "machine to predict for: by profiles that came with ppkit (--list) and by its data sheet; a name from --list or a "
     "JSON file (its path without a comma). A list compares machines, each with its own memory, precisions and "
     "profiles",
     0},
    {"host-order", PP_OPT_CHOICE, AT(host_order), PP_PPSIM, PREDICTING, NULL, "pipeline", 0, 0, "pipeline|replicas",
     "what a host of --machine is filled with first: the ranks of a replica, as ppexec's processes are numbered, or "
     "the replicas of a rank, as Megatron-LM's are",
     0},
    {"profile", PP_OPT_TEXT, AT(profile), PP_PPSIM, PREDICTING, "FILE", NULL, 0, 0, NULL,
     "take measured times from this file, such as ppreport --profiles writes, and from no database", 0},
    {"memory", PP_OPT_BYTES, AT(memory), PP_PPSIM, PREDICTING, NULL, NULL, 1, 0x1p62, NULL,
     "memory of a device, such as 80G (G = 2^30 bytes): say which configurations fit, adding up the workers that share "
     "a GPU (--gpus). CUDA and NCCL take some of a GPU besides, so name two GiB less than it has (default what "
     "--machine says of its devices; not with --times alone)",
     TIMED},
    {"workers", PP_OPT_INTS, AT(workers), PP_PPSIM, PREDICTING, NULL, NULL, 1, 65536, NULL,
     "predict all ways to use so many devices for the batch of --global-rows: for each P of --stages (default: each "
     "divisor of N, up to --layers) N / P replicas (N / P T with --tensor), which share the rows; fastest first, with "
     "--price cheapest first, whatever the --machine; those that do not fit into --memory last. A list compares "
     "numbers of devices",
     0},
    {"global-rows", PP_OPT_INT, AT(global_rows), PP_PPSIM, PREDICTING, NULL, NULL, COUNT, NULL,
     "rows of a batch, of all replicas together: with --workers, in place of --rows and --replicas", 0},
    {"top", PP_OPT_INT, AT(top), PP_PPSIM, PREDICTING, "N", NULL, COUNT, NULL,
     "with --workers: print only the N best ways to use each number of workers, of each machine that is listed", 0},
    {"train-tokens", PP_OPT_AMOUNT, AT(train_tokens), PP_PPSIM, PREDICTING, "N", NULL, 1, 1e18, NULL,
     "tokens of a whole training, such as 300e9, 300B or 15T: say how many days it takes, and with --price what it "
     "costs",
     TIMED},
    {"price", PP_OPT_REALS, AT(price), PP_PPSIM, PREDICTING, NULL, NULL, 1e-9, 1e9, NULL,
     "what a device (of a cpu: a core) costs for an hour, in any currency: say what a billion tokens cost. For a list "
     "of --machine one price for all, or one for each, in its order",
     TIMED},
    {"draw", PP_OPT_FLAG, AT(draw), PP_PPSIM, PREDICTING, NULL, NULL, 0, 0, NULL, "draw the timeline as text", 0},
    {"emit", PP_OPT_TEXT, AT(emit), PP_PPSIM, PREDICTING, NULL, NULL, 0, 0, "csv",
     "print only the schedule, as PyTorch's compute-only CSV", 0},

    {"trace-steps", PP_OPT_INT, AT(trace_steps), PP_PPEXEC, MEASURING, NULL, "3", 0, 100000, NULL,
     "last steps of the run whose every task is recorded", 0},
    {"seconds", PP_OPT_REAL, AT(seconds), PP_PPPROF, MEASURING, NULL, "0.2", 0.001, 3600, NULL,
     "time to spend on each shape", 0},
    {"rounds", PP_OPT_INT, AT(rounds), PP_PPPROF, MEASURING, NULL, "3", 1, 100, NULL,
     "times to go over all shapes, so that a short disturbance spoils a part of the samples only", 0},

    {"plots", PP_OPT_TEXT, AT(plots), PP_PPREPORT, REPORTING, "FOLDER", NULL, 0, 0, NULL,
     "where pictures go (default beside the database)", 0},
    {"no-plots", PP_OPT_FLAG, AT(no_plots), PP_PPREPORT, REPORTING, NULL, NULL, 0, 0, NULL, "draw no pictures", 0},
    {"chrome", PP_OPT_TEXT, AT(chrome), PP_PPREPORT, REPORTING, "FILE", NULL, 0, 0, NULL,
     "write the timeline as Chrome trace JSON, which Perfetto opens", 0},
    {"run", PP_OPT_INT, AT(run), PP_PPREPORT, REPORTING, NULL, NULL, 1, INT32_MAX, NULL,
     "number of the run to show (default the newest)", 0},
    {"profiles", PP_OPT_FLAG, AT(profiles), PP_PPREPORT, REPORTING, NULL, NULL, 0, 0, NULL,
     "print only the profiles of the database, as text for ppsim --profile", 0},
    {"why", PP_OPT_FLAG, AT(why), PP_PPREPORT, REPORTING, NULL, NULL, 0, 0, NULL,
     "split the gap between predicted and measured ms/batch into causes, and compare the critical paths (no pictures "
     "unless --plots asks for them)",
     0},

    {"db", PP_OPT_TEXT, AT(db), PP_RUNS, GENERAL, "FILE", NULL, 0, 0, NULL,
     "database to write to (ppsim, and --device delay without --times: to read too). Where none is named ppsim reads "
     "pp.db of this folder, and ppprof writes it",
     OWN},
    {"format", PP_OPT_CHOICE, AT(format), PP_ALL_TOOLS, GENERAL, NULL, "table", 0, 0, "table|tsv|json",
     "form of the results on standard output", OWN},
    {"list", PP_OPT_FLAG, AT(list), PP_RUNS, GENERAL, NULL, NULL, 0, 0, NULL,
     "list what can be named (schedules, presets, devices, ...), and exit", 0},
    {"version", PP_OPT_FLAG, AT(version), PP_ALL_TOOLS, GENERAL, NULL, NULL, 0, 0, NULL, "print the version and exit",
     0},
    {"help", PP_OPT_FLAG, AT(help), PP_ALL_TOOLS, GENERAL, NULL, NULL, 0, 0, NULL, "print this and exit (or -h)", 0},
};

const int pp_config_nrows = sizeof pp_config_rows / sizeof *pp_config_rows;

_Static_assert(sizeof pp_config_rows / sizeof *pp_config_rows <= sizeof((struct pp_config *)0)->set,
               "struct pp_config.set needs room for every option");
