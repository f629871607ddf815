# SPDX-License-Identifier: Apache-2.0
"""Options of Megatron-LM, for framework-options: Megatron Core 0.16.1, and megatron/training/arguments.py of that time.
What is its default is not printed."""

from framework_plan import Plan

FULL = "--recompute-granularity full --recompute-method"


class Megatron(Plan):
    name = "Megatron-LM"

    REFUSED = [
        (lambda p: p.csv, "{p.name} reads no schedule from a file: plan with 1f1b or interleaved"),
        (
            lambda p: p.is_piped and p.kind not in ("1f1b", "interleaved"),
            "{p.name} has no schedule {p.schedule}: it has 1f1b and interleaved",
        ),
        (
            lambda p: p.is_looped and p.microbatches < p.stages,
            "{p.name} interleaves no fewer microbatches than there are ranks: {p.microbatches} on {p.stages}",
        ),
        (
            lambda p: p.zero > 1 and p.is_piped,
            "{p.name} has no pipeline with its FSDP: plan with --zero 1, or with --stages 1",
        ),
        (
            lambda p: p.zero > 1 and p.groups > 1 and p.expert_workers > 1,
            "{p.name} has no groups that share with its FSDP where experts are shared: plan with --shard-degree 0",
        ),
        (
            lambda p: p.has_experts and p.tensor > 1 and not p.sequence_parallel,
            "{p.name} does not train experts on tensor ranks without --sequence-parallel",
        ),
        (
            lambda p: p.context_parallel > 1 and p.tokens % (2 * p.context_parallel),
            "{p.name} cuts rows into twice {p.context_parallel} parts, which do not divide {p.tokens} tokens",
        ),
        (
            lambda p: p.sequence_parallel and p.tokens // p.context_parallel % p.tensor,
            "{p.name} cuts the tokens of a worker among {p.tensor} tensor ranks, which do not divide them",
        ),
        (
            lambda p: p.checkpoint == "always" and not p.is_even,
            "{p.name} recomputes whole stages only if all have as many layers: plan with --checkpoint layers",
        ),
    ]

    OPTIONS = [
        (lambda p: p.tensor > 1, "--tensor-model-parallel-size {p.tensor}"),
        (lambda p: p.sequence_parallel, "--sequence-parallel"),
        (lambda p: p.overlap_tensor_sums > 1 and p.sequence_parallel, "--tp-comm-overlap"),
        (lambda p: p.is_piped, "--pipeline-model-parallel-size {p.stages}"),
        # One of these two: a layout also says how many stages a rank has.
        (lambda p: p.is_looped and p.is_even, "--num-virtual-stages-per-pipeline-rank {p.virtual}"),
        (lambda p: p.is_piped and not p.is_even, "--pipeline-model-parallel-layout {p.layout}"),
        (
            lambda p: p.is_looped and p.in_turn != p.stages,
            "--microbatch-group-size-per-virtual-pipeline-stage {p.in_turn}",
        ),
        (
            lambda p: p.context_parallel > 1,
            "--context-parallel-size {p.context_parallel} --cp-comm-type {p.cp_comm_type}",
        ),
        (lambda p: p.expert_workers > 1, "--expert-model-parallel-size {p.expert_workers}"),
        (lambda p: p.has_experts and p.tensor > 1, "--expert-tensor-parallel-size 1"),
        (lambda p: p.has_experts and p.expert_parallel > 1, "--moe-token-dispatcher-type alltoall"),
        (lambda p: p.zero > 0, "--use-distributed-optimizer"),
        (lambda p: p.zero > 1, "--use-megatron-fsdp --data-parallel-sharding-strategy {p.shards}"),
        (lambda p: p.zero > 1, "--ckpt-format fsdp_dtensor"),
        (lambda p: p.groups > 1, "--num-distributed-optimizer-instances {p.groups}"),
        (lambda p: p.overlap_grad_reduce, "--overlap-grad-reduce"),
        (lambda p: p.zero > 0 and p.overlap_grad_reduce and p.overlap_param_gather, "--overlap-param-gather"),
        (lambda p: p.is_bf16, "--bf16"),
        (lambda p: p.precision == "fp8", "--fp8-format hybrid --fp8-recipe tensorwise"),
        (lambda p: p.is_bf16 and p.grad_reduce_in_bf16, "--grad-reduce-in-bf16"),
        (lambda p: p.is_bf16 and not p.grad_reduce_in_bf16, "--accumulate-allreduce-grads-in-fp32"),
        (lambda p: p.checkpoint == "layers", FULL + " uniform --recompute-num-layers 1"),
        (lambda p: p.recomputed, FULL + " block --recompute-num-layers {p.recomputed}"),
        (lambda p: p.checkpoint == "always", FULL + " uniform --recompute-num-layers {p.stage_layers[0]}"),
        (
            lambda p: p.recomputes_experts,
            "--moe-grouped-gemm --recompute-granularity selective --recompute-modules moe_act",
        ),
        (lambda p: True, "--seq-length {p.tokens} --micro-batch-size {p.micro_rows}"),
        (lambda p: True, "--global-batch-size {p.batch_rows}"),
    ]

    NOTES = [
        (
            lambda p: p.overlap_tensor_sums > 1 and not p.sequence_parallel,
            "{p.name} hides sums over tensor ranks only with --sequence-parallel: they will take longer than planned",
        ),
        (
            lambda p: p.overlap_expert_exchange,
            "{p.name} hides exchanges of experts beside another microbatch (--overlap-moe-expert-parallel-comm), the "
            "plan within one",
        ),
        (
            lambda p: p.grad_reduce_in_bf16 and p.is_bf16,
            "{p.name} keeps gradients in bfloat16 where it sums them so, the plan in float32",
        ),
        (
            lambda p: p.grad_reduce_in_bf16 and not p.is_bf16,
            "{p.name} sums gradients in bfloat16 only with --precision bf16 or fp8: twice as much to send as planned",
        ),
        (lambda p: p.checkpoint == "always", "{p.name} recomputes the layers of a stage, not embedding and decoder"),
        (
            lambda p: p.recomputes_experts,
            "{p.name} recomputes activation functions of experts alone, not of shared experts and layers without",
        ),
        (
            lambda p: p.checkpoint == "activation" and not p.recomputes_experts,
            "{p.name} has no option to recompute activation functions: memory will be that of --checkpoint never",
        ),
        (
            lambda p: p.zero < 2 and p.tensor * p.context_parallel > 1,
            "{p.name} needs CUDA_DEVICE_MAX_CONNECTIONS=1 in its environment on GPUs before Blackwell",
        ),
        (
            lambda p: p.zero > 1,
            "{p.name} with its FSDP refuses CUDA_DEVICE_MAX_CONNECTIONS=1 in its environment; some versions of "
            "Transformer Engine need --no-gradient-accumulation-fusion",
        ),
    ]

    def __init__(self, row, csv):
        super().__init__(row, csv)
        self.is_even = len(set(self.stage_layers)) == 1
        self.is_looped = self.is_piped and self.virtual > 1
        self.in_turn = self.number or self.usual_turn
        self.groups = self.replicas // self.shard_degree if self.zero and self.shard_degree else 1
        self.shards = "optim_grads_params" if self.zero == 3 else "optim_grads"
        self.recomputes_experts = self.checkpoint == "activation" and self.has_experts and self.is_bf16
        # Embedding, layers, loss. In what a shell puts in the place of $( ) a | is no pipe and needs no quotes. A * may
        # become names of files, so layers are written one by one.
        self.layout = "E" + "|".join("t" * layers for layers in self.stage_layers) + "L"
