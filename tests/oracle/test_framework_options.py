#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/framework-options: options and notes for plans that ppsim prints, what is refused, and bad input.
check_framework_options.py gives the options of torchtitan to torchtitan."""

import contextlib
import functools
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "framework-options"
PPSIM = sys.argv.pop() if len(sys.argv) > 1 else None
LLAMA = "--preset llama-3-8b --tokens 4096 --machine h100 --precision bf16 --rows 8 --micro-batch-size 1 --no-eval "
EXPERTS = "--preset mixtral-8x7b --machine h100 --precision bf16 --rows 8 --micro-batch-size 1 --no-eval "
PIPELINE = LLAMA + "--schedule 1f1b --stages 4 "
SINGLE = LLAMA + "--schedule 1f1b --stages 1 "
BF16 = "--bf16 --accumulate-allreduce-grads-in-fp32"
FULL = "--recompute-granularity full --recompute-method"
HOSTS = "with several hosts, ppsim --host-order replicas"
ENVIRONMENT = "needs CUDA_DEVICE_MAX_CONNECTIONS=1"
HEAD = "does not make decoder and loss again"

MEGATRON = [  # a command line, the options before --seq-length, those behind it, parts of the lines on standard error
    (SINGLE, BF16, "4096 1 8", []),
    (SINGLE + "--precision fp32", "", "4096 1 8", []),
    (SINGLE + "--precision tf32", "", "4096 1 8", ["allow_tf32"]),
    (SINGLE + "--precision fp8", "--bf16 --fp8-format hybrid --fp8-recipe tensorwise " + BF16[7:], "4096 1 8", []),
    (SINGLE + "--schedule gpipe", BF16, "4096 1 8", ["as 1f1b does, not as gpipe"]),
    (PIPELINE, "--pipeline-model-parallel-size 4 " + BF16, "4096 1 8", []),
    (PIPELINE + "--replicas 2 --micro-batch-size 2", "--pipeline-model-parallel-size 4 " + BF16, "4096 2 16", [HOSTS]),
    (PIPELINE + "--replicas 2 --host-order replicas", "--pipeline-model-parallel-size 4 " + BF16, "4096 1 16", []),
    (
        PIPELINE + "--schedule interleaved --virtual 2",
        "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 " + BF16,
        "4096 1 8",
        [],
    ),
    (
        PIPELINE + "--schedule interleaved:8 --virtual 2",
        "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
        "--microbatch-group-size-per-virtual-pipeline-stage 8 " + BF16,
        "4096 1 8",
        [],
    ),
    (  # two rounds of five
        PIPELINE + "--schedule interleaved --virtual 2 --rows 10",
        "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
        "--microbatch-group-size-per-virtual-pipeline-stage 5 " + BF16,
        "4096 1 10",
        [],
    ),
    (
        PIPELINE + "--schedule interleaved --virtual 1",
        "--pipeline-model-parallel-size 4 " + BF16,
        "4096 1 8",
        ["runs 1f1b where ranks have one stage"],
    ),
    (
        PIPELINE + "--split 9,9,8,6",
        "--pipeline-model-parallel-size 4 "
        "--pipeline-model-parallel-layout Ettttttttt|ttttttttt|tttttttt|ttttttL " + BF16,
        "4096 1 8",
        [],
    ),
    (  # the layout says that ranks have two stages
        PIPELINE + "--schedule interleaved:8 --virtual 2 --layers 11 --split 2,2,2,1,1,1,2,0",
        "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Ett|tt|tt|t|t|t|tt|L "
        "--microbatch-group-size-per-virtual-pipeline-stage 8 " + BF16,
        "4096 1 8",
        [],
    ),
    (
        SINGLE + "--tensor 4 --sequence-parallel --overlap-tensor-sums 4",
        "--tensor-model-parallel-size 4 --sequence-parallel --tp-comm-overlap " + BF16,
        "4096 1 8",
        [ENVIRONMENT],
    ),
    (
        SINGLE + "--tensor 4 --overlap-tensor-sums 4",
        "--tensor-model-parallel-size 4 " + BF16,
        "4096 1 8",
        ["only with --sequence-parallel", ENVIRONMENT],
    ),
    (
        SINGLE + "--context-parallel 4 --cp-comm-type p2p --dropout 0",
        "--context-parallel-size 4 --cp-comm-type p2p " + BF16,
        "4096 1 8",
        [ENVIRONMENT],
    ),
    (
        SINGLE + "--replicas 4 --zero 1 --overlap-grad-reduce --overlap-param-gather",
        "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather " + BF16,
        "4096 1 32",
        [],
    ),
    (  # C workers of a row count in both numbers
        SINGLE + "--replicas 4 --context-parallel 2 --zero 1 --shard-degree 2",
        "--context-parallel-size 2 --cp-comm-type a2a --use-distributed-optimizer "
        "--num-distributed-optimizer-instances 2 " + BF16,
        "4096 1 32",
        [ENVIRONMENT],
    ),
    (
        SINGLE + "--replicas 4 --zero 2",
        "--use-distributed-optimizer --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads "
        "--ckpt-format fsdp_dtensor --overlap-grad-reduce " + BF16,
        "4096 1 32",
        ["refuses CUDA_DEVICE_MAX_CONNECTIONS=1"],
    ),
    (
        SINGLE + "--replicas 4 --zero 3 --shard-degree 2",
        "--use-distributed-optimizer --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params "
        "--ckpt-format fsdp_dtensor --num-distributed-optimizer-instances 2 --overlap-grad-reduce "
        "--overlap-param-gather " + BF16,
        "4096 1 32",
        ["refuses CUDA_DEVICE_MAX_CONNECTIONS=1"],
    ),
    (
        SINGLE + "--replicas 2 --grad-reduce-in-bf16",
        "--bf16 --grad-reduce-in-bf16",
        "4096 1 16",
        ["keeps gradients in bfloat16"],
    ),
    (SINGLE + "--replicas 2 --grad-reduce-in-bf16 --precision fp32", "", "4096 1 16", ["only with --precision bf16"]),
    (SINGLE + "--checkpoint layers", f"{BF16} {FULL} uniform --recompute-num-layers 1", "4096 1 8", [HEAD]),
    (SINGLE + "--checkpoint layers:32", f"{BF16} {FULL} uniform --recompute-num-layers 1", "4096 1 8", []),
    (SINGLE + "--checkpoint layers:99", f"{BF16} {FULL} uniform --recompute-num-layers 1", "4096 1 8", []),
    (SINGLE + "--checkpoint layers:3", f"{BF16} {FULL} block --recompute-num-layers 3", "4096 1 8", []),
    (
        PIPELINE + "--checkpoint always",
        f"--pipeline-model-parallel-size 4 {BF16} {FULL} uniform --recompute-num-layers 8",
        "4096 1 8",
        ["not embedding and decoder"],
    ),
    (SINGLE + "--checkpoint activation", BF16, "4096 1 8", ["memory will be that of --checkpoint never"]),
    (
        EXPERTS + "--schedule 1f1b --stages 1 --tensor 1 --checkpoint activation",
        BF16 + " --moe-grouped-gemm --recompute-granularity selective --recompute-modules moe_act",
        "4096 1 8",
        ["of experts alone"],
    ),
    (
        EXPERTS + "--schedule 1f1b --stages 1 --tensor 2 --sequence-parallel",
        "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 "
        "--expert-tensor-parallel-size 1 " + BF16,
        "4096 1 8",
        [ENVIRONMENT],
    ),
    (
        EXPERTS + "--schedule 1f1b --stages 2 --tensor 2 --sequence-parallel --context-parallel 2 --replicas 4 "
        "--expert-parallel 4 --overlap-expert-exchange 2",
        "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
        "--context-parallel-size 2 --cp-comm-type a2a --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 "
        "--moe-token-dispatcher-type alltoall " + BF16,
        "4096 1 32",
        ["beside another microbatch", ENVIRONMENT, "over tensor ranks and replicas at once", "share rows first", HOSTS],
    ),
]

# A command line, what differs from these options, parts of the lines on standard error.
TITAN = {
    "data_parallel_replicate_degree": "1",
    "data_parallel_shard_degree": "1",
    "fsdp_reshard_after_forward": "never",
    "tensor_parallel_degree": "1",
    "context_parallel_degree": "1",
    "expert_parallel_degree": "1",
    "pipeline_parallel_degree": "1",
    "local_batch_size": "1",
    "global_batch_size": "8",
    "seq_len": "4096",
    "mixed_precision_param": "bfloat16",
    "activation-checkpoint": "none",
}
IN_FOUR = {
    "pipeline_parallel_degree": "4",
    "pipeline_parallel_schedule": "1F1B",
    "pipeline_parallel_microbatch_size": "1",
    "pipeline_parallel_first_stage_less_layers": "0",
    "pipeline_parallel_last_stage_less_layers": "0",
    "pipeline_parallel_layers_per_stage": "None",
    "disable_cuda_graphs": "",
    "local_batch_size": "8",
}


def less(first, last, each="None"):
    names = ("first_stage_less_layers", "last_stage_less_layers", "layers_per_stage")
    return {f"pipeline_parallel_{name}": str(value) for name, value in zip(names, (first, last, each))}


def shared(replicate, shard, rows):
    values = {"data_parallel_replicate_degree": replicate, "data_parallel_shard_degree": shard}
    return {**{name: str(value) for name, value in values.items()}, "global_batch_size": str(rows)}


SHARING = {"activation-checkpoint": "full", "fsdp_reshard_after_forward": "always"}
TORCHTITAN = [
    (SINGLE, {}, []),
    (SINGLE + "--schedule gpipe --precision fp32", {"mixed_precision_param": "float32"}, ["not as gpipe"]),
    (SINGLE + "--precision tf32", {"mixed_precision_param": "float32"}, ["allow_tf32"]),
    (SINGLE + "--precision fp8", {}, ["these train in bf16"]),
    (PIPELINE, IN_FOUR, []),
    (
        PIPELINE + "--micro-batch-size 2 --schedule gpipe",
        {**IN_FOUR, "pipeline_parallel_microbatch_size": "2", "pipeline_parallel_schedule": "GPipe"},
        [],
    ),
    (
        PIPELINE + "--schedule interleaved --virtual 2",
        {**IN_FOUR, "pipeline_parallel_schedule": "Interleaved1F1B"},
        [],
    ),
    (
        PIPELINE + "--schedule interleaved:4 --virtual 4",
        {**IN_FOUR, **less(0, 0, 2), "pipeline_parallel_schedule": "Interleaved1F1B"},
        [],
    ),
    (PIPELINE + "--schedule interleaved --virtual 1", IN_FOUR, ["runs 1f1b where ranks have one stage"]),
    (
        PIPELINE + "--schedule bfs --virtual 2",
        {**IN_FOUR, "pipeline_parallel_schedule": "LoopedBFS"},
        ["with the last microbatch"],
    ),
    (PIPELINE + "--schedule bfs --virtual 1", {**IN_FOUR, "pipeline_parallel_schedule": "GPipe"}, []),
    (PIPELINE + "--schedule zbv", {**IN_FOUR, "pipeline_parallel_schedule": "ZBVZeroBubble"}, []),
    (PIPELINE + "--schedule dualpipev", {**IN_FOUR, "pipeline_parallel_schedule": "DualPipeV"}, []),
    (
        PIPELINE + "--schedule interleaved-zb --virtual 2",
        {**IN_FOUR, "pipeline_parallel_schedule": "InterleavedZeroBubble"},
        [],
    ),
    (PIPELINE + "--split 8,9,8,7", {**IN_FOUR, **less(1, 1)}, []),
    (PIPELINE + "--split 6,9,9,8", {**IN_FOUR, **less(3, 0)}, []),
    (
        PIPELINE + "--layers 6 --split 1,2,1,2",
        {
            **{name: value for name, value in IN_FOUR.items() if "less_layers" not in name},
            "module_fqns_per_model_part": "tok_embeddings,layers.0 layers.1,layers.2 layers.3 "
            "layers.4,layers.5,norm,lm_head",
        },
        ["names that its language models have"],
    ),
    (SINGLE + "--replicas 4", shared(4, 1, 32), ["sums gradients of each microbatch", "with --overlap-grad-reduce"]),
    (
        SINGLE + "--replicas 4 --overlap-grad-reduce --micro-batch-size 8",
        {**shared(4, 1, 32), "local_batch_size": "8"},
        [],
    ),
    (SINGLE + "--replicas 4 --zero 1 --overlap-grad-reduce", shared(1, 4, 32), ["no ZeRO stage 1"]),
    (SINGLE + "--replicas 4 --zero 2", shared(1, 4, 32), ["gathers parameters for each microbatch"]),
    (SINGLE + "--replicas 4 --zero 3 --shard-degree 2 --checkpoint layers", {**SHARING, **shared(2, 2, 32)}, [HEAD]),
    (SINGLE + "--replicas 4 --zero 3 --shard-degree 2 --checkpoint layers:32", {**SHARING, **shared(2, 2, 32)}, []),
    (
        PIPELINE + "--replicas 2 --zero 1 --overlap-grad-reduce --host-order replicas",
        {**IN_FOUR, **shared(1, 2, 16)},
        ["like it in a pipeline", "behind its last backward"],
    ),
    (
        PIPELINE + "--replicas 2 --zero 3 --grad-reduce-in-bf16 --checkpoint layers:2",
        {**IN_FOUR, **SHARING, **shared(1, 2, 16)},
        ["whole until the last backward", "behind its last", "in float32 only", "not 2 of each stage", HOSTS],
    ),
    (
        SINGLE + "--tensor 2 --overlap-tensor-sums 2 --sequence-parallel --checkpoint always",
        {
            "tensor_parallel_degree": "2",
            "enable_sequence_parallel": "",
            "enable": "",
            "enable_async_tensor_parallel": "",
            "activation-checkpoint": "full",
        },
        ["layer by layer"],
    ),
    (
        SINGLE + "--tensor 2 --checkpoint activation",
        {"tensor_parallel_degree": "2", "no_enable_sequence_parallel": "", "no_enable_async_tensor_parallel": ""},
        ["memory will be that of --checkpoint never"],
    ),
    (
        SINGLE + "--context-parallel 2",
        {"context_parallel_degree": "2"},
        ["share rows or experts (FSDP)", "of each microbatch", "beside", "--cp-comm-type all_gather", "FlexAttention"],
    ),
    (
        SINGLE + "--context-parallel 2 --cp-comm-type all_gather --zero 3",
        {"context_parallel_degree": "2", "fsdp_reshard_after_forward": "always"},
        ["FlexAttention"],
    ),
    (  # experts are shared among those who share everything
        EXPERTS + "--schedule 1f1b --stages 1 --tensor 2 --sequence-parallel --replicas 8 --expert-parallel 4 "
        "--overlap-grad-reduce --micro-batch-size 8 --overlap-expert-exchange 2",
        {
            **shared(2, 4, 64),
            "local_batch_size": "8",
            "tensor_parallel_degree": "2",
            "enable_sequence_parallel": "",
            "no_enable_async_tensor_parallel": "",
            "expert_parallel_degree": "8",
            "disable_cuda_graphs": "",
        },
        ["share rows or experts (FSDP)", "hide exchanges", "over tensor ranks and replicas at once"],
    ),
]

REFUSED = [  # a command line, a framework, a part of the message
    (PIPELINE + "--schedule gpipe", "megatron", "has no schedule gpipe: it has 1f1b and interleaved"),
    (PIPELINE + "--schedule interleaved --virtual 2 --rows 3", "megatron", "3 on 4"),
    (PIPELINE + "--replicas 2 --zero 2", "megatron", "no pipeline with its FSDP"),
    (SINGLE + "--micro-batch-size 3", "megatron", "8 rows in 3 microbatches"),
    (SINGLE + "--micro-batch-size 3", "torchtitan", "8 rows in 3 microbatches"),
    (SINGLE + "--schedule zbv", "megatron", "one stage on one rank"),
    (SINGLE + "--schedule zbv", "torchtitan", "one stage on one rank"),
    (PIPELINE + "--checkpoint except_last", "megatron", "in all microbatches, or in none"),
    (PIPELINE + "--checkpoint except_last", "torchtitan", "in all microbatches, or in none"),
    (PIPELINE + "--checkpoint always --split 9,9,8,6", "megatron", "have as many layers"),
    (SINGLE + "--context-parallel 2 --tokens 4098", "megatron", "do not divide 4098 tokens"),
    (SINGLE + "--context-parallel 2 --tokens 4098", "torchtitan", "cuts rows into 4 parts, which do not divide 4098"),
    (SINGLE + "--tensor 2 --sequence-parallel --tokens 4097", "megatron", "among 2 tensor ranks"),
    (SINGLE + "--tensor 2 --sequence-parallel --tokens 4097", "torchtitan", "cuts rows into 2 parts"),
    (EXPERTS + "--stages 1 --tensor 2", "megatron", "without --sequence-parallel"),
    (
        EXPERTS + "--stages 1 --tensor 1 --replicas 4 --expert-parallel 2 --zero 3 --shard-degree 2",
        "megatron",
        "plan with --shard-degree 0",
    ),
    (PIPELINE + "--schedule interleaved:8 --virtual 2", "torchtitan", "has no name for interleaved:8 with --virtual 2"),
    (
        PIPELINE + "--schedule interleaved-zb --virtual 1",
        "torchtitan",
        "has no name for interleaved-zb with --virtual 1",
    ),
    (PIPELINE + "--rows 3", "torchtitan", "no fewer microbatches than there are stages: 3 are planned"),
]
# What each framework has, of ppsim's schedules. All others must be refused.
HAS = {"megatron": {"1f1b", "interleaved"}}
HAS["torchtitan"] = {*HAS["megatron"], "gpipe", "bfs", "interleaved-zb", "zbv", "dualpipev"}
BROKEN = [  # a change of a row, a part of the message
    (dict(rows=None), "a plan of --times, without a model"),
    (dict(stages="4"), "its stages is missing or makes no sense"),
    (dict(stages=True), "its stages"),
    (dict(stages=0), "its stages"),
    (dict(tokens=1 << 40), "its tokens"),
    (dict(checkpoint="$(date)"), "its checkpoint"),
    (dict(sequence_parallel=1), "its sequence_parallel"),
    (dict(stage_layers=None), "its stage_layers"),
    (dict(stage_layers=[32]), "its stage_layers"),
    (dict(stage_layers=[1 << 30] * 4), "its stage_layers"),
    (dict(stage_layers=["8"] * 4), "its stage_layers"),
    (dict(shard_degree=3), "its shard_degree"),
    (dict(checkpoint="never:5"), "its checkpoint"),
    (dict(checkpoint="layers:x"), "its checkpoint"),
]


@functools.lru_cache(maxsize=None)
def plans(words):
    command = [PPSIM, *words.split(), "--format", "json"]
    return subprocess.run(command, capture_output=True, check=True).stdout


@functools.lru_cache(maxsize=None)
def script():
    """The program, in this process: a hundred others would take their time."""
    with mock.patch.object(sys, "path", [str(SCRIPT.parent), *sys.path]):
        loader = importlib.machinery.SourceFileLoader("framework_options", str(SCRIPT))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(module)
    return module


def run(framework, raw, *words):
    """(exit status, standard output, lines of standard error)"""
    out, told, given = io.StringIO(), io.StringIO(), io.TextIOWrapper(io.BytesIO(raw))
    argv = mock.patch.object(sys, "argv", [str(SCRIPT), framework, *words])
    with argv, mock.patch.object(sys, "stdin", given), contextlib.redirect_stdout(out), contextlib.redirect_stderr(
        told
    ):
        status = script().main()
    return status, out.getvalue(), told.getvalue().splitlines()


def named(line):
    """Of options that begin with a section, values by the names behind it."""
    made = {}
    for word in line[:-1].split("--")[1:]:
        name, _, value = word.partition(" ")
        made[name.partition(".")[2]] = value.removesuffix(" ")
    last = list(made)[-1]
    made[last], _, made["activation-checkpoint"] = made[last].partition(" activation-checkpoint:")
    return made


@unittest.skipUnless(PPSIM, "no ppsim")
class Options(unittest.TestCase):
    def told(self, lines, parts):
        self.assertEqual(len(lines), len(parts), lines)
        for line, part in zip(lines, parts):
            self.assertTrue(line.startswith("framework-options: "))
            self.assertIn(part, line)

    def test_megatron(self):
        for words, options, sizes, notes in MEGATRON:
            with self.subTest(words=words):
                status, line, lines = run("megatron", plans(words))
                sequence, micro, batch = sizes.split()
                last = f"--seq-length {sequence} --micro-batch-size {micro} --global-batch-size {batch}\n"
                self.assertEqual((status, line), (0, f"{options} {last}".lstrip()))
                self.told(lines, notes)

    def test_torchtitan(self):
        for words, changes, notes in TORCHTITAN:
            with self.subTest(words=words):
                status, line, lines = run("torchtitan", plans(words))
                self.assertEqual(status, 0)
                self.assertEqual(named(line), {**TITAN, **changes})
                self.told(lines, notes)

    def test_what_is_refused(self):
        for words, framework, message in REFUSED:
            with self.subTest(words=words):
                status, line, lines = run(framework, plans(words))
                self.assertEqual((status, line), (1, ""))
                self.told(lines, [message])

    def test_experts_are_told_by_their_number(self):
        """Not by the command that predicts the plan, which is for people."""
        raw = plans(EXPERTS + "--stages 1 --schedule 1f1b --replicas 2 --expert-parallel 2")
        row = {**json.loads(raw)[0], "options": ""}
        for framework in ("megatron", "torchtitan"):
            self.assertEqual(run(framework, json.dumps([row]).encode()), run(framework, raw))
            self.assertNotEqual(run(framework, json.dumps([{**row, "experts": 0}]).encode()), run(framework, raw))

    def test_every_schedule(self):
        listed = subprocess.run([PPSIM, "--list", "--format", "json"], capture_output=True, check=True).stdout
        schedules = {schedule["name"]: schedule for schedule in json.loads(listed)["schedules"]}
        self.assertLessEqual(HAS["torchtitan"], set(schedules))
        for name, schedule in schedules.items():
            row = json.loads(plans(PIPELINE + "--no-eval"))[0]
            two = schedule["virtual"] != 1
            row.update(schedule=name, virtual=2 if two else 1, stage_layers=[4] * 8 if two else [8] * 4)
            for framework, has in HAS.items():
                with self.subTest(name=name, framework=framework):
                    status, line, lines = run(framework, json.dumps([row]).encode())
                    self.assertEqual((status, bool(line)), (0, True) if name in has else (1, False))
                    self.assertEqual(any(f" {name}" in text for text in lines), name not in has)
            line = run("torchtitan", json.dumps([row]).encode(), "--csv", "mine.csv")[1]
            on_a_v = named(line)["pipeline_parallel_schedule"] == "ZBVZeroBubble"
            self.assertEqual(on_a_v, schedule["stage_ranks"] == [0, 1, 1, 0], name)

    def test_the_csv_that_is_named(self):
        """The command of the message writes a file, one line for each rank."""
        _, _, lines = run("torchtitan", plans(PIPELINE + "--schedule zb-h1"))
        command = lines[0].partition("written by ppsim ")[2].split()
        self.assertEqual(command[-2:], ["--emit", "csv"])
        done = subprocess.run([PPSIM, *command], capture_output=True, check=True, text=True)
        self.assertEqual([line[:3] for line in done.stdout.splitlines()], ["0F0", "1F0", "2F0", "3F0"])

    def test_a_schedule_from_a_file(self):
        cases = [("zb-h1", 1, "PipelineScheduleSingle"), ("interleaved:8", 2, "PipelineScheduleMulti")]
        for name, virtual, known in [*cases, ("v-half", 2, "ZBVZeroBubble")]:
            raw = plans(PIPELINE + f"--schedule {name} --virtual {virtual}")
            status, line, lines = run("torchtitan", raw, "--csv", "a/mine.csv")
            self.assertEqual((status, lines), (0, []))
            made = {"pipeline_parallel_schedule": known, "pipeline_parallel_schedule_csv": "a/mine.csv"}
            self.assertEqual(named(line), {**TITAN, **IN_FOUR, **made})
            status, line, lines = run("megatron", raw, "--csv", "a/mine.csv")
            self.assertEqual((status, line), (1, ""))
            self.told(lines, ["reads no schedule from a file"])
        row = {**json.loads(plans(PIPELINE))[0], "schedule": "mine.csv#5c0e"}
        status, line, lines = run("torchtitan", json.dumps([row]).encode(), "--csv", "mine.csv")
        self.told(lines, ["stage s on rank s mod 4"])
        status, line, lines = run("torchtitan", plans(SINGLE), "--csv", "mine.csv")
        self.assertEqual((status, line), (1, ""))
        self.told(lines, ["one stage has no use for --csv mine.csv"])
        for name in ("a b.csv", "*.csv", "-x", "", "a\nb"):
            status, line, lines = run("torchtitan", plans(PIPELINE), f"--csv={name}")
            self.assertEqual((status, line), (1, ""))
            self.told(lines, ["rename it"])

    def test_as_a_program(self):
        command = [sys.executable, "-B", SCRIPT, "megatron"]
        done = subprocess.run(command, input=plans(PIPELINE), capture_output=True, check=True)
        self.assertEqual(done.stdout.decode(), run("megatron", plans(PIPELINE))[1])
        done = subprocess.run([*command, "none.json"], capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertEqual(done.stderr, b"framework-options: none.json: No such file or directory\n")

    def test_lines(self):
        raw = plans(PIPELINE + "--tensor 1,2")
        for line in (1, 2):
            _, options, _ = run("megatron", raw, "-", "--line", str(line))
            self.assertEqual("--tensor-model-parallel-size 2" in options, line == 2)
        for line in ("0", "3", "-1"):
            status, _, lines = run("megatron", raw, f"--line={line}")
            self.assertEqual(status, 1)
            self.told(lines, [f"standard input has 2 plans: there is no --line {line}"])

    def test_bad_input(self):
        row = json.loads(plans(PIPELINE))[0]
        cases = [(json.dumps([{**row, **change}]).encode(), part) for change, part in BROKEN]
        cases += [(b"", "no sound JSON"), (b"\xff", "no sound JSON"), (b'[{"a": 1, "a": 1}]', "a stands twice")]
        cases += [(b"[" * 100000, "no sound JSON"), (b"[]", "has 0 plans"), (b"{}", "is no array")]
        cases += [(b"[3]", "nothing that ppsim --format json")]
        cases += [(b'[{"schedule": "1f1b", "options": ""}]', "nothing that ppsim")]
        cases.append((plans("--times 1,1,1 --stages 4"), "a plan of --times, without a model"))
        for raw, part in cases:
            for framework in HAS:
                with self.subTest(part=part):
                    status, line, lines = run(framework, raw)
                    self.assertEqual((status, line), (1, ""))
                    self.told(lines, [part])


if __name__ == "__main__":
    unittest.main()
