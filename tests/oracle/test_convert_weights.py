#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/convert-weights over tiny files made by hand: names, orders and transpositions, 16 bits, parts, the way back,
and what is refused. Python's standard library is enough; check_huggingface.py compares with the models themselves."""

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
REFUSED = [  # a change of LLAMA, words of the message
    (dict(model_type="gpt_neox"), 'model_type is "gpt_neox", but only gpt2, llama, mistral can be converted'),
    (dict(model_type=None), "model_type is null"),
    (dict(architectures=["LlamaForSequenceClassification"]), "only LlamaForCausalLM can be converted"),
    (dict(hidden_act="gelu"), 'hidden_act is "gelu"'),
    (dict(rms_norm_eps=1e-6), "rms_norm_eps is 1e-06"),
    (dict(rms_norm_eps=None), "rms_norm_eps is 1e-06"),
    (dict(attention_bias=True), "attention_bias is true"),
    (dict(mlp_bias=True), "mlp_bias is true"),
    (dict(rope_scaling=dict(rope_type="llama3", factor=8.0)), "rope_scaling is"),
    (dict(rope_scaling=dict(type="linear")), "rope_scaling is"),
    (dict(rope_parameters=dict(rope_type="yarn", rope_theta=1e4)), "rope_parameters is"),
    (dict(rope_theta="many"), 'rope_theta is "many"'),
    (dict(partial_rotary_factor=0.5), "partial_rotary_factor is 0.5"),
    (dict(sliding_window=4096), "sliding_window is 4096"),
    (dict(quantization_config=dict(bits=4)), "the weights are quantised"),
    (dict(num_hidden_layers=0), "num_hidden_layers is 0"),
    (dict(vocab_size="5"), 'vocab_size is "5"'),
    (dict(num_hidden_layers=2), "has no model.layers.1.self_attn.q_proj.weight"),
    (dict(intermediate_size=4), "model.layers.0.mlp.gate_proj.weight is [3, 4], but by config.json [4, 4]"),
    (dict(tie_word_embeddings=True), "lm_head.weight is not the embedding's"),
]
REFUSED_GPT2 = [
    (dict(activation_function="silu"), 'activation_function is "silu"'),
    (dict(layer_norm_epsilon=1e-6), "layer_norm_epsilon is 1e-06"),
    (dict(scale_attn_weights=False), "scale_attn_weights is false"),
    (dict(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx is true"),
    (dict(add_cross_attention=True), "add_cross_attention is true"),
]


def load_script():
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

    def refuse(self, message, *words):
        status, out, err = self.run_script(*(words or (self.folder, self.file)))
        self.assertEqual((status, out), (1, ""))
        self.assertIn(message, err)
        self.assertEqual(len(err.splitlines()), 1)
        self.assertFalse(list(self.root.glob("made*")), "something is left")


class There(Case):
    def expect_gpt2(self, tensors):
        made = raw_tensors(self.file)
        self.assertEqual(set(made), set(GPT2_NAMES))
        for name, (theirs, transposed) in GPT2_NAMES.items():
            _, shape, raw = tensors[theirs]
            values = list(struct.unpack(f"<{len(raw) // 4}f", raw))
            if transposed:
                values = [values[row * shape[1] + column] for column in range(shape[1]) for row in range(shape[0])]
                shape = shape[::-1]
            self.assertEqual(made[name], (shape, values), name)

    def test_gpt2(self):
        tensors = numbered(GPT2_SHAPES)
        self.put(GPT2, tensors)
        options = self.convert()
        self.expect_gpt2(tensors)
        self.assertEqual(
            options,
            "--norm pre --mask causal --dropout 0 --d-model 2 --heads 1 --d-ff 3 --layers 1 --vocab 4 --normalization "
            "layernorm --activation gelu-tanh --bias layers --positions learned --max-positions 5 --tie-embeddings yes",
        )
        with mock.patch.object(convert, "BLOCK", 8):  # read in many pieces
            self.convert()
        self.expect_gpt2(tensors)

    def test_names_and_buffers_of_the_first_release(self):
        tensors = numbered(GPT2_SHAPES)
        old = {name.replace("transformer.", ""): tensor for name, tensor in tensors.items()}
        old["h.0.attn.bias"] = ("I64", [1], bytes(8))
        old["lm_head.weight"] = old["wte.weight"]
        self.put(GPT2, old)
        self.convert()
        self.expect_gpt2(tensors)

    def test_gpt2_that_is_not_tied(self):
        tensors = numbered({**GPT2_SHAPES, "lm_head.weight": [4, 2]})
        self.put(dict(GPT2, tie_word_embeddings=False), tensors)
        self.assertIn("--tie-embeddings no", self.convert())
        _, shape, raw = tensors["lm_head.weight"]
        self.assertEqual(raw_tensors(self.file)["decoder.weight"], (shape, list(struct.unpack("<8f", raw))))

    def expect_llama(self, tensors, names):
        made = raw_tensors(self.file)
        self.assertEqual(set(made), set(names))
        for name, parts in names.items():
            rows = sum(tensors[part][1][0] for part in parts)
            raw = b"".join(tensors[part][2] for part in parts)
            shape = [rows, *tensors[parts[0]][1][1:]]
            self.assertEqual(made[name], (shape, list(struct.unpack(f"<{len(raw) // 4}f", raw))), name)

    def test_llama(self):
        tensors = numbered(LLAMA_SHAPES)
        self.put(LLAMA, tensors)
        options = self.convert()
        self.expect_llama(tensors, LLAMA_NAMES)
        self.assertEqual(
            options,
            "--norm pre --mask causal --dropout 0 --d-model 4 --heads 2 --kv-heads 1 --head-dim 2 --d-ff 3 --layers 1 "
            "--vocab 5 --normalization rmsnorm --activation swiglu --bias no --positions rope --rope-theta 500000.0 "
            "--tie-embeddings no",
        )
        self.assertEqual(self.run_script(self.folder), (0, options + "\n", ""))
        changed = dict(LLAMA, model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=None)
        changed.update(rope_theta=None, rope_parameters=dict(rope_type="default", rope_theta=1e6))
        self.put(changed, tensors)
        self.assertEqual(self.convert(), options.replace("500000.0", "1000000.0"))

    def test_tied_llama(self):
        tensors = numbered(LLAMA_SHAPES)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
        self.put(dict(LLAMA, tie_word_embeddings=True), tensors)
        self.assertIn("--tie-embeddings yes", self.convert())
        self.expect_llama(tensors, {name: parts for name, parts in LLAMA_NAMES.items() if name != "decoder.weight"})

    def test_numbers_of_16_bits(self):
        tensors, wide = numbered(LLAMA_SHAPES), [1.0, -2.5, 2.0**-130, math.inf]
        halves = [1.0, -2.5, 2.0**-24, 65504.0]
        tensors["model.norm.weight"] = ("BF16", [4], b"".join(struct.pack("<f", value)[2:] for value in wide))
        tensors["model.layers.0.input_layernorm.weight"] = ("F16", [4], struct.pack("<4e", *halves))
        self.put(LLAMA, tensors)
        for library in {convert.numpy, None}:
            with mock.patch.object(convert, "numpy", library):
                self.convert()
            made = raw_tensors(self.file)
            self.assertEqual(made["norm.weight"], ([4], wide))
            self.assertEqual(made["layers.0.norm1.weight"], ([4], halves))

    def test_parts(self):
        tensors, places = numbered(LLAMA_SHAPES), {}
        self.put(LLAMA, {})
        (self.folder / "model.safetensors").unlink()
        for i, name in enumerate(tensors):
            places[name] = f"model-{i % 3}.safetensors"
        for part in set(places.values()):
            write(self.folder / part, {name: tensors[name] for name in tensors if places[name] == part})
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(dict(weight_map=places)))
        self.convert()
        self.expect_llama(tensors, LLAMA_NAMES)
        write(self.folder / "model-1.safetensors", {})
        self.file.unlink()
        self.refuse("which model.safetensors.index.json says is there")


class Refusals(Case):
    def test_models(self):
        for base, shapes, cases in ((LLAMA, LLAMA_SHAPES, REFUSED), (GPT2, GPT2_SHAPES, REFUSED_GPT2)):
            for change, message in cases:
                with self.subTest(message=message):
                    self.put(dict(base, **change), numbered(shapes))
                    self.refuse(message)

    def test_files(self):
        self.refuse("config.json: No such file")
        tensors = numbered(LLAMA_SHAPES)
        self.put(LLAMA, dict(tensors, other=("F32", [1], bytes(4))))
        self.refuse("has other, which no model of this config.json has")
        self.put(LLAMA, dict(tensors, **{"model.norm.weight": ("I64", [4], bytes(32))}))
        self.refuse("model.norm.weight has type I64; only F32, F16, BF16 are known")
        self.put(LLAMA, dict(tensors, **{"model.norm.weight": ("F32", [4], bytes(12))}))
        self.refuse("model.norm.weight is damaged")
        self.put(LLAMA, tensors)
        whole = (self.folder / "model.safetensors").read_bytes()
        for bad, message in ((whole[:-1], "lm_head.weight is damaged"), (b"", "is no safetensors file, or cut off")):
            (self.folder / "model.safetensors").write_bytes(bad)
            self.refuse(message)
        (self.folder / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"[]")
        self.refuse("its header is no JSON object")
        (self.folder / "model.safetensors").unlink()
        self.refuse("holds neither model.safetensors nor model.safetensors.index.json")
        (self.folder / "config.json").write_text("no")
        self.refuse("config.json is no JSON")


class Back(Case):
    def test_bits(self):
        for config, shapes in ((GPT2, GPT2_SHAPES), (LLAMA, LLAMA_SHAPES)):
            tensors = numbered(shapes)
            self.put(config, tensors)
            self.convert()
            back = self.root / config["model_type"]
            made = self.run_script("--to-huggingface", self.folder / "config.json", self.file, back)
            self.assertEqual(made, (0, "", ""))
            self.assertEqual(raw_tensors(back / "model.safetensors"), raw_tensors(self.folder / "model.safetensors"))
            values = json.loads((back / "config.json").read_text())
            self.assertEqual((values["dtype"], values["model_type"]), ("float32", config["model_type"]))
            self.assertNotIn("torch_dtype", values)
            again = self.run_script("--to-huggingface", self.folder / "config.json", self.file, back)
            self.assertEqual(again[:2], (1, ""))
            self.assertIn("holds a model already", again[2])

    def test_another_model(self):
        self.put(LLAMA, numbered(LLAMA_SHAPES))
        self.convert()
        other = self.root / "other.json"
        other.write_text(json.dumps(GPT2))
        self.file.rename(self.root / "llama.safetensors")
        words = ("--to-huggingface", other, self.root / "llama.safetensors", self.root / "new")
        self.refuse("embedding.weight is [5, 4], but by config.json [4, 2]", *words)
        self.assertFalse((self.root / "new").exists())


if __name__ == "__main__":
    unittest.main()
