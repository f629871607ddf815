#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gives what scripts/framework-options prints to the frameworks themselves, for the plans of test_framework_options.py.

  check_framework_options.py build/release/bin/ppsim

torchtitan parses its options, and makes degrees, a schedule and stages of them. Megatron Core knows their names and
parses layouts; it has no arguments.py, so a few names are not seen. Needs PyTorch, torchtitan and megatron-core (2.15,
0.3.0 and 0.16.1; of the last two `pip install --no-deps` and what they then miss); no GPU.
"""

import dataclasses
import json
import types

import test_framework_options as cases

from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer.optimizer_config import OptimizerConfig
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.distributed.pipelining.schedules import get_schedule_class
from torchtitan.config.manager import ConfigManager
from torchtitan.distributed import pipeline_parallel
from torchtitan.distributed.parallel_dims import ParallelDims

POLICIES = {"none": "NoneType", "full": "FullAC.Config"}
# Options of arguments.py that Megatron Core's configurations do not have, or have by another name.
OTHERS = {"accumulate_allreduce_grads_in_fp32", "ckpt_format", "fp8_format", "global_batch_size", "grad_reduce_in_bf16"}
OTHERS |= {
    "micro_batch_size",
    "microbatch_group_size_per_virtual_pipeline_stage",
    "num_virtual_stages_per_pipeline_rank",
}
OTHERS |= {"seq_length"}


def differ(words, what, made, wanted):
    if made != wanted:
        raise SystemExit(f"{words}: {what} is {made}, not {wanted}")


def row_of(words):
    return json.loads(cases.plans(words))[0]


def stages_of(config, row):
    """Layers of each stage."""
    pipeline, layers = config.parallelism, sum(row["stage_layers"])
    model = types.SimpleNamespace(layers=[None] * layers)
    dims = types.SimpleNamespace(pp=pipeline.pipeline_parallel_degree)
    metadata = pipeline_parallel._get_pipeline_metadata(dims, pipeline, model)
    made = pipeline.module_fqns_per_model_part or pipeline_parallel._generate_llm_fqn_per_model_part(*metadata)
    differ(row["options"], "all modules", made[0][0], "tok_embeddings")
    return [sum(name.startswith("layers.") for name in part) for part in made]


def check_torchtitan(words, changes):
    row, (_, line, _) = row_of(words), cases.run("torchtitan", cases.plans(words))
    config = ConfigManager().parse_args(["--module", "llama3", "--config", "llama3_debugmodel", *line.split()])
    values = {**cases.TITAN, **changes}
    policy = values.pop("activation-checkpoint")
    differ(words, "recomputation", type(config.activation_checkpoint).__qualname__, POLICIES[policy])
    for name, value in values.items():
        negated = name.startswith("no_")
        field = name.removeprefix("no_")
        section = next(part for part in (config.parallelism, config.training, config.compile) if hasattr(part, field))
        made = getattr(section, field)
        if field != "module_fqns_per_model_part":
            differ(words, name, str(made), value or str(not negated))
    world = row["stages"] * row["tensor"] * row["context_parallel"] * row["replicas"]
    dims = ParallelDims.from_config(config.parallelism, world)
    differ(words, "ranks that share experts", dims.dp_shard * dims.cp * dims.tp % dims.ep, 0)
    if row["stages"] > 1:
        get_schedule_class(config.parallelism.pipeline_parallel_schedule)
        differ(words, "stages", stages_of(config, row), row["stage_layers"])


def check_megatron(words):
    row, (_, line, _) = row_of(words), cases.run("megatron", cases.plans(words))
    known = {field.name for kind in (TransformerConfig, DistributedDataParallelConfig, OptimizerConfig)
             for field in dataclasses.fields(kind)}  # fmt: skip
    for option in line.split("--")[1:]:
        name, _, value = option.strip().partition(" ")
        if name.replace("-", "_") not in known | OTHERS:
            raise SystemExit(f"{words}: Megatron Core knows nothing of --{name}")
        if name == "pipeline-model-parallel-layout":
            layout = PipelineParallelLayerLayout(value, row["stages"])
            layout.validate_layer_layout(sum(row["stage_layers"]), None)
            made = [layout.layout[s % row["stages"]][s // row["stages"]] for s in range(len(row["stage_layers"]))]
            counts = [sum(kind.name == "decoder" for kind in stage) for stage in made]
            differ(words, "layout", counts, row["stage_layers"])


def main():
    for words, changes, _ in cases.TORCHTITAN:
        check_torchtitan(words, changes)
    for words, *_ in cases.MEGATRON:
        check_megatron(words)
    print(f"{len(cases.TORCHTITAN)} plans for torchtitan and {len(cases.MEGATRON)} for Megatron-LM are read as meant")


if __name__ == "__main__":
    main()
