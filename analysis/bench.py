#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark target: simulator tasks/s, ms/batch of ppexec beside PyTorch where a Python with torch is named, ms/batch
over the critical path of the executor's own tasks, and one step of one process kernel by kernel beside its products.

  bench.py --bin build/bin [--python PYTHON-WITH-TORCH] [--bench-step FILE] [--models small,wide,lab] [--turns 3]

Simulator: 1F1B with 256 ranks and 2048 microbatches, from the start of the program to its end (building, checking,
simulating and printing), the best of --turns runs; a transfer counts as one task. The other figures: bench_pytorch.py,
bench_path.py, and tests/bench/bench_step.c, whose program --bench-step names; it is left out where it was not built.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import arguments
import bench_path
import bench_pytorch

LARGE = ["--times", "1,1,1", "--schedule", "1f1b", "--stages", "256", "--chunks", "2048", "--format", "json"]
# Steps of bench_step: some seconds of each model.
STEPS = {"small": "20", "wide": "8", "lab": "2000"}
SMALL = ["--times", "1,1,1", "--schedule", "1f1b", "--stages", "2", "--chunks", "2", "--format", "json"]


def seconds(command):
    """(wall seconds, result object)"""
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return time.perf_counter() - start, json.loads(done.stdout)[0]


def bench_simulator(ppsim, turns):
    start = min(seconds([ppsim, *SMALL])[0] for _ in range(turns))
    best, result = min((seconds([ppsim, *LARGE]) for _ in range(turns)), key=lambda pair: pair[0])
    rate = result["tasks"] / best
    print(
        f"{' '.join([ppsim, *LARGE])}\n"
        f"{result['tasks']} tasks in {best:.3f} s ({start:.3f} s of it starting the program): "
        f"{rate / 1e6:.2f} M tasks/s\n",
        flush=True,
    )


def bench_executor(ppexec, args):
    words = ["--ppexec", ppexec, "--models", ",".join(args.models), "--turns", str(args.turns)]
    words += ["--python", args.python] if args.python else ["--no-pytorch"]
    bench_pytorch.main(words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=arguments.folder_of("ppsim", "ppexec"), help="with these programs")
    parser.add_argument("--python", default="")
    parser.add_argument("--bench-step", default="")
    parser.add_argument("--models", type=arguments.names(STEPS), default="small,wide,lab")
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    programs = pathlib.Path(args.bin).resolve()
    ppexec = str(programs / "ppexec")
    bench_simulator(str(programs / "ppsim"), args.turns)
    bench_executor(ppexec, args)
    print()
    bench_path.bench(ppexec, args.models, args.turns)
    for model in args.models if os.path.exists(args.bench_step) else ():
        print(flush=True)
        subprocess.run([args.bench_step, model, STEPS[model]], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
