#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/train/ (with lab_curves.json) and tests/golden/text/tokens.json with PyTorch; the default tests
only read them.

Each case is a folder: case.json (ppkit options, losses, validation losses, test loss), init.safetensors (initial
weights), grad.safetensors (gradients of the first batch), final.safetensors (weights after all steps). Where dropout is
on, masked_model.py draws ppkit's masks. Learning rates are such that float32 and float64 agree to 1e-6 after all steps:
with the tutorials' lr of 5 on models this small they part by 1e-4, and a comparison would test chance.
"""

import argparse
import copy
import json
import pathlib

import safetensors.torch
import torch

import masked_model
import reference_model as reference
import text

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "golden"
SMALL = dict(
    preset="small",
    d_model=36,
    heads=3,
    d_ff=20,
    layers=8,
    dropout=0.0,
    data="text",
    tokens=6,
    epochs=2,
    lr=0.25,
    lr_decay=0.8,
    eval_batches=0,
)

# Chunks that do not divide the rows (10 in 4: 3,3,3,1), a last batch that is shorter (d60), replicas (d36-d2: 2 x 5
# rows).
CASES = {
    "lab": dict(preset="lab", dropout=0.0, epochs=7, chunks=2),
    "lab8": dict(
        preset="lab",
        layers=8,
        dropout=0.0,
        data="text",
        rows=7,
        epochs=2,
        max_batches=10,
        eval_batches=0,
        lr=0.1,
        chunks=3,
    ),
    "d36": dict(SMALL, rows=10, max_batches=0, chunks=4),
    "d36-d2": dict(SMALL, rows=5, replicas=2, max_batches=0, chunks=2),
    # Gradients of some biases are zero but for rounding; a small epsilon would make steps of that.
    "d36-adamw": dict(
        SMALL,
        rows=10,
        max_batches=0,
        chunks=4,
        optimizer="adamw",
        lr=0.003,
        adam_beta2=0.98,
        adam_eps=1e-4,
        weight_decay=0.1,
    ),
    "d60": dict(
        preset="small",
        d_model=60,
        heads=4,
        d_ff=28,
        layers=2,
        dropout=0.0,
        mask="none",
        data="text",
        rows=6,
        tokens=11,
        epochs=2,
        max_batches=0,
        eval_batches=0,
        lr=1.0,
        chunks=4,
    ),
    "d24-drop": dict(
        preset="small",
        d_model=24,
        heads=4,
        d_ff=20,
        layers=4,
        dropout=0.2,
        seed=12345678901,
        data="text",
        rows=5,
        tokens=7,
        replicas=2,
        epochs=2,
        max_batches=0,
        eval_batches=0,
        lr=0.25,
        chunks=3,
    ),
    # Rows of more tokens than flash works on at a time. To PyTorch's model it is no option: the results are the same.
    "d24-flash": dict(
        preset="small",
        d_model=24,
        heads=4,
        d_ff=20,
        layers=4,
        attention="flash",
        dropout=0.2,
        seed=987654321,
        data="text",
        rows=2,
        tokens=70,
        epochs=3,
        max_batches=0,
        eval_batches=0,
        lr=0.25,
        chunks=2,
    ),
}
# GPT's layers, and each half of them alone.
GPT = dict(CASES["d24-drop"], dropout=0.0, seed=1, norm="pre", activation="gelu")
CASES["d24-gpt"] = dict(GPT, replicas=1, rows=10)
CASES["d24-gpt-drop"] = dict(GPT, dropout=0.2)
CASES["d24-gelu"] = dict(GPT, norm="post")
CASES["d24-gelu-tanh"] = dict(GPT, activation="gelu-tanh")
CASES["lab-pre"] = dict(CASES["lab"], norm="pre")
# Llama's norms, activation and linears without biases.
CASES["d24-llama-parts"] = dict(
    GPT, dropout=0.2, normalization="rmsnorm", activation="swiglu", bias="no", attention="flash"
)
# Llama's heads and positions: heads that share keys and values, rotated; without and with stored scores.
LLAMA = dict(GPT, d_model=16, kv_heads=2, positions="rope", rope_theta=500000.0, tokens=9)
CASES["d16-llama"] = dict(LLAMA, attention="flash", dropout=0.2)
CASES["d16-slowed"] = dict(LLAMA, rope_factor=8.0, rope_low_freq_factor=1.0, rope_high_freq_factor=4.0)
CASES["d16-slowed"].update(rope_original_tokens=16)
CASES["d16-shared"] = dict(LLAMA, kv_heads=1, norm="post", activation="relu", mask="none", rope_theta=100.0)
# Of each head's columns some are rotated.
CASES["d18-partial"] = dict(LLAMA, d_model=18, heads=3, kv_heads=1, rotary_dim=4, dropout=0.2, attention="flash")
# YaRN: with numbers of pairs that are rounded and not, with a factor of its own, and with one of the scores.
CASES["d18-yarn"] = dict(LLAMA, d_model=18, heads=3, kv_heads=1, head_dim=12, rope_theta=50.0, rope_scaling="yarn")
CASES["d18-yarn"].update(rope_factor=8.0, rope_original_tokens=64, score_factor=1.25)
CASES["d18-yarn-pairs"] = dict(CASES["d18-yarn"], rope_truncate="no", rope_attention_factor=0.75, attention="flash")
# A window of some tokens in every second layer.
CASES["d16-window"] = dict(CASES["d16-llama"], window_size=4, window_attn_skip_freq=2)
# One tensor at both ends of the pipeline, as GPT-2 has it.
CASES["d24-tied"] = dict(GPT, tie_embeddings="yes", dropout=0.2)
# Heads that are wider together than the model, and narrower.
CASES["d16-wide"] = dict(LLAMA, head_dim=6, kv_heads=4, norm="pre", dropout=0.2)
CASES["d16-narrow"] = dict(LLAMA, head_dim=2, norm="post", attention="flash")
# Tokens that 4 workers have unequal parts of, the last one none.
CASES["d16-parts"] = dict(GPT, d_model=16, d_ff=32, tokens=5, replicas=1, dropout=0.2)
# GPT-2: learnt positions, of which there are more than tokens, no bias of the decoder, tied embeddings, its GELU.
GPT2 = dict(GPT, positions="learned", max_positions=12, bias="layers", tie_embeddings="yes", activation="gelu-tanh")
CASES["d24-gpt2"] = dict(GPT2, d_ff=32, dropout=0.2)
# A rate that rises and falls across the border of epochs, beside the decay of these.
CASES["d24-cosine"] = dict(CASES["d24-gpt"], warmup_steps=3, lr_schedule="cosine", lr_steps=11, min_lr=0.05, lr_decay=0.95)
# A rate that gets too large: the best epoch is the second of three, and the test loss that of its weights.
CASES["d24-rising"] = dict(CASES["d24-gpt"], lr_decay=5.0, epochs=3, max_batches=6)
# Experts, of whom some have no place for a token, and a loss that makes their router even.
CASES["d24-experts"] = dict(
    CASES["d24-llama-parts"],
    experts=4,
    capacity_factor=1.0,
    aux_loss=0.1,
    optimizer="adamw",
    lr=0.003,
    adam_eps=1e-4,
)
# One feed-forward for all tokens beside experts, with a gate, and gates that do not add up to 1.
CASES["d16-beside"] = dict(LLAMA, bias="qkv", experts=4, d_ff=8, capacity_factor=1.0, aux_loss=0.1, gates="all")
CASES["d16-beside"].update(activation="swiglu", shared_ff=12, shared_gate="yes", layers=2)
# DeepSeek-V3's mixture: a first layer without experts, logistic scores, gates that are scaled, a feed-forward beside
# experts; and layers without experts between others, as with Megatron-LM's --moe-layer-freq 2.
CASES["d16-deepseek"] = dict(LLAMA, bias="no", activation="swiglu", experts=4, d_ff=8, capacity_factor=1.25, aux_loss=0.1)
CASES["d16-deepseek"].update(router_score="sigmoid", gate_scale=2.5, shared_ff=8, dense_layers=1, dense_ff=24, layers=3)
CASES["d16-every"] = dict(LLAMA, bias="no", activation="gelu", experts=4, d_ff=16, capacity_factor=1.0, aux_loss=0.1)
CASES["d16-every"].update(experts_every=2, norm="post", dropout=0.2)
# Experts that are chosen with a bias, which steps change by their loads.
CASES["d18-bias"] = dict(CASES["d16-deepseek"], d_model=18, heads=3, kv_heads=1, replicas=2, rows=6, layers=2, aux_loss=0.0)
CASES["d18-bias"].update(expert_bias="yes", expert_bias_rate=0.05, shared_ff=0, optimizer="adamw", lr=0.003, adam_eps=1e-4)
# Experts of some groups, whose scores have a bias or are a softmax's; and GLM-4.5's layers.
CASES["d18-groups"] = dict(CASES["d18-bias"], experts=8, expert_groups=4, groups_per_token=2, capacity_factor=4.0)
CASES["d18-best-group"] = dict(CASES["d16-deepseek"], d_model=18, heads=3, kv_heads=1, experts=6, router_score="softmax")
CASES["d18-best-group"].update(gates="all", expert_groups=3, groups_per_token=2, group_score="best", capacity_factor=1.25)
CASES["d18-glm"] = dict(CASES["d18-groups"], bias="qkv", qk_norm="yes", head_dim=8, rotary_dim=4, shared_ff=8, replicas=1)
CASES["d18-glm"].update(lr=0.002)
# Norms of queries and keys, with an epsilon that tells, and a bias of in_proj alone.
CASES["d16-qwen"] = dict(LLAMA, qk_norm="yes", norm_epsilon=1e-3, bias="qkv", tie_embeddings="yes")
# Latent attention as DeepSeek-V2's, queries from a vector of their own, in its mixture's layers; and as DeepSeek-V2-Lite's,
# values wider than keys, in layers that end with their norms.
LATENT = dict(kv_heads=0, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, norm_epsilon=1e-3)
CASES["d17-latent"] = dict(CASES["d16-deepseek"], **LATENT, q_lora_rank=12, normalization="rmsnorm", dropout=0.2)
CASES["d17-latent"].update(attention="flash")
CASES["d17-latent-lite"] = dict(LLAMA, **LATENT, bias="no", norm="post", mask="none", rope_theta=100.0)
CASES["d17-latent-lite"].update(v_head_dim=14, qk_nope_head_dim=1, d_ff=32, tokens=8)
SAME_INIT = {"d36-d2": "d36", "d36-adamw": "d36", "d24-gpt-drop": "d24-gpt", "d24-gelu-tanh": "d24-gpt"}
SAME_INIT.update({"d24-cosine": "d24-gpt", "d24-rising": "d24-gpt"})
SAME_INIT.update({"d16-window": "d16-llama", "d18-yarn-pairs": "d18-yarn"})


def save(path, tensors):
    safetensors.torch.save_file({name: t.detach().contiguous() for name, t in tensors.items()}, path)
    path.chmod(0o644)


def record(name, given, out, model, o, parts):
    """Trains the model, writes everything but the initial weights, returns the losses."""
    loss, grads = reference.gradients(model, parts["train"][0])
    save(out / "grad.safetensors", {key: t.float() for key, t in grads.items()})
    result = reference.train(model, o, parts)
    save(out / "final.safetensors", {key: p.float() for key, p in model.named_parameters()})
    parameters = sum(p.numel() for p in model.parameters())
    case = {"options": given, "init": SAME_INIT.get(name, name), "vocabulary": o["vocab"], "parameters": parameters}
    (out / "case.json").write_text(json.dumps({**case, "first_loss": loss, **result}, indent=1) + "\n")
    return result["loss"]


def prepare(name, given, out):
    """(options, batches, initialised model); writes the initial weights."""
    o = reference.options(given)
    if o["data"] == "text":
        o["data"] = GOLDEN / "text"
    parts = reference.data(o)
    model = reference.build(o, masked_model.MaskedModel if o["dropout"] else reference.Model)
    out.mkdir(parents=True, exist_ok=True)
    if name not in SAME_INIT:
        save(out / "init.safetensors", dict(model.named_parameters()))
    return o, parts, model


def make(name, given, out):
    o, parts, model = prepare(name, given, out)
    exact = reference.train(copy.deepcopy(model).double(), o, parts)["loss"]
    losses = record(name, given, out, model, o, parts)
    noise = max(abs(a - b) / b for a, b in zip(losses, exact))
    if noise > 2e-6:
        raise SystemExit(f"{name}: float32 and float64 losses part by {noise:.1e}: choose a smaller lr")
    print(f"{name}: {len(losses)} steps, float32 noise of the losses {noise:.1e}")


def make_tokens(path):
    table, ids = text.load(GOLDEN / "text")
    path.write_text(json.dumps({"vocabulary": list(table), **ids}, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"tokens.json: vocabulary {len(table)}, {len(ids['train'])} training tokens")


def make_lab_curves(path, seeds=12, window=60):
    """The lab as it is, dropout on: mean loss of each `window` steps for several seeds. learn.py compares ppexec's
    with it."""
    curves = []
    for seed in range(seeds):
        o = reference.options(dict(preset="lab", seed=seed))
        losses = reference.train(reference.build(o), o, reference.data(o))["loss"]
        curves.append([round(sum(losses[i : i + window]) / window, 5) for i in range(0, len(losses), window)])
    path.write_text(json.dumps({"window": window, "curves": curves}) + "\n")
    print(f"lab curves: {len(curves)} seeds, last means {[curve[-1] for curve in curves]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=[*CASES, "curves"], help="only this one")
    args = parser.parse_args()
    torch.set_num_threads(1)
    make_tokens(GOLDEN / "text" / "tokens.json")
    if args.case in (None, "curves"):
        make_lab_curves(GOLDEN / "train" / "lab_curves.json")
    for name, given in CASES.items():
        if args.case in (None, name):
            make(name, given, GOLDEN / "train" / name)


if __name__ == "__main__":
    main()
