/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table of all programs. A new option is a field of struct pp_config (of the model: of struct pp_shape) and
 * one row here. A preset that sets it names it in presets.c; one that names a file has a row in distinct_files.c; one
 * that a tensor's name or shape depends on has trait TENSORS.
 */
#include "core/options/config.h"

#include <float.h>
#include <math.h>

#include "core/options/devices.h"
#include "core/plan/movers.h"
#include "core/shape/pieces.h"

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
#define TENSORS PP_OPT_TENSORS

const struct pp_opt pp_config_rows[] = {
    {"preset", PP_OPT_TEXT, AT(preset), PP_RUNS, MODEL, "NAME", "small", 0, 0, PP_PRESET_NAMES,
     "set of option values to start from; --list describes them. An option that you give beats it, wherever it stands",
     OWN},
#include "core/options/config_model.def"
    {"rows", PP_OPT_INT, AT(rows), PP_RUNS, BATCH, NULL, NULL, COUNT, NULL, "rows of a batch, for each replica",
     CHANGES | TIMED},
    {"tokens", PP_OPT_INT, AT(tokens), PP_RUNS, BATCH, NULL, NULL, COUNT, NULL, "tokens in a row", CHANGES | TIMED},
    {"lr", PP_OPT_REAL, AT(lr), PP_RUNS, BATCH, NULL, NULL, 0, FLT_MAX, NULL,
     "learning rate (default from the preset; 0.001 with --optimizer adamw where that is not the preset's)", CHANGES},
    {"optimizer", PP_OPT_CHOICE, AT(model.optimizer), PP_RUNS, BATCH, NULL, "sgd", 0, 0, PP_OPTIMIZER_NAMES,
     "how a step updates the weights; adamw keeps two more numbers for each weight, its moments, and adamw-bf16 keeps "
     "them in bfloat16",
     LATER | TIMED},
    {"adam-beta1", PP_OPT_REAL, AT(adamw.beta1), PP_RUNS, BATCH, NULL, "0.9", 0, 1, NULL,
     "with adamw: decay of the mean of gradients; below 1", LATER | CHANGES},
    {"adam-beta2", PP_OPT_REAL, AT(adamw.beta2), PP_RUNS, BATCH, NULL, "0.999", 0, 1, NULL,
     "with adamw: decay of the mean of squared gradients; below 1", LATER | CHANGES},
    {"adam-eps", PP_OPT_REAL, AT(adamw.epsilon), PP_RUNS, BATCH, NULL, "1e-8", 0, FLT_MAX, NULL,
     "with adamw: added to the root of the mean of squared gradients", LATER | CHANGES},
    {"weight-decay", PP_OPT_REAL, AT(adamw.weight_decay), PP_RUNS, BATCH, NULL, "0.01", 0, FLT_MAX, NULL,
     "with adamw: in each step weights shrink by this times the learning rate", LATER | CHANGES},
    {"clip", PP_OPT_REAL, AT(clip), PP_RUNS, BATCH, "NORM", NULL, 0, INFINITY, NULL,
     "clip gradients so that the norm of all of them together is at most this; 0 = do not clip", CHANGES},
    {"lr-decay", PP_OPT_REAL, AT(lr_decay), PP_RUNS, BATCH, NULL, NULL, 0, INFINITY, NULL,
     "factor on the learning rate after each epoch (default from the preset; 1 with --lr-schedule cosine and linear)",
     CHANGES},
    {"warmup-steps", PP_OPT_INT, AT(over_steps.warmup_steps), PP_RUNS, BATCH, NULL, "0", 0, INT32_MAX, NULL,
     "raise the learning rate evenly to --lr over the first N steps of the training", LATER | CHANGES},
    {"lr-schedule", PP_OPT_CHOICE, AT(over_steps.schedule), PP_RUNS, BATCH, NULL, "constant", 0, 0,
     PP_LR_SCHEDULE_NAMES,
     "what the learning rate does after --warmup-steps: it stays, or falls by half a cosine or a line to --min-lr, "
     "reaches it in step --lr-steps, and stays there, unless --lr-decay is given, too",
     LATER | CHANGES},
    {"lr-steps", PP_OPT_INT, AT(over_steps.steps), PP_RUNS, BATCH, NULL, "0", 0, INT32_MAX, NULL,
     "with cosine and linear: the step in which --min-lr is reached, counted from the start of the training, warm-up "
     "included",
     LATER | CHANGES},
    {"min-lr", PP_OPT_REAL, AT(over_steps.least), PP_RUNS, BATCH, NULL, "0", 0, FLT_MAX, NULL,
     "with cosine and linear: the learning rate at the end, at most --lr", LATER | CHANGES},
    {"eval-rows", PP_OPT_INT, AT(eval_rows), PP_RUNS, BATCH, NULL, "10", COUNT, NULL,
     "rows of an evaluation batch; it is cut into as many microbatches as a training batch (1 in presets from "
     "gpt-small on)",
     CHANGES},

    {"schedule", PP_OPT_TEXTS, AT(schedule), PP_RUNS, PIPELINE, NULL, "gpipe", 0, 0, NULL,
     "order of forwards and backwards; --list names them, and PyTorch's names are known, too. FILE.csv is an order of "
     "your own, in PyTorch's CSV. NAME:N sets a schedule's number: for zb-auto (default P) and 1f1b-eager (P to 2P-1, "
     "the default) the most microbatches that a rank holds at once; for interleaved and interleaved-zb how many "
     "microbatches run through a stage before the rank turns to its next one, P to M (default P, or a few more where "
     "P does not divide M). A list is a sweep: here, in options that end in ,... and in --checkpoint; what it names "
     "twice is done once. Presets from gpt-1.3b on start with 1f1b",
     OWN},
    {"stages", PP_OPT_INTS, AT(stages), PP_RUNS, PIPELINE, NULL, NULL, 1, 65536, NULL,
     "ranks of the pipeline, P (default from the preset)", 0},
    {"tensor", PP_OPT_INTS, AT(tensor), PP_RUNS, PIPELINE, NULL, "1", 1, 65536, NULL,
     "workers of each rank, T, that share the tensors of its layers (tensor parallelism, cut as in Megatron-LM): a "
     "divisor of --heads and --kv-heads, and of a quarter of the width of feed-forwards without experts (--d-ff, or "
     "--dense-ff); in a mixture of experts also of --experts and --shared-ff; far below --vocab",
     0},
    {"sequence-parallel", PP_OPT_FLAG, AT(model.sequence), PP_RUNS, PIPELINE, NULL, NULL, 0, 0, NULL,
     "with --tensor: in each of the T workers, norms, dropout and the stream between layers and stages have only a "
     "part of the tokens, as in Megatron-LM: less memory, and smaller messages",
     TIMED},
    {"overlap-tensor-sums", PP_OPT_INTS, AT(overlap_tensor_sums), PP_RUNS, PIPELINE, NULL, "1", 0, PP_SUM_PIECES_MAX,
     NULL,
     "with --tensor: cut the sums over the T workers, and the gathers of their tokens, into so many pieces, which run "
     "beside the products that make or need them, as with Megatron-LM's --tp-comm-overlap (fewer pieces if so many do "
     "not divide the tokens; 0 = 1, 2 or 4, by the bytes of a sum); on GPUs",
     TIMED},
    {"virtual", PP_OPT_INTS, AT(virtual_stages), PP_RUNS, PIPELINE, NULL, NULL, 1, 65536, NULL,
     "stages on each rank, V (default 2 for schedules that need several, those of the file for FILE.csv, else 1)", 0},
    {"chunks", PP_OPT_INTS, AT(chunks), PP_RUNS, PIPELINE, NULL, NULL, COUNT, NULL,
     "microbatches to cut the rows of a batch into (default from the preset; with --workers at most the rows of a "
     "replica)",
     0},
    {"micro-batch-size", PP_OPT_INTS, AT(micro_batch_size), PP_RUNS, PIPELINE, NULL, NULL, COUNT, NULL,
     "rows of a microbatch, in place of --chunks: the rows of a replica are cut into as many microbatches as that "
     "takes",
     TIMED},
    {"replicas", PP_OPT_INT, AT(replicas), PP_RUNS, PIPELINE, NULL, NULL, 1, 65536, NULL,
     "data-parallel copies of the pipeline, D (default from the preset)", 0},
    {"expert-parallel", PP_OPT_INTS, AT(expert_parallel), PP_RUNS, PIPELINE, NULL, "1", 1, 4096, NULL,
     "with --experts: each N of the --replicas share the experts of a layer, an equal number each, and send tokens to "
     "the replica that has their expert (Megatron-LM's --expert-model-parallel-size); N divides --replicas, and N "
     "times --tensor (1 unless given) divides --experts. ppsim takes a list",
     TIMED},
    {"overlap-expert-exchange", PP_OPT_INTS, AT(overlap_expert_exchange), PP_RUNS, PIPELINE, NULL, "0", 0,
     PP_EXCHANGE_PIECES_MAX, NULL,
     "with --expert-parallel: exchange tokens in so many pieces, each of a part of a worker's experts, beside the "
     "products of other pieces, of --shared-ff, and of gradients of weights (fewer pieces if so many do not divide the "
     "experts); 0: products wait for all tokens; on GPUs",
     TIMED},
    {"context-parallel", PP_OPT_INTS, AT(context_parallel), PP_RUNS, PIPELINE, NULL, "1", 1, 4096, NULL,
     "C workers have the same rows, each an equal part of their tokens, and send each other what attention needs "
     "(--cp-comm-type; Megatron-LM's --context-parallel-size). C divides --tokens; there are C times as many workers. "
     "ppsim takes a list",
     TIMED},
    {"cp-comm-type", PP_OPT_CHOICE, AT(model.context_kind), PP_RUNS, PIPELINE, NULL, "a2a", 0, 0, "a2a|all_gather|p2p",
     "with --context-parallel: a2a exchanges a worker's tokens for all tokens of a part of the heads "
     "(DeepSpeed-Ulysses; C times --tensor divides --heads and --kv-heads); all_gather gathers the keys and values of "
     "all tokens (as Llama 3; it needs --attention flash, and 2 C divides --tokens); p2p sends them around in a ring, "
     "beside attention (Megatron-LM's default; as all_gather, and without dropout of attention and --window-size)",
     TIMED},
    {"zero", PP_OPT_INTS, AT(zero), PP_RUNS, PIPELINE, NULL, "0", 0, 3, NULL,
     "1: each replica keeps and updates an equal share of what the optimizer keeps, sums only the gradients of that "
     "share, and gets the other new parameters from the others (ZeRO stage 1); the same bits with up to 16 replicas. "
     "2: it also keeps only its share of the gradients, which are summed after the backward of each layer of each "
     "microbatch (ZeRO stage 2). 3: it also keeps only its share of the parameters, which are gathered before each "
     "layer works (ZeRO stage 3, PyTorch's FSDP). With --context-parallel C these are D C workers; experts are shared "
     "by the replicas that have the same ones",
     TIMED},
    {"shard-degree", PP_OPT_INTS, AT(shard_degree), PP_RUNS, PIPELINE, NULL, "0", 0, 65536, NULL,
     "with --zero: share within groups of so many replicas, a divisor of --replicas, not among all (0, or --replicas "
     "and more); gradients are then summed within each group, and the shares of them over the groups, so only the "
     "latter leave a host that holds a whole group (FSDP's HYBRID_SHARD, torchtitan's data_parallel_shard_degree, "
     "Megatron-LM's --num-distributed-optimizer-instances)",
     TIMED},
    {"overlap-grad-reduce", PP_OPT_FLAG, AT(overlap_grad_reduce), PP_RUNS, PIPELINE, NULL, NULL, 0, 0, NULL,
     "with --replicas or --context-parallel: sum a stage's gradients in parts beside its last backward, each part as "
     "soon as it is made, as PyTorch's DDP and Megatron-LM do, not all after it; the same bits",
     TIMED},
    {"overlap-param-gather", PP_OPT_FLAG, AT(overlap_param_gather), PP_RUNS, PIPELINE, NULL, NULL, 0, 0, NULL,
     "with --zero 2, or with --zero 1 and --overlap-grad-reduce: gather new parameters in parts beside the first "
     "forward of the next step, as Megatron-LM does, not all at the end of a step; the same bits",
     TIMED},
    {"grad-reduce-in-bf16", PP_OPT_FLAG, AT(grad_reduce_in_bf16), PP_RUNS, PIPELINE, NULL, NULL, 0, 0, NULL,
     "with --replicas or --context-parallel: round gradients to bfloat16 to sum them, whatever the --precision, which "
     "halves what is sent (Megatron-LM's option of this name, FSDP's reduce_dtype, DDP's bf16_compress_hook)",
     TIMED},
    {"bucket-size", PP_OPT_BYTES, AT(bucket_size), PP_RUNS, PIPELINE, NULL, "25M", 1, 0x1p62, NULL,
     "with --overlap-grad-reduce: a part has as many layers as it takes for so many bytes of gradients, or all layers "
     "of the stage; embedding and decoder do not count, and go with the first and the last part",
     TIMED},
    {"checkpoint", PP_OPT_CHOICES, AT(checkpoint), PP_RUNS, PIPELINE, NULL, NULL, 0, 0,
     "never|except_last|always|layers|activation|layers:N",
     "recomputation. never, except_last, always: which microbatches keep only the input of their stage, and run its "
     "forward again before the backward. layers: all keep only the input of each layer, and the backward runs one "
     "layer again at a time; layers:N: the same for the first N layers of each stage. activation: all keep everything "
     "but the outputs of activation functions (default from the preset)",
     0},
    {"split", PP_OPT_TEXT, AT(split), PP_RUNS, PIPELINE, "HOW", "uniform", 0, 0, NULL,
     "how layers are cut into stages: uniform, parameters, time (of measured kernels, or with --machine of a data "
     "sheet), or the number of layers of each stage, such as 3,5 (the first and the last may have 0: embedding or "
     "decoder alone)",
     TIMED},
    {"batch-w", PP_OPT_INT, AT(batch_w), PP_RUNS, PIPELINE, NULL, "1", 1, UINT16_MAX, NULL,
     "compute the weight gradients of so many microbatches at once: the gradients are read and written less often, "
     "activations are kept longer",
     0},
    {"points", PP_OPT_TEXT, AT(points), PP_PPEXEC, PIPELINE, "FILE", NULL, 0, 0, NULL,
     "run the configurations that FILE names, a line each, in its order, where lists would run all combinations: each "
     "line has options of this group that may be lists, such as --schedule 1f1b --chunks 8; what it leaves out is as "
     "given here. A line that is there twice is run twice; # begins a comment. Not with --split time",
     PATH},
    {"recv-buffers", PP_OPT_INT, AT(recv_buffers), PP_RUNS, PIPELINE, NULL, NULL, 0, 65536, NULL,
     "receive buffers of each channel; 0 = one for each microbatch (default 2; unlimited with --times, unless --device "
     "delay)",
     0},

    {"epochs", PP_OPT_INT, AT(epochs), PP_PPEXEC, TRAINING, NULL, NULL, COUNT, NULL,
     "passes through the data (default from the preset)", 0},
    {"max-batches", PP_OPT_INT, AT(max_batches), PP_PPEXEC, TRAINING, NULL, NULL, 0, INT32_MAX, NULL,
     "batches of an epoch to train on; 0 = all (default from the preset)", CHANGES},
    {"eval-batches", PP_OPT_INT, AT(eval_batches), PP_PPEXEC, TRAINING, NULL, NULL, 0, INT32_MAX, NULL,
     "batches of an evaluation; 0 = all (default from the preset)", CHANGES},
    {"no-eval", PP_OPT_FLAG, AT(no_eval), PP_RUNS, TRAINING, NULL, NULL, 0, 0, NULL,
     "never evaluate (an evaluation needs memory too)", FIXED},
    {"warmup", PP_OPT_INT, AT(warmup), PP_PPEXEC, TRAINING, NULL, NULL, 0, INT32_MAX, NULL,
     "first steps that the measured time leaves out (default the smaller of 3 and a quarter of the steps)", 0},
    {"data", PP_OPT_TEXT, AT(data), PP_RUNS, TRAINING, "WHAT", NULL, 0, 0, NULL,
     "a folder with train.txt, valid.txt and test.txt, or with tokens in train.bin, val.bin and test.bin (which may "
     "be missing); or constant, or generated (default generated; lab: constant)",
     OWN},
    {"generated-tokens", PP_OPT_INT, AT(generated_tokens), PP_PPEXEC, TRAINING, NULL, "200000", 1000, 1 << 30, NULL,
     "length of the generated training text", OWN},
    {"seed", PP_OPT_SEED, AT(seed), PP_PPEXEC | PP_PPSIM, TRAINING, NULL, "1", 0, 0, NULL,
     "seed of initial weights, dropout, generated text and jitter", CHANGES},
    {"init", PP_OPT_TEXT, AT(init), PP_PPEXEC, TRAINING, "FILE", NULL, 0, 0, NULL,
     "start from these weights (safetensors with PyTorch's names)", PATH},
    {"save", PP_OPT_TEXT, AT(save), PP_PPEXEC, TRAINING, "FILE", NULL, 0, 0, NULL,
     "write the best weights here at the end (safetensors)", PATH},
    {"save-every", PP_OPT_INT, AT(save_every), PP_PPEXEC, TRAINING, NULL, NULL, 1, INT32_MAX, NULL,
     "write a checkpoint, FILE.checkpoint beside the FILE of --save, after every N steps and at the end", 0},
    {"resume", PP_OPT_FLAG, AT(resume), PP_PPEXEC, TRAINING, NULL, NULL, 0, 0, NULL,
     "continue from the checkpoint of --save, if there is one, with the same bits as without the stop; only --epochs, "
     "and options on which no bits depend, may differ from before",
     0},
    {"resume-changed", PP_OPT_FLAG, AT(resume_changed), PP_PPEXEC, TRAINING, NULL, NULL, 0, 0, NULL,
     "as --resume, but other options may differ, too, such as the learning rate or the number of replicas; those that "
     "do are named. --tokens, and --rows times --replicas, may change only between two epochs",
     0},
    {"log-interval", PP_OPT_INT, AT(log_interval), PP_PPEXEC, TRAINING, NULL, "10", COUNT, NULL,
     "batches between two log lines", OWN},

    {"device", PP_OPT_TEXT, AT(device), PP_RUNS, RUNNING, "NAME", "cpu", 0, 0, pp_device_names,
     "what computes; auto takes a GPU if one can be used, and says why if not; delay only waits, as long as --times "
     "says, or without it the newest profile in --db",
     OWN},
    {"gpus", PP_OPT_INT, AT(gpus), PP_RUNS, RUNNING, NULL, "0", 0, 65536, NULL,
     "GPUs of a host that may be used (0 = all); ppsim: GPUs for all workers together, whatever the hosts (0 = one for "
     "each worker). If there are more workers than GPUs, they share them evenly",
     ALWAYS_TIMED | OWN},
    {"algorithms", PP_OPT_TEXT, AT(algorithms), PP_PPEXEC | PP_PPPROF, RUNNING, "FILE", NULL, 0, 0, NULL,
     "on cuda: compute products by the algorithms that this file names, not by those that cuBLAS chooses; ppprof "
     "measures algorithms for products that the file lacks, and adds the fastest",
     OWN},
    {"transport", PP_OPT_TEXT, AT(transport), PP_RUNS, RUNNING, "NAME", "auto", 0, 0, pp_mover_names,
     "what moves data between ranks: threads of one process, MPI, or between GPUs of several processes NCCL, or host "
     "memory and MPI (staged); auto takes what the launch allows, and ppsim what was measured",
     TIMED | OWN},
    {"threads", PP_OPT_INT, AT(threads), PP_RUNS, RUNNING, NULL, "1", 1, 4096, NULL, "threads of each worker's BLAS",
     TIMED},
    {"blas-core", PP_OPT_TEXT, AT(blas_core), PP_PPEXEC | PP_PPPROF, RUNNING, "NAME", NULL, 0, 0, NULL,
     "type of processor that OpenBLAS chooses its kernels for, such as Haswell (default the best that this machine "
     "can run)",
     OWN},

    {"times", PP_OPT_TEXT, AT(times), PP_PPSIM | PP_PPEXEC, PREDICTING, "F,I,W[,C]", NULL, 0, 0, NULL,
     "ms of forward, input gradient and weight gradient of a microbatch on a whole rank, and of a hop between "
     "ranks; no model, memory or transport counts, unless --device delay runs or is to run it. ppsim takes FILE[,C], "
     "too: block times of a model of yours, as ppkit-block-times measures them in PyTorch, which --split cuts into "
     "stages (by time, unless given)",
     0},
    {"straggler", PP_OPT_TEXT, AT(straggler), PP_PPSIM | PP_PPEXEC, PREDICTING, "RANK:FACTOR", NULL, 0, 0, NULL,
     "with --times or --device delay: multiply the times of one rank (counted from 0)", 0},
    {"jitter", PP_OPT_REAL, AT(jitter), PP_PPSIM | PP_PPEXEC, PREDICTING, "PERCENT", "0", 0, 100, NULL,
     "with --times or --device delay: make each task longer or shorter by up to so much, evenly distributed; --seed "
     "draws it",
     0},
    {"machine", PP_OPT_TEXTS, AT(machine), PP_PPSIM, PREDICTING, NULL, NULL, 0, 0, NULL,
     "machine to predict for, from the profiles that come with ppkit (--list) and its data sheet: a name from --list, "
     "or a JSON file (its path without a comma). A list compares machines, each with its own memory, precisions and "
     "profiles",
     0},
    {"attention-kernel", PP_OPT_CHOICE, AT(library_attention), PP_PPSIM, PREDICTING, NULL, "ppkit", 0, 0,
     "ppkit|library",
     "with --machine: whose kernels compute --attention flash in bf16 and fp8. ppkit: ppexec's own. library: those of "
     "other software, such as FlashAttention-3 and -4, at the share of the peak that the machine file says; all times "
     "are then by the data sheet",
     TIMED},
    {"host-order", PP_OPT_CHOICE, AT(host_order), PP_PPSIM, PREDICTING, NULL, "pipeline", 0, 0, "pipeline|replicas",
     "what fills a host of --machine first: the ranks of a replica, as ppexec numbers its processes, or the replicas "
     "of a rank, as Megatron-LM numbers them",
     TIMED},
    {"profile", PP_OPT_TEXT, AT(profile), PP_PPSIM, PREDICTING, "FILE", NULL, 0, 0, NULL,
     "take measured times from this file, and from no other: a text that ppreport --profiles wrote, or a database, "
     "which is only read",
     0},
    {"memory", PP_OPT_BYTES, AT(memory), PP_PPSIM, PREDICTING, NULL, NULL, 1, 0x1p62, NULL,
     "memory of a device, such as 80G (G = 2^30 bytes): tell which configurations fit, adding up the workers that "
     "share a GPU (--gpus). CUDA and NCCL need some of a GPU's memory, too, so name two GiB less than it has (default "
     "what --machine says of its devices; not with --times alone)",
     TIMED},
    {"workers", PP_OPT_INTS, AT(workers), PP_PPSIM, PREDICTING, NULL, NULL, 1, 65536, NULL,
     "predict all ways to use so many devices, N, for the batch of --global-rows: for each P of --stages (default: "
     "each divisor of N, up to --layers) N / P replicas (N / (P T) with --tensor T) share the rows. Fastest first, "
     "with --price cheapest first, whatever the --machine; those that do not fit into --memory last; if none "
     "fits, the smallest first. A list compares numbers of devices",
     0},
    {"global-rows", PP_OPT_INT, AT(global_rows), PP_PPSIM, PREDICTING, NULL, NULL, COUNT, NULL,
     "with --workers, in place of --rows and --replicas: rows of a batch, of all replicas together", 0},
    {"auto", PP_OPT_FLAG, AT(usual), PP_PPSIM, PREDICTING, NULL, NULL, 0, 0, NULL,
     "with --workers: for options that were not given, try what is usual for large models: --schedule "
     "1f1b,interleaved,zbv with --virtual 1,2,4, --tensor 1,2,4,8 (1 where experts are shared), --zero 1,3, "
     "--micro-batch-size 1,2,4, with a --machine --split time, "
     "--checkpoint never,activation,layers:LAYERS, for rows of 16384 tokens or more --context-parallel 1,2,4,8,16 with "
     "--cp-comm-type all_gather (p2p from 32768 on), for --experts "
     "--expert-parallel 1,2,4,8,16,32,64; with --sequence-parallel and all that --overlap-... hides; --top 10",
     0},
    {"top", PP_OPT_INT, AT(top), PP_PPSIM, PREDICTING, "N", NULL, COUNT, NULL,
     "with --workers: print only the N best ways to use each number of devices, for each machine that is listed", 0},
    {"train-tokens", PP_OPT_AMOUNT, AT(train_tokens), PP_PPSIM, PREDICTING, "N", NULL, 1, 1e18, NULL,
     "tokens of a whole training, such as 300e9, 300B or 15T: print how many days it takes, and with --price what it "
     "costs",
     TIMED},
    {"price", PP_OPT_REALS, AT(price), PP_PPSIM, PREDICTING, NULL, NULL, 1e-9, 1e9, NULL,
     "price of a device (of a cpu: of a core) for an hour, in any currency: print what a billion tokens cost. For a "
     "list of --machine: one price for all, or one for each, in the same order",
     TIMED},
    {"draw", PP_OPT_FLAG, AT(draw), PP_PPSIM, PREDICTING, NULL, NULL, 0, 0, NULL, "draw the timeline as text", 0},
    {"emit", PP_OPT_TEXT, AT(emit), PP_PPSIM, PREDICTING, NULL, NULL, 0, 0, "csv",
     "print only the schedule, as PyTorch's compute-only CSV", 0},

    {"trace-steps", PP_OPT_INT, AT(trace_steps), PP_PPEXEC, MEASURING, NULL, "3", 0, 100000, NULL,
     "number of steps at the end of the run in which every task is recorded", 0},
    {"seconds", PP_OPT_REAL, AT(seconds), PP_PPPROF, MEASURING, NULL, "0.2", 0.001, 3600, NULL,
     "time to spend on each shape, all rounds together, or less: 200 samples are enough for a round, so more --rounds "
     "give more; a step's first backwards are measured among the others",
     0},
    {"rounds", PP_OPT_INT, AT(rounds), PP_PPPROF, MEASURING, NULL, "3", 1, 100, NULL,
     "passes over all shapes, so that a short disturbance spoils only a part of the samples", 0},

    {"plots", PP_OPT_TEXT, AT(plots), PP_PPREPORT, REPORTING, "FOLDER", NULL, 0, 0, NULL,
     "folder for pictures (default beside the database)", 0},
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
     "database to write to (ppsim, and --device delay without --times, also read it). Without it, ppsim reads pp.db "
     "of this folder, and ppprof writes it",
     OWN},
    {"format", PP_OPT_CHOICE, AT(format), PP_ALL_TOOLS, GENERAL, NULL, "table", 0, 0, "table|tsv|json",
     "format of the results on standard output", OWN},
    {"list", PP_OPT_FLAG, AT(list), PP_RUNS, GENERAL, NULL, NULL, 0, 0, NULL,
     "list what can be named (schedules, presets, devices, ...), and exit; --format json says more of schedules", 0},
    {"version", PP_OPT_FLAG, AT(version), PP_ALL_TOOLS, GENERAL, NULL, NULL, 0, 0, NULL, "print the version and exit",
     0},
    {"help", PP_OPT_FLAG, AT(help), PP_ALL_TOOLS, GENERAL, NULL, NULL, 0, 0, NULL, "print this and exit (or -h)", 0},
};

const int pp_config_nrows = sizeof pp_config_rows / sizeof *pp_config_rows;

_Static_assert(sizeof pp_config_rows / sizeof *pp_config_rows <= PP_MOST_OPTIONS, "PP_MOST_OPTIONS");
