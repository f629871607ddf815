#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far is the cut that `ppsim --split time` takes from the quickest? Predicts all cuts of random small plans.

  cuts.py [--ppsim build/bin/ppsim] [--plans N] [--first SEED]      # a seed for each plan

Prints, without replicas and with them, how much longer the taken cut takes than the quickest one, and the worst plans
with both cuts. docs/TIMES.md has the figures.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
import arguments  # noqa: E402


def random_options(rng):
    stages = rng.choice([2, 3, 4])
    virtual = rng.choice([1, 1, 2]) if stages < 4 else 1
    layers = rng.choice([6, 7, 8, 9]) if stages * virtual <= 4 else 7
    schedule = rng.choice(["1f1b", "gpipe", "zb-h1", "1f1b-eager"] if virtual == 1 else ["interleaved", "zbv"])
    chunks, replicas = rng.choice([2, stages, 2 * stages, 8]), rng.choice([1, 2, 4])
    options = f"--preset {rng.choice(['gpt-small', 'gpt-1.3b', 'llama-3-8b', 'tutorial'])} --layers {layers}"
    options += f" --stages {stages} --virtual {virtual} --schedule {schedule} --chunks {chunks}"
    options += f" --rows {chunks * rng.choice([1, 2, 4])} --replicas {replicas} --memory 4000G"
    options += f" --machine {rng.choice(['h100', 'b200'])} --precision bf16"
    options += f" --checkpoint {rng.choice(['never', 'never', 'always', 'layers'])}"
    if replicas > 1:
        options += f" --zero {rng.choice([0, 1, 2, 3])}" + rng.choice(["", " --overlap-grad-reduce"])
    options += rng.choice(["", "", " --tensor 2"]) + rng.choice(["", "", " --clip 0"])
    return options, layers, stages * virtual


def cuts(layers, stages, first=True):
    """All lists for --split: the first and the last stage may have no layers."""
    if stages == 1:
        yield (layers,)
        return
    for n in range(0 if first else 1, layers + 1):
        for rest in cuts(layers - n, stages - 1, False):
            yield (n, *rest)


def predict(ppsim, options, split):
    """The row of the only plan; None if it is impossible."""
    command = [ppsim, *options.split(), "--split", split, "--format", "json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 2):
        sys.exit(f"exit status {run.returncode}: {' '.join(command)}\n{run.stderr}")
    return json.loads(run.stdout)[0] if run.returncode == 0 else None


def compare(ppsim, seed):
    options, layers, stages = random_options(random.Random(seed))
    taken = predict(ppsim, options, "time")
    rows = [predict(ppsim, options, ",".join(map(str, cut))) for cut in cuts(layers, stages)]
    rows = [row for row in rows if row]
    if not taken or not rows:
        return None
    best = min(rows, key=lambda row: row["ms_per_batch"])
    return taken["ms_per_batch"] / best["ms_per_batch"] - 1, taken["stage_layers"], best["stage_layers"], options


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ppsim", type=arguments.program, default="ppsim")
    parser.add_argument("--plans", type=int, default=400)
    parser.add_argument("--first", type=int, default=1)
    args = parser.parse_args()
    compared = (compare(args.ppsim, seed) for seed in range(args.first, args.first + args.plans))
    found = [result for result in compared if result]
    for words, alone in (("without replicas", True), ("with replicas", False)):
        some = [result[0] for result in found if ("--replicas 1 " in result[3]) == alone]
        if some:
            mean, most = 100 * statistics.mean(some), 100 * max(some)
            print(f"{words}: {len(some)} plans, {mean:.2f} % longer on average, {most:.1f} % at most")
    for more, taken, best, options in sorted(found, reverse=True)[:10]:
        print(f"{100 * more:.1f} %: {taken}, the quickest is {best}: {options}")


if __name__ == "__main__":
    main()
