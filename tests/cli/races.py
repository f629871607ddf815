#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random sweeps: `ppsim --top K` must show the first K rows of each number of workers of the whole sweep, in its order.

races.py [--sweeps N] [--first SEED]: a seed for each sweep; one that differs is printed with its options. With a --top that leaves out
nothing `ppsim` simulates every configuration (sim/race.h).
"""
import argparse
import json
import os
import random
import subprocess
import sys

MODELS = ["gpt-small", "gpt-small", "gpt-1.3b", "llama-3-8b", "tutorial", "tutorial-12", "small", "mistral-7b"]
MIXTURES = ["qwen3-30b-a3b", "deepseek-v2-lite", "mixtral-8x7b"]
SLOW = ["small", "tutorial", "tutorial-12", "gpt-small"]  # models that a cpu may be asked for
WHOLE = "10000000"


def some(rng, values, least=1):
    return ",".join(rng.sample(values, rng.randint(least, len(values))))


def known_schedules():
    """All that ppsim has, but zb-auto, whose searches take long."""
    listed = subprocess.run(["ppsim", "--list", "--format", "json"], capture_output=True, check=True).stdout
    return [schedule["name"] for schedule in json.loads(listed)["schedules"] if schedule["name"] != "zb-auto"]


def machine_options(rng, preset):
    machines = rng.sample(["a100", "h100", "h200", "b200", "gb200", "b300"] + (["cpu", "epyc-zen4"] if preset in SLOW else []), rng.choice([1, 1, 1, 2]))
    precisions = ["fp32"] if {"cpu", "epyc-zen4"} & set(machines) else ["bf16", "bf16", "fp32"] + ([] if "a100" in machines else ["fp8"])
    options = ["--machine", ",".join(machines), "--precision", rng.choice(precisions)]
    if rng.random() < 0.3:
        options += ["--price", ",".join(rng.choice(["1", "2", "3.5"]) for _ in machines)]
    return options


def random_options(rng, schedules):
    preset = rng.choice(MODELS + MIXTURES)
    options = ["--preset", preset, "--workers", ",".join(rng.sample(["2", "4", "6", "8", "12", "16"], rng.choice([1, 2])))]
    options += ["--global-rows", rng.choice(["8", "12", "16", "24", "32", "48"]), "--schedule", some(rng, schedules, 2)]
    if preset != "deepseek-v2-lite":  # its first layer is another
        options += ["--layers", rng.choice(["4", "5", "6", "7", "9", "10", "11", "13"])]
    options += machine_options(rng, preset)
    options += ["--micro-batch-size", some(rng, ["1", "2", "4"])] if rng.random() < 0.7 else ["--chunks", some(rng, ["1", "2", "3", "6", "8"])]
    modes = ["never", "always", "layers", "layers:2"] + ([] if preset in SLOW[:3] else ["activation"])
    further = [(0.5, ["--virtual", some(rng, ["1", "2", "3"])]), (0.5, ["--tensor", some(rng, ["1", "2", "4"])]),
               (0.4, ["--zero", some(rng, ["0", "1", "2", "3"])]), (0.6, ["--checkpoint", some(rng, modes)]),
               (0.7, ["--split", rng.choice(["time", "time", "time", "uniform", "parameters"])]), (0.3, ["--clip", "0"]),
               (0.3, ["--memory", rng.choice(["500M", "2G", "4G", "8G", "20G"])]), (0.2, ["--sequence-parallel"]),
               (0.3, ["--overlap-grad-reduce"]), (0.2, ["--tokens", rng.choice(["64", "256", "1024"])]),
               (0.15, ["--gpus", rng.choice(["1", "2", "4"])]), (0.15, ["--context-parallel", some(rng, ["1", "2"])]),
               (0.6 if preset in MIXTURES else 0, ["--expert-parallel", some(rng, ["1", "2", "4"])]),
               (0.3 if preset in MIXTURES else 0, ["--overlap-expert-exchange", "2"]),
               (0.3, ["--overlap-tensor-sums", rng.choice(["0", some(rng, ["1", "2", "4"])])]),
               (0.3, ["--attention", "flash", "--dropout", "0", "--cp-comm-type", rng.choice(["a2a", "all_gather", "p2p"])]),
               (0 if preset in MIXTURES else 0.3, ["--vocab", rng.choice(["1000", "60000", "250000"])])]
    for part, words in further:
        if rng.random() < part:
            options += words
    if "--zero" in options and "0" not in options[options.index("--zero") + 1] and rng.random() < 0.5:
        options += ["--overlap-param-gather"]
    return options


def rows_of(options, top):
    run = subprocess.run(["ppsim", *options, "--format", "json", "--top", top], capture_output=True, text=True, check=False)
    if run.returncode not in (0, 2):
        sys.exit(f"exit status {run.returncode}: ppsim {' '.join(options)} --top {top}\n{run.stderr}")
    return json.loads(run.stdout) if run.returncode == 0 else None


def first_rows(rows, most):
    """The first rows of each number of workers on each machine."""
    seen, kept = {}, []
    for row in rows:
        key = row.get("for_machine"), row["stages"] * row["tensor"] * row["replicas"] * (row.get("context_parallel") or 1)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= most:
            kept.append(row)
    return kept


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweeps", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    args = parser.parse_args()
    if os.environ.get("PP_BIN"):
        os.environ["PATH"] = os.environ["PP_BIN"] + os.pathsep + os.environ["PATH"]
    schedules, compared, rows, differ = known_schedules(), 0, 0, 0
    for seed in range(args.first, args.first + args.sweeps):
        rng = random.Random(seed)
        options, top = random_options(rng, schedules), rng.choice([1, 1, 2, 3, 5])
        whole = rows_of(options, WHOLE)
        if whole is None:
            continue
        compared, rows = compared + 1, rows + len(whole)
        if rows_of(options, str(top)) != first_rows(whole, top):
            differ += 1
            print(f"seed {seed}: ppsim {' '.join(options)} --top {top}")
    print(f"{compared} of {args.sweeps} sweeps compared, {rows} rows; {differ} differ")
    sys.exit(differ > 0 or compared < args.sweeps / 2)


if __name__ == "__main__":
    main()
