# SPDX-License-Identifier: Apache-2.0
"""Tiny models of Hugging Face, made by hand, and what runs scripts/convert-weights with them."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import math
import pathlib
import struct
import sys
import tempfile
import unittest
from unittest import mock

import safetensors_file

sys.dont_write_bytecode = True
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "convert-weights"
ABSENT = object()  # in the place of a value: config.json does not name it

GPT2 = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=2, n_head=1, n_layer=1, n_inner=3)
GPT2.update(vocab_size=4, n_positions=5, layer_norm_epsilon=1e-5, activation_function="gelu_new")
GPT2_SHAPES = {
    "transformer.wte.weight": [4, 2],
    "transformer.wpe.weight": [5, 2],
    "transformer.h.0.ln_1.weight": [2],
    "transformer.h.0.ln_1.bias": [2],
    "transformer.h.0.attn.c_attn.weight": [2, 6],
    "transformer.h.0.attn.c_attn.bias": [6],
    "transformer.h.0.attn.c_proj.weight": [2, 2],
    "transformer.h.0.attn.c_proj.bias": [2],
    "transformer.h.0.ln_2.weight": [2],
    "transformer.h.0.ln_2.bias": [2],
    "transformer.h.0.mlp.c_fc.weight": [2, 3],
    "transformer.h.0.mlp.c_fc.bias": [3],
    "transformer.h.0.mlp.c_proj.weight": [3, 2],
    "transformer.h.0.mlp.c_proj.bias": [2],
    "transformer.ln_f.weight": [2],
    "transformer.ln_f.bias": [2],
}
GPT2_NAMES = {  # ppkit's, and whether theirs is transposed
    "embedding.weight": ("transformer.wte.weight", False),
    "positions.weight": ("transformer.wpe.weight", False),
    "layers.0.self_attn.in_proj_weight": ("transformer.h.0.attn.c_attn.weight", True),
    "layers.0.self_attn.in_proj_bias": ("transformer.h.0.attn.c_attn.bias", False),
    "layers.0.self_attn.out_proj.weight": ("transformer.h.0.attn.c_proj.weight", True),
    "layers.0.self_attn.out_proj.bias": ("transformer.h.0.attn.c_proj.bias", False),
    "layers.0.linear1.weight": ("transformer.h.0.mlp.c_fc.weight", True),
    "layers.0.linear1.bias": ("transformer.h.0.mlp.c_fc.bias", False),
    "layers.0.linear2.weight": ("transformer.h.0.mlp.c_proj.weight", True),
    "layers.0.linear2.bias": ("transformer.h.0.mlp.c_proj.bias", False),
    "layers.0.norm1.weight": ("transformer.h.0.ln_1.weight", False),
    "layers.0.norm1.bias": ("transformer.h.0.ln_1.bias", False),
    "layers.0.norm2.weight": ("transformer.h.0.ln_2.weight", False),
    "layers.0.norm2.bias": ("transformer.h.0.ln_2.bias", False),
    "norm.weight": ("transformer.ln_f.weight", False),
    "norm.bias": ("transformer.ln_f.bias", False),
}
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)  # rope_scaling of Llama 3.1
LLAMA3.update(original_max_position_embeddings=8192)
LLAMA = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=4, num_attention_heads=2, head_dim=2)
LLAMA.update(num_key_value_heads=1, num_hidden_layers=1, intermediate_size=3, vocab_size=5, rms_norm_eps=1e-5)
LLAMA.update(hidden_act="silu", rope_theta=500000.0, torch_dtype="bfloat16")
LLAMA_SHAPES = {
    "model.embed_tokens.weight": [5, 4],
    "model.layers.0.input_layernorm.weight": [4],
    "model.layers.0.self_attn.q_proj.weight": [4, 4],
    "model.layers.0.self_attn.k_proj.weight": [2, 4],
    "model.layers.0.self_attn.v_proj.weight": [2, 4],
    "model.layers.0.self_attn.o_proj.weight": [4, 4],
    "model.layers.0.post_attention_layernorm.weight": [4],
    "model.layers.0.mlp.gate_proj.weight": [3, 4],
    "model.layers.0.mlp.up_proj.weight": [3, 4],
    "model.layers.0.mlp.down_proj.weight": [4, 3],
    "model.norm.weight": [4],
    "lm_head.weight": [5, 4],
}
LLAMA_NAMES = {
    "embedding.weight": ["model.embed_tokens.weight"],
    "layers.0.self_attn.in_proj_weight": [f"model.layers.0.self_attn.{x}_proj.weight" for x in "qkv"],
    "layers.0.self_attn.out_proj.weight": ["model.layers.0.self_attn.o_proj.weight"],
    "layers.0.linear1.weight": ["model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"],
    "layers.0.linear2.weight": ["model.layers.0.mlp.down_proj.weight"],
    "layers.0.norm1.weight": ["model.layers.0.input_layernorm.weight"],
    "layers.0.norm2.weight": ["model.layers.0.post_attention_layernorm.weight"],
    "norm.weight": ["model.norm.weight"],
    "decoder.weight": ["lm_head.weight"],
}
MIXTRAL = dict(LLAMA, model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=3)
MIXTRAL.update(num_experts_per_tok=2, router_aux_loss_coef=0.02)
EXPERTS = "model.layers.0.block_sparse_moe."
MIXTRAL_SHAPES = {name: shape for name, shape in LLAMA_SHAPES.items() if ".mlp." not in name}
MIXTRAL_SHAPES[EXPERTS + "gate.weight"] = [3, 4]
for i in range(3):
    MIXTRAL_SHAPES.update({f"{EXPERTS}experts.{i}.{w}.weight": [3, 4] for w in ("w1", "w3")})
    MIXTRAL_SHAPES[f"{EXPERTS}experts.{i}.w2.weight"] = [4, 3]
MIXTRAL_NAMES = dict(
    LLAMA_NAMES,
    **{
        "layers.0.router.weight": [EXPERTS + "gate.weight"],
        "layers.0.linear1.weight": [f"{EXPERTS}experts.{i}.{w}.weight" for i in range(3) for w in ("w1", "w3")],
        "layers.0.linear2.weight": [f"{EXPERTS}experts.{i}.w2.weight" for i in range(3)],
    },
)
FUSED_NAMES = {  # of version 5: their shapes, and ppkit's names for the same numbers in the same order
    "model.layers.0.mlp.gate.weight": ([3, 4], "layers.0.router.weight"),
    "model.layers.0.mlp.experts.gate_up_proj": ([3, 6, 4], "layers.0.linear1.weight"),
    "model.layers.0.mlp.experts.down_proj": ([3, 4, 3], "layers.0.linear2.weight"),
}


def load_script():
    sys.path.insert(0, str(SCRIPT.parent))
    loader = importlib.machinery.SourceFileLoader("convert_weights", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


convert = load_script()


def numbered(shapes):
    """Every number once: {name: (type, shape, bytes)}"""
    made, first = {}, 1
    for name, shape in shapes.items():
        count = math.prod(shape)
        made[name] = ("F32", shape, struct.pack(f"<{count}f", *(first + i for i in range(count))))
        first += count
    return made


def write(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, shape, raw) in tensors.items():
        header[name] = dict(dtype=kind, shape=shape, data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def raw_tensors(path):
    shapes = safetensors_file.read_shapes(path)
    return {name: (shapes[name], list(values)) for name, values in safetensors_file.read(path).items()}


def present(values):
    return {name: value for name, value in values.items() if value is not ABSENT}


class Case(unittest.TestCase):
    def setUp(self):
        keep = tempfile.TemporaryDirectory()
        self.addCleanup(keep.cleanup)
        self.root = pathlib.Path(keep.name)
        self.folder, self.file = self.root / "model", self.root / "made.safetensors"
        self.folder.mkdir()

    def put(self, config, tensors):
        (self.folder / "config.json").write_text(json.dumps(config))
        write(self.folder / "model.safetensors", tensors)

    def run_script(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.object(sys, "argv", ["convert-weights", *map(str, words)]):
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = convert.main()
        return status, out.getvalue(), err.getvalue()

    def convert(self):
        status, out, err = self.run_script(self.folder, self.file)
        self.assertEqual((status, err), (0, ""))
        return out.strip()

    def expect_back(self, config, name):
        """The file gives the model back, in a folder of that name: its tensors as they are, and its configuration."""
        back = self.root / name
        made = self.run_script("--to-huggingface", self.folder / "config.json", self.file, back)
        self.assertEqual(made, (0, "", ""))
        self.assertEqual(raw_tensors(back / "model.safetensors"), raw_tensors(self.folder / "model.safetensors"))
        expected = dict(config, dtype="float32")
        expected.pop("torch_dtype", None)
        self.assertEqual(json.loads((back / "config.json").read_text()), expected)

    def expect_joined(self, tensors, names):
        made = raw_tensors(self.file)
        self.assertEqual(set(made), set(names))
        for name, parts in names.items():
            rows = sum(tensors[part][1][0] for part in parts)
            raw = b"".join(tensors[part][2] for part in parts)
            shape = [rows, *tensors[parts[0]][1][1:]]
            self.assertEqual(made[name], (shape, list(struct.unpack(f"<{len(raw) // 4}f", raw))), name)

    def refuse_changes(self, base, shapes, cases):
        """cases: a change of the configuration, words of the message"""
        for change, message in cases:
            with self.subTest(message=message):
                self.put(present({**base, **change}), numbered(shapes))
                self.refuse(message)

    def refuse(self, message, *words):
        status, out, err = self.run_script(*(words or (self.folder, self.file)))
        self.assertEqual((status, out), (1, ""))
        self.assertIn(message, err)
        self.assertEqual(len(err.splitlines()), 1)
        self.assertFalse(list(self.root.glob("made*")), "something is left")
