#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/convert-weights over tiny Qwen2, Qwen3 and dots.llm1 models made by hand, dense and of experts, there and
back."""

import unittest

from tiny_models import LLAMA, LLAMA_NAMES, LLAMA_SHAPES
from tiny_models import ABSENT, Case, numbered, present, raw_tensors

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
# Three layers, of which the second has experts; and of DeepSeek's kind the first has none.
SPARSE = dict(MOE, num_hidden_layers=3, decoder_sparse_step=2)
SPARSE_SHAPES, SPARSE_NAMES = {}, {}
for i in range(3):
    shapes, names = (MOE_SHAPES, MOE_NAMES) if i == 1 else (QWEN3_SHAPES, QWEN3_NAMES)
    wide = {name: [7 if n == 3 and i != 1 and ".mlp." in name else n for n in shape] for name, shape in shapes.items()}
    SPARSE_SHAPES.update({name.replace("layers.0.", f"layers.{i}."): shape for name, shape in wide.items()})
    renamed = {name: [part.replace("layers.0.", f"layers.{i}.") for part in parts] for name, parts in names.items()}
    SPARSE_NAMES.update({name.replace("layers.0.", f"layers.{i}."): parts for name, parts in renamed.items()})
DOTS = dict(MOE, model_type="dots1", architectures=["Dots1ForCausalLM"], num_hidden_layers=2, first_k_dense_replace=1)
DOTS.update(n_routed_experts=3, num_experts=ABSENT, n_shared_experts=2, routed_scaling_factor=2.5, scoring_func="sigmoid")
ADDED = "model.layers.1.mlp.gate.e_score_correction_bias"
DOTS_SHAPES = {name: shape for name, shape in SPARSE_SHAPES.items() if ".layers.2." not in name}
DOTS_SHAPES.update({ADDED: [3]})
BESIDE_DOTS = "model.layers.1.mlp.shared_experts."
DOTS_SHAPES.update({f"{BESIDE_DOTS}{x}_proj.weight": [4, 6] if x == "down" else [6, 4] for x in ("gate", "up", "down")})
DOTS_NAMES = {name: parts for name, parts in SPARSE_NAMES.items() if not name.startswith("layers.2.")}
DOTS_NAMES["layers.1.shared.linear1.weight"] = [f"{BESIDE_DOTS}{x}_proj.weight" for x in ("gate", "up")]
DOTS_NAMES["layers.1.shared.linear2.weight"] = [BESIDE_DOTS + "down_proj.weight"]
DOTS_NAMES["layers.1.router.expert_bias"] = [ADDED]
# GLM-4.5's: biases of queries, keys and values, half of a head is rotated; Solar Open's: all layers have experts.
GLM = dict(DOTS, model_type="glm4_moe", architectures=["Glm4MoeForCausalLM"], head_dim=4, attention_bias=True)
GLM.update(n_group=1, topk_group=1, num_nextn_predict_layers=1, rms_norm_eps=1e-6)
PLAIN_DOTS = {name: shape for name, shape in DOTS_SHAPES.items() if "_norm." not in name}
GLM_SHAPES = {name: [2 * n if i == 0 and "self_attn" in name else n for i, n in enumerate(shape)] for name, shape in PLAIN_DOTS.items()}
GLM_SHAPES.update({name: [4, 8] for name in GLM_SHAPES if "o_proj" in name})
GLM_NAMES = {name: parts for name, parts in DOTS_NAMES.items() if "_norm." not in name}
for i in range(2):
    place = f"model.layers.{i}.self_attn."
    GLM_SHAPES.update({f"{place}{x}_proj.bias": [8 if x == "q" else 4] for x in "qkv"})
    GLM_NAMES[f"layers.{i}.self_attn.in_proj_bias"] = [f"{place}{x}_proj.bias" for x in "qkv"]
SIZES = "--norm pre --mask causal --dropout 0 --d-model 4 --heads 2 --kv-heads 1 --head-dim 2 --d-ff 3 --layers 1 "
SIZES += "--vocab 5 --normalization rmsnorm --norm-epsilon 1e-06 --activation swiglu "
ENDS = "--positions rope --rope-theta 500000.0 "
MIXTURE = "--experts 3 --experts-per-token 2 --capacity-factor 1.5 --aux-loss 0.001 "
SPARSE_WORDS = "--dense-layers 1 --experts-every 2 --dense-ff 7 "
DOTS_WORDS = "--experts 3 --experts-per-token 2 --capacity-factor 1.5 --aux-loss 0.0 --router-score sigmoid --shared-ff 6 "
DOTS_WORDS += "--expert-bias yes --gate-scale 2.5 --dense-layers 1 --experts-every 1 --dense-ff 7 "
KINDS = [  # configuration, shapes, ppkit's names, options
    (QWEN2, QWEN2_SHAPES, QWEN2_NAMES, "--bias qkv " + ENDS),
    (QWEN3, QWEN3_SHAPES, QWEN3_NAMES, "--bias no --qk-norm yes " + ENDS),
    (MOE, MOE_SHAPES, MOE_NAMES, f"--bias no --qk-norm yes {ENDS}{MIXTURE}"),
    (SPARSE, SPARSE_SHAPES, SPARSE_NAMES, f"--bias no --qk-norm yes {ENDS}{MIXTURE}{SPARSE_WORDS}"),
    (DOTS, DOTS_SHAPES, DOTS_NAMES, f"--bias no --qk-norm yes {ENDS}{DOTS_WORDS}"),
    (GLM, GLM_SHAPES, GLM_NAMES, f"--bias qkv {ENDS}--rotary-dim 2 {DOTS_WORDS}"),
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
    (MOE, dict(mlp_only_layers=[0]), "mlp_only_layers is [0], but then no layer has experts"),
    (MOE, dict(mlp_only_layers=0), "mlp_only_layers is 0, but must be a list of layers"),
    (MOE, dict(decoder_sparse_step=2), "decoder_sparse_step is 2, but then no layer has experts"),
    (SPARSE, dict(num_hidden_layers=8, mlp_only_layers=[3]), "mlp_only_layers is [3], but of ppkit's layers every N-th"),
    (SPARSE, dict(decoder_sparse_step=1), "has no model.layers.0.mlp.gate.weight"),
    (SPARSE, dict(intermediate_size=3), "layers.0.mlp.gate_proj.weight is [7, 4], but by config.json [3, 4]"),
    (DOTS, dict(n_group=2), "n_group is 2, but experts must be in equal groups of two or more"),
    (DOTS, dict(n_group=3, topk_group=2), "n_group is 3, but experts must be in equal groups of two or more"),
    (GLM, dict(partial_rotary_factor=0.25), "partial_rotary_factor is 0.25"),
    (GLM, dict(use_qk_norm=True), "has no model.layers.0.self_attn.q_norm.weight"),
    (GLM, dict(attention_bias=False), "k_proj.bias, which no model of this config.json has"),
    (DOTS, dict(first_k_dense_replace=2), "first_k_dense_replace is 2, but then no layer has experts"),
    (DOTS, dict(first_k_dense_replace=0.5), "first_k_dense_replace is 0.5, but must be a number of things"),
    (DOTS, dict(first_k_dense_replace=0), "has no model.layers.0.mlp.gate.e_score_correction_bias"),
    (DOTS, dict(n_shared_experts=ABSENT), "n_shared_experts is missing"),
    (DOTS, dict(max_window_layers=1), "sliding_window is 4096"),
    (DOTS, dict(routed_scaling_factor=0), "routed_scaling_factor is 0, but must be a number from 1e-06 to 1000"),
    (MOE, dict(moe_intermediate_size=2), "experts.0.gate_proj.weight is [3, 4], but by config.json [2, 4]"),
]


class Qwen(Case):
    def test_there_and_back(self):
        for config, shapes, names, words in KINDS:
            with self.subTest(kind=config["model_type"]):
                tensors = numbered(shapes)
                self.put(present(config), tensors)
                sizes = SIZES.replace("--layers 1", f"--layers {config['num_hidden_layers']}")
                sizes = sizes.replace("--head-dim 2", "--head-dim 4") if config is GLM else sizes
                self.assertEqual(self.convert(), f"{sizes}{words}--tie-embeddings no")
                self.expect_joined(tensors, names)
                self.expect_back(present(config), f"{config['model_type']}-{config['num_hidden_layers']}")

    def test_biases_of_a_qwen2_are_what_they_are(self):
        self.put(present(dict(QWEN2, attention_bias=True, mlp_bias=True)), numbered(QWEN2_SHAPES))
        self.assertEqual(self.convert(), f"{SIZES}--bias qkv {ENDS}--tie-embeddings no")

    def test_what_a_qwen_means_by_itself(self):
        values = {name: value for name, value in QWEN3.items() if name not in ("rms_norm_eps", "num_key_value_heads")}
        self.put(dict(values, num_attention_heads=64), {})
        _, options, _ = self.run_script(self.folder)
        for words in ("--kv-heads 32", "--norm-epsilon 1e-06"):
            self.assertIn(words + " ", options)

    def test_layers_that_predict_further_tokens_are_left_out(self):
        more = {name.replace("layers.1.", "layers.2."): shape for name, shape in GLM_SHAPES.items() if "layers.1." in name}
        self.put(present(GLM), numbered({**GLM_SHAPES, **more, "model.layers.2.eh_proj.weight": [4, 8]}))
        self.convert()
        self.assertFalse([name for name in raw_tensors(self.file) if name.startswith("layers.2.")])

    def test_groups(self):
        self.put(present(dict(DOTS, n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3)), {})
        _, options, _ = self.run_script(self.folder)
        self.assertIn("--expert-groups 4 --groups-per-token 2 ", options)
        for change in (dict(topk_group=1), dict(topk_group=5)):
            self.put(present(dict(DOTS, n_routed_experts=8, n_group=4, num_experts_per_tok=3, **change)), {})
            self.assertIn("topk_group is ", self.run_script(self.folder)[2])

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
        shapes = {id(kind): of for kind, of, _, _ in KINDS}
        for base, change, message in REFUSED:
            self.refuse_changes(base, shapes[id(base)], [(change, message)])


if __name__ == "__main__":
    unittest.main()
