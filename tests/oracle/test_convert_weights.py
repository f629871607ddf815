#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/convert-weights over tiny files made by hand: names, orders and transpositions, 16 bits, parts, the way back,
and what is refused. Python's standard library is enough; check_huggingface.py compares with the models themselves."""

import json
import math
import os
import signal
import struct
import unittest
import zlib
from unittest import mock

from tiny_models import GPT2, GPT2_NAMES, GPT2_SHAPES, LLAMA, LLAMA3, LLAMA_NAMES, LLAMA_SHAPES, MIXTRAL
from tiny_models import MIXTRAL_SHAPES, ABSENT, Case, convert, numbered, raw_tensors, write

MISTRAL = dict(model_type="mistral", architectures=["MistralForCausalLM"])
REFUSED = [  # a change of LLAMA, words of the message
    (dict(model_type="gpt_neox"), 'model_type is "gpt_neox", but only gpt2, llama, mistral, mixtral, qwen2, qwen3, qwen2_moe, qwen3_moe, dots1, glm4_moe, solar_open, deepseek_v2, deepseek_v3, kimi_k2 are'),
    (dict(model_type=None), "model_type is null"),
    (dict(model_type=ABSENT), "model_type is missing, but only gpt2,"),
    (dict(vocab_size=ABSENT), "vocab_size is missing, but must be a number of things"),
    (dict(architectures=["LlamaForSequenceClassification"]), "only LlamaForCausalLM can be converted"),
    (dict(hidden_act="gelu"), 'hidden_act is "gelu"'),
    (dict(rms_norm_eps="1e-6"), 'rms_norm_eps is "1e-6", but must be a number above 0, at most 1'),
    (dict(rms_norm_eps=True), "rms_norm_eps is true"),
    (dict(rms_norm_eps=math.nan), "rms_norm_eps is NaN"),
    (dict(rms_norm_eps=1e-40), "rms_norm_eps is 1e-40"),
    (dict(attention_bias=True), "attention_bias is true"),
    (dict(mlp_bias=True), "mlp_bias is true"),
    (dict(rope_scaling=dict(rope_type="llama3", factor=8.0)), "rope_scaling is"),
    (dict(rope_scaling=dict(type="linear")), "rope_scaling is"),
    (dict(rope_scaling=dict(type="longrope", factor=2.0)), "by llama3, yarn, linear and all their numbers"),
    (dict(rope_scaling=dict(type="yarn", factor=2.0, beta_fast=0.5, original_max_position_embeddings=8)), "make no sense"),
    (dict(rope_scaling=dict(type="yarn", factor=2.0, beta_fast="1", original_max_position_embeddings=8)), "make no sense"),
    (dict(rope_scaling=dict(type="yarn", factor=2.0, truncate=1, original_max_position_embeddings=8)), "make no sense"),
    (dict(rope_scaling=dict(LLAMA3, factor=0.5)), "its numbers make no sense together"),
    (dict(rope_scaling=dict(LLAMA3, factor="8")), "its numbers make no sense together"),
    (dict(rope_scaling=dict(LLAMA3, original_max_position_embeddings=0.5)), "its numbers make no sense together"),
    (dict(rope_parameters=dict(rope_type="yarn", rope_theta=1e4)), "rope_parameters is"),
    (dict(rope_theta="many"), 'rope_theta is "many"'),
    (dict(partial_rotary_factor=0.3), "partial_rotary_factor is 0.3"),
    (dict(sliding_window=4096), "sliding_window is 4096, but this kind of model has no windows"),
    (dict(quantization_config=dict(bits=4)), "the weights are quantised"),
    (dict(num_hidden_layers=0), "num_hidden_layers is 0"),
    (dict(num_hidden_layers=65537), "num_hidden_layers is 65537, but must be a number of things, at most 65536"),
    (dict(num_hidden_layers=10**9), "num_hidden_layers is 1000000000"),
    (dict(hidden_size=2**24 + 1), "hidden_size is 16777217"),
    (dict(vocab_size=10**4000), "..., but must be a number of things"),
    (dict(intermediate_size=3.0), "intermediate_size is 3.0"),
    (dict(num_attention_heads=True), "num_attention_heads is true"),
    (dict(num_attention_heads=3, head_dim=None), "num_attention_heads is 3, but 4 cannot be divided by it"),
    (dict(num_key_value_heads=4), "num_key_value_heads is 4, but 2 cannot be divided by it"),
    (dict(head_dim=3), "head_dim is 3, but ppkit rotates pairs of columns"),
    (dict(tie_word_embeddings="no"), 'tie_word_embeddings is "no"'),
    (dict(model_type=["llama"]), 'model_type is ["llama"]'),
    (dict(rope_parameters=["default"]), "rope_parameters is"),
    (dict(rope_theta=math.inf), "rope_theta is Infinity"),
    (dict(rope_theta=math.nan), "rope_theta is NaN"),
    (dict(MISTRAL, sliding_window=0), "sliding_window is 0, but must be a number of things"),
    (dict(MISTRAL, layer_types=["full_attention"]), "all layers of this kind of model have the window"),
    (dict(MISTRAL, layer_types=["chunked_attention"]), "must be sliding_attention or full_attention for each layer"),
    (dict(MISTRAL, sliding_window=None, num_key_value_heads=ABSENT), "num_key_value_heads is 8"),
    (dict(vocab_size="5"), 'vocab_size is "5"'),
    (dict(num_hidden_layers=2), "has no model.layers.1.self_attn.q_proj.weight"),
    (dict(intermediate_size=4), "model.layers.0.mlp.gate_proj.weight is [3, 4], but by config.json [4, 4]"),
    (dict(tie_word_embeddings=True), "lm_head.weight is not the embedding's"),
]
REFUSED_GPT2 = [
    (dict(activation_function="silu"), 'activation_function is "silu"'),
    (dict(activation_function=dict(gelu="gelu")), 'activation_function is {"gelu": "gelu"}'),
    (dict(n_head=3), "n_head is 3, but 2 cannot be divided by it"),
    (dict(n_layer=10**9), "n_layer is 1000000000"),
    (dict(layer_norm_epsilon=2), "layer_norm_epsilon is 2, but must be a number above 0, at most 1"),
    (dict(scale_attn_weights=False), "scale_attn_weights is false"),
    (dict(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx is true"),
    (dict(add_cross_attention=True), "add_cross_attention is true"),
]


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
            "layernorm --norm-epsilon 1e-05 --activation gelu-tanh --bias layers --positions learned --max-positions 5 "
            "--tie-embeddings yes",
        )
        with mock.patch.object(convert.weight_files, "BLOCK", 2):  # read in many pieces
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

    def test_llama(self):
        tensors = numbered(LLAMA_SHAPES)
        self.put(LLAMA, tensors)
        options = self.convert()
        self.expect_joined(tensors, LLAMA_NAMES)
        self.assertEqual(
            options,
            "--norm pre --mask causal --dropout 0 --d-model 4 --heads 2 --kv-heads 1 --head-dim 2 --d-ff 3 --layers 1 "
            "--vocab 5 --normalization rmsnorm --norm-epsilon 1e-05 --activation swiglu --bias no --positions rope "
            "--rope-theta 500000.0 --tie-embeddings no",
        )
        self.assertEqual(self.run_script(self.folder), (0, options + "\n", ""))
        words = "--rope-factor 8.0 --rope-low-freq-factor 1.0 --rope-high-freq-factor 4.0 --rope-original-tokens 8192 "
        for name, more in (("rope_scaling", {}), ("rope_parameters", dict(rope_theta=500000.0))):
            self.put({**LLAMA, name: {**LLAMA3, **more}}, tensors)
            self.assertEqual(self.convert(), options.replace("--tie-", words + "--tie-"))
        changed = dict(LLAMA, model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=None)
        changed.update(rope_theta=None, rope_parameters=dict(rope_type="default", rope_theta=1e6))
        self.put(changed, tensors)
        self.assertEqual(self.convert(), options.replace("500000.0", "1000000.0"))

    def test_another_epsilon(self):
        tensors = numbered(LLAMA_SHAPES)
        for given, mine in ((1e-6, "1e-06"), (None, "1e-06"), (3e-5, "3e-05")):
            self.put(dict(LLAMA, rms_norm_eps=given), tensors)
            self.assertIn(f" --norm-epsilon {mine} ", self.convert())
        tensors = numbered(GPT2_SHAPES)
        self.put(dict(GPT2, layer_norm_epsilon=1e-6), tensors)
        self.assertIn(" --norm-epsilon 1e-06 ", self.convert())

    def test_tied_llama(self):
        tensors = numbered(LLAMA_SHAPES)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
        self.put(dict(LLAMA, tie_word_embeddings=True), tensors)
        self.assertIn("--tie-embeddings yes", self.convert())
        self.expect_joined(tensors, {name: parts for name, parts in LLAMA_NAMES.items() if name != "decoder.weight"})

    def test_tied_tensors_of_two_types(self):
        tensors = numbered(LLAMA_SHAPES)
        _, shape, raw = tensors["model.embed_tokens.weight"]
        upper = [raw[i + 2 : i + 4] for i in range(0, len(raw), 4)]
        tensors["lm_head.weight"] = ("BF16", shape, b"".join(upper))
        self.assertEqual(raw, b"".join(bytes(2) + two for two in upper))  # so the rounded numbers are the same
        self.put(dict(LLAMA, tie_word_embeddings=True), tensors)
        with mock.patch.object(convert.weight_files, "BLOCK", 3):  # in pieces, as tensors of many numbers are
            self.assertIn("--tie-embeddings yes", self.convert())
            tensors["lm_head.weight"] = ("BF16", shape, b"".join([*upper[:-1], upper[0]]))
            self.put(dict(LLAMA, tie_word_embeddings=True), tensors)
            self.file.unlink()
            self.refuse("lm_head.weight is not the embedding's")

    def test_numbers_of_16_bits(self):
        tensors, wide = numbered(LLAMA_SHAPES), [1.0, -2.5, 2.0**-130, math.inf]
        halves = [1.0, -2.5, 2.0**-24, 65504.0]
        tensors["model.norm.weight"] = ("BF16", [4], b"".join(struct.pack("<f", value)[2:] for value in wide))
        tensors["model.layers.0.input_layernorm.weight"] = ("F16", [4], struct.pack("<4e", *halves))
        self.put(LLAMA, tensors)
        for library in {convert.weight_files.numpy, None}:
            with mock.patch.object(convert.weight_files, "numpy", library):
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
        self.expect_joined(tensors, LLAMA_NAMES)
        write(self.folder / "model-1.safetensors", {})
        self.file.unlink()
        self.refuse("which model.safetensors.index.json says is there")


class Refusals(Case):
    def test_models(self):
        for base, shapes, cases in ((LLAMA, LLAMA_SHAPES, REFUSED), (GPT2, GPT2_SHAPES, REFUSED_GPT2)):
            self.refuse_changes(base, shapes, cases)

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
        self.refuse("the header is no JSON object")
        (self.folder / "model.safetensors").unlink()
        self.refuse("holds neither model.safetensors nor model.safetensors.index.json")
        (self.folder / "config.json").write_text("no")
        self.refuse("config.json is no sound JSON")


def entry(*place, shape=(4,), kind="F32"):
    return dict(dtype=kind, shape=shape, data_offsets=place)


def packed(header, data=bytes(32), length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


DEEP = b"[" * 100_000
TWO = dict(a=entry(0, 16), b=entry(16, 32))
DAMAGED = [  # a safetensors file, words of the message
    (packed(dict(a=entry(False, 16), b=entry(16, 32))), "a is damaged"),
    (packed(dict(a=entry(0, 16.0), b=entry(16, 32))), "a is damaged"),
    (packed(dict(a=entry(0, 16, shape=[4.0]), b=entry(16, 32))), "a is damaged"),
    (packed(dict(a=entry(0, 16, shape=[4, True]), b=entry(16, 32))), "a is damaged"),
    (packed(dict(a=entry(0, 16, shape=[-2, -2]), b=entry(16, 32))), "a is damaged"),
    (packed(dict(a=entry(0, 16, shape="4"), b=entry(16, 32))), "a is damaged"),
    (packed(dict(a=entry(0, 16, shape=[2**62] * 100_000), b=entry(16, 32))), "a is damaged"),
    (packed(dict(a=entry(0, 16, 16), b=entry(16, 32))), "a is damaged"),
    (packed(dict(a=entry(0, 16, kind=["F32"]), b=entry(16, 32))), "a is damaged"),
    (packed(dict(a=entry(16, 0), b=entry(16, 32))), "a is damaged"),
    (packed(dict(a=entry(0, 10**30), b=entry(16, 32))), "a is damaged"),
    (packed(dict(a=[], b=entry(16, 32))), "a is damaged"),
    (packed({"a\nb\u001b": []}), "a?b? is damaged"),
    (packed(dict(a=entry(0, 16), b=entry(0, 16)), bytes(16)), "b lies over the one before it"),
    (packed(dict(b=entry(12, 28), a=entry(0, 16))), "b lies over the one before it"),
    (packed(dict(b=entry(20, 36), a=entry(0, 16)), bytes(36)), "b has bytes before it that are no tensor's"),
    (packed(dict(a=entry(4, 20)), bytes(20)), "a has bytes before it that are no tensor's"),
    (packed(TWO, bytes(33)), "1 bytes at its end are no tensor's"),
    (packed(b'{"a": {}, "a": {}}'), "a stands twice"),
    (packed(b'{"a": {"shape": [1], "shape": [2]}}'), "shape stands twice"),
    (packed(DEEP), "the header is no sound JSON"),
    (packed(b'{"a": ' * 100_000), "the header is no sound JSON"),
    (packed(b"\xff\xff"), "the header is no sound JSON"),
    (packed(TWO, length=40), "the header is no sound JSON"),
    (packed(TWO, length=140), "the header is no sound JSON"),
    (packed(TWO, length=1000), "is no safetensors file, or cut off"),
    (packed(TWO, length=2**64 - 1), "is no safetensors file, or cut off"),
    (packed(TWO, length=0), "is no safetensors file, or cut off"),
    (packed(TWO)[:5], "is no safetensors file, or cut off"),
]
DAMAGED_JSON = [
    (DEEP, "is no sound JSON"),
    (b'{"weight_map": ' + b'{"a": ' * 100_000, "is no sound JSON"),
    (b'{"weight_map": {"a": "b"}, "weight_map": {}}', "weight_map stands twice"),
    (b"\xff", "is no sound JSON"),
    (b'{"a": ' + b"9" * 5000 + b"}", "is no sound JSON"),
    (b"[]", "is no JSON object"),
]
PLACES = [(3, None), (None, None), (["b"], None), ("../b", None), ("/b", None), ("b\0", None), ("\ud800", None)]
PLACES += [("", "Is a directory"), ("..", "Is a directory"), ("b", "b: No such file")]
DAMAGED_INDEX = [({}, "has no weight_map"), (dict(weight_map=["a"]), "has no weight_map")]
DAMAGED_INDEX += [(dict(weight_map=dict(a=part)), why or "the place of a is no name of a file") for part, why in PLACES]


class Damage(Case):
    def test_tensors(self):
        self.put(LLAMA, {})
        damaged = self.root / "damaged"
        for raw, message in DAMAGED:
            with self.subTest(message=message, raw=raw[8:80]):
                (self.folder / "model.safetensors").write_bytes(raw)
                self.refuse(message)
                damaged.write_bytes(raw)
                self.refuse(message, "--to-huggingface", self.folder / "config.json", damaged, self.root / "made")

    def test_json(self):
        self.put(LLAMA, {})
        (self.folder / "model.safetensors").unlink()
        index = self.folder / "model.safetensors.index.json"
        cases = [*DAMAGED_JSON, *((json.dumps(values).encode(), message) for values, message in DAMAGED_INDEX)]
        for raw, message in cases:
            with self.subTest(message=message, raw=raw[:80]):
                index.write_bytes(raw)
                self.refuse(message)
        for raw, message in DAMAGED_JSON:
            with self.subTest(message=message, raw=raw[:80]):
                (self.folder / "config.json").write_bytes(raw)
                self.refuse(message)

    def test_values_too_deep_to_be_written(self):
        self.put(LLAMA, numbered(LLAMA_SHAPES))
        self.convert()
        mine = self.file.rename(self.root / "mine")
        words = ("--to-huggingface", self.folder / "config.json", mine, self.root / "back")
        # at which depth depends on the version of Python
        with mock.patch.object(json, "dumps", side_effect=RecursionError("too deep")):
            self.refuse("too deep", *words)
        self.assertFalse(list(self.root.glob("back/*")))


class Writing(Case):
    def test_sources_stay(self):
        self.put(LLAMA, numbered(LLAMA_SHAPES))
        (self.folder / "link").symlink_to("model.safetensors")
        os.link(self.folder / "config.json", self.folder / "here.part")
        before = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        for name in ("model.safetensors", "config.json", "link", "here"):
            self.refuse("which is read", self.folder, self.folder / name)
        self.refuse("is no regular file", self.folder, self.folder)
        self.assertEqual({path.name: path.read_bytes() for path in self.folder.iterdir()}, before)

    def test_parts_stay(self):
        self.put(LLAMA, numbered(LLAMA_SHAPES))
        (self.folder / "model.safetensors").rename(self.folder / "one")
        index = self.folder / "model.safetensors.index.json"
        index.write_text(json.dumps(dict(weight_map={name: "one" for name in LLAMA_SHAPES})))
        for path in (index, self.folder / "one"):
            self.refuse("which is read", self.folder, path)
        self.convert()
        self.file.rename(self.root / "mine")
        back = self.root / "back"
        back.mkdir()
        config, taken = self.folder / "config.json", back / "config.json.part"
        for source in (config, self.root / "mine"):
            os.link(source, taken)
            self.refuse("which is read", "--to-huggingface", config, self.root / "mine", back)
            taken.unlink()

    def test_nothing_is_left_of_what_was_begun(self):
        self.put(GPT2, numbered(GPT2_SHAPES))
        self.convert()
        self.file.rename(self.root / "mine")
        words = ("--to-huggingface", self.folder / "config.json", self.root / "mine", self.root / "back")
        full = OSError(28, "No space left on device")
        for way in ((self.folder, self.file), words):
            with mock.patch.object(convert.weight_files, "widen", side_effect=full):
                self.refuse(f"{way[-1]}", *way)
                self.refuse("No space left on device", *way)
            self.assertFalse((self.root / "back").exists())
            stop = lambda kind, raw: os.kill(os.getpid(), signal.SIGTERM) or raw  # noqa: E731
            with mock.patch.object(convert.weight_files, "widen", stop), self.assertRaises(SystemExit) as ended:
                self.run_script(*way)
            self.assertEqual(ended.exception.code, 128 + signal.SIGTERM)
            self.assertFalse(list(self.root.glob("made*")) + list(self.root.glob("back/*")))


class Sums(Case):
    """The checksums of docs/FORMATS.md."""

    def setUp(self):
        super().setUp()
        self.put(LLAMA, numbered(LLAMA_SHAPES))
        with mock.patch.object(convert.weight_files, "PIECE", 24):  # several in each tensor
            self.convert()

    def parts(self):
        whole = bytearray(self.file.read_bytes())
        length = struct.unpack("<Q", whole[:8])[0]
        return whole, 8 + length, json.loads(whole[8 : 8 + length])

    def convert_back(self):
        back = self.root / "back"
        return self.run_script("--to-huggingface", self.folder / "config.json", self.file, back), back

    def expect_refused(self, words):
        with mock.patch.object(convert.weight_files, "PIECE", 24):
            (status, out, err), back = self.convert_back()
        self.assertEqual((status, out), (1, ""))
        self.assertIn(words, err)
        self.assertFalse(back.exists())

    def test_are_those_of_each_piece_of_each_tensor(self):
        whole, start, header = self.parts()
        sums = header.pop("__metadata__")["crc32 of each MiB"]
        blank = whole[8:start].replace(sums[:8].encode(), b"0" * 8, 1)
        made = f"{zlib.crc32(blank):08x}"
        for entry in header.values():
            first, end = (start + place for place in entry["data_offsets"])
            for at in range(first, end, 24):
                made += f"{zlib.crc32(whole[at : min(at + 24, end)]):08x}"
        self.assertEqual(sums, made)
        self.assertGreater(len(sums), 8 * 2 * len(header))

    def test_one_changed_byte_is_found(self):
        whole, start, header = self.parts()
        last = max((entry["data_offsets"][1], name) for name, entry in header.items() if name != "__metadata__")[1]
        digits = whole.index(b"MiB") + 6
        changes = [(at, "the header") for at in (digits, digits + 8, digits - 5, start - 1)]
        for at, words in [*changes, (start, "embedding.weight"), (len(whole) - 1, last)]:
            changed = bytearray(whole)
            changed[at] = ord("\t") if at == start - 1 else changed[at] ^ 1
            self.file.write_bytes(changed)
            self.expect_refused(f"{self.file}: {words} ")

    def test_sums_of_another_file_are_too_many(self):
        whole, start, header = self.parts()
        header["__metadata__"]["crc32 of each MiB"] += "0" * 8
        text = json.dumps(header, separators=(",", ":")).encode()
        place = text.index(b"MiB") + 6
        before, behind = text[:place], text[place + 8 :]
        text = before + f"{zlib.crc32(before + b'0' * 8 + behind):08x}".encode() + behind
        self.file.write_bytes(struct.pack("<Q", len(text)) + text + whole[start:])
        self.expect_refused("more checksums than pieces")

    def test_files_without_them_are_read_and_hugging_face_gets_none(self):
        tensors = raw_tensors(self.file)
        write(self.file, {n: ("F32", shape, struct.pack(f"<{len(v)}f", *v)) for n, (shape, v) in tensors.items()})
        (status, _, err), back = self.convert_back()
        self.assertEqual((status, err), (0, ""))
        self.assertNotIn(b"crc32", (back / "model.safetensors").read_bytes())


class Back(Case):
    def test_bits(self):
        for config, shapes in ((GPT2, GPT2_SHAPES), (LLAMA, LLAMA_SHAPES), (MIXTRAL, MIXTRAL_SHAPES)):
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
