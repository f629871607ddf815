#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/convert-weights over tiny DeepSeek-V2 and DeepSeek-V3 models made by hand, there and back."""

import unittest

from tiny_models import ABSENT, LLAMA, Case, numbered, present, raw_tensors

# Two heads of 3 + 4 columns, values of 2; latent vectors of 5 columns, and of 3 for queries. The first layer is dense.
V3 = dict(LLAMA, model_type="deepseek_v3", architectures=["DeepseekV3ForCausalLM"], rms_norm_eps=1e-6, head_dim=4)
V3.update(num_hidden_layers=2, intermediate_size=7, moe_intermediate_size=3, first_k_dense_replace=1, n_group=1)
V3.update(topk_group=1, n_routed_experts=2, num_experts_per_tok=1, n_shared_experts=2, kv_lora_rank=5, q_lora_rank=3)
V3.update(qk_nope_head_dim=3, qk_rope_head_dim=4, v_head_dim=2, num_key_value_heads=2, rope_interleave=True)
LITE = dict(V3, model_type="deepseek_v2", architectures=["DeepseekV2ForCausalLM"], q_lora_rank=None)
LITE.update(topk_method="greedy", norm_topk_prob=False, routed_scaling_factor=1.0, rope_interleave=ABSENT)

YARN = dict(type="yarn", factor=40, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0)

NAMES = {"embedding.weight": "model.embed_tokens", "norm.weight": "model.norm", "decoder.weight": "lm_head"}
SHAPES = {"model.embed_tokens.weight": [5, 4], "model.norm.weight": [4], "lm_head.weight": [5, 4]}
LINEARS = {  # ppkit's name, theirs, shape
    "q_a_proj": ("q_a_proj", [3, 4]),
    "q_b_proj": ("q_b_proj", [14, 3]),
    "q_a_norm": ("q_a_layernorm", [3]),
    "kv_a_proj": ("kv_a_proj_with_mqa", [9, 4]),
    "kv_b_proj": ("kv_b_proj", [10, 5]),
    "kv_a_norm": ("kv_a_layernorm", [5]),
    "out_proj": ("o_proj", [4, 4]),
}
BIAS = "model.layers.1.mlp.gate.e_score_correction_bias"
# Which of their rows ours are: of each head of queries, and of the key that all heads share.
QUERIES = [0, 1, 2, 3, 5, 4, 6, 7, 8, 9, 10, 12, 11, 13]
KEYS = [0, 1, 2, 3, 4, 5, 7, 6, 8]
ORDERS = {"q_proj": QUERIES, "q_b_proj": QUERIES, "kv_a_proj": KEYS}


def attention(lite):
    made = {name: values for name, values in LINEARS.items() if not (lite and name.startswith("q_"))}
    return {"q_proj": ("q_proj", [14, 4]), **made} if lite else made


def model(lite):
    """(their shapes, {ppkit's name: [their names]})"""
    shapes, names = dict(SHAPES), {mine: [theirs + ".weight"] for mine, theirs in NAMES.items()}

    def put(mine, *theirs):
        shapes.update(theirs)
        names[mine] = [name for name, _ in theirs]

    for i in range(2):
        there = f"model.layers.{i}."
        for name, (theirs, shape) in attention(lite).items():
            put(f"layers.{i}.self_attn.{name}.weight", (f"{there}self_attn.{theirs}.weight", shape))
        for mine, theirs in (("norm1", "input_layernorm"), ("norm2", "post_attention_layernorm")):
            put(f"layers.{i}.{mine}.weight", (f"{there}{theirs}.weight", [4]))
    ups = [(f"model.layers.0.mlp.{name}_proj.weight", [7, 4]) for name in ("gate", "up")]
    put("layers.0.linear1.weight", *ups)
    put("layers.0.linear2.weight", ("model.layers.0.mlp.down_proj.weight", [4, 7]))
    there = "model.layers.1.mlp."
    put("layers.1.router.weight", (there + "gate.weight", [2, 4]))
    ups = [(f"{there}experts.{i}.{name}_proj.weight", [3, 4]) for i in range(2) for name in ("gate", "up")]
    put("layers.1.linear1.weight", *ups)
    put("layers.1.linear2.weight", *((f"{there}experts.{i}.down_proj.weight", [4, 3]) for i in range(2)))
    ups = [(f"{there}shared_experts.{name}_proj.weight", [6, 4]) for name in ("gate", "up")]
    put("layers.1.shared.linear1.weight", *ups)
    put("layers.1.shared.linear2.weight", (there + "shared_experts.down_proj.weight", [4, 6]))
    if not lite:
        put("layers.1.router.expert_bias", (BIAS, [2]))
    return shapes, names


OPTIONS = "--norm pre --mask causal --dropout 0 --d-model 4 --heads 2 --kv-heads 0 --kv-lora-rank 5 --qk-nope-head-dim 3 "
OPTIONS += "--qk-rope-head-dim 4 --v-head-dim 2 {queries}--d-ff 3 --layers 2 --vocab 5 --normalization rmsnorm "
OPTIONS += "--norm-epsilon 1e-06 --activation swiglu --bias no --positions rope --rope-theta 500000.0 --experts 2 "
OPTIONS += "--experts-per-token 1 --capacity-factor 2.0 --aux-loss 0.0 {router}--shared-ff 6 {bias}--gate-scale {scale} "
OPTIONS += "--dense-layers 1 --experts-every 1 --dense-ff 7 --tie-embeddings no"
CASES = [  # configuration, whether queries have no latent vector, options
    (V3, False, OPTIONS.format(queries="--q-lora-rank 3 ", router="--router-score sigmoid ", bias="--expert-bias yes ", scale=2.5)),
    (LITE, True, OPTIONS.format(queries="", router="--gates all ", bias="", scale=1.0)),
]
REFUSED = [
    (V3, dict(n_group=2), "n_group is 2, but experts must be in equal groups of two or more"),
    (V3, dict(n_group=ABSENT), "n_group is 8, but experts must be in equal groups of two or more"),
    (V3, dict(rms_norm_eps=1e-5), "rms_norm_eps is 1e-05, but norms of latent vectors have 1e-06 there"),
    (V3, dict(qk_rope_head_dim=3), "qk_rope_head_dim is 3, but ppkit rotates pairs of columns"),
    (V3, dict(num_key_value_heads=1), "num_key_value_heads is 1, but latent attention has as many as heads"),
    (V3, dict(moe_layer_freq=2), "moe_layer_freq is 2"),
    (V3, dict(kv_lora_rank=0), "kv_lora_rank is 0, but must be a number of things"),
    (V3, dict(v_head_dim=3), "kv_b_proj.weight is [10, 5], but by config.json [12, 5]"),
    (V3, dict(attention_bias=True), "attention_bias is true"),
    (V3, dict(rope_interleave=1), "rope_interleave is 1, but must be true or false"),
    (V3, dict(rope_scaling=dict(type="dynamic", factor=40)), "rope_scaling is"),
    (V3, dict(rope_scaling=dict(YARN, factor="40")), "its numbers make no sense together"),
    (V3, dict(rope_scaling=dict(YARN, mscale_all_dim=[1])), "its numbers make no sense together"),
    (V3, dict(rope_scaling=dict(YARN, mscale=1e300, mscale_all_dim=1e300)), "its numbers make no sense together"),
    (V3, dict(rope_scaling=dict(YARN, factor=2.718281828459045, mscale=-10, mscale_all_dim=-10)), "its numbers make no sense"),
    (V3, dict(first_k_dense_replace=None), "first_k_dense_replace is null"),
    (V3, dict(first_k_dense_replace=""), 'first_k_dense_replace is ""'),
    (V3, dict(n_shared_experts=10000000), "n_shared_experts is 10000000, but so many of 3 columns are wider than any model"),
    (V3, dict(q_lora_rank=None), "has no model.layers.0.self_attn.q_proj.weight"),
    (LITE, dict(topk_method="noaux_tc"), 'topk_method is "noaux_tc", but only greedy, group_limited_greedy are known'),
    (LITE, dict(norm_topk_prob=True), "norm_topk_prob is true"),
]


def in_order(tensor, order):
    """Rows of (shape, values) in another order."""
    shape, values = tensor
    width = len(values) // shape[0]
    return shape, [x for row in order for x in values[row * width : (row + 1) * width]]


class DeepSeek(Case):
    def expect_rows(self, names, orders):
        theirs, mine = raw_tensors(self.folder / "model.safetensors"), raw_tensors(self.file)
        self.assertEqual(set(mine), set(names))
        plain = {name: parts for name, parts in names.items() if name.split(".")[-2] not in orders}
        for name in set(names) - set(plain):
            self.assertEqual(mine[name], in_order(theirs[names[name][0]], orders[name.split(".")[-2]]), name)
        for name, parts in plain.items():
            self.assertEqual(mine[name][1], [x for part in parts for x in theirs[part][1]], name)

    def test_there_and_back(self):
        for config, lite, options in CASES:
            with self.subTest(kind=config["model_type"]):
                shapes, names = model(lite)
                self.put(present(config), numbered(shapes))
                self.assertEqual(self.convert(), options)
                self.expect_rows(names, ORDERS)
                self.expect_back(present(config), config["model_type"])

    def test_rotated_columns_in_llamas_order(self):
        shapes, names = model(False)
        self.put(dict(V3, rope_interleave=False), numbered(shapes))
        self.convert()
        self.expect_rows(names, {})

    def test_layers_that_predict_more(self):
        shapes, names = model(False)
        more = {f"model.layers.{i}.eh_proj.weight": [1, 4] for i in (2, 2 * 10**7 + 1)}
        self.put(dict(V3, num_nextn_predict_layers=2 * 10**7), numbered({**shapes, **more}))
        self.convert()
        self.expect_rows(names, ORDERS)
        self.file.unlink()
        self.put(dict(V3, num_nextn_predict_layers=1), numbered({**shapes, **more}))
        self.refuse("model.layers.20000001.eh_proj.weight")

    def test_what_is_refused(self):
        for base, change, message in REFUSED:
            self.refuse_changes(base, model(base is LITE)[0], [(change, message)])


if __name__ == "__main__":
    unittest.main()
