#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a step of ppexec --precision fp8 with PyTorch's (tests/golden/fp8/). Standard library only.

  check_fp8_golden.py --ppexec PATH

The loss, and each gradient, may be a fifth as far from PyTorch's as FP8 moves it. Most are the same to 1e-5, but a number
that lies between two of bfloat16 may fall to either side with other compilers. What is rounded otherwise, or by another
scale, is about as far away as FP8 moves it; so is bf16, which is tried too.
"""

import argparse
import json
import math
import sys

import check_golden
import safetensors_file

FOLDER = check_golden.GOLDEN / "fp8"
NEAR = 0.2  # of the distance that FP8 makes
RATE = 4096.0  # of the step from which gradients are read, so that storing the weights in float32 rounds little away
LAYOUTS = (
    dict(stages=1, schedule="gpipe"),
    dict(stages=2, schedule="1f1b", checkpoint="layers"),
    dict(stages=2, schedule="zb-h1", checkpoint="never"),
)


def cases():
    for folder in sorted(path.parent for path in FOLDER.glob("*/case.json")):
        case = json.loads((folder / "case.json").read_text())
        yield folder.name, case, folder / "init.safetensors", safetensors_file.read(folder / "grad.safetensors")


def step(runner, options, init):
    """(loss, gradients)"""
    one = {**options, "device": "cuda", "init": init, "epochs": 1, "max_batches": 1, "clip": 0, "lr": RATE, "no_eval": True}
    result, after = runner.run(one, save=True)
    before = safetensors_file.read(init)
    return result["loss"][0], {name: [(a - b) / RATE for a, b in zip(before[name], after[name])] for name in before}


def furthest(case, theirs, made):
    """The largest distance of a gradient, in parts of how far FP8 moves it."""
    if set(made) != set(theirs):
        raise check_golden.Failure(f"other tensors than PyTorch's: {sorted(set(made) ^ set(theirs))}")
    return check_golden.worst_of(math.dist(made[name], theirs[name]) / case["moved"][name] for name in theirs)


def check(runner, name, case, init, theirs):
    seen = set()
    for layout in LAYOUTS:
        loss, made = step(runner, {**case["options"], **layout, "precision": "fp8"}, init)
        away = furthest(case, theirs, made)
        print(f"{name} {' '.join(check_golden.arguments(layout))}: gradients {away:.1g} away, loss {loss:.9g}")
        if not (away <= NEAR and abs(loss - case["first_loss"]) <= 1e-4 * loss):
            raise check_golden.Failure(f"{name}: PyTorch's loss is {case['first_loss']:.9g}")
        seen.add(loss)
    if len(seen) > 1:
        raise check_golden.Failure(f"{name}: not the same bits: {seen}")
    _, plain = step(runner, {**case["options"], **LAYOUTS[0], "precision": "bf16"}, init)
    away = furthest(case, theirs, plain)
    if not 1 - NEAR <= away < math.inf:
        raise check_golden.Failure(f"{name}: bf16 is {away:.1g} away")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ppexec", required=True)
    args = parser.parse_args()
    args.mpirun, count = None, 0
    runner = check_golden.Runner(args)
    try:
        for case in cases():
            check(runner, *case)
            count += 1
    except check_golden.Failure as failure:
        print(f"FAILED: {failure}")
        return 1
    finally:
        runner.close()
    print(f"{count} cases")
    return count == 0


if __name__ == "__main__":
    sys.exit(main())
