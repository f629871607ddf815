#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How good are the predictions? Profiles once, writes all predictions down, then runs all for real in random order.

  fidelity.py --bin build/bin --out fidelity/ [--quick] [--models small,wide] [--transports threads,mpi] [--p4]
  fidelity.py --bin build/bin --out fidelity/ --device cuda --models tutorial --precisions fp32,bf16 --stages 1,2,4
      --transports threads --chunks 1,2,4,5,10,20 --held-out 5     on one GPU that the workers share

In the folder --out: pp.db (the profile), predictions.json (from ppsim, before anything runs), runs.jsonl (a line for
each real run), table.md (the result). Started again with the same folder it goes on where it stopped; table.md is
rewritten after every run.

Errors are (predicted - measured) / measured, measured = the median of the repeated runs, each run's figure being
ppexec's median step; spread = (largest - smallest run) / median. "drift" is how far the reference kernel's time in
the runs lies above that in the profile; profiles and runs bracket themselves with it and keep it in their database.
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import random
import sqlite3
import statistics
import subprocess
import sys
import time

MODELS = {
    "small": dict(options={"preset": "small"}, rows=20, layers=2, steps=16),
    "wide": dict(
        options={
            "preset": "small",
            "d_model": 512,
            "heads": 8,
            "d_ff": 2048,
            "layers": 8,
            "vocab": 2000,
            "rows": 16,
            "tokens": 64,
        },
        rows=16,
        layers=8,
        steps=10,
    ),
    "lab": dict(options={"preset": "lab"}, rows=4, layers=2, steps=16),
    "tutorial": dict(options={"preset": "tutorial", "replicas": 1}, rows=20, layers=8, steps=12),
    "tutorial-12": dict(options={"preset": "tutorial-12", "replicas": 1}, rows=20, layers=12, steps=12),
    "deep": dict(
        options={
            "preset": "small",
            "d_model": 128,
            "heads": 4,
            "d_ff": 512,
            "layers": 16,
            "vocab": 1000,
            "rows": 20,
            "tokens": 32,
        },
        rows=20,
        layers=16,
        steps=16,
    ),
}
SCHEDULES = (("gpipe", 1), ("1f1b", 1), ("interleaved", 2))
CHUNKS = (1, 2, 4, 5, 8, 10, 20)
CHECKPOINTS = ("never", "except_last", "always")
PROCESSES = {"threads": 0, "mpi": 1}
KEY = ("model", "transport", "stages", "schedule", "chunks", "checkpoint", "precision")
WARMUP = 3


def microbatches(rows, chunks):
    """As torch.chunk cuts."""
    return -(-rows // -(-rows // chunks))


def fits(model, schedule, virtual, stages, chunks):
    """Can ppkit run it, and is it no double of a smaller chunk count?"""
    info = MODELS[model]
    m = microbatches(info["rows"], chunks)
    if chunks > info["rows"] or stages * virtual > info["layers"]:
        return False
    if any(microbatches(info["rows"], c) == m for c in CHUNKS if c < chunks):
        return False
    return schedule != "interleaved" or m % max(1, m // stages) == 0


def configurations(args):
    """Dicts of KEY and V."""
    chunks, checkpoints = ((1, 4, 10), ("never", "always")) if args.quick else (CHUNKS, CHECKPOINTS)
    if args.chunks:
        chunks = tuple(map(int, args.chunks.split(",")))
    ranks = tuple(map(int, args.stages.split(","))) if args.stages else (2, 4) if args.p4 else (2,)
    made = []
    for model, transport, stages, (schedule, virtual), c, checkpoint, precision in itertools.product(
        args.models.split(","),
        args.transports.split(","),
        ranks,
        SCHEDULES,
        chunks,
        checkpoints,
        args.precisions.split(","),
    ):
        if stages == 1 and schedule != "gpipe":
            continue
        if fits(model, schedule, virtual, stages, c) and (c > 1 or checkpoint != "except_last"):
            made.append(
                dict(
                    model=model,
                    transport=transport,
                    stages=stages,
                    schedule=schedule,
                    virtual=virtual,
                    chunks=c,
                    checkpoint=checkpoint,
                    precision=precision,
                )
            )
    return made


def key(config):
    return " ".join(str(config[name]) for name in KEY)


def options(config, names=("schedule", "stages", "virtual", "chunks", "checkpoint", "precision")):
    words = []
    for name, value in {**MODELS[config["model"]]["options"], **{n: config[n] for n in names}}.items():
        words += ["--" + name.replace("_", "-"), str(value)]
    return words


def late(args):
    return args.minutes and time.monotonic() - args.started > 60 * args.minutes


class Failed(Exception):
    """A program ended with an error; the others may work."""


class Tools:
    """Starts the programs."""

    def __init__(self, args):
        self.bin, self.out = pathlib.Path(args.bin).resolve(), pathlib.Path(args.out).resolve()
        self.device = ["--device", args.device] + (["--gpus", "1"] if args.device != "cpu" else [])
        self.environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def run(self, program, words, processes=0, json_output=True):
        launcher = []
        if processes:
            cores = len(os.sched_getaffinity(0))
            binding = ["--bind-to", "core"] if processes <= cores else ["--oversubscribe", "--bind-to", "none"]
            launcher = ["mpirun", *binding, "-n", str(processes)]
        command = [*launcher, str(self.bin / program), *words, *self.device]
        command += ["--format", "json"] if json_output else []
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.out,
            env=self.environment,
            timeout=1800,
            check=False,
        )
        if done.returncode:
            raise Failed(f"exit status {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
        return json.loads(done.stdout) if json_output else None


def profile(tools, configs, args):
    """One ppprof for each model, number of ranks and way to hold activations (all kept; all computed again) over all
    schedules and chunks. Under mpirun where MPI is asked for: it then times the links between threads too."""
    groups = {}
    for config in configs:
        kept = "never" if config["checkpoint"] == "never" else "always"
        if config["chunks"] not in args.held_out:
            groups.setdefault((config["model"], config["stages"], kept, config["precision"]), []).append(config)
    for (model, stages, kept, precision), group in groups.items():
        mark = tools.out / f"profiled-{model}-{stages}-{kept}-{precision}"
        if mark.exists() or late(args):
            continue
        print(f"profiling {model} P={stages} checkpoint {kept}", file=sys.stderr, flush=True)
        lists = {
            name: ",".join(map(str, sorted({c[name] for c in group}))) for name in ("schedule", "virtual", "chunks")
        }
        words = options({"model": model, "stages": stages, "checkpoint": kept, "precision": precision, **lists})
        processes = stages if any(c["transport"] == "mpi" for c in group) else 0
        words += ["--db", "pp.db", "--seconds", str(args.seconds), "--no-eval"]
        try:
            tools.run("ppprof", words, processes, json_output=False)
            mark.touch()
        except Failed as error:  # what it would have measured is predicted from a data sheet
            print(error, file=sys.stderr, flush=True)


def reference_ns(database):
    """Time of the reference kernel in the newest run of a database that has one; None if there is none."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        query = "SELECT reference_ns FROM run WHERE reference_ns IS NOT NULL ORDER BY id DESC LIMIT 1"
        row = connection.execute(query).fetchone()
    return row[0] if row else None


def predict(tools, configs, args):
    """{key: ppsim's object}; what is there already stays as it is."""
    path = tools.out / "predictions.json"
    made = json.loads(path.read_text()) if path.exists() else {}
    for config in configs:
        if key(config) not in made:
            if late(args):
                break
            transport = "mpi" if config["transport"] == "mpi" else "inproc"
            made[key(config)] = tools.run("ppsim", options(config) + ["--no-eval", "--transport", transport])[0]
    path.write_text(json.dumps(made, indent=1) + "\n")
    for prediction in made.values():
        prediction["reference_ns"] = reference_ns(tools.out / "pp.db")
    return made


def load_runs(path):
    """{key: [run, ...]}"""
    runs = {}
    if path.exists():
        for line in path.read_text().splitlines():
            run = json.loads(line)
            runs.setdefault(run["key"], []).append(run)
    return runs


def measure(tools, config):
    steps = MODELS[config["model"]]["steps"]
    database = tools.out / "run.db"  # of this run alone: it keeps the reference kernel's time
    for file in tools.out.glob("run.db*"):
        file.unlink()
    words = options(config) + ["--no-eval", "--epochs", "1", "--max-batches", str(steps), "--warmup", str(WARMUP)]
    processes = config["stages"] * PROCESSES[config["transport"]]
    result = tools.run("ppexec", words + ["--db", str(database)], processes)[0]
    return {**result, "reference_ns": reference_ns(database)}


def compare(config, prediction, runs):
    """A row of the table."""
    times = [run["ms_per_batch"] for run in runs]
    middle = statistics.median(times)
    bubbles = [run["bubble"] for run in runs if run.get("bubble") is not None]
    row = dict(
        config,
        measured=middle,
        predicted=prediction["ms_per_batch"],
        runs=len(runs),
        error=100 * (prediction["ms_per_batch"] - middle) / middle,
        spread=100 * (max(times) - min(times)) / middle,
        microbatches=prediction["microbatches"],
        source=prediction.get("cost_source"),
        bytes_equal=prediction["peak_bytes"] == runs[0]["peak_bytes"],
        plan_equal=prediction["plan"] == runs[0]["plan"],
    )
    row["bubble_predicted"] = prediction["bubble"]
    row["bubble_measured"] = statistics.median(bubbles) if bubbles else None
    reference = [run["reference_ns"] for run in runs if run.get("reference_ns")]
    base = prediction.get("reference_ns")
    row["drift"] = 100 * (statistics.median(reference) / base - 1) if reference and base else None
    return row


def group_summary(rows):
    """Lines of the summary: one for each model, transport and number of ranks, one for all."""
    lines = [
        "| model | transport | P | configurations | mean error % | worst error % | worst where spread < 1.5 % |"
        " bubble, mean points off |"
        " best chunks named | arena bytes equal | plans equal |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    groups = {}
    for row in rows:
        groups.setdefault((row["model"], row["transport"], row["stages"]), []).append(row)
    groups[("all", "", "")] = rows
    for name, group in groups.items():
        errors = [abs(row["error"]) for row in group]
        quiet = [abs(row["error"]) for row in group if row["spread"] < 1.5 and row["runs"] > 1]
        bubbles = [
            100 * abs(r["bubble_predicted"] - r["bubble_measured"]) for r in group if r["bubble_measured"] is not None
        ]
        right, asked = best_chunks(group)
        cells = [
            *name,
            len(group),
            f"{statistics.mean(errors):.2f}",
            f"{max(errors):.2f}",
            f"{max(quiet):.2f}" if quiet else "-",
            f"{statistics.mean(bubbles):.2f}" if bubbles else "-",
            f"{right} of {asked}",
            f"{sum(r['bytes_equal'] for r in group)} of {len(group)}",
            f"{sum(r['plan_equal'] for r in group)} of {len(group)}",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def best_chunks(rows):
    """(how often the predicted best chunk count is the best or within 1 % of it, of how many sweeps)."""
    sweeps = {}
    for row in rows:
        sweeps.setdefault(tuple(row[name] for name in KEY if name != "chunks"), []).append(row)
    sweeps = [sweep for sweep in sweeps.values() if len(sweep) > 1]
    right = 0
    for sweep in sweeps:
        chosen = min(sweep, key=lambda row: row["predicted"])
        right += chosen["measured"] <= 1.01 * min(row["measured"] for row in sweep)
    return right, len(sweeps)


def write_table(tools, configs, predictions, runs):
    rows = [compare(c, predictions[key(c)], runs[key(c)]) for c in configs if key(c) in runs]
    if not rows:
        return
    lines = [
        "# Predicted and measured",
        "",
        f"`{' '.join(sys.argv)}`",
        "",
        *group_summary(rows),
        "",
        "| model | transport | P | schedule | V | chunks | M | checkpoint | precision | predicted ms | measured ms |"
        " error % | spread % | runs |"
        " bubble predicted | measured | arena equal | drift % | from |",
        "| " + " --- |" * 19,
    ]
    for r in rows:
        measured = "-" if r["bubble_measured"] is None else f"{r['bubble_measured']:.3f}"
        drift = "-" if r["drift"] is None else f"{r['drift']:+.1f}"
        lines.append(
            f"| {r['model']} | {r['transport']} | {r['stages']} | {r['schedule']} | {r['virtual']} | {r['chunks']} | "
            f"{r['microbatches']} | {r['checkpoint']} | {r['precision']} | "
            f"{r['predicted']:.2f} | {r['measured']:.2f} | "
            f"{r['error']:+.2f} | "
            f"{r['spread']:.1f} | {r['runs']} | {r['bubble_predicted']:.3f} | {measured} | "
            f"{'yes' if r['bytes_equal'] else 'NO'} | {drift} | {r['source']} |"
        )
    (tools.out / "table.md").write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder with ppprof, ppsim and ppexec")
    parser.add_argument("--out", required=True, help="folder for profile, predictions, runs and table")
    parser.add_argument("--models", default="small,wide")
    parser.add_argument("--transports", default="threads,mpi")
    parser.add_argument(
        "--quick", action="store_true", help="chunks 1, 4, 10; checkpoints never and always; one run of each"
    )
    parser.add_argument("--p4", action="store_true", help="four ranks too, on whatever cores there are")
    parser.add_argument("--repeats", type=int, default=0, help="runs of each configuration (default 3; quick 1)")
    parser.add_argument("--seconds", type=float, default=0.3, help="ppprof's time for each shape")
    parser.add_argument("--seed", type=int, default=1, help="of the random order")
    parser.add_argument(
        "--minutes", type=float, default=0, help="stop starting runs after so long; the next start goes on"
    )
    parser.add_argument("--device", default="cpu", help="cpu, or cuda: one GPU for all workers")
    parser.add_argument("--precisions", default="fp32")
    parser.add_argument("--stages", default="", help="numbers of ranks (default 2; with --p4 2,4)")
    parser.add_argument("--chunks", default="", help="(default 1,2,4,5,8,10,20)")
    parser.add_argument("--held-out", default="", help="chunks that are predicted and run but not profiled")
    args = parser.parse_args()
    args.started = time.monotonic()
    args.held_out = {int(word) for word in args.held_out.split(",") if word}
    tools = Tools(args)
    tools.out.mkdir(parents=True, exist_ok=True)
    configs = configurations(args)
    profile(tools, configs, args)
    predictions = predict(tools, configs, args)
    if not all(key(config) in predictions for config in configs):
        print("out of time while profiling and predicting; start again to go on", file=sys.stderr)
        return 3
    path = tools.out / "runs.jsonl"
    runs = load_runs(path)
    failed = 0
    order = [(n, c) for n in range(args.repeats or (1 if args.quick else 3)) for c in configs]
    random.Random(args.seed).shuffle(order)
    order = [(n, c) for n, c in order if len(runs.get(key(c), [])) <= n]
    for done, (_, config) in enumerate(order):
        if late(args):
            break
        print(f"{done + 1}/{len(order)} {key(config)}", file=sys.stderr, flush=True)
        try:
            run = {"key": key(config), "when": time.time(), **measure(tools, config)}
        except Failed as error:
            print(error, file=sys.stderr, flush=True)
            failed += 1
            continue
        run.pop("loss", None)
        with open(path, "a", encoding="utf-8") as out:
            out.write(json.dumps(run) + "\n")
        runs.setdefault(key(config), []).append(run)
        write_table(tools, configs, predictions, runs)
    write_table(tools, configs, predictions, runs)
    left = sum(len(runs.get(key(c), [])) == 0 for c in configs)
    print((tools.out / "table.md").read_text().split("\n\n")[2] if runs else "nothing was run")
    return 1 if failed else 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
