#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""analysis/gpu_report.py and the arithmetic of analysis/bench_gpu.py, on figures made by hand."""

import argparse
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
ANALYSIS = HERE.parent.parent / "analysis"
RUNS = HERE.parent.parent / "docs" / "results" / "h200-runs"
sys.dont_write_bytecode = True
sys.path.insert(0, str(ANALYSIS))
import bench_gpu as bench  # noqa: E402
import gpu_report as report  # noqa: E402
import json_lines  # noqa: E402
import profile_text  # noqa: E402


def line(**more):
    made = dict(model="tutorial", precision="bf16", chunks=1, microbatches=1, floor_ms=10.0, paper_ms=9.4)
    made.update(ppexec_ms=[12.0, 12.4], torch_ms=[13.0, 13.2], batch_w_ms=[], batch_w_floor_ms=None)
    made.update(ppexec_gpu=[{"sm_mhz": 1980, "watts": 600}], torch_gpu=[{}])
    made["command"] = "ppexec --x"
    made["ceilings"] = {"flops": {"fp32": 5e13, "tf32": 4e14, "bf16": 7.9e14}, "bytes": 4.3e12}
    return {**made, **more}


RUN = "run\tcuda\ta GPU\t16\t1\t1\twhen\t0.1\tok\t1000\tw"


def task(context, ns):
    return f"task\tF 1l\t{context}\t1\t20\t{ns}\t{ns}\t{ns}\t{ns}"


def profile(*lines):
    return "\n".join([profile_text.VERSION, *lines, "end\n"])


class Programs(unittest.TestCase):
    def test_one_that_hangs_does_not_take_all_the_time(self):
        hangs = ["-c", "exec sleep 60"]
        with self.assertRaises(subprocess.TimeoutExpired):  # others would hang, too
            bench.ppexec("sh", hangs, 0.2)
        with unittest.mock.patch.object(bench, "RUN_SECONDS", 0.2):
            self.assertEqual(bench.other_way(types.SimpleNamespace(ppexec="sh"), hangs), [])


class Floor(unittest.TestCase):
    def test_it_is_what_was_computed_by_hand_for_an_h200(self):
        cases = (
            ("tutorial", "fp32", (61.9, 61.9, 61.9, 61.9, 76.4), (61.9, 61.9)),
            ("tutorial", "tf32", (13.7, 17.6, 27.9, 38.2, 72.5), (19.7, 42.0)),
            ("tutorial", "bf16", (9.4, 14.3, 22.0, 29.7, 55.5), (12.4, 23.5)),
            ("tutorial-12", "tf32", (15.4, 24.7, 39.5, 54.3, 103.6), None),
            ("tutorial-12", "bf16", (11.2, 20.1, 31.2, 42.3, 79.3), None),
        )
        for model, precision, each, together in cases:
            shape = bench.SHAPES[model]
            found = [bench.floor_ms(shape, chunks, precision, bench.PAPER) for chunks in (1, 4, 7, 10, 20)]
            self.assertEqual(tuple(round(ms, 1) for ms in found), each, (model, precision))
            if together:
                found = [bench.floor_ms(shape, chunks, precision, bench.PAPER, chunks) for chunks in (7, 20)]
                self.assertEqual(tuple(round(ms, 1) for ms in found), together, (model, precision))

    def test_goals(self):
        self.assertEqual(bench.verdict(line())[2], True)
        self.assertAlmostEqual(bench.verdict(line())[0], 1.22)
        self.assertEqual(bench.verdict(line(floor_ms=9.0))[2], False)  # 1.36 of the floor
        self.assertEqual(bench.verdict(line(torch_ms=[12.1]))[2], False)
        # With several microbatches PyTorch is the goal, and the better way counts.
        many = line(microbatches=7, floor_ms=5.0, batch_w_ms=[11.0], torch_ms=[11.5])
        self.assertEqual(bench.verdict(many)[2], True)
        # Algorithms that were chosen by time count, for one microbatch beside the floor, too.
        chosen = line(floor_ms=9.0, algorithms_ms=[11.0])
        self.assertEqual(bench.verdict(chosen)[2], True)
        self.assertAlmostEqual(bench.verdict(chosen)[0], 11 / 9)
        self.assertEqual(bench.verdict(line(torch_ms=[], floor_ms=None)), (None, None, None))


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, name, text):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return str(path)


class Speed(InFolder):
    """Without PyTorch, or with one that fails."""

    def start(self, status, ppexec):
        (self.folder / "torch.py").write_text("raise RuntimeError('no such GPU')\n")
        command = [sys.executable, str(ANALYSIS / "bench_gpu.py"), "speed", "--ppexec", self.program("ppexec", ppexec)]
        command += ["--out", str(self.folder / "speed.jsonl"), "--models", "tutorial", "--precisions", "bf16,fp32"]
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "FOLDER": str(self.folder)}
        words = [*command, "--tiny", "--device", "cpu", "--turns", "1"]
        words += ["--ppprof", self.program("ppprof", 'echo x >>"$FOLDER/chosen"; exit 1\n')]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return [(r["precision"], r["chunks"]) for r in json_lines.read(self.folder / "speed.jsonl")]

    def test_what_fails_costs_its_own_line_alone(self):
        good = "echo '[{\"ms_per_batch\": 1.5}]'\n"
        self.assertEqual(
            self.start(1, 'case "$*" in *"--precision bf16 --chunks 1 "*) exit 1 ;; esac\n' + good),
            [("bf16", 8), ("fp32", 1), ("fp32", 8)],
        )
        self.assertEqual((self.folder / "chosen").read_text(), "x\n" * 2)  # algorithms: once for each precision
        self.assertEqual(self.start(1, "echo '[{\"ms_per_batch\": null}]'\n")[3:], [])  # it may refuse to tell
        self.assertEqual(self.start(0, good)[3:], [("bf16", 1)])

    def test_a_line_that_was_cut_off_is_measured_again(self):
        good = "echo '[{\"ms_per_batch\": 1.5}]'\n"
        whole = self.start(0, good)
        path = self.folder / "speed.jsonl"
        path.write_bytes(path.read_bytes()[:-20])
        self.assertEqual(json_lines.read(path), [*json_lines.read(path)][: len(whole) - 1])
        self.assertEqual(self.start(0, good), whole)

    def test_what_hangs_costs_its_precision_alone(self):
        """Of three lines that would hang one is tried."""
        tried = self.folder / "tried"
        hangs = f'case "$*" in *"--precision bf16 "*) echo x >>"{tried}"; exec sleep 60 ;; esac\n'
        args = argparse.Namespace(models="tutorial", precisions="bf16,fp32", chunks="1,4,8", tiny=True, turns=1, steps=3)
        args.ppexec, args.ppprof = self.program("ppexec", hangs + "echo '[{\"ms_per_batch\": 1.5}]'\n"), ""
        args.out, args.device, args.torch_device = str(self.folder / "speed.jsonl"), "cpu", ""
        quick, alone = {"RUN_SECONDS": 2}, {"Torch": unittest.mock.Mock(side_effect=ImportError)}
        with unittest.mock.patch.multiple(bench, **quick, **alone):
            with contextlib.redirect_stdout(None), contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(bench.speed(args), 1)
        lines = [(r["precision"], r["chunks"]) for r in json_lines.read(args.out)]
        self.assertEqual((lines, tried.read_text()), ([("fp32", 1), ("fp32", 4), ("fp32", 8)], "x\n"))


class Page(InFolder):
    def make(self, *words):
        command = [sys.executable, str(ANALYSIS / "gpu_report.py"), str(self.folder), *words]
        command += ["--out", str(self.folder / "h200.md")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return (self.folder / "h200.md").read_text()

    def test_nothing_is_a_page_that_says_what_is_missing(self):
        text = self.make()
        lacks = "the profile of tutorial-12; the profile of small; the profile of gpt", "predictions against runs"
        for what in (*lacks, "speed beside PyTorch and the floor", "learning"):
            self.assertIn(f"{what}.", text)
        self.assertEqual(text.count("MISSING: "), 4)
        self.assertIn("No host has been measured yet", text)

    def test_figures_commands_and_gaps(self):
        (self.folder / "host.txt").write_text("GPU: NVIDIA H200, 580, 143771 MiB, 700 W\nLinux\n")
        steps = "speed.runs\tfailed (1)\t3.0\told\nspeed.runs\tok\t60.5\tpython3 analysis/bench_gpu.py speed\n"
        steps = "parity.kernels\tskipped\t1.0\tx\n" + steps
        (self.folder / "steps.tsv").write_text(steps + "sweep.gpt-1024-bf16\ttime limit\t90.0\tppprof\n")
        (self.folder / "speed.jsonl").write_text(json.dumps(line()) + "\n")
        learned = dict(command="ppexec --y", loss=[10.0, 8.0], valid_loss=[7.0], test_loss=7.0, ms_per_batch=50.0)
        learned.update(peak_bytes=[5 * 10**9, 6 * 10**9], gpu={"used_mib": 20000.0})
        (self.folder / "learning.json").write_text(json.dumps(learned))
        (self.folder / "profiles").mkdir()
        (self.folder / "profiles" / "h200-tutorial.tsv").write_text(
            profile(RUN, task("1f1b always share 1/2", 5), task("1f1b always", 5), "kernel\tk\t-\t1\t20\t5")
        )
        text = self.make()
        self.assertIn("GPU: NVIDIA H200", text)
        self.assertIn("12.20 ±1.6 %", text)
        self.assertIn("1.22", text)
        self.assertIn("speed of tutorial fp32 in 8 chunks;", text)
        self.assertNotIn("speed of tutorial bf16 in 1 chunks", text)
        self.assertIn("    python3 analysis/bench_gpu.py speed", text)
        self.assertIn("as it should be:** parity.kernels (skipped), sweep.gpt-1024-bf16 (time limit).", text)
        self.assertIn("| 50.0", text)
        self.assertIn("5.00, 6.00", text)
        self.assertIn("1/2, whole", text)
        self.assertIn("1980 MHz, 600 W", text)
        for what in ("speed", "learning"):
            drawn = (self.folder / f"h200-{what}.svg").exists()
            self.assertTrue(drawn or f"`h200-{what}.svg`: MISSING (there is no gnuplot" in text)

    def test_a_training_that_diverged_is_a_part_of_the_page(self):
        self.folder = self.folder / "it's"
        self.folder.mkdir()
        for loss, valid, expected in (([5.0] * 10 + [900.0] * 10, [5.0, 900.0], ("900.000", "inf")),
                                      ([4.0, None], [None, None], ("-", "-"))):
            learned = dict(command="ppexec --z", loss=loss, valid_loss=valid, test_loss=None, ms_per_batch=None)
            learned.update(peak_bytes=[1], gpu={})
            (self.folder / "learning.json").write_text(json.dumps(learned))
            text = self.make()
            self.assertRegex(text, r"\| +2 \| +{} \| +{} +\|".format(*expected))
            drawn = (self.folder / "h200-learning.svg").exists()
            self.assertTrue(drawn or "`h200-learning.svg`: MISSING (there is no gnuplot" in text)

    def test_copies_inside_one_gpu_are_no_link_between_gpus(self):
        (self.folder / "profiles").mkdir()
        (self.folder / "profiles" / "h200-small.tsv").write_text(profile(RUN, "link\tinproc p2p\tlatency_ns\t1"))
        text = """while [ "$1" != --profile ]; do shift; done
grep -q inproc "$2" && link=inproc || link=machine
grep -q "^run" "$2" && printf '[{"stages": 2, "replicas": 1, "cost_source": "profile", "link_source": "%s", "ms_per_batch": 3}]' $link
"""
        self.program("ppsim", text)
        text = self.make("--bin", str(self.folder / "bin"))
        self.assertRegex(text, r"\| small +\| fp32 +\| P 2, D 1 +\| profile +\| data sheet +\| +3.00")
        # Of those without a profile it says nothing here, and ends as grep does.
        self.assertRegex(text, r"\| tutorial +\| fp32 +\| MISSING \(exit status 1\) +\| +- ")

    def test_why_there_is_no_prediction(self):
        (self.folder / "profiles").mkdir()
        (self.folder / "profiles" / "h200-small.tsv").write_text(profile(RUN))
        self.program("ppsim", "echo 'ppsim: warning: something else' >&2; echo 'ppsim: no such preset' >&2; exit 2\n")
        text = self.make("--bin", str(self.folder / "bin"))
        self.assertRegex(text, r"\| small +\| bf16 +\| MISSING \(ppsim: no such preset\) +\| +- ")

    def test_a_profile_that_cannot_be_read_is_missing(self):
        (self.folder / "profiles").mkdir()
        (self.folder / "profiles" / "h200-small.tsv").write_text("# ppkit profile 0\nend\n")
        text = self.make("--kernel-times", sys.executable)
        self.assertRegex(text, r'MISSING: .*h200-small.tsv: its first line is not "')

    def test_what_several_runs_have_measured_counts_once(self):
        (self.folder / "profiles").mkdir()
        share = "1f1b always share 1/2"
        text = profile(RUN.replace("\tok\t", "\tinterrupted\t"), task(share, 4), RUN, task(share, 5))
        (self.folder / "profiles" / "h200-tutorial.tsv").write_text(text)
        self.assertRegex(self.make(), r"\| 2, 1 cut short \| +1 \| +0 \| 1/2 ")

    def test_what_was_held_out_is_what_was_asked_for(self):
        asked = "python3 analysis/fidelity.py --models tutorial --held-out"
        steps = {"fidelity.runs": ["ok", "1.0", f"{asked} 5,7"], "again.runs": ["ok", "1.0", f"{asked} 5 --seed 2"]}
        steps.update({"speed.runs": ["ok", "1.0", f"{asked} 9"], "again.more": ["ok", "1.0", "fidelity.py --seed 1"]})
        self.assertEqual(report.held_out(steps), {"5", "7"})
        self.assertEqual(report.held_out(report.last_steps(RUNS)), {"5"})

    def test_runs_that_failed_are_named(self):
        block = self.folder / "fidelity" / "all"
        block.mkdir(parents=True)
        (block.parent / "table.md").write_text("# Predicted\n\nNothing\n")
        (block / "failed.json").write_text('["tutorial threads 4 1f1b 5 never fp32"]')
        self.assertIn("a run of tutorial threads 4 1f1b 5 never fp32, which failed", self.make())

    def test_kernels_of_ncu_are_summed_up(self):
        names = ["ID", "Kernel Name", *bench.NCU]
        rows = [names, ["", "", "ns", "%", "%", ""], ["0", "gemm", "3,000", "50", "10", "1.5"]]
        rows += [["1", "gemm", "1000", "90", "30", "0.7"], ["2", "add", "1000", "5", "80", "4"]]
        text = "==PROF== x\n" + "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows)
        found = report.ncu_rows(text)
        self.assertEqual(found[0], ["`gemm`", 2, "4.0", "80.0", "60", "15", "1.30"])
        self.assertEqual(found[1][:4], ["`add`", 1, "1.0", "20.0"])
        self.assertEqual(report.ncu_rows("==ERROR== no permission"), [])


if __name__ == "__main__":
    unittest.main()
