#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/convert-weights over tiny Qwen2 and Qwen3 models made by hand, dense and of experts, there and back."""

import json
import unittest

from tiny_models import LLAMA, LLAMA_NAMES, LLAMA_SHAPES
from tiny_models import ABSENT, Case, numbered, raw_tensors

ATTENTION = "model.layers.0.self_attn."
QWEN2 = dict(LLAMA, model_type="qwen2", architectures=["Qwen2ForCausalLM"], rms_norm_eps=1e-6, head_dim=ABSENT)
QWEN2.update(use_sliding_window=False, sliding_window=131072)
QWEN2_SHAPES = dict(LLAMA_SHAPES, **{f"{ATTENTION}{x}_proj.bias": [4 if x == "q" else 2] for x in "qkv"})
QWEN2_NAMES = dict(LLAMA_NAMES, **{"layers.0.self_attn.in_proj_bias": [f"{ATTENTION}{x}_proj.bias" for x in "qkv"]})
QWEN3 = dict(LLAMA, model_type="qwen3", architectures=["Qwen3ForCausalLM"], rms_norm_eps=1e-6)
QWEN3_SHAPES = dict(LLAMA_SHAPES, **{f"{ATTENTION}{x}_norm.weight": [2] for x in "qk"})
QWEN3_NAMES = dict(
    LLAMA_NAMES, **{f"layers.0.self_attn.{x}_norm.weight": [f"{ATTENTION}{x}_norm.weight"] for x in "qk"}
)
EXPERTS = "model.layers.0.mlp.experts."
MOE = dict(QWEN3, model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], moe_intermediate_size=3)
MOE.update(intermediate_size=7, num_experts=3, num_experts_per_tok=2, norm_topk_prob=True)
MOE_SHAPES = {name: shape for name, shape in QWEN3_SHAPES.items() if ".mlp." not in name}
MOE_SHAPES["model.layers.0.mlp.gate.weight"] = [3, 4]
for i in range(3):
    MOE_SHAPES.update({f"{EXPERTS}{i}.{name}_proj.weight": [3, 4] for name in ("gate", "up")})
    MOE_SHAPES[f"{EXPERTS}{i}.down_proj.weight"] = [4, 3]
MOE_NAMES = dict(
    QWEN3_NAMES,
    **{
        "layers.0.router.weight": ["model.layers.0.mlp.gate.weight"],
        "layers.0.linear1.weight": [f"{EXPERTS}{i}.{name}_proj.weight" for i in range(3) for name in ("gate", "up")],
        "layers.0.linear2.weight": [f"{EXPERTS}{i}.down_proj.weight" for i in range(3)],
    },
)
# Qwen2's mixture: biases, gates of all experts, and a feed-forward beside them.
BESIDE = dict(MOE, model_type="qwen2_moe", architectures=["Qwen2MoeForCausalLM"], head_dim=ABSENT)
BESIDE.update(shared_expert_intermediate_size=2, norm_topk_prob=False)
BESIDE_SHAPES = {name: shape for name, shape in MOE_SHAPES.items() if "_norm." not in name}
BESIDE_SHAPES.update({f"{ATTENTION}{x}_proj.bias": [4 if x == "q" else 2] for x in "qkv"})
SHARED = "model.layers.0.mlp.shared_expert"
BESIDE_SHAPES.update({f"{SHARED}.{x}_proj.weight": [4, 2] if x == "down" else [2, 4] for x in ("gate", "up", "down")})
BESIDE_SHAPES[f"{SHARED}_gate.weight"] = [1, 4]
BESIDE_NAMES = {name: theirs for name, theirs in MOE_NAMES.items() if "_norm." not in name}
BESIDE_NAMES.update(
    {
        "layers.0.self_attn.in_proj_bias": QWEN2_NAMES["layers.0.self_attn.in_proj_bias"],
        "layers.0.shared.linear1.weight": [f"{SHARED}.gate_proj.weight", f"{SHARED}.up_proj.weight"],
        "layers.0.shared.linear2.weight": [f"{SHARED}.down_proj.weight"],
        "layers.0.shared.gate.weight": [f"{SHARED}_gate.weight"],
    }
)
SIZES = "--norm pre --mask causal --dropout 0 --d-model 4 --heads 2 --kv-heads 1 --head-dim 2 --d-ff 3 --layers 1 "
SIZES += "--vocab 5 --normalization rmsnorm --norm-epsilon 1e-06 --activation swiglu "
ENDS = "--positions rope --rope-theta 500000.0 "
MIXTURE = "--experts 3 --experts-per-token 2 --capacity-factor 1.5 --aux-loss 0.001 "
KINDS = [  # configuration, shapes, ppkit's names, options
    (QWEN2, QWEN2_SHAPES, QWEN2_NAMES, "--bias qkv " + ENDS),
    (QWEN3, QWEN3_SHAPES, QWEN3_NAMES, "--bias no --qk-norm yes " + ENDS),
    (MOE, MOE_SHAPES, MOE_NAMES, f"--bias no --qk-norm yes {ENDS}{MIXTURE}"),
    (BESIDE, BESIDE_SHAPES, BESIDE_NAMES, f"--bias qkv {ENDS}{MIXTURE}--gates all --shared-ff 2 --shared-gate yes "),
]
REFUSED = [
    (QWEN2, dict(use_sliding_window=True, max_window_layers="0"), 'max_window_layers is "0"'),
    (QWEN2, dict(num_key_value_heads=2), "k_proj.weight is [2, 4], but by config.json [4, 4]"),
    (QWEN3, dict(attention_bias=True), "attention_bias is true, but ppkit has biases in all linears of a layer"),
    (QWEN3, dict(head_dim=ABSENT), "q_proj.weight is [4, 4], but by config.json [256, 4]"),
    (QWEN3, dict(model_type="qwen2", architectures=ABSENT), "has no model.layers.0.self_attn.q_proj.bias"),
    (QWEN3, dict(model_type="llama", architectures=ABSENT), "k_norm.weight, which no model of this config.json has"),
    (QWEN3, dict(rms_norm_eps=0), "rms_norm_eps is 0, but must be a number above 0, at most 1"),
    (MOE, dict(norm_topk_prob=1), "norm_topk_prob is 1, but must be true or false"),
    (MOE, dict(model_type="qwen2_moe", architectures=ABSENT), "has no model.layers.0.self_attn.q_proj.bias"),
    (BESIDE, dict(shared_expert_intermediate_size=3), "shared_expert.gate_proj.weight is [2, 4], but by config.json [3, 4]"),
    (BESIDE, dict(qkv_bias=False), "k_proj.bias, which no model of this config.json has"),
    (MOE, dict(mlp_only_layers=[0]), "mlp_only_layers is [0], but all layers of a mixture of ppkit have experts"),
    (MOE, dict(decoder_sparse_step=2), "decoder_sparse_step is 2"),
    (MOE, dict(moe_intermediate_size=2), "experts.0.gate_proj.weight is [3, 4], but by config.json [2, 4]"),
]


def present(values):
    return {name: value for name, value in values.items() if value is not ABSENT}


class Qwen(Case):
    def test_there_and_back(self):
        for config, shapes, names, words in KINDS:
            with self.subTest(kind=config["model_type"]):
                tensors = numbered(shapes)
                self.put(present(config), tensors)
                self.assertEqual(self.convert(), f"{SIZES}{words}--tie-embeddings no")
                self.expect_joined(tensors, names)
                back = self.root / config["model_type"]
                made = self.run_script("--to-huggingface", self.folder / "config.json", self.file, back)
                self.assertEqual(made, (0, "", ""))
                first = raw_tensors(self.folder / "model.safetensors")
                self.assertEqual(raw_tensors(back / "model.safetensors"), first)
                expected = dict(present(config), dtype="float32")
                expected.pop("torch_dtype", None)
                self.assertEqual(json.loads((back / "config.json").read_text()), expected)

    def test_biases_of_a_qwen2_are_what_they_are(self):
        self.put(present(dict(QWEN2, attention_bias=True, mlp_bias=True)), numbered(QWEN2_SHAPES))
        self.assertEqual(self.convert(), f"{SIZES}--bias qkv {ENDS}--tie-embeddings no")

    def test_what_a_qwen_means_by_itself(self):
        values = {name: value for name, value in QWEN3.items() if name not in ("rms_norm_eps", "num_key_value_heads")}
        self.put(dict(values, num_attention_heads=64), {})
        _, options, _ = self.run_script(self.folder)
        for words in ("--kv-heads 32", "--norm-epsilon 1e-06"):
            self.assertIn(words + " ", options)

    def test_fused_experts(self):
        shapes = {name: shape for name, shape in MOE_SHAPES.items() if not name.startswith(EXPERTS)}
        shapes.update({EXPERTS + "gate_up_proj": [3, 6, 4], EXPERTS + "down_proj": [3, 4, 3]})
        tensors = numbered(shapes)
        self.put(MOE, tensors)
        self.convert()
        fused, made = raw_tensors(self.folder / "model.safetensors"), raw_tensors(self.file)
        for theirs, mine, shape in (("gate_up_proj", "linear1", [18, 4]), ("down_proj", "linear2", [12, 3])):
            self.assertEqual(made[f"layers.0.{mine}.weight"], (shape, fused[EXPERTS + theirs][1]))

    def test_what_is_refused(self):
        shapes = {kind["model_type"]: of for kind, of, _, _ in KINDS}
        for base, change, message in REFUSED:
            self.refuse_changes(base, shapes[base["model_type"]], [(change, message)])


if __name__ == "__main__":
    unittest.main()
