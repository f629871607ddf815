#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/convert-weights over a tiny mixture of experts made by hand: a file with experts one by one, as Mixtral is
published, and one with all experts of a layer in one tensor."""

import math
import struct
import unittest

from tiny_models import EXPERTS, FUSED_NAMES, MIXTRAL, MIXTRAL_NAMES, MIXTRAL_SHAPES
from tiny_models import ABSENT, Case, numbered, raw_tensors

REFUSED = [
    (dict(num_local_experts=4097), "num_local_experts is 4097, but must be a number of things, at most 4096"),
    (dict(num_experts_per_tok=4), "num_experts_per_tok is 4, but must be a number of things, at most 3"),
    (dict(num_local_experts=4096, num_hidden_layers=257), "num_hidden_layers is 257"),
    (dict(num_local_experts=ABSENT), "gate.weight is [3, 4], but by config.json [8, 4]"),
    (dict(num_local_experts=2), "gate.weight is [3, 4], but by config.json [2, 4]"),
    (dict(router_aux_loss_coef=-1), "router_aux_loss_coef is -1, but must be a number from 0 to 1000"),
    (dict(router_aux_loss_coef=math.nan), "router_aux_loss_coef is NaN"),
    (dict(router_jitter_noise=0.01), "router_jitter_noise is 0.01"),
    (dict(sliding_window="4096"), 'sliding_window is "4096"'),
    (dict(model_type="olmoe"), 'model_type is "olmoe", but only'),
    (dict(intermediate_size=2), "experts.0.w1.weight is [3, 4], but by config.json [2, 4]"),
]


class There(Case):
    def test_mixtral(self):
        tensors = numbered(MIXTRAL_SHAPES)
        self.put(MIXTRAL, tensors)
        options = self.convert()
        self.expect_joined(tensors, MIXTRAL_NAMES)
        self.assertEqual(
            options,
            "--norm pre --mask causal --dropout 0 --d-model 4 --heads 2 --kv-heads 1 --head-dim 2 --d-ff 3 --layers 1 "
            "--vocab 5 --normalization rmsnorm --norm-epsilon 1e-05 --activation swiglu --bias no --positions rope "
            "--rope-theta 500000.0 --experts 3 --experts-per-token 2 --capacity-factor 1.5 --aux-loss 0.02 "
            "--tie-embeddings no",
        )

    def test_what_a_mixtral_means_by_itself(self):
        said = ("rms_norm_eps", "rope_theta", "router_aux_loss_coef", "num_experts_per_tok", "num_key_value_heads")
        values = {name: value for name, value in MIXTRAL.items() if name not in said}
        self.put(dict(values, num_attention_heads=8, sliding_window=None), {})
        _, options, _ = self.run_script(self.folder)
        for words in ("--kv-heads 8", "--rope-theta 1000000.0", "--experts-per-token 2", "--aux-loss 0.001"):
            self.assertIn(words + " ", options)

    def test_fused_mixtral(self):
        shapes = {name: shape for name, shape in MIXTRAL_SHAPES.items() if not name.startswith(EXPERTS)}
        shapes.update({name: shape for name, (shape, _) in FUSED_NAMES.items()})
        tensors = numbered(shapes)
        self.put(MIXTRAL, tensors)
        self.convert()
        made = raw_tensors(self.file)
        for name, (shape, mine) in FUSED_NAMES.items():
            _, _, raw = tensors[name]
            wanted = [math.prod(shape[:-1]), shape[-1]], list(struct.unpack(f"<{len(raw) // 4}f", raw))
            self.assertEqual(made[mine], wanted)
        self.put(dict(MIXTRAL, num_local_experts=4), tensors)
        self.file.unlink()
        self.refuse("model.layers.0.mlp.gate.weight is [3, 4], but by config.json [4, 4]")
        name = "model.layers.0.mlp.experts.gate_up_proj"
        self.put(MIXTRAL, {**tensors, name: ("F32", [6, 3, 4], tensors[name][2])})
        self.refuse(name + " is [6, 3, 4], but by config.json [3, 6, 4]")


class Refusals(Case):
    def test_models(self):
        self.refuse_changes(MIXTRAL, MIXTRAL_SHAPES, REFUSED)

    def test_experts_that_are_missing(self):
        tensors = numbered(MIXTRAL_SHAPES)
        del tensors[EXPERTS + "experts.2.w3.weight"]
        self.put(MIXTRAL, tensors)
        self.refuse(f"has no {EXPERTS}experts.2.w3.weight")


if __name__ == "__main__":
    unittest.main()
