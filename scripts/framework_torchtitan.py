# SPDX-License-Identifier: Apache-2.0
"""Options of torchtitan, for framework-options: version 0.3.0, with PyTorch 2.15. They stand over a configuration that
is chosen by its name and sets anything, so what is torchtitan's default is printed, too."""

from framework_plan import Plan

MOST_LESS = 64  # layers by which its first and last stage are tried smaller
SCHEDULES = {  # PyTorch's names: with one stage on each rank, with several
    "gpipe": ("GPipe", None),
    "1f1b": ("1F1B", None),
    "interleaved": ("1F1B", "Interleaved1F1B"),
    "bfs": ("GPipe", "LoopedBFS"),
    "interleaved-zb": (None, "InterleavedZeroBubble"),
    "zbv": (None, "ZBVZeroBubble"),
    "dualpipev": (None, "DualPipeV"),
}
ON_A_V = ("zbv", "dualpipev", "v-half", "v-min")  # stages of a rank are s and 2P-1-s
RECOMPUTED = {"never": "none", "activation": "none"}  # others: full


class Torchtitan(Plan):
    name = "torchtitan"

    REFUSED = [
        (
            lambda p: p.is_piped and not p.torch_schedule,
            "{p.name} has no name for {p.schedule} with --virtual {p.virtual}, but reads it from a file (--csv FILE), "
            "written by ppsim {p.options} --emit csv",
        ),
        (
            lambda p: p.torch_schedule in ("1F1B", "DualPipeV") and p.microbatches < len(p.stage_layers),
            "{p.name} runs {p.torch_schedule} with no fewer microbatches than there are stages: {p.microbatches} are "
            "planned",
        ),
        (lambda p: p.csv and not p.is_piped, "a plan of one stage has no use for --csv {p.csv}"),
        (
            lambda p: p.tokens % p.parts,
            "{p.name} cuts rows into {p.parts} parts, which do not divide {p.tokens} tokens",
        ),
    ]

    OPTIONS = [
        (lambda p: True, "--parallelism.data_parallel_replicate_degree {p.groups}"),
        (lambda p: True, "--parallelism.data_parallel_shard_degree {p.shards}"),
        (lambda p: p.zero < 3, "--parallelism.fsdp_reshard_after_forward never"),
        (lambda p: p.zero == 3, "--parallelism.fsdp_reshard_after_forward always"),
        (lambda p: True, "--parallelism.tensor_parallel_degree {p.tensor}"),
        (lambda p: p.sequence_parallel, "--parallelism.enable_sequence_parallel"),
        (lambda p: p.tensor > 1 and not p.sequence_parallel, "--parallelism.no_enable_sequence_parallel"),
        (lambda p: p.overlap_tensor_sums > 1, "--compile.enable --compile.enable_async_tensor_parallel"),
        (lambda p: p.overlap_tensor_sums <= 1 < p.tensor, "--compile.no_enable_async_tensor_parallel"),
        (lambda p: True, "--parallelism.context_parallel_degree {p.context_parallel}"),
        (lambda p: True, "--parallelism.expert_parallel_degree {p.expert_workers}"),
        (lambda p: True, "--parallelism.pipeline_parallel_degree {p.stages}"),
        (lambda p: p.is_piped, "--parallelism.pipeline_parallel_schedule {p.torch_schedule}"),
        (lambda p: p.is_piped and p.csv, "--parallelism.pipeline_parallel_schedule_csv {p.csv}"),
        (lambda p: p.is_piped, "--parallelism.pipeline_parallel_microbatch_size {p.micro_rows}"),
        (lambda p: p.less, "--parallelism.pipeline_parallel_first_stage_less_layers {p.less[0]}"),
        (lambda p: p.less, "--parallelism.pipeline_parallel_last_stage_less_layers {p.less[1]}"),
        (lambda p: p.less, "--parallelism.pipeline_parallel_layers_per_stage {p.less[2]}"),
        (lambda p: p.is_piped and not p.less, "--parallelism.pipeline_parallel_layers_per_stage None"),
        (lambda p: p.is_piped and not p.less, "--parallelism.module_fqns_per_model_part {p.modules}"),
        # Graphs of CUDA are its default, which it refuses in pipelines, and with most exchanges of experts.
        (lambda p: p.is_piped or p.expert_workers > 1, "--training.disable_cuda_graphs"),
        (lambda p: p.is_piped, "--training.local_batch_size {p.rows}"),
        (lambda p: not p.is_piped, "--training.local_batch_size {p.micro_rows}"),  # the others accumulate gradients
        (lambda p: True, "--training.global_batch_size {p.batch_rows} --training.seq_len {p.tokens}"),
        (lambda p: p.is_bf16, "--training.mixed_precision_param bfloat16"),
        (lambda p: not p.is_bf16, "--training.mixed_precision_param float32"),
        (lambda p: True, "activation-checkpoint:{p.recompute}"),  # a subcommand, so the last
    ]

    NOTES = [
        (
            lambda p: p.is_piped and p.csv and "#" in p.schedule,
            "{p.name} has stage s on rank s mod {p.stages}, and no other place for the stages of your own CSV",
        ),
        (
            lambda p: p.torch_schedule == "LoopedBFS",
            "{p.name} begins the backwards of LoopedBFS with the last microbatch, the plan with the first",
        ),
        (
            lambda p: p.zero == 0 and p.shards * p.context_parallel > 1,
            "{p.name} shares parameters, gradients and the optimizer among workers that share rows or experts (FSDP): "
            "less memory than planned, and more to send",
        ),
        (
            lambda p: p.zero == 1 and not p.is_piped,
            "{p.name} has no ZeRO stage 1: its FSDP shares gradients, too, and gathers and sums for each microbatch",
        ),
        (
            lambda p: p.zero == 1 and p.is_piped,
            "{p.name} has no ZeRO stage 1: its FSDP is like it in a pipeline, where it keeps parameters and gradients "
            "whole during a step",
        ),
        (
            lambda p: p.zero == 2 and not p.is_piped and p.microbatches > 1,
            "{p.name} gathers parameters for each microbatch, the plan once in a step",
        ),
        (
            lambda p: p.zero > 1 and p.is_piped,
            "{p.name} keeps gradients whole until the last backward of a pipeline: more memory than planned, and one "
            "sum in a step",
        ),
        (
            lambda p: p.zero == 0 and p.sharing > 1 and not p.is_piped and p.microbatches > 1,
            "{p.name} sums gradients of each microbatch, the plan once in a step",
        ),
        (
            lambda p: p.sharing > 1 and not p.is_piped and not p.overlap_grad_reduce,
            "{p.name} sums gradients beside the backward: predict that with --overlap-grad-reduce",
        ),
        (
            lambda p: p.sharing > 1 and p.is_piped and p.overlap_grad_reduce,
            "{p.name} sums the gradients of a stage behind its last backward in a pipeline, not beside it",
        ),
        (
            lambda p: p.grad_reduce_in_bf16,
            "{p.name} sums gradients in float32 only: twice as much to send as planned",
        ),
        (
            lambda p: p.overlap_expert_exchange,
            "{p.name} has no option to hide exchanges of experts: they may take longer than planned",
        ),
        (
            lambda p: p.context_parallel > 1 and p.cp_comm_type != "all_gather",
            "{p.name} gathers keys and values where workers share rows: predict that with --cp-comm-type all_gather",
        ),
        (
            lambda p: p.context_parallel > 1,
            "{p.name} needs a model with FlexAttention where workers share rows",
        ),
        (
            lambda p: p.recomputed,
            "{p.name} recomputes all layers, not {p.recomputed} of each stage: less memory and more time than planned",
        ),
        (lambda p: p.checkpoint == "always", "{p.name} recomputes layer by layer, not whole stages"),
        (
            lambda p: p.checkpoint == "activation",
            "{p.name} has no option to recompute activation functions: memory will be that of --checkpoint never",
        ),
        (
            lambda p: p.precision == "fp8",
            "{p.name} has no option for FP8, which is set in Python (converters of the model): these train in bf16",
        ),
        (
            lambda p: p.is_piped and not p.less,
            "{p.name} is told the modules of each stage by the names that its language models have",
        ),
    ]

    def __init__(self, row, csv):
        super().__init__(row, csv)
        self.shards = self.sharing_replicas()
        self.groups = self.replicas // self.shards
        self.torch_schedule = self.name_of_schedule() if self.is_piped else None
        self.less = self.less_layers() if self.is_piped else None
        self.parts = self.tensor if self.sequence_parallel else 1
        self.parts *= 2 * self.context_parallel if self.context_parallel > 1 else 1
        self.recompute = RECOMPUTED.get(self.checkpoint, "full")

    def sharing_replicas(self):
        """Experts are shared only among workers that share everything."""
        if self.zero:
            return self.shard_degree or self.replicas
        return self.expert_parallel if self.has_experts else 1

    def name_of_schedule(self):
        """None: PyTorch has none. It has no numbers. With a CSV the name says how many stages a rank has, and which."""
        if self.csv and self.kind in ON_A_V:
            return "ZBVZeroBubble"
        if self.csv:
            return "PipelineScheduleMulti" if self.virtual > 1 else "PipelineScheduleSingle"
        one, several = SCHEDULES.get(self.kind, (None, None))
        if self.virtual == 1:
            return one
        return several if self.number in (0, self.usual_turn) else None

    def less_layers(self):
        """By how many layers the first and the last stage must be smaller for torchtitan to make the stages of the plan
        (its _generate_llm_fqn_per_model_part), and the number that makes it so many. None: nothing does."""
        stages, most = len(self.stage_layers), min(max(self.stage_layers) + 1, MOST_LESS)
        for first, last in ((first, last) for first in range(most + 1) for last in range(most + 1)):
            layers = sum(self.stage_layers) + first + last
            each, more = divmod(layers, stages)
            made = [each + (stage < more) for stage in range(stages)]
            made[0], made[-1] = made[0] - first, made[-1] - last
            if made == self.stage_layers and max(first, last) <= each and self.each(layers, stages):
                return first, last, self.each(layers, stages)
        return None

    def each(self, layers, stages):
        """A number of layers with which it has so many stages. Without any it has one on each rank, or two."""
        if self.virtual <= 2:
            return "None"
        each = -(-layers // stages)
        return each if -(-layers // each) == stages else None

    @property
    def modules(self):
        parts, at = [], 0
        for layers in self.stage_layers:
            parts.append([f"layers.{layer}" for layer in range(at, at + layers)])
            at += layers
        parts[0].insert(0, "tok_embeddings")
        parts[-1] += ["norm", "lm_head"]
        return " ".join(",".join(part) for part in parts)
