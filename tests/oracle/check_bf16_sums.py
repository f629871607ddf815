#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares ppexec --grad-reduce-in-bf16 with PyTorch: a developer's tool, needs a Python with torch and safetensors.

  check_bf16_sums.py --ppexec PATH [--random N] [--dice N]

PyTorch makes the gradients of each replica alone, in float64, rounds them to bfloat16 and adds them in that, in the
order of replicas; of groups that share, the sums of groups. ppexec's gradients are read from a step. A number that lies
between two others may be rounded to either, as its last digits in float32 are: nearly all must be PyTorch's, and the
others its neighbours. Sums that are not rounded, or once at the end, would be found: few of them are PyTorch's.
"""

import argparse
import copy
import math
import pathlib
import random
import sys
import tempfile

import torch

sys.dont_write_bytecode = True
import check_golden  # noqa: E402
import make_golden  # noqa: E402
import reference_model  # noqa: E402

MOST_OTHERS = 0.005  # of a model's numbers
UNIT = 2.0**-7  # of bfloat16, at least as much as two neighbours differ by, relative to the larger one


def random_options(dice):
    replicas = dice.choice((2, 3, 4, 6))
    made = dict(preset="lab", d_model=24, heads=2, d_ff=40, layers=4, rows=dice.randint(1, 4), replicas=replicas)
    made.update(tokens=dice.randint(3, 9), chunks=1, data="text", dropout=0.0, norm="pre", seed=dice.randint(0, 999))
    made.update(activation=dice.choice(("gelu", "swiglu")), attention=dice.choice(("math", "flash")), eval_rows=1)
    group = dice.choice([n for n in range(1, replicas + 1) if replicas % n == 0])
    layout = dict(schedule=dice.choice(("gpipe", "1f1b")), stages=dice.choice((1, 2, 4)), grad_reduce_in_bf16=True)
    layout.update(zero=dice.choice((0, 1, 3)), shard_degree=group)
    if layout["zero"] < 3 and dice.random() < 0.5:
        layout.update(overlap_grad_reduce=True, bucket_size="1B")
    return made, layout


def added(parts):
    """In bfloat16, each sum of two rounded."""
    total = parts[0].bfloat16()
    for part in parts[1:]:
        total = total + part.bfloat16()
    return total


def of_replicas(model, batch, replicas):
    """{name: [what each replica adds to the gradient]}"""
    found = {}
    for rows in zip(*(torch.tensor(part).chunk(replicas) for part in batch)):
        _, grads = reference_model.gradients(model, [part.tolist() for part in rows])
        for name, grad in grads.items():
            found.setdefault(name, []).append((grad / replicas).float())
    return found


def expected(parts, group):
    """Of each tensor the sum of the sums of groups."""
    groups = [parts[i : i + group] for i in range(0, len(parts), group)]
    return added([added(each).float() for each in groups]).double().flatten().tolist()


def compare(runner, given, layout, keep):
    """The part of numbers that are not PyTorch's, (rounded, not rounded)"""
    folder = pathlib.Path(keep) / "case"
    options = {"eval_rows": 1, **given}
    o, parts, model = make_golden.prepare("case", options, folder)
    exact = of_replicas(copy.deepcopy(model).double(), parts["train"][0], given["replicas"])
    make_golden.record("case", options, folder, model, o, parts)
    case = check_golden.load_case(folder)
    _, ours, floor = check_golden.first_step(runner, case, {**case["options"], **layout}, 0)
    shares = layout["zero"] > 0 and layout["shard_degree"] > 1
    group = layout["shard_degree"] if shares else given["replicas"]
    others, plain, count = 0, 0, 0
    for name, terms in exact.items():
        truth, whole = expected(terms, group), sum(terms).double().flatten().tolist()
        for own, rounded, unrounded, size in zip(ours[name], truth, whole, sum(t.abs() for t in terms).flatten().tolist()):
            small = floor[name] + 1e-6 * size
            if not abs(own - rounded) <= small + UNIT * len(terms) * size < math.inf:
                raise check_golden.Failure(f"{name}: {own}, PyTorch has {rounded}")
            others += abs(own - rounded) > small
            plain += abs(unrounded - rounded) > small
            count += 1
    return others / count, plain / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ppexec", required=True)
    parser.add_argument("--random", type=int, default=20, metavar="N", help="random models (default 20)")
    parser.add_argument("--dice", type=int, default=1, help="seed of the random models")
    args = parser.parse_args()
    args.mpirun = None
    torch.set_num_threads(1)
    dice, runner, failures = random.Random(args.dice), check_golden.Runner(args), 0
    for _ in range(args.random):
        given, layout = random_options(dice)
        title = " ".join(check_golden.arguments({**given, **layout}))
        with tempfile.TemporaryDirectory() as keep:
            try:
                others, plain = compare(runner, given, layout, keep)
                good = others <= MOST_OTHERS < plain
                verdict = f"{100 * others:.2f} % are other numbers (not rounded: {100 * plain:.0f} %)"
            except check_golden.Failure as failure:
                good, verdict = False, str(failure)
        failures += not good
        print(f"{'ok      ' if good else 'FAILED  '} {verdict}: {title}", flush=True)
    runner.close()
    print(f"{args.random} models, {failures} failed")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
