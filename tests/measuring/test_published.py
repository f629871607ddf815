#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/results/published.md is what analysis/published.py makes of it with the ppsim in PP_BIN."""

import difflib
import itertools
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "analysis"))
import published  # noqa: E402
import published_experts  # noqa: E402
import published_facts  # noqa: E402
import published_fp8  # noqa: E402
import published_llama  # noqa: E402
import published_modern  # noqa: E402
import published_tensor  # noqa: E402

MODELS = {"m": published.Model("m", 6, 1, 8, 2, 4, 2)}
FACTS = {"measured": [["m", 4, 10.0, 12.0, 12.0, None]]}


def found(*ms):
    """{(model, M, column): prediction} of 8 samples on 4 ranks"""
    rows = [{"microbatches": 4, "ms_per_batch": each} for each in ms]
    return {("m", 4, column): row for column, row in zip(published.COLUMNS, rows)}


class Figures(unittest.TestCase):
    def test_errors_have_the_sign_of_too_fast(self):
        self.assertEqual(MODELS["m"].split, [1, 2, 2, 1])
        self.assertEqual(MODELS["m"].split_of("ZB-1p"), [1, 2, 2, 1])
        self.assertEqual(MODELS["m"].split_of("1F1B-I"), [0, 1, 1, 1, 1, 1, 1, 0])  # 4 ranks with 2 stages each
        # 8 samples / 4 GPUs / 0.2 s = 10; / 0.16 s = 12.5
        _, errors = published.throughput(FACTS, MODELS, found(200, 160, 250), published.COLUMNS[:3])
        self.assertEqual([round(values[0], 2) for values in errors.values()], [0.0, 4.17, -33.33])

    def test_pairs_count_where_measured_speeds_differ(self):
        self.assertEqual(published.pairs(FACTS, MODELS, found(200, 160, 170)), ([], 2))
        self.assertEqual(published.pairs(FACTS, MODELS, found(200, 160, 250)), (["1F1B and ZB-1p"], 2))
        self.assertEqual(published.pairs(FACTS, MODELS, found(200, 160, 250), ["1F1B", "1F1B-I"]), ([], 1))

    def test_gain_is_held_against_the_measured_one(self):
        _, errors = published.ratios(FACTS, found(240, 160, 200), {})
        self.assertEqual([[round(error, 2) for error in errors["A", which]] for which in (True, False)], [[25.0], [0.0]])


class Recorded:
    """A program whose events are these: (rank, kind) in order of time"""

    def __init__(self, *events):
        self.found = events

    def events(self, _words, _query):
        return self.found


class Bytes(unittest.TestCase):
    MODEL = published.Model("m", 4, 1, 5120, 1, 2, 1)  # m_B = 34 * 5120 + 5 * 1024, m_W = 32 * 5120

    def test_a_microbatch_counts_less_between_its_i_and_its_w(self):
        part = 32 / 35
        f, i, w = (0, "F"), (0, "I"), (0, "W")
        most = published.held(Recorded(f, i, f, w, i, w, (1, "F"), (1, "B")), self.MODEL, [])
        self.assertEqual([round(each, 6) for each in most], [round(1 + part, 6), 1])
        most = published.held(Recorded(f, f, (0, "B"), f), self.MODEL, [], virtual=2)
        self.assertEqual(most, [1, 0])

    def test_all_but_one_past_i_are_the_most(self):
        self.assertEqual(self.MODEL.most_in_flight(), int(1 + 3 * 35 / 32))


class Tensor(unittest.TestCase):
    RUNS = {(cells[0], cells[1]): published_tensor.Run(*cells) for cells in published.read_facts()["tensor"]}

    def test_operations_are_eight_for_each_token_and_parameter(self):
        for model, parameters in (("39.1B", 39.1e9), ("145.6B", 145.6e9), ("1T", 1008e9)):  # forward twice
            run = self.RUNS[2021, model]
            self.assertAlmostEqual(run.operations() / (8 * run.batch * 2048 * parameters), 1, delta=0.06)

    def test_rate_is_that_of_a_gpu(self):
        run = self.RUNS[2021, "1T"]
        self.assertAlmostEqual(run.rate(run.operations() / 502e15), 163, delta=1)  # 502 petaFLOP/s on 3072 GPUs
        self.assertEqual([run.replicas, run.measured()], [6, 163])

    def test_gpus_and_rows_are_all_used(self):
        for run in self.RUNS.values():
            self.assertEqual(run.replicas * run.tensor * run.ranks, run.gpus)
            self.assertEqual(run.batch % (run.replicas * run.rows), 0)


class Sequence(unittest.TestCase):
    def predict(self, *words):
        """Twice as fast with parts of the tokens, which compute nothing twice."""
        parts = "--sequence-parallel" in words
        self.assertEqual(words[words.index("--checkpoint") + 1], "never" if parts else "layers")
        return {"ms_per_batch": 1000.0 * (1 if parts else 2), "tensor_ms": 100.0 if parts else 0, "peak_bytes": [7e9, 5e9]}

    def test_speeds_are_held_against_those_runs_and_gains_against_the_others(self):
        cells = next(cells for cells in published.read_facts()["tensor"] if cells[:2] == [2022, "22B"])
        facts = {"tensor": [cells], "sequence": [["22B", 1.1]]}
        lines, errors, gains, shares = published_tensor.sequence_table(self, facts, {"math": []})
        self.assertEqual(round(errors["math"][0], 6), 10)  # 1 s, not 1.1
        self.assertEqual(shares, [0.1])
        self.assertEqual([round(gains[name][0], 1) for name in ("measured", "math")], [29.1, 100])
        self.assertEqual([cell.strip() for cell in lines[2].split("|")[9:-1]], ["10", "7", "+29", "+100"])

    def test_all_of_2022_ran_so(self):
        facts = published.read_facts()
        models = [cells[1] for cells in facts["tensor"] if cells[0] == 2022]
        self.assertEqual([model for model, _ in facts["sequence"]], models)


class Modern(unittest.TestCase):
    RUNS = published_modern.runs_of(published.read_facts())

    def test_gpus_and_rows_are_all_used(self):
        for run in self.RUNS:
            self.assertEqual(run.replicas * run.tensor * run.ranks, run.gpus)
            self.assertEqual(run.batch % (run.replicas * run.rows), 0)
            self.assertEqual(run.model.layers % (run.ranks * run.virtual), 0)

    def test_products_are_two_operations_for_each_parameter(self):
        models = {run.model.name: run.model for run in self.RUNS}  # parameters: all but the embedding's
        for name, parameters in (("GPT-3 175B", 174.6e9), ("Nemotron-4 340B", 336.3e9), ("InternLM 7B", 6.9e9)):
            self.assertAlmostEqual(sum(models[name].products()) / (2 * parameters), 1, places=2)

    def test_products_of_layers_are_made_again(self):
        once, again = (run for run in self.RUNS if run.source == "internlm" and run.gpus == 8 and run.tensor == 1)
        layers, decoder = once.model.products()
        self.assertEqual(round(once.products() / once.rate * 312e12), round(3 * (layers + decoder)))
        self.assertEqual(round(again.products() / again.rate * 312e12), round(4 * layers + 3 * decoder))

    def test_rate_is_that_of_a_gpu(self):
        run = self.RUNS[0]
        self.assertEqual(round(run.measured() * run.gpus), 63099)  # as NVIDIA's table has it

    def test_narrow_heads_have_the_same_matrices(self):
        wide = next(run for run in self.RUNS if run.model.name == published_modern.WIDE)
        narrow = wide.with_narrow_heads()
        self.assertEqual((narrow.products(), narrow.model.heads, wide.model.heads), (wide.products(), 192, 96))

    def test_sums_stand_beside_products_in_recipes_alone(self):
        for run in self.RUNS:
            words, waiting = run.words(), run.that_waits().words()
            self.assertEqual("--overlap-tensor-sums" in words, run.source == "dgxc")
            self.assertEqual([word for word in words if word not in ("--overlap-tensor-sums", published_modern.PIECES)],
                             [word for word in waiting if word != published_modern.PIECES])

    def test_whoever_sums_in_bf16_has_runs(self):
        facts = published_facts.read_facts()
        runs = [cells[:2] for kind in ("modern", "fsdp", "experts", "fp8") for cells in facts[kind]]
        for cells in facts["bf16_sums"]:
            self.assertIn(cells, runs)
        rounded = {run.model.name for run in self.RUNS if "--grad-reduce-in-bf16" in run.words()}
        self.assertEqual(rounded, {"GPT-3 175B", "Nemotron-4 340B", "InternLM 7B"})

    def test_network_is_a_part_of_the_machine_files(self):
        kept = published_modern.machine_file("a100")
        (run, *_) = (run for run in self.RUNS if run.source == "internlm")
        with tempfile.TemporaryDirectory() as folder:
            found = json.loads(run.on(folder).read_text(encoding="utf-8"))
            self.assertEqual(self.RUNS[0].on(folder), "h100")
        self.assertEqual(found["network"].pop("gb_per_s") * 4, kept["network"].pop("gb_per_s"))
        self.assertEqual(found, kept)


    def test_tiles_are_all_that_is_left_out(self):
        (run, *_) = (run for run in self.RUNS if run.source == "internlm")
        with tempfile.TemporaryDirectory() as folder:
            flat = json.loads(published_modern.without_tiles(run, folder).read_text(encoding="utf-8"))
            kept = json.loads(run.on(folder).read_text(encoding="utf-8"))
        kept["precisions"]["bf16"].pop("tiles")
        self.assertEqual(flat, kept)

    def test_products_and_all_else_are_the_whole(self):
        (run, *_) = (run for run in self.RUNS if run.source == "internlm")
        figures = published_modern.of_first(run, 3.0, 3.0)  # tiles change nothing: products reach the efficiency
        self.assertEqual(figures["modern_first_reached"], "80")
        found = {name.removeprefix("modern_first_"): float(figure) for name, figure in figures.items()}
        self.assertAlmostEqual(found["products"] + found["else"], found["whole"], delta=0.011)
        self.assertAlmostEqual(found["products"] + found["else_predicted"], 3, delta=0.011)
        faster = published_modern.of_first(run, 2.8, 3.0)  # products take 0.2 s less, all else what it took
        self.assertAlmostEqual(float(faster["modern_first_products"]), found["products"] - 0.2, delta=0.011)
        self.assertEqual(faster["modern_first_else_predicted"], figures["modern_first_else_predicted"])

    def test_computing_is_what_counts_on_a_host_and_in_recipes(self):
        def first(model, gpus):
            return next(run for run in self.RUNS if run.model.name == model and run.gpus == gpus)

        runs = [first("InternLM 7B", 8), first("InternLM 7B", 128), first("GPT-3 175B", 128)]
        self.assertEqual(published_modern.computing(runs, [7, 8, 9]), [7, 9])


class Fake:
    """A predictor: tokens a second of a GPU by a function of the machine"""

    def __init__(self, rate):
        self.found = rate

    def rate(self, _run, machine=None, _words=None):
        return self.found(machine)


class Experts(unittest.TestCase):
    FACTS = published_facts.read_facts()
    RUNS = published_experts.runs_of(FACTS)
    MODELS = {run.model.name: run.model for run in RUNS}

    def test_gpus_layers_and_experts_are_all_used(self):
        for run in self.RUNS:
            self.assertEqual(run.replicas * run.tensor * run.ranks, run.gpus)
            self.assertEqual(run.microbatches * run.rows * run.replicas, run.batch)
            self.assertEqual([run.shared % run.tensor, run.model.experts % run.shared], [0, 0])
            words = list(map(str, run.words()))
            layers = [int(each) for each in words[words.index("--split") + 1].split(",")] if "--split" in words else []
            self.assertIn(sum(layers), (0, run.model.layers))
            self.assertIn(len(layers), (0, run.ranks * run.virtual))

    def test_operations_of_a_token_are_those_that_pages_count(self):
        for name, teraflops, rate in (("Qwen3 30B-A3B", 277, 12040), ("Qwen3 30B-A3B", 208, 9058)):  # AutoModel, Bridge
            self.assertAlmostEqual(self.MODELS[name].counted(causal=True) * rate / teraflops / 1e12, 1, delta=0.005)
        mixtral = self.MODELS["Mixtral 8x7B"]  # 12.7 billion parameters that a token uses but for the embedding
        self.assertAlmostEqual(mixtral.products() / 2 / 12.75e9, 1, delta=0.002)
        self.assertAlmostEqual(mixtral.counted(causal=False) - 3 * mixtral.products(), 12 * 4096 * 4096 * 32)

    def test_tokens_a_second_come_from_what_was_published(self):
        rates = {(run.source, run.model.name, run.machine, run.ranks): run.measured() for run in self.RUNS}
        self.assertEqual(rates["bridge", "GPT-OSS 120B", "h100", 4], 5984)
        self.assertEqual(round(rates["zoo", "Qwen3 235B-A22B", "h100", 32]), round(2048 * 4096 / 24.2 / 256))
        self.assertEqual(round(rates["mcore", "Mixtral 8x7B", "h100", 4]), 5282)

    def test_rows_that_leave_once_are_counted(self):
        model = published_experts.Mixture("m", 1, 1, 1, 8, 8, 8, 4, 2, 8, "no", 0)  # 4 experts, 2 of a token
        others = [len({expert // 2 for expert in pair} - {0}) for pair in itertools.combinations(range(4), 2)]
        each = [sum(expert >= 2 for expert in pair) for pair in itertools.combinations(range(4), 2)]
        self.assertAlmostEqual(model.once(2), sum(others) / sum(each))
        self.assertAlmostEqual(model.once(4), 1)  # an expert on each of four GPUs

    def test_time_is_that_of_a_layer_and_microbatch(self):
        (run,) = (run for run in self.RUNS if (run.source, run.machine, run.ranks) == ("bridge", "h100", 4))
        seconds = run.batch * 4096 / run.gpus / 5984
        self.assertAlmostEqual(run.layer_ms(5984), 1e3 * seconds / (80 + 3) / 9)
        self.assertAlmostEqual(run.lost_ms(2 * 5984), run.layer_ms(5984) / 2)
        self.assertAlmostEqual(run.lost_gb(2 * 5984), 3000 * run.layer_ms(5984) / 2 / 1e3)

    def test_machines_get_slower_by_what_is_said(self):
        machine = published_modern.machine_file("h100")
        kept = json.dumps(machine)
        slower = published_experts.slower(machine, published_experts.SLOWER["all three"])
        self.assertEqual(json.dumps(machine), kept)
        self.assertEqual(slower["memory"]["gb_per_s"] * 2, machine["memory"]["gb_per_s"])
        self.assertEqual([slower[part]["latency_us"] for part in ("reduce", "network")], [100, 40])
        self.assertEqual(slower["precisions"]["bf16"], {"peak_gflops": 989000, "efficiency": 553.9 / 989})
        self.assertEqual(published_modern.machine_file("gb200")["host"]["devices"], 64)

    def test_host_takes_what_makes_both_alike(self):
        run = self.RUNS[0]
        predictor = Fake(lambda machine: run.measured() * 400 / machine["issue_us"])
        self.assertAlmostEqual(published_experts.host_us(predictor, run), 400, delta=1)

    def test_tuned_and_filed_runs_stand_beside_their_predictions(self):
        tuned, filed = self.RUNS[0], self.RUNS[1]
        words = published_experts.of_host(Fake(lambda machine: 1000), tuned, filed)
        self.assertEqual(words["experts_tuned_predicted"], f"{tuned.layer_ms(1000):.1f}")
        self.assertEqual(words["experts_filed"], f"{filed.layer_ms(filed.measured()):.1f}")
        self.assertEqual(words["experts_filed_error"], f"{100000 / filed.measured() - 100:+.0f}")
        runs = published_experts.runs_of(self.FACTS, "experts_filed")
        self.assertEqual([(run.machine, run.rows, run.teraflops) for run in runs], [("b200", 1, 150)])

    def test_windows_are_all_that_is_left_out(self):
        run = next(run for run in self.RUNS if run.model.window)
        left = published_experts.without_window(run)
        self.assertEqual(len(left) + 4, len(run.words()))
        self.assertFalse([word for word in left if "window" in str(word)])

    def test_whole_cases_of_the_page_have_one_meaning(self):
        for run in self.RUNS:
            self.assertEqual(sum(cell is not None for cell in (run.seconds, run.rate, run.teraflops)), 1)
            self.assertIn(run.source, published_experts.WHOSE)


class Fp8(unittest.TestCase):
    FACTS = published_facts.read_facts()
    PAIRS = published_fp8.pairs_of(FACTS)

    def test_all_recipes_of_nvidia_have_a_twin(self):
        recipes = [run for run in published_modern.runs_of(self.FACTS) if run.source == "dgxc"]
        twins = [pair.run for pair in self.PAIRS if not isinstance(pair.run, published_fp8.Llama)]
        self.assertEqual([(run.model.name, run.gpus, run.tensor) for run in twins],
                         [(run.model.name, run.gpus, run.tensor) for run in recipes])
        for run, twin in zip(recipes, twins):
            self.assertEqual(run.seconds, twin.seconds)

    def test_gpus_rows_and_layers_are_all_used(self):
        for pair in self.PAIRS:
            run = pair.run
            self.assertEqual(run.replicas * run.tensor * run.ranks * pair.context, run.gpus)
            self.assertEqual(run.batch % (run.replicas * run.rows), 0)
            words = list(map(str, pair.words("fp8")))
            split = words[words.index("--split") + 1].split(",") if "--split" in words else []
            self.assertIn(len(split), (0, run.ranks * run.virtual))
            self.assertIn(sum(map(int, split)), (0, run.model.layers))

    def test_both_precisions_have_the_same_options(self):
        for pair in self.PAIRS:
            differ = [both for both in zip(pair.words("bf16"), pair.words("fp8")) if both[0] != both[1]]
            self.assertEqual(differ, [("bf16", "fp8")])

    def test_rates_are_those_of_the_tables(self):
        pair = self.PAIRS[0]
        self.assertEqual((round(pair.bf16 * pair.run.gpus), round(pair.fp8 * pair.run.gpus)), (63099, 93190))
        self.assertEqual([pair.bf16 for pair in self.PAIRS if pair.run.source == "bridge"], [None] * 6)

    def test_errors_and_gains_are_of_speed(self):
        found = published_fp8.Figures(self.PAIRS[0], 8.0, 5.0)
        self.assertAlmostEqual(found.gain_predicted, 1.6)
        self.assertAlmostEqual(found.gain, 8.309 / 5.626)
        self.assertAlmostEqual(found.bf16, 100 * (8.309 / 8.0 - 1))
        self.assertAlmostEqual(found.fp8, 100 * (5.626 / 5.0 - 1))


class Command(unittest.TestCase):
    def test_options_keep_their_values_on_a_line(self):
        lines = published_facts.command(["--zero", 1, "--no-eval", *["--split", "1" * 60] * 2]).splitlines()
        split = "--split " + "1" * 60
        self.assertEqual(lines, [f"    ppsim --zero 1 --no-eval {split} \\", f"        {split}"])
        self.assertLessEqual(max(map(len, lines)), published_facts.COLUMNS)


class Page(unittest.TestCase):
    def test_is_what_the_program_says(self):
        path = ROOT / "docs" / "results" / "published.md"
        kept, made = path.read_text(encoding="utf-8"), published.page(os.environ["PP_BIN"])
        lines = difflib.unified_diff(kept.splitlines(), made.splitlines(), str(path), "today", lineterm="", n=0)
        self.assertTrue(kept == made, "run analysis/published.py and read what it changes:\n" + "\n".join(lines))


class Documents(unittest.TestCase):
    def test_say_what_the_page_says(self):
        page = (ROOT / "docs" / "results" / "published.md").read_text(encoding="utf-8")
        sentence = " ".join(line.removeprefix("> ") for line in page.splitlines() if line.startswith("> "))
        self.assertRegex(sentence, r"^Speeds predicted for \d+ .* \(plus: too fast\)\.$")
        for name in ("README.md", "docs/FEATURES.md"):
            self.assertIn(sentence, " ".join((ROOT / name).read_text(encoding="utf-8").split()), name)

    def test_front_page_says_how_far_off_mixtures_are(self):
        page = (ROOT / "docs" / "results" / "published.md").read_text(encoding="utf-8")
        (errors,) = re.findall(r"\*\*Mixtures of experts are off by (.*?) %\.\*\*", page)
        front = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
        self.assertIn(f"Mixtures of experts are off by {errors} %", front)

    def test_front_page_says_how_far_off_fp8_is(self):
        page = (ROOT / "docs" / "results" / "published.md").read_text(encoding="utf-8")
        (errors,) = re.findall(r"\[J\]\(#j-fp8\): F's recipes of NVIDIA.* \| 8 to 2048 H100 \| (.*?) \|", page)
        front = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
        self.assertIn(f"In FP8, recipes of NVIDIA on H100s are off by {errors} %", front)

    def test_program_and_planning_say_what_the_page_says(self):
        page = " ".join((ROOT / "docs" / "results" / "published.md").read_text(encoding="utf-8").split())
        (factor,) = re.findall(r"Expect ([0-9.]+ to [0-9.]+) times the predicted time", page)
        self.assertIn(f"expect {factor} times as much", (ROOT / "sim" / "machine_tell.c").read_text(encoding="utf-8"))
        planning = (ROOT / "docs" / "PLANNING.md").read_text(encoding="utf-8")
        self.assertIn(f"Multiply days and cost by {factor}", planning)
        (factor,) = re.findall(r"In FP8 they took \[([0-9.]+ to [0-9.]+) times\]", page)
        self.assertIn(f"expect {factor} times as much", (ROOT / "sim" / "machine_tell.c").read_text(encoding="utf-8"))
        program = (ROOT / "sim" / "machine_tell.c").read_text(encoding="utf-8")
        (factor,) = re.findall(r"Mixtures of experts took \[([0-9.]+ to [0-9.]+) times\]", page)
        self.assertIn(f"Mixtures of experts took [{factor} times]", " ".join(planning.split()))
        self.assertIn(f"expect {factor} times as much", program)
        (factors,) = re.findall(r"and expect (\S+ to \S+) times the predicted time; in FP8 (\S+ to \S+) times, and of "
                                r"mixtures (\S+ to \S+)\.", page)
        for factor in factors:
            self.assertIn(f'"expect {factor} times as much"', program)
        self.assertIn(f"Multiply days and cost by {factors[0]}", " ".join(planning.split()))


class Llama(unittest.TestCase):
    def test_operations_are_six_for_each_token_and_parameter_and_those_of_attention(self):
        tokens = 16 * 1024 * 1024
        self.assertAlmostEqual(published_llama.operations(32, 64, 0) / (6 * 405.85e9 * tokens), 1, places=4)
        beside = published_llama.operations(16, 128, 1) - published_llama.operations(16, 128, 0)
        self.assertAlmostEqual(beside / (3 * 2 * 2 * 126 * 8192 * 16384 * tokens), 1)  # scores, and what they weigh

    def test_stages_have_all_layers(self):
        words = published_llama.words(16, 8, 64, 32)
        self.assertEqual(sum(map(int, words[words.index("--split") + 1].split(","))), published_llama.LAYERS)


if __name__ == "__main__":
    unittest.main()
