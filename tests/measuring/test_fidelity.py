#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""analysis/fidelity.py over programs that pretend (fake_program.py), and its statistics on numbers made by hand."""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ANALYSIS = HERE.parent.parent / "analysis"
sys.dont_write_bytecode = True
sys.path.insert(0, str(ANALYSIS))
import fidelity_design as design  # noqa: E402
import fidelity_table as table  # noqa: E402

SMALL = ("--models", "small", "--schedules", "gpipe", "--chunks", "1,2,4", "--repeats", "2")


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


class Started(unittest.TestCase):
    """fidelity.py as a user starts it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out, self.log = self.folder / "out", self.folder / "log"
        (self.folder / "bin").mkdir()
        for name in ("ppprof", "ppsim", "ppexec", "mpirun"):
            program = self.folder / "bin" / name
            program.write_text(f"#!{sys.executable} -IS\n" + (HERE / "fake_program.py").read_text(encoding="utf-8"))
            program.chmod(0o755)

    def start(self, *words, status=0, **environment):
        """Returns what the programs noted of themselves, and what it wrote to standard error."""
        self.log.write_text("")
        known = {**os.environ, "FAKE_LOG": str(self.log), "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        command = [sys.executable, str(ANALYSIS / "fidelity.py"), "--bin", str(self.folder / "bin")]
        command += ["--out", str(self.out), *words]
        done = subprocess.run(command, env={**known, **environment}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return [json.loads(line) for line in self.log.read_text().splitlines()], done.stderr

    def table_rows(self, *begin):
        """Cells of the rows of table.md that begin so."""
        rows = [cells(line) for line in (self.out / "table.md").read_text().splitlines() if line.startswith("|")]
        return [row for row in rows if row[: len(begin)] == list(begin)]

    def test_each_block_is_profiled_then_predicted_then_run(self):
        log, _ = self.start(*SMALL, "--checkpoints", "never,always")
        blocks, programs = ("small-2-1-never-fp32", "small-2-1-always-fp32"), ("ppprof", "ppsim", "ppexec")
        steps = [(blocks.index(entry["block"]), programs.index(entry["program"])) for entry in log]
        self.assertEqual(steps, sorted(steps))
        self.assertEqual([steps.count((b, p)) for b in (0, 1) for p in (0, 1, 2)], [1, 6, 12] * 2)
        # All predictions were written down before anything ran.
        self.assertEqual({entry["written"] for entry in log if entry["program"] == "ppexec"}, {6})
        # At random over transports (0 or 2 processes), chunks and repeats, in each block another order.
        runs = [[], []]
        for entry in log:
            if entry["program"] == "ppexec":
                runs[blocks.index(entry["block"])].append((entry["processes"], entry["option"]["--chunks"]))
        for of_block in runs:
            self.assertEqual(collections.Counter(of_block), {(p, c): 2 for p in (0, 2) for c in "124"})
            self.assertGreater(sum(a[0] != b[0] for a, b in zip(of_block, of_block[1:])), 1)
        self.assertNotEqual(*runs)

    def test_what_cannot_be_run_is_told(self):
        log, message = self.start(*SMALL, "--stages", "64", status=1)
        self.assertEqual(log, [])
        self.assertIn("64 stages are more than layers", message)
        self.assertIn("nothing of what is asked for can be run", message)
        self.assertIn("not all of gpipe,no are among gpipe,1f1b", self.start("--schedules", "gpipe,no", status=2)[1])

    def test_held_out_chunks_are_run_but_not_profiled(self):
        log, _ = self.start(*SMALL, "--checkpoints", "never", "--transports", "threads", "--held-out", "4,5")
        self.assertEqual([e["option"]["--chunks"] for e in log if e["program"] == "ppprof"], ["1,2"])
        self.assertEqual({e["option"]["--chunks"] for e in log if e["program"] == "ppexec"}, set("1245"))
        self.assertIn("## Shapes never profiled\n", (self.out / "table.md").read_text())
        self.assertEqual([row[3] for row in self.table_rows("small", "threads", "2")][:4], ["2"] * 4)

    def test_what_was_stopped_goes_on_and_repeats_nothing(self):
        words = (*SMALL, "--checkpoints", "never", "--transports", "threads")
        self.start(*words)
        runs = self.out / "small-2-1-never-fp32" / "runs.jsonl"
        lines = runs.read_text().splitlines(keepends=True)
        predictions = (self.out / "small-2-1-never-fp32" / "predictions.json").read_text()
        runs.write_text("".join(lines[:2]))
        log, _ = self.start(*words)
        self.assertEqual([entry["program"] for entry in log], ["ppexec"] * 4)
        keys = [json.loads(line)["key"] for line in runs.read_text().splitlines()]
        self.assertEqual(keys, [json.loads(line)["key"] for line in lines])
        self.assertEqual((self.out / "small-2-1-never-fp32" / "predictions.json").read_text(), predictions)
        self.assertEqual(self.start(*words)[0], [])

    def test_time_that_is_up_is_told_by_the_exit_status(self):
        log, _ = self.start(*SMALL, "--minutes", "1e-9", status=3)
        self.assertEqual(log, [])

    def test_time_that_is_up_is_told_before_what_failed(self):
        words = (*SMALL, "--transports", "threads", "--repeats", "1")
        self.start(*words, "--checkpoints", "never", status=1, FAKE_FAIL="ppsim --chunks 2")
        _, message = self.start(*words, "--minutes", "1e-9", status=3, FAKE_FAIL="ppsim --chunks 2")
        self.assertIn("1 failed, ", message)

    def test_a_profile_of_other_options_is_not_used(self):
        words = (*SMALL, "--checkpoints", "never", "--transports", "threads")
        self.start(*words, "--repeats", "1")
        log, message = self.start(*words, "--chunks", "1,2,5", status=1)
        self.assertEqual(log, [])
        self.assertIn("was profiled with other options", message)

    def test_a_run_that_fails_is_told_and_the_rest_goes_on(self):
        words = (*SMALL, "--checkpoints", "never", "--transports", "threads")
        log, message = self.start(*words, status=1, FAKE_FAIL="ppexec --chunks 2")
        self.assertEqual(len([entry for entry in log if entry["program"] == "ppexec"]), 5)  # once by one start
        self.assertIn("exit status 1: ", message)
        self.assertIn("pretends to fail", message)
        self.assertIn("1 failed, 0 out of time", message)
        log, _ = self.start(*words)
        self.assertEqual([(e["program"], e["option"]["--chunks"]) for e in log], [("ppexec", "2")] * 2)

    def test_it_is_told_why_there_are_no_times(self):
        words = (*SMALL, "--checkpoints", "never", "--transports", "threads", "--repeats", "1", "--chunks", "1")
        self.assertIn("do not compute at the same time", self.start(*words, status=1, FAKE_REFUSES="--stages 2")[1])

    def test_where_workers_take_turns_as_many_are_tried_once(self):
        words = (*SMALL, "--checkpoints", "never", "--transports", "threads", "--stages", "1,2")
        log, _ = self.start(*words, status=1, FAKE_REFUSES="--stages 2")
        runs = [e["option"]["--stages"] for e in log if e["program"] == "ppexec"]
        self.assertEqual(sorted(runs), ["1"] * 6 + ["2"])

    def test_what_failed_is_tried_again_after_all_else(self):
        words = (*SMALL, "--checkpoints", "never", "--transports", "threads")
        self.start(*words, "--repeats", "1", status=1, FAKE_FAIL="ppexec --chunks 2")
        log, _ = self.start(*words, "--repeats", "3")
        self.assertEqual([e["option"]["--chunks"] == "2" for e in log], [False] * 4 + [True] * 3)

    def test_a_run_that_hangs_is_stopped(self):
        words = (*SMALL, "--checkpoints", "never", "--transports", "threads", "--repeats", "1", "--chunks", "1")
        _, message = self.start(*words, "--limit", "5", status=1, FAKE_SECONDS="60")
        self.assertIn("timed out after 5", message)
        self.assertEqual(len(self.start(*words)[0]), 1)

    def test_a_prediction_that_fails_is_told_and_not_run(self):
        words = (*SMALL, "--checkpoints", "never", "--transports", "threads")
        log, _ = self.start(*words, status=1, FAKE_FAIL="ppsim --chunks 2")
        self.assertEqual({e["option"]["--chunks"] for e in log if e["program"] == "ppexec"}, {"1", "4"})

    def test_a_profile_that_fails_costs_its_block_alone(self):
        words = (*SMALL, "--checkpoints", "never,always", "--transports", "threads")
        log, message = self.start(*words, status=1, FAKE_FAIL="ppprof --checkpoint never")
        self.assertEqual({e["block"] for e in log if e["program"] != "ppprof"}, {"small-2-1-always-fp32"})
        self.assertIn("1 failed", message)

    def test_the_table_says_what_was_found(self):
        self.start(*SMALL, "--checkpoints", "never", "--transports", "threads")
        text = (self.out / "table.md").read_text()
        self.assertIn("--schedules gpipe --chunks 1,2,4", text)
        time, other, *each = self.table_rows("small", "threads", "2")
        self.assertEqual(time[3:9], ["3", "3", "1.96", "1.96", "0.98", "0.98"])
        self.assertEqual(other[3:10], ["3", "1.00", "1.00", "1 of 1", "3 of 3", "3 of 3", "1.00"])
        self.assertEqual(len(each), 3)
        block = self.table_rows("small-2-1-never-fp32")[0]
        self.assertEqual([*block[1:3], block[4]], ["3", "6", "1.0"])
        self.assertNotIn("nan", text)

    def test_clocks_and_power_of_a_gpu_are_in_the_table(self):
        program = self.folder / "bin" / "nvidia-smi"
        # grep: a program that keeps what it writes into a file until that is much
        program.write_text("#!/bin/sh\n{ echo '2026/11/27 04:00:01.100, 345, 2619, 90, 40, 0, 9'\n"
            "echo '2026/11/27 04:00:01.200, 1980, 2619, [N/A], 41, 99, 8'\n"
            "echo '2026/11/27 04:00:02.200, 1900, 2619, 400.5, 41, 50, 7'\nsleep 20\n} | grep ,\n")
        program.chmod(0o755)
        words = (*SMALL, "--checkpoints", "never", "--transports", "threads", "--device", "cuda", "--sample", "2")
        log, _ = self.start(*words, FAKE_SECONDS="0.3")
        self.assertEqual(len([entry for entry in log if entry["program"] == "ppexec"]), 4)
        runs = [json.loads(line) for line in (self.out / "small-2-1-never-fp32" / "runs.jsonl").read_text().splitlines()]
        found = [runs[0][name] for name in ("sm_mhz", "memory_mhz", "watts", "celsius")]
        self.assertEqual(found, [1940, 2619, 400.5, 41])  # of the samples in which it was busy
        self.assertEqual((runs[0]["used_mib"], runs[0]["busy_samples"]), (9, 2))
        self.assertEqual(self.table_rows("small", "threads", "2", "gpipe")[0][-3:], ["1940", "400", "9"])
        text = (self.out / "table.md").read_text()
        self.assertIn("mean error 1.96 % (goal 3.00: met)", text)
        self.assertEqual(self.table_rows("goal")[0][5:7], ["3.00", "8.00"])
        self.assertEqual(self.table_rows("goal")[1][5], "2.00")

    def test_several_runs_of_one_program(self):
        program = self.folder / "bin" / "nvidia-smi"
        program.write_text("#!/bin/sh\nfor i in 1 2 3; do echo 2026/11/27 04:00:0$i.500, 190$i, 9, 9, 9, 9, $i; done\nsleep 20\n")
        program.chmod(0o755)
        words = ("--models", "small", "--schedules", "gpipe,1f1b", "--chunks", "1,2,4", "--repeats", "2", "--device", "cuda")
        words = (*words, "--checkpoints", "never", "--transports", "threads", "--at-once", "4", "--stages", "1,2")
        words = (*words, "--precisions", "fp32,bf16", "--sample", "12", "--profile", str(self.profile()), "--keep")
        log, _ = self.start(*words, TZ="UTC", FAKE_SECONDS="0.3")
        log = [entry for entry in log if entry["program"] == "ppexec"]
        # Of one program: the same precision, up to four; all of them before any comes again.
        starts = [i for i, entry in enumerate(log) if entry["number"] == 0] + [len(log)]
        groups = [log[a:b] for a, b in zip(starts, starts[1:])]
        self.assertEqual({len({e["option"]["--precision"] for e in group}) for group in groups}, {1})
        self.assertEqual(max(map(len, groups)), 4)
        self.assertLess(len(groups), 12)
        names = [json.dumps(sorted(entry["option"].items())) for entry in log]
        self.assertEqual(collections.Counter(names), {name: 2 for name in names})
        self.assertEqual(len({*names[:12]}), 12)
        self.assertNotEqual(names[:12], names[12:])
        runs = [json.loads(line) for line in (self.out / "all" / "runs.jsonl").read_text().splitlines()]
        self.assertEqual([run["microbatches"] for run in runs], [int(e["option"]["--chunks"]) for e in log])
        # Each has the figures of its time; the programs say that run N began in second N.
        for entry, run in zip(log, runs):
            second = entry["number"] + 1
            self.assertEqual(run.get("sm_mhz"), 1900 + second if second < 4 else None)
            self.assertEqual(run["busy_ms"], [50, 80])
        ends = [f"run-{end}.db" for end in starts[1:]]  # how many runs there were
        self.assertEqual(sorted(path.name for path in (self.out / "all").glob("*.db")), sorted(ends))
        self.assertEqual(self.start(*words)[0], [])

    def test_of_several_runs_that_failed_each_is_tried_alone(self):
        words = ("--models", "small", "--schedules", "gpipe", "--chunks", "1,2,4", "--repeats", "1", "--at-once", "3")
        words = (*words, "--checkpoints", "never", "--transports", "threads")
        log, message = self.start(*words, status=1, FAKE_FAIL="ppexec --chunks 2")
        log = [entry for entry in log if entry["program"] == "ppexec"]
        self.assertEqual([entry["number"] for entry in log], [0, 1, 2, 0, 0, 0])
        self.assertEqual([e["option"]["--chunks"] for e in log[:3]], [e["option"]["--chunks"] for e in log[3:]])
        self.assertIn("1 failed, 0 out of time", message)
        runs = (self.out / "small-2-1-never-fp32" / "runs.jsonl").read_text().splitlines()
        self.assertEqual(sorted(json.loads(run)["microbatches"] for run in runs), [1, 4])

    def profile(self):
        path = self.folder / "theirs.tsv"
        line = "run\tcuda\ta GPU\t16\t1\t1\twhen\t0.1\tok\t1000\tw\n"
        path.write_text("# ppkit profile 1\n" + line + "end\n")
        return path

    def test_a_profile_that_is_given_serves_all_and_nothing_else_is_profiled(self):
        profile = self.folder / "theirs.tsv"
        head = "# ppkit profile 1\n"
        lines = [f"run\tcuda\ta GPU\t16\t1\t1\twhen\t0.1\tok\t{ns}\tw\n" for ns in (900, 1000, 1010)]
        profile.write_text(head + "".join(lines) + "end\n")
        words = (*SMALL, "--checkpoints", "never,always", "--transports", "threads", "--held-out", "5")
        words = (*words, "--profile", str(profile))
        log, _ = self.start(*words)
        self.assertEqual([entry["program"] for entry in log], ["ppsim"] * 8 + ["ppexec"] * 16)
        self.assertEqual({e["option"]["--profile"] for e in log if e["program"] == "ppsim"}, {"profile.tsv"})
        self.assertEqual((self.out / "all" / "profile.tsv").read_bytes(), profile.read_bytes())
        self.assertEqual({e["written"] for e in log if e["program"] == "ppexec"}, {8})
        self.assertEqual(self.table_rows("all")[-1][4], "1.0")  # the reference kernel's time in it
        # Each configuration once, before any is repeated.
        runs = [(e["option"]["--chunks"], e["option"]["--checkpoint"]) for e in log if e["program"] == "ppexec"]
        self.assertEqual(set(runs[:8]), set(runs[8:]))
        self.assertEqual(len(set(runs[:8])), 8)
        self.assertNotEqual(runs[:8], runs[8:])
        profile.write_text("# ppkit profile 1\nend\n")
        self.assertIn("was profiled with other options", self.start(*words, status=1)[1])

    def test_what_is_missing_is_told(self):
        words = (*SMALL, "--checkpoints", "never", "--transports", "threads")
        self.start(*words, status=1, FAKE_FAIL="ppexec --chunks 2")
        text = (self.out / "table.md").read_text()
        self.assertIn("MISSING: 1 of 3 configurations have no run yet, 0 have fewer than 2.", text)
        self.start(*words)
        self.assertIn("Nothing is missing: 3 configurations, 2 runs", (self.out / "table.md").read_text())

    @unittest.skipUnless(pathlib.Path("/proc/stat").exists(), "no /proc/stat")
    def test_runs_beside_a_busy_loop_are_told_apart_by_what_others_used(self):
        words = (*SMALL, "--checkpoints", "never", "--transports", "threads", "--foreign", "1", "--chunks", "1")
        log, _ = self.start(*words, FAKE_SECONDS="0.5")
        self.assertEqual(len([entry for entry in log if entry["program"] == "ppexec"]), 3)
        runs = [json.loads(line) for line in (self.out / "small-2-1-never-fp32" / "runs.jsonl").read_text().splitlines()]
        foreign = [run for run in runs if run["foreign"]]
        self.assertEqual(len(foreign), 1)
        self.assertGreater(foreign[0]["others"], table.OTHERS_LIMIT)
        self.assertEqual(foreign[0]["busy_ms"], [50, 80])
        self.assertIn("\n1 of 1 runs beside a busy loop", (self.out / "table.md").read_text())
        self.assertEqual(self.table_rows("small", "threads", "2", "gpipe")[0][16], "1.00, 2.00")


def row(error=0.0, spread=1.0, chunks=1, measured=100.0, **more):
    made = dict(model="m", transport="t", stages=2, tensor=1, schedule="s", chunks=chunks, checkpoint="c", precision="fp32")
    made["sequence"] = False
    made.update(error=error, normalised=error / 2, spread=spread, measured=measured, predicted=measured + error)
    made.update(bubble_predicted=0.3, bubble_measured=0.29, arena_equal=True, plan_equal=True, memory=None, runs=2)
    return {**made, "disturbed": 0, **more}


class Statistics(unittest.TestCase):
    PREDICTION = dict(ms_per_batch=110.0, microbatches=4, bubble=0.3, peak_bytes=[1], plan="a")
    PREDICTION.update(makespan_ms=10.0, rank_bubble=[0.5, 0.2], process_bytes=[100, 206])
    CONFIG = dict(model="m", transport="t", stages=2, tensor=1, schedule="s", virtual=1, chunks=4, checkpoint="c")
    CONFIG.update(precision="fp32", sequence=False)

    def run_of(self, ms, reference=1000, **more):
        made = dict(ms_per_batch=ms, reference_ns=reference, bubble=0.28, peak_bytes=[1], plan="a")
        return {**made, "process_bytes": [100, 200], "others": 0.0, **more}

    def test_error_is_of_the_median_and_normalised_by_the_reference_kernel(self):
        runs = [self.run_of(ms, reference) for ms, reference in ((100, 1200), (101, 900), (98, 1000))]
        found = table.compare(self.CONFIG, self.PREDICTION, runs, 800)
        self.assertAlmostEqual(found["error"], 10.0)
        self.assertAlmostEqual(found["drift"], 25.0)
        self.assertAlmostEqual(found["normalised"], 37.5)  # 110 * 1000 / 800 over 100
        self.assertAlmostEqual(found["spread"], 3.0)
        self.assertAlmostEqual(found["memory"], 3.0)
        self.assertAlmostEqual(table.bubble_points(found), 2.0)

    def test_of_two_times_of_the_reference_kernel_the_lower_counts(self):
        found = table.compare(self.CONFIG, self.PREDICTION, [self.run_of(100, 9000), self.run_of(100, 840)], 800)
        self.assertAlmostEqual(found["drift"], 5.0)

    def test_one_run_has_no_spread_and_unknown_figures_stay_unknown(self):
        run = self.run_of(100, None, process_bytes=None, bubble=None, others=None)
        found = table.compare(self.CONFIG, self.PREDICTION, [run], 800)
        unknown = ("spread", "drift", "normalised", "memory", "bubble_measured", "others")
        self.assertEqual([found[name] for name in unknown], [None] * len(unknown))
        self.assertFalse(table.is_quiet(found))
        line = table.each([dict(found, source=None)])[2]
        self.assertEqual(cells(line)[12:], ["-", "-", "1", "0.300", "-", "yes", "-", "-", "-", "-"])

    def test_one_unequal_run_makes_arena_and_plan_unequal(self):
        runs = [self.run_of(100), self.run_of(100, peak_bytes=[2], plan="b")]
        found = table.compare(self.CONFIG, self.PREDICTION, runs, 800)
        self.assertFalse(found["arena_equal"] or found["plan_equal"])

    def test_memory_is_compared_by_rank_or_as_the_largest(self):
        self.assertAlmostEqual(table.memory_error([90, 100], [100, 100]), -10.0)
        self.assertAlmostEqual(table.memory_error(103, [90, 100]), 3.0)
        self.assertIsNone(table.memory_error(None, 5))

    def test_those_that_repeat_within_one_and_a_half_percent_are_counted_apart(self):
        rows = [row(1.0, 0.5), row(-3.0, 1.49), row(5.0, 1.5), row(-9.0, None)]
        line = cells(table.time_summary(rows, None)[2])
        self.assertEqual(line[3:9], ["4", "2", "2.00", "3.00", "1.00", "1.50"])
        self.assertEqual(line[9:], ["2", "7.00", "9.00", "3.50", "4.50"])

    def test_goals_are_held_against_numbers_and_not_against_what_is_shown(self):
        for error, words in ((3.0, "met"), (3.004, "NOT met")):
            text = table.verdict([row(error, source="profile")], table.GOALS["cpu"])
            self.assertIn(f"mean error 3.00 % (goal 3.00: {words})", text)

    def test_the_chunks_named_are_right_within_one_percent_of_the_best(self):
        def sweep(checkpoint, *measured):
            """The first of them is predicted to be the best."""
            return [
                row(chunks=c, measured=ms, predicted=c, checkpoint=checkpoint) for c, ms in enumerate(measured, 1)
            ]

        rows = sweep("never", 101.0, 100.0) + sweep("always", 101.1, 100.0) + sweep("except_last", 90.0)
        self.assertEqual(table.best_chunks(rows), (1, 2))

    def test_a_disturbed_run_is_known_by_others_or_by_the_reference_kernel(self):
        self.assertEqual(table.signs({"others": 0.05, "reference_ns": 1050}, 1000), [])
        self.assertEqual(table.signs({"others": 0.06, "reference_ns": 900}, 1000), ["others"])
        self.assertEqual(table.signs({"others": None, "reference_ns": 1051}, 1000), ["reference"])
        self.assertEqual(table.signs({"others": 0.5, "reference_ns": None}, None), ["others"])

    def test_foreign_runs_that_look_quiet_are_taken_for_an_error_of_the_model(self):
        plain = [table.compare(self.CONFIG, self.PREDICTION, [self.run_of(100, others=0.2), self.run_of(100)], 1000)]
        runs = [self.run_of(150, others=0.4, busy_ms=[5, 16]), self.run_of(150, others=0.01, busy_ms=[5, 8])]
        found = [table.compare_foreign(plain[0], self.PREDICTION, run, 1000) for run in runs]
        lines = table.foreign_table(found, plain)
        self.assertIn("1 of 2 runs beside", lines[0])
        self.assertIn("1 of 2 runs without it", lines[1])
        self.assertEqual(cells(lines[5])[9:12], ["110.00", "100.00", "150.00"])
        self.assertEqual(cells(lines[5])[16:], ["1.00, 2.00", "disturbed", "others"])
        self.assertEqual(cells(lines[6])[16:], ["1.00, 1.00", "model's error", "-"])

    def test_columns_are_of_one_width(self):
        lines = table.time_summary([row(1.0), row(2.0, model="a long name")], table.GOALS["cpu"])
        self.assertEqual(len({len(line) for line in lines}), 1)
        self.assertEqual([cells(line)[0] for line in lines[2:]], ["m", "a long name", "all", "goal"])


def rows_of_ppsim(words):
    """Of the built one, which says what can be run."""
    command = [pathlib.Path(os.environ["PP_BIN"]) / "ppsim", *words, "--no-eval", "--format", "json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@unittest.skipUnless("PP_BIN" in os.environ, "PP_BIN is no folder of programs")
class Design(unittest.TestCase):
    ARGS = dict(models=["wide"], transports=["threads"], schedules=["interleaved"], checkpoints=(), chunks=())
    ARGS.update(stages=(), tensors=(1,), quick=False, p4=False, held_out=(), precisions=["fp32"])
    ARGS.update(sequence_parallel=False, device="cpu", foreign=0, repeats=1, seed=1, sample=0)

    def configurations(self, cores=2, **more):
        return design.configurations(argparse.Namespace(**{**self.ARGS, **more}), cores, rows_of_ppsim)

    def test_doubles_and_what_cannot_run_are_left_out(self):
        made = self.configurations()
        found = {(c["chunks"], c["checkpoint"]) for c in made}
        expected = {(c, k) for c in (1, 2, 4, 8) for k in design.CHECKPOINTS if (c, k) != (1, "except_last")}
        self.assertEqual(found, expected)  # 5 of 16 rows are 4 microbatches, 10 are 8, 20 are too many

    def test_a_sample_is_drawn_by_the_seed_and_keeps_the_order(self):
        everything = self.configurations()
        first, again, other, all_of_them = (
            self.configurations(sample=n, seed=seed) for n, seed in ((5, 1), (5, 1), (5, 2), (99, 1))
        )
        self.assertEqual(len(first), 5)
        self.assertEqual(first, [config for config in everything if config in first])
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertEqual(all_of_them, everything)

    def test_a_sample_has_of_everything_and_some_held_out(self):
        args = dict(models=["tutorial"], schedules=["gpipe", "1f1b", "interleaved", "zb-h1"])
        args.update(chunks=(1, 2, 4, 10, 20), held_out=(5,), stages=(1, 2, 4), precisions=["fp32", "tf32", "bf16"])
        made = self.configurations(16, **args, sample=60, device="cuda")
        self.assertEqual(len(made), 60)
        self.assertEqual(sum(config["held_out"] for config in made), 15)
        groups = collections.Counter((config["stages"], config["precision"]) for config in made)
        self.assertEqual(len(groups), 9)
        self.assertGreaterEqual(min(groups.values()), 6)
        for name, values in (("schedule", 4), ("chunks", 6), ("checkpoint", 3)):
            self.assertEqual(len({config[name] for config in made}), values)

    def test_four_ranks_are_crowded_on_two_cores_only(self):
        for cores, expected in ((2, {2: False, 4: True}), (4, {2: False, 4: False})):
            made = self.configurations(cores, p4=True)
            self.assertEqual({c["stages"]: c["crowded"] for c in made}, expected)

    def test_workers_of_ranks_crowd_cores_too(self):
        made = self.configurations(tensors=(1, 2))
        self.assertEqual({c["tensor"]: c["crowded"] for c in made}, {1: False, 2: True})
        self.assertIn("--tensor", design.options(made[-1]))
        self.assertEqual({name.split("-")[2] for name in design.blocks(made)}, {"1", "2"})

    def test_parts_of_tokens_are_a_name_of_their_own(self):
        made = {}
        for asked in (False, True):
            made[asked] = self.configurations(tensors=(1, 2), sequence_parallel=asked)
        keys, blocks = ({k: f(configs) for k, configs in made.items()} for f in (lambda c: {*map(design.key, c)}, design.blocks))
        self.assertEqual(len(keys[False] & keys[True]), len(keys[True]) // 2)  # those of T = 1
        self.assertIn("wide-2-2-never-fp32-sequence", blocks[True])
        self.assertIn("wide-2-2-never-fp32", blocks[False])
        for config in made[True]:
            self.assertEqual("--sequence-parallel" in design.options(config), config["tensor"] == 2)
            self.assertEqual(table.ranks_cell(config), 2 if config["tensor"] == 1 else "2 x T 2 sequence")

    def test_the_order_is_the_same_at_each_start_and_another_in_each_block(self):
        args = argparse.Namespace(**{**self.ARGS, "repeats": 3, "foreign": 2})
        configs = self.configurations()
        self.assertEqual(design.order("a", configs, args), design.order("a", configs, args))
        self.assertNotEqual(design.order("a", configs, args), design.order("b", configs, args))
        self.assertEqual(sum(foreign for _, foreign in design.order("a", configs, args)), 2)


if __name__ == "__main__":
    unittest.main()
