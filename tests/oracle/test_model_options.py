#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/model-options: what it says of configurations, and ppsim of what it says. check_huggingface.py compares the
numbers of parameters with those of the models themselves."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tiny_models import GPT2, LLAMA, LLAMA3, MIXTRAL

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "model-options"
PPSIM = sys.argv.pop() if len(sys.argv) > 1 else None
TOLD = [  # a change of LLAMA, the lines on standard error
    ({}, []),
    (dict(rope_scaling=dict(rope_type="llama3", factor=8.0)), ["rope_scaling is", "by llama3, yarn, linear and all their numbers"]),
    (dict(rope_scaling=dict(type="dynamic", factor=2.0)), ["rope_scaling is", "by llama3, yarn, linear and all their numbers"]),
    (dict(rope_scaling=3), ["rope_scaling is 3", "must be an object"]),
    (dict(mlp_bias=True, attention_bias=True), ["mlp_bias is true", "attention_bias is true"]),
    (dict(sliding_window=4096), ["sliding_window is 4096"]),
    (dict(hidden_act="gelu"), ['hidden_act is "gelu"']),
    (dict(model_type="olmo2"), ["norms of queries and keys"]),
    (dict(model_type="phi3", quantization_config=dict(bits=4), num_experts=0), []),
    (dict(model_type="phi3", use_sliding_window=False, sliding_window=4096), []),
    (dict(model_type="phi3", hidden_activation="gelu_pytorch_tanh"), ['hidden_act is "gelu_pytorch_tanh"']),
    (dict(architectures=["LlamaForSequenceClassification"]), ["the plan is of a language model"]),
]
TOLD_OF_EXPERTS = [  # a change of MIXTRAL, the lines besides that no token is left out
    ({}, []),
    (dict(num_local_experts=None, num_experts=3), []),
    (dict(router_jitter_noise=0.1), ["router_jitter_noise is 0.1"]),
    (dict(model_type="granitemoe"), ["constant factors"]),
    (dict(model_type="olmoe", norm_topk_prob=True), ["taken for a Mixtral of these sizes, it has norms of queries and keys"]),
    (dict(model_type="phimoe"), ["layer norms, biases of attention and decoder"]),
    (dict(model_type="gpt_oss", sliding_window=None, use_sliding_window=False), ["a sink for attention"]),
]
# Kimi K2's published config.json, of what counts.
KIMI = dict(model_type="kimi_k2", architectures=["DeepseekV3ForCausalLM"], hidden_size=7168, intermediate_size=18432)
KIMI.update(moe_intermediate_size=2048, num_hidden_layers=61, num_attention_heads=64, num_key_value_heads=64)
KIMI.update(n_routed_experts=384, num_experts_per_tok=8, n_shared_experts=1, first_k_dense_replace=1, moe_layer_freq=1)
KIMI.update(n_group=1, topk_group=1, topk_method="noaux_tc", scoring_func="sigmoid", norm_topk_prob=True)
KIMI.update(routed_scaling_factor=2.827, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64)
KIMI.update(v_head_dim=128, vocab_size=163840, rms_norm_eps=1e-6, rope_theta=50000.0, max_position_embeddings=131072)
KIMI.update(rope_scaling=dict(type="yarn", factor=32.0, beta_fast=1.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0))
KIMI["rope_scaling"].update(original_max_position_embeddings=4096)
KIMI.update(hidden_act="silu", attention_bias=False, tie_word_embeddings=False, quantization_config=dict(quant_method="fp8"))
TYPES = ["sliding_attention", "sliding_attention", "full_attention"] * 4
QWEN_WINDOWS = dict(use_sliding_window=True, max_window_layers=0)
WINDOWS = [  # a change of LLAMA of 12 layers with a sliding_window of 16, the options
    (dict(model_type="mistral"), "--window-size 16"),
    (dict(model_type="phi3"), "--window-size 16"),
    (dict(model_type="qwen2", use_sliding_window=False), ""),
    (dict(model_type="qwen2", use_sliding_window=True), ""),  # of the layers from 28 on
    (dict(QWEN_WINDOWS, model_type="qwen2"), "--window-size 16"),
    (dict(QWEN_WINDOWS, model_type="qwen3", layer_types=TYPES), "--window-size 16 --window-attn-skip-freq 3"),
    (dict(QWEN_WINDOWS, model_type="qwen3", layer_types=["full_attention"] * 12), ""),
    (dict(model_type="gemma2"), "--window-size 16 --window-attn-skip-freq 2"),
    (dict(model_type="olmo3"), "--window-size 16 --window-attn-skip-freq 4"),
    (dict(model_type="gemma3_text"), "--window-size 16 --window-attn-skip-freq 6"),
    (dict(model_type="gemma3_text", sliding_window_pattern=3), "--window-size 16 --window-attn-skip-freq 3"),
    (dict(model_type="gemma2", layer_types=["sliding_attention"] * 12), "--window-size 16"),
]
REFUSED = [
    (dict(model_type="deepseek"), 'model_type is "deepseek", but only gpt2, llama, mistral, mixtral, qwen2'),
    (dict(model_type="granitemoe", shared_intermediate_size=3), "is 3, but ppkit knows shared experts of qwen2_moe, dots1, glm4_moe"),
    (dict(model_type="deepseek_v4", n_shared_experts=1), 'model_type is "deepseek_v4"'),
    (dict(model_type="mixtral", num_local_experts=5, num_experts_per_tok=6), "num_experts_per_tok is 6"),
    (dict(model_type="qwen3_moe", decoder_sparse_step=2), "decoder_sparse_step is 2, but then no layer has experts"),
    (dict(model_type="qwen3_moe", num_hidden_layers=4, mlp_only_layers=[2]), "mlp_only_layers is [2]"),
    (dict(model_type="gpt_neox"), 'model_type is "gpt_neox"'),
    (dict(num_experts=8), "num_experts is 8"),
    (dict(model_type="qwen3", hidden_size="4"), 'hidden_size is "4"'),
    (dict(rope_scaling=3, rope_theta="x"), 'rope_theta is "x"'),
    (dict(rope_scaling=dict(LLAMA3, high_freq_factor=1.0)), "its numbers make no sense together"),
    (dict(num_key_value_heads=4), "num_key_value_heads is 4"),
]


def options(values, place="config.json"):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps(values))
        command = [sys.executable, "-B", SCRIPT, pathlib.Path(folder, place)]
        return subprocess.run(command, capture_output=True, text=True, check=False)


class Options(unittest.TestCase):
    def test_what_is_told(self):
        plain = options(LLAMA).stdout
        for change, lines in TOLD:
            with self.subTest(change=change):
                done = options({**LLAMA, **change})
                self.assertEqual((done.returncode, done.stdout), (0, plain))
                self.assertEqual(bool(done.stderr), bool(lines))
                self.assertEqual(len(set(done.stderr.splitlines())), done.stderr.count("\n"))
                for line in lines:
                    self.assertIn(line, done.stderr)

    def test_what_is_told_of_experts(self):
        plain = options(MIXTRAL).stdout
        self.assertTrue(plain.startswith("--preset mixtral-8x7b --tokens 4096 "))
        self.assertIn(" --d-ff 3 ", plain)
        self.assertIn(" --experts 3 --experts-per-token 2 --aux-loss 0.02 ", plain)
        self.assertNotIn("capacity", plain)
        for change, lines in TOLD_OF_EXPERTS:
            with self.subTest(change=change):
                done = options({**MIXTRAL, **change})
                self.assertEqual((done.returncode, done.stdout), (0, plain))
                self.assertEqual(done.stderr.count("\n"), len(lines) + 1)
                for line in [*lines, "the model leaves out no token"]:
                    self.assertIn(line, done.stderr)

    def test_windows(self):
        for change, words in WINDOWS:
            for width in (16, None):
                done = options(dict(LLAMA, num_hidden_layers=12, architectures=None, sliding_window=width, **change))
                self.assertEqual((done.returncode, "--window" in done.stdout), (0, bool(words and width)), change)
                self.assertIn(f" {words} --tie" if words and width else " --tie", done.stdout)
                self.assertNotIn("sliding_window", done.stderr)
        done = options(dict(LLAMA, num_hidden_layers=12, model_type="qwen2", **dict(QWEN_WINDOWS, max_window_layers=3)))
        self.assertIn("sliding_window is 4096, but ppkit has windows in all layers, or in all but", done.stderr)
        self.assertNotIn("--window", done.stdout)

    def test_qwen(self):
        plain = options(LLAMA).stdout
        for kind, words in (("qwen2", "--bias qkv "), ("qwen3", "--bias no --qk-norm yes ")):
            done = options(dict(LLAMA, model_type=kind, architectures=None, sliding_window=4096))
            self.assertEqual((done.stdout, done.stderr), (plain.replace("--bias no ", words), ""))
        values = dict(MIXTRAL, model_type="qwen3_moe", moe_intermediate_size=3, intermediate_size=7, architectures=None)
        plain = options(MIXTRAL).stdout.replace("--bias no ", "--bias no --qk-norm yes ")
        for gates, words in ((True, ""), (False, "--gates all ")):
            done = options(dict(values, norm_topk_prob=gates))
            self.assertEqual(done.stdout, plain.replace("--tie-", words + "--tie-"))
            self.assertEqual(done.stderr.count("\n"), 1)
        done = options(dict(values, model_type="qwen2_moe", shared_expert_intermediate_size=9))
        words = "--gates all --shared-ff 9 --shared-gate yes --tie-"
        self.assertEqual(done.stdout, plain.replace("--bias no --qk-norm yes ", "--bias qkv ").replace("--tie-", words))

    def test_layers_without_experts(self):
        values = dict(MIXTRAL, model_type="dots1", architectures=None, num_hidden_layers=3, first_k_dense_replace=1)
        values.update(n_routed_experts=3, n_shared_experts=2, moe_intermediate_size=3, intermediate_size=7)
        done = options(dict(values, routed_scaling_factor=2.5, norm_topk_prob=True))
        self.assertIn(" --d-ff 3 --layers 3 ", done.stdout)
        words = "--router-score sigmoid --shared-ff 6 --expert-bias yes --gate-scale 2.5 --dense-layers 1 --experts-every 1 --dense-ff 7 "
        self.assertIn(words, done.stdout)
        self.assertEqual(done.stderr.count("\n"), 1)
        for bad in (dict(max_window_layers="62"), dict(layer_types=5), dict(layer_types=[["a"]] * 3)):
            done = options(dict(values, **bad))
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn("--window-size 4096 ", options(dict(values, max_window_layers=0)).stdout)
        values = dict(MIXTRAL, model_type="qwen3_moe", architectures=None, num_hidden_layers=6, decoder_sparse_step=2)
        done = options(dict(values, moe_intermediate_size=3, intermediate_size=7))
        self.assertIn(" --dense-layers 1 --experts-every 2 --dense-ff 7 ", done.stdout)

    def test_kimi_k2(self):
        done = options(KIMI)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (0, 1), done.stderr)
        self.assertIn("the model leaves out no token", done.stderr)
        words = "--router-score sigmoid --shared-ff 2048 --expert-bias yes --gate-scale 2.827 --dense-layers 1 "
        self.assertIn(words, done.stdout)
        self.assertIn("--rope-high-freq-factor 1.0 --rope-low-freq-factor 1.0 ", done.stdout)

    def test_rotations_of_llama_3_1(self):
        words = "--rope-factor 8.0 --rope-low-freq-factor 1.0 --rope-high-freq-factor 4.0 --rope-original-tokens 8192 "
        plain = options(LLAMA).stdout
        done = options(dict(LLAMA, rope_scaling=LLAMA3))
        self.assertEqual((done.stdout, done.stderr), (plain.replace("--tie-", words + "--tie-"), ""))
        self.assertEqual(options(dict(LLAMA, rope_scaling=dict(LLAMA3, factor=1))).stdout, plain)

    def test_other_rotations(self):
        plain = options(LLAMA).stdout
        yarn = dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=4096)
        words = "--rope-scaling yarn --rope-factor 32.0 --rope-high-freq-factor 32.0 --rope-low-freq-factor 1.0 "
        words += "--rope-original-tokens 4096 "
        cases = [
            (dict(yarn), words),
            (dict(yarn, truncate=False), words + "--rope-truncate no "),
            (dict(yarn, attention_factor=1.5), words + "--rope-attention-factor 1.5 "),
            (dict(yarn, mscale=1.0, mscale_all_dim=1.0), words + "--rope-attention-factor 1.0 "),
            (dict(type="yarn", factor=4.0), "--rope-scaling yarn --rope-original-tokens 9 --rope-factor 4.0 "),
            (dict(type="linear", factor=4.0), "--rope-scaling linear --rope-factor 4.0 "),
        ]
        for given, expected in cases:
            with self.subTest(given=given):
                done = options(dict(LLAMA, rope_scaling=given, max_position_embeddings=9))
                made = plain.replace("--tie-", expected + "--tie-").replace("--tokens 4096", "--tokens 9")
                self.assertEqual((sorted(done.stdout.split()), done.stderr), (sorted(made.split()), ""))
        done = options(dict(LLAMA, head_dim=8, partial_rotary_factor=0.5))
        self.assertIn(" --rotary-dim 4 ", done.stdout)

    def test_another_epsilon(self):
        self.assertIn(" --norm-epsilon 1e-06 ", options(dict(LLAMA, rms_norm_eps=1e-6)).stdout)

    def test_what_is_refused(self):
        for change, message in REFUSED:
            with self.subTest(message=message):
                done = options({**LLAMA, **change})
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1))
                self.assertIn(message, done.stderr)
        done = options(LLAMA, "none.json")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("none.json: No such file", done.stderr)

    def test_output_that_cannot_be_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "config.json")
            path.write_text(json.dumps(LLAMA))
            read, write = os.pipe()
            os.close(read)
            with open("/dev/full", "wb") as full, os.fdopen(write, "wb") as closed:
                for out, message in ((full, "No space left"), (closed, "Broken pipe")):
                    command = [sys.executable, "-B", SCRIPT, path]
                    done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
                    self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))
                    self.assertIn(message, done.stderr)

    def test_the_longest_row(self):
        self.assertTrue(options(LLAMA).stdout.startswith("--preset llama-2-7b --tokens 4096 "))
        self.assertIn("--tokens 2048 ", options(dict(LLAMA, max_position_embeddings=2048)).stdout)
        self.assertTrue(options(GPT2).stdout.startswith("--preset gpt-small --tokens 5 "))

    def test_a_folder(self):
        self.assertEqual(options(LLAMA, ".").stdout, options(LLAMA).stdout)

    def test_what_a_type_means(self):
        values = {name: value for name, value in LLAMA.items() if name != "head_dim"}
        for kind, words in (("gemma", "--head-dim 256"), ("qwen3", "--head-dim 128"), ("qwen2", "--head-dim 2")):
            self.assertIn(words + " ", options(dict(values, model_type=kind)).stdout)
        self.assertIn("--tie-embeddings yes", options(dict(values, model_type="gemma2")).stdout)
        self.assertIn("--tie-embeddings no", options(dict(values, model_type="gemma2", tie_word_embeddings=False)).stdout)
        values = {name: value for name, value in values.items() if name != "num_key_value_heads"}
        for kind, heads in (("gemma2", 4), ("qwen2", 32), ("glm4", 2), ("phi3", 64)):
            words = options(dict(values, model_type=kind, num_attention_heads=64, hidden_size=128)).stdout
            self.assertIn(f"--kv-heads {heads} ", words)

    @unittest.skipUnless(PPSIM, "no ppsim")
    def test_parameters(self):
        """LLAMA: embedding and decoder 5 x 4; q 4 x 4, k and v 2 x 4, o 4 x 4, 3 of 3 x 4, 3 norms of 4. GPT2: 4 x 2,
        5 x 2; 2 x 6 + 6, 2 x 2 + 2, 2 x 3 + 3, 3 x 2 + 2, and 3 norms of 4. MIXTRAL: LLAMA's three linears three times,
        and a router of 3 x 4. Qwen3 has two norms of 2 more, Qwen2 a bias of 4 + 2 + 2. Kimi K2, in the order of d, its
        layers' attention, feed-forwards and experts: a trillion."""
        attention = 7168 * (1536 + 576 + 1 + 1) + 1536 * (64 * 192 + 1) + 512 * (64 * 256 + 1) + 64 * 128 * 7168
        kimi = 2 * 163840 * 7168 + 7168 + 61 * attention + 3 * 7168 * 18432 + 60 * (385 * 3 * 7168 * 2048 + 384 * 7169)
        self.assertEqual(round(kimi / 1e9), 1026)
        qwen = dict(LLAMA, architectures=None)
        cases = [(dict(qwen, model_type="qwen3"), 136 + 2 * 2), (dict(qwen, model_type="qwen2"), 136 + 4 + 2 + 2)]
        cases += [(KIMI, kimi), (LLAMA, 40 + 48 + 36 + 12), (MIXTRAL, 40 + 48 + 3 * 36 + 12 + 12), (GPT2, 18 + 18 + 6 + 9 + 8 + 12)]
        for values, parameters in cases:
            words = ["--stages", "1", "--tensor", "1", "--tokens", "5", "--format", "json"]
            command = [PPSIM, *options(values).stdout.split(), *words]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            self.assertEqual(json.loads(done.stdout)[0]["parameters"], parameters)


if __name__ == "__main__":
    unittest.main()
