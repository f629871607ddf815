#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares ppexec with Hugging Face's models: a developer's tool, needs a Python with torch and transformers.

  check_huggingface.py --ppexec PATH [--only TEXT] [--dice N]

Small models with random weights are saved by transformers, converted by scripts/convert-weights, and read by ppexec,
which is given tokens as nanoGPT has them. Losses of a training batch and of an evaluation must be transformers' to
1e-5. What ppexec saves is converted back: every tensor is then that of transformers' file, bit for bit, and transformers
reads it. And of the models that scripts/model-options knows, at full size and without weights: ppsim's number of
parameters must be theirs but for a thousandth.
"""

import argparse
import array
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
CONVERT = SCRIPTS / "convert-weights"
ROWS, TOKENS, WORDS = 3, 11, 200
TOLERANCE = 1e-5

GPT2 = dict(vocab_size=97, n_embd=24, n_head=4, n_layer=3, n_positions=32)
LLAMA = dict(vocab_size=97, hidden_size=24, intermediate_size=40, num_attention_heads=4, num_hidden_layers=3)
LLAMA.update(rms_norm_eps=1e-5)
LLAMA31_ROPE = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
LLAMA31_ROPE.update(original_max_position_embeddings=16)  # so that rotations of all three kinds are there
YARN = dict(rope_type="yarn", rope_theta=500.0, factor=8.0, original_max_position_embeddings=64)
SMALL = dict(LLAMA, rms_norm_eps=1e-3)  # an epsilon that tells
QWEN2 = dict(SMALL, num_key_value_heads=2)
QWEN3 = dict(QWEN2, head_dim=8)
WINDOW = dict(use_sliding_window=True, sliding_window=4, num_hidden_layers=4)
QWEN3_MOE = dict(QWEN3, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=True)
QWEN2_MOE = dict(QWEN2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
QWEN2_MOE.update(shared_expert_intermediate_size=28, norm_topk_prob=False)
DOTS1 = dict(QWEN2, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, n_shared_experts=2)
DOTS1.update(first_k_dense_replace=1, routed_scaling_factor=2.5, norm_topk_prob=True)
GLM4_MOE = dict(DOTS1, head_dim=8, n_routed_experts=8, n_shared_experts=1, attention_bias=True, use_qk_norm=False)
GLM4_MOE.update(routed_scaling_factor=1.0)
SOLAR_OPEN = {name: value for name, value in GLM4_MOE.items() if name not in ("first_k_dense_replace", "use_qk_norm")}
SOLAR_OPEN.update(attention_bias=False)
MIXTRAL = dict(LLAMA, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2)
DEEPSEEK = dict(LLAMA, rms_norm_eps=1e-6, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5)
DEEPSEEK.update(q_lora_rank=14, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, n_shared_experts=2)
DEEPSEEK.update(first_k_dense_replace=1, routed_scaling_factor=1.5, n_group=1, topk_group=1, num_key_value_heads=4)
CASES = {  # kind, configuration, how it is saved
    "gpt2": ("GPT2", GPT2, {}),
    "gpt2-inner": ("GPT2", dict(GPT2, n_inner=40, activation_function="gelu", n_positions=TOKENS), {}),
    "gpt2-untied": ("GPT2", dict(GPT2, tie_word_embeddings=False), {}),
    "gpt2-parts": ("GPT2", GPT2, dict(max_shard_size="12KB")),
    "gpt2-float16": ("GPT2", GPT2, dict(dtype=torch.float16)),
    "llama": ("Llama", LLAMA, {}),
    "llama-grouped": ("Llama", dict(LLAMA, num_key_value_heads=2), {}),
    "llama-head-dim": ("Llama", dict(LLAMA, num_key_value_heads=1, head_dim=10), {}),
    "llama-tied": ("Llama", dict(LLAMA, tie_word_embeddings=True), {}),
    "llama-theta": ("Llama", dict(LLAMA, rope_parameters=dict(rope_type="default", rope_theta=500000.0)), {}),
    "llama-3.1": ("Llama", dict(LLAMA, rope_parameters=LLAMA31_ROPE), {}),
    "llama-yarn": ("Llama", dict(LLAMA, head_dim=12, rope_parameters=YARN), {}),
    "llama-yarn-pairs": ("Llama", dict(LLAMA, head_dim=12, rope_parameters=dict(YARN, truncate=False, beta_fast=8.0)), {}),
    "llama-yarn-factor": ("Llama", dict(LLAMA, rope_parameters=dict(YARN, mscale=0.7, mscale_all_dim=1.0)), {}),
    "llama-linear": ("Llama", dict(LLAMA, rope_parameters=dict(rope_type="linear", rope_theta=500.0, factor=4.0)), {}),
    "llama-parts": ("Llama", dict(LLAMA, num_key_value_heads=2), dict(max_shard_size="12KB")),
    "llama-bfloat16": ("Llama", LLAMA, dict(dtype=torch.bfloat16)),
    "llama-wide": ("Llama", dict(LLAMA, vocab_size=70001), {}),
    "llama-epsilon": ("Llama", SMALL, {}),
    "mistral": ("Mistral", dict(LLAMA, num_key_value_heads=2, head_dim=8, sliding_window=None), {}),
    "mistral-window": ("Mistral", dict(LLAMA, num_key_value_heads=2, sliding_window=4), {}),
    "mixtral": ("Mixtral", MIXTRAL, {}),
    "mixtral-window": ("Mixtral", dict(MIXTRAL, sliding_window=3), {}),
    "mixtral-chosen": ("Mixtral", dict(MIXTRAL, num_local_experts=7, num_experts_per_tok=3), {}),
    "mixtral-one": ("Mixtral", dict(MIXTRAL, num_experts_per_tok=1, tie_word_embeddings=True), {}),
    "mixtral-parts": ("Mixtral", MIXTRAL, dict(max_shard_size="12KB")),
    "mixtral-fused": ("Mixtral", MIXTRAL, dict(save_original_format=False)),
    "mixtral-bfloat16": ("Mixtral", MIXTRAL, dict(dtype=torch.bfloat16)),
    "qwen2": ("Qwen2", QWEN2, {}),
    "qwen2-tied": ("Qwen2", dict(QWEN2, tie_word_embeddings=True), dict(max_shard_size="12KB")),
    "qwen2-window": ("Qwen2", dict(QWEN2, **WINDOW, max_window_layers=0), {}),
    "qwen2-no-window": ("Qwen2", dict(QWEN2, **WINDOW), {}),
    "qwen2-experts-window": ("Qwen2Moe", dict(QWEN2_MOE, **WINDOW), {}),
    "qwen3-window": ("Qwen3", dict(QWEN3, **WINDOW, layer_types=["sliding_attention", "full_attention"] * 2), {}),
    "qwen3-experts-window": ("Qwen3Moe", dict(QWEN3_MOE, **WINDOW), {}),
    "qwen2-experts": ("Qwen2Moe", QWEN2_MOE, {}),
    "qwen2-experts-plain": ("Qwen2Moe", dict(QWEN2_MOE, qkv_bias=False, norm_topk_prob=True), {}),
    "qwen2-experts-fused": ("Qwen2Moe", dict(QWEN2_MOE, num_experts=7), dict(save_original_format=False)),
    "qwen3": ("Qwen3", QWEN3, {}),
    "qwen3-bfloat16": ("Qwen3", dict(QWEN3, tie_word_embeddings=True), dict(dtype=torch.bfloat16)),
    "qwen3-experts": ("Qwen3Moe", QWEN3_MOE, {}),
    "qwen3-experts-of-all": ("Qwen3Moe", dict(QWEN3_MOE, norm_topk_prob=False), {}),
    "qwen3-experts-fused": ("Qwen3Moe", dict(QWEN3_MOE, num_experts=7), dict(save_original_format=False)),
    "qwen2-experts-some": ("Qwen2Moe", dict(QWEN2_MOE, num_hidden_layers=5, decoder_sparse_step=2), {}),
    "qwen3-experts-some": ("Qwen3Moe", dict(QWEN3_MOE, mlp_only_layers=[0, 1]), {}),
    "dots1": ("Dots1", DOTS1, {}),
    "dots1-of-all": ("Dots1", dict(DOTS1, first_k_dense_replace=0, norm_topk_prob=False), {}),
    "dots1-groups": ("Dots1", dict(DOTS1, n_routed_experts=8, n_group=4, topk_group=2), {}),
    "glm4_moe": ("Glm4Moe", GLM4_MOE, {}),
    "glm4_moe-norms": ("Glm4Moe", dict(GLM4_MOE, use_qk_norm=True, attention_bias=False, routed_scaling_factor=2.5), {}),
    "glm4_moe-groups": ("Glm4Moe", dict(GLM4_MOE, n_group=4, topk_group=2, n_shared_experts=2, first_k_dense_replace=2), {}),
    "glm4_moe-yarn": ("Glm4Moe", dict(GLM4_MOE, rope_parameters=dict(YARN, partial_rotary_factor=0.5)), {}),
    "glm4_moe-fused": ("Glm4Moe", GLM4_MOE, dict(save_original_format=False)),
    "solar_open": ("SolarOpen", SOLAR_OPEN, {}),
    "solar_open-groups": ("SolarOpen", dict(SOLAR_OPEN, n_group=2, topk_group=1, routed_scaling_factor=2.5), {}),
    "dots1-fused": ("Dots1", DOTS1, dict(save_original_format=False)),
    "deepseek-v2": ("DeepseekV2", DEEPSEEK, {}),
    "deepseek-v2-lite": ("DeepseekV2", dict(DEEPSEEK, q_lora_rank=None, v_head_dim=8), dict(max_shard_size="12KB")),
    "deepseek-v3": ("DeepseekV3", DEEPSEEK, {}),
    "deepseek-v3-halves": ("DeepseekV3", dict(DEEPSEEK, rope_interleave=False, norm_topk_prob=False), {}),
    "deepseek-v2-groups": ("DeepseekV2", dict(DEEPSEEK, n_routed_experts=8, n_group=4, topk_group=2, topk_method="group_limited_greedy"), {}),
    "deepseek-v2-yarn": ("DeepseekV2", dict(DEEPSEEK, rope_parameters=dict(YARN, mscale=0.7, mscale_all_dim=0.7)), {}),
    "deepseek-v3-groups": ("DeepseekV3", dict(DEEPSEEK, n_routed_experts=8, n_group=4, topk_group=2), {}),
    "deepseek-v3-yarn": ("DeepseekV3", dict(DEEPSEEK, rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=0.5)), {}),
    "deepseek-v3-fused": ("DeepseekV3", dict(DEEPSEEK, q_lora_rank=None), dict(save_original_format=False)),
}


PLANNED = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2", "olmo3")
PLANNED += ("smollm3", "granite", "glm4", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "phimoe")
PLANNED += ("gpt_oss", "dots1", "glm4_moe", "solar_open", "deepseek_v2", "deepseek_v3")
SIZES = {"glm4_moe": dict(head_dim=128, attention_bias=True)}
SIZES["dots1"] = dict(n_routed_experts=128, num_experts_per_tok=6, n_shared_experts=2, first_k_dense_replace=1)
SIZES["deepseek_v2"] = dict(num_experts_per_tok=6, first_k_dense_replace=1)
PARAMETERS_OFF = 1e-3  # biases, and norms of heads


class Failure(Exception):
    pass


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def read_model(kind, folder):
    """In float64, which not every way to compute experts has."""
    return kind.from_pretrained(folder, dtype=torch.float32, experts_implementation="eager").double()


def make_model(kind, values, how, folder):
    """Saved, and read again."""
    config = getattr(transformers, kind + "Config")(**values)
    made = getattr(transformers, "GPT2LMHeadModel" if kind == "GPT2" else kind + "ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, weight in made.named_parameters():
            weight.normal_(1.0 if weight.dim() == 1 and name.endswith("weight") else 0.0, 0.2)
        for name, weight in made.named_buffers():
            if name.endswith("e_score_correction_bias"):
                weight.normal_(0.0, 0.2)
    options = dict(how)
    made.to(options.pop("dtype", torch.float32)).save_pretrained(folder, **options)
    return read_model(type(made), folder)


def write_tokens(folder, vocabulary, dice):
    """{part: tokens}"""
    folder.mkdir()
    parts = {}
    for name in ("train", "val"):
        parts[name] = [dice.randrange(vocabulary) for _ in range(WORDS)]
        numbers = array.array("H" if vocabulary <= 65536 else "I", parts[name])
        (folder / f"{name}.bin").write_bytes(numbers.tobytes())
    return parts


def loss_of(model, tokens):
    """Of the first batch."""
    n = len(tokens) // ROWS
    rows = torch.tensor([tokens[row * n : row * n + TOKENS + 1] for row in range(ROWS)])
    with torch.no_grad():
        logits = model(rows[:, :-1]).logits
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()))


def expect_close(what, value, expected):
    if not abs(value - expected) <= TOLERANCE * abs(expected):
        raise Failure(f"{what} is {value}, of transformers {expected}")
    return abs(value - expected) / abs(expected)


def saved_tensors(folder):
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def split(tensors, kind):
    """Experts one by one, with the names that they have then."""
    place, ups, down = "block_sparse_moe", ("w1", "w3"), ("w2",)
    if kind in ("Qwen2Moe", "Qwen3Moe", "Dots1", "Glm4Moe", "SolarOpen", "DeepseekV2", "DeepseekV3"):
        place, ups, down = "mlp", ("gate_proj", "up_proj"), ("down_proj",)
    made = {}
    for name, tensor in tensors.items():
        name = name.replace(".mlp.gate.", f".{place}.gate.")
        layer, _, what = name.partition(".mlp.experts.")
        fused = what in ("gate_up_proj", "down_proj")
        for i, expert in enumerate(tensor if fused else ()):
            names = ups if what == "gate_up_proj" else down
            for part, matrix in zip(names, expert.chunk(len(names))):
                made[f"{layer}.{place}.experts.{i}.{part}.weight"] = matrix
        if not fused:
            made[name] = tensor
    return made


def compare_tensors(first, back, kind):
    """16 bits come back as 32."""
    mine, theirs = saved_tensors(back), split(saved_tensors(first), kind)
    if set(mine) != set(theirs):
        raise Failure(f"tensors that only one has: {sorted(set(mine) ^ set(theirs))}")
    for name, tensor in theirs.items():
        if not torch.equal(mine[name].view(torch.int32), tensor.float().view(torch.int32)):
            raise Failure(f"{name} came back with other bits")


def check(args, kind, values, how, folder):
    dice = random.Random(args.dice)
    torch.manual_seed(args.dice)
    model = make_model(kind, values, how, folder / "first")
    tokens = write_tokens(folder / "tokens", model.config.vocab_size, dice)
    options = run(CONVERT, folder / "first", folder / "first.st").split()
    words = ["--init", folder / "first.st", "--save", folder / "same.st", "--data", folder / "tokens", "--lr", 0]
    words += ["--rows", ROWS, "--tokens", TOKENS, "--eval-rows", ROWS, "--chunks", ROWS, "--format", "json"]
    words += ["--expert-bias-rate", 0] if "--expert-bias" in options else []
    words += ["--epochs", 1, "--max-batches", 1, "--eval-batches", 1, "--optimizer", "sgd"]
    result = json.loads(run(args.ppexec, *options, *words))[0]
    trained = expect_close("the loss", result["loss"][0], loss_of(model, tokens["train"]))
    evaluated = expect_close("the validation loss", result["valid_loss"][0], loss_of(model, tokens["val"]))
    for file in ("first.st", "same.st"):
        back = folder / f"back-{file}"
        run(CONVERT, "--to-huggingface", folder / "first" / "config.json", folder / file, back)
        compare_tensors(folder / "first", back, kind)
    again = loss_of(read_model(type(model), back), tokens["train"])
    expect_close("the loss of what came back", again, loss_of(model, tokens["train"]))
    return f"loss {result['loss'][0]:.6f}, off by {max(trained, evaluated):.0e}"


def check_plan(args, kind, folder):
    config = transformers.CONFIG_MAPPING[kind](**SIZES.get(kind, {}))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    config.save_pretrained(folder)
    ppsim = pathlib.Path(args.ppexec).with_name("ppsim")
    words = ["--tokens", TOKENS, "--stages", 1, "--chunks", 1, "--no-eval", "--format", "json"]
    mine = json.loads(run(ppsim, *run(SCRIPTS / "model-options", folder).split(), *words))[0]["parameters"]
    theirs = sum(weight.numel() for weight in model.parameters())
    if abs(mine - theirs) > PARAMETERS_OFF * theirs:
        raise Failure(f"{mine} parameters, of transformers {theirs}")
    return f"{theirs} parameters, {mine - theirs:+d}"


def cases(args):
    """(name, what checks it in a folder)"""
    for name, case in CASES.items():
        yield name, lambda folder, case=case: check(args, *case, folder)
    for kind in PLANNED:
        yield f"plan of {kind}", lambda folder, kind=kind: check_plan(args, kind, folder)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--ppexec", required=True)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds it")
    parser.add_argument("--dice", type=int, default=0, help="seed of weights and tokens")
    args = parser.parse_args()
    failures = 0
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name, checked in cases(args):
        if args.only not in name:
            continue
        with tempfile.TemporaryDirectory() as keep:
            try:
                print("ok     ", name, checked(pathlib.Path(keep)), flush=True)
            except Failure as failure:
                failures += 1
                print("FAILED ", name, failure, flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
