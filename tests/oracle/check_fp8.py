#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares FP8 with PyTorch's: a developer's tool, needs a Python with torch and safetensors.

  check_fp8.py --ppexec PATH [--random N] [--dice N]    a step of training with --precision fp8, of random models
  check_fp8.py --numbers [--all]    the rounding of core/calls/fp8.h: all bfloat16 numbers and many of float32, or all

Training needs a GPU, or the emulated one (docs/TESTING.md). fp8_model.py computes the same step. The distance of
gradients, all of a tensor together, is told in parts of how far rounding to FP8 moves them: a program that rounds
something else, or by another scale, or reads what is stale, is about 1 away. Most models are less than 1e-4 away. But
where a number lies just between two of bfloat16, ppexec and PyTorch may part; and if it was the largest of its tensor,
all of that has another scale.
"""

import argparse
import ctypes
import pathlib
import random
import subprocess
import sys
import tempfile

import torch

sys.dont_write_bytecode = True
import check_fp8_golden  # noqa: E402
import check_golden  # noqa: E402
import fp8_model  # noqa: E402
import make_golden  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEAR = 0.02  # of the distance that FP8 makes
UNIT = 1.5  # of it: what is further was made otherwise
SMALL = 0.05  # part of a gradient that counts as that distance where nothing is FP8
FAR = 0.15  # of the models, at most, are not near


def random_options(dice, schedules):
    """No relu: of numbers near its kink the last digits decide."""
    heads, stages = dice.choice((1, 2)), dice.choice((1, 2))
    made = dict(preset=dice.choice(("lab", "small")), d_model=16 * dice.randint(1, 4), heads=heads, d_ff=16 * dice.randint(1, 6))
    made.update(layers=stages * dice.randint(1, 2), tokens=1, rows=16 * dice.randint(1, 4), chunks=1, bias="no")
    made.update(norm=dice.choice(("pre", "post")), normalization=dice.choice(("layernorm", "rmsnorm")))
    made.update(activation=dice.choice(("gelu", "gelu-tanh", "swiglu")), attention=dice.choice(("math", "flash")))
    made.update(mask="none", dropout=0.0, data="constant", vocab=dice.randint(20, 90), seed=dice.randint(0, 999))
    odd = dice.choice(("", "", "", "d_ff", "rows"))  # of which nothing, or not all, is FP8
    if odd:
        made[odd] += 8
    layout = dict(stages=stages, schedule=dice.choice(("gpipe", "1f1b", "zb-h1")))
    layout["checkpoint"] = dice.choice(check_golden.checkpoints(schedules[layout["schedule"]], made["activation"]))
    return made, layout


def gradients_of_ppexec(runner, options, init):
    loss, gradients = check_fp8_golden.step(runner, {**options, "precision": "fp8"}, init)
    return loss, {name: torch.tensor(numbers) for name, numbers in gradients.items()}


def distance(a, b):
    return float((a.flatten() - b.flatten()).double().norm())


def furthest(weights, o, batch, got):
    """(linears in FP8, others, the largest distance of a gradient, or of the loss, in parts of FP8's)"""
    step, plain = (fp8_model.Step(weights, o, in_fp8) for in_fp8 in (True, False))
    (loss, exact), (other, unrounded) = step.run(*batch), plain.run(*batch)
    away = [abs(got[0] - loss) / max(abs(loss - other), 1e-5 * loss)]
    for name, gradient in exact.items():
        unit = max(distance(gradient, unrounded[name]), SMALL * float(gradient.norm()))
        away.append(distance(got[1][name], gradient) / unit)
    return step.products[True], step.products[False], check_golden.worst_of(away)


def compare(runner, given, layout, keep):
    folder = pathlib.Path(keep) / "case"
    o, parts, model = make_golden.prepare("case", given, folder)
    weights = {name: w.detach() for name, w in model.named_parameters()}
    got = gradients_of_ppexec(runner, {**given, **layout}, folder / "init.safetensors")
    return furthest(weights, o, parts["train"][0], got)


def check_training(args):
    torch.set_num_threads(1)
    dice, runner, failures, fars, products = random.Random(args.dice), check_golden.Runner(args), 0, 0, 0
    for _ in range(args.random):
        given, layout = random_options(dice, check_golden.schedules(args.ppexec))
        title = " ".join(check_golden.arguments({**given, **layout}))
        with tempfile.TemporaryDirectory() as keep:
            try:
                of_fp8, others, away = compare(runner, given, layout, keep)
                fars, failures, products = fars + (away > NEAR), failures + (away > UNIT), products + of_fp8
                found = f"{of_fp8} linears in FP8, {others} in bf16: {away:.1g} away"
                print(f"{'FAILED  ' if away > UNIT else 'far     ' if away > NEAR else 'ok      '} {found}: {title}", flush=True)
            except check_golden.Failure as failure:
                failures += 1
                print(f"FAILED   {title}: {failure}", flush=True)
    runner.close()
    print(f"{args.random} models, {products} FP8 linears; {fars} are far, {failures} failed")
    return failures > 0 or products == 0 or fars > 1 + FAR * args.random


def compiled(folder):
    """codes(numbers, count, gradient, codes) of core/calls/fp8.h."""
    source = """
        #include "core/calls/fp8.h"
        void codes(const float *x, long n, int gradient, uint8_t *to)
        {
            for (long i = 0; i < n; i++) to[i] = pp_fp8(x[i], gradient);
        }"""
    library = pathlib.Path(folder) / "fp8.so"
    command = ["cc", "-O2", "-shared", "-fPIC", "-I", ROOT, "-x", "c", "-", "-o", library, "-lm"]
    subprocess.run(list(map(str, command)), input=source, text=True, check=True)
    return ctypes.CDLL(str(library)).codes


def wrong_codes(codes, bits, gradient):
    """Of so many numbers, of these bits, how many are not rounded as PyTorch rounds them."""
    kind = torch.float8_e5m2 if gradient else torch.float8_e4m3fn
    numbers, ours = bits.view(torch.float32), torch.empty(len(bits), dtype=torch.uint8)
    codes(
        ctypes.c_void_p(numbers.data_ptr()),
        ctypes.c_long(len(numbers)),
        ctypes.c_int(gradient),
        ctypes.c_void_p(ours.data_ptr()),
    )
    largest = fp8_model.LARGEST[kind]
    theirs = numbers.clamp(-largest, largest).to(kind)  # the cast alone would not saturate
    missing = numbers.isnan()
    good = torch.where(missing, ours.view(kind).float().isnan(), ours == theirs.view(torch.uint8))
    return int((~good).sum())


def check_numbers(every):
    """All bfloat16 numbers with and without more digits, which come close to all borders; or all of float32."""
    failures, count, block = 0, 0, 1 << 22
    with tempfile.TemporaryDirectory() as folder:
        codes = compiled(folder)
        for gradient in (False, True):
            if every:
                blocks = (torch.arange(i, i + block) for i in range(-(1 << 31), 1 << 31, block))
            else:
                upper = torch.arange(-(1 << 15), 1 << 15) << 16
                blocks = (upper + lower for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF))
            for bits in blocks:
                count += len(bits)
                failures += wrong_codes(codes, bits.to(torch.int32), gradient)
    print(f"{count} numbers, {failures} not rounded as PyTorch's")
    return failures > 0 or count == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ppexec")
    parser.add_argument("--random", type=int, default=20, metavar="N", help="random models (default 20)")
    parser.add_argument("--dice", type=int, default=1, help="seed of the random models")
    parser.add_argument("--numbers", action="store_true", help="compare the rounding of numbers instead")
    parser.add_argument("--all", action="store_true", help="of all float32 numbers")
    args = parser.parse_args()
    args.mpirun = None
    if args.numbers:
        return check_numbers(args.all)
    if not args.ppexec:
        parser.error("--ppexec or --numbers")
    return check_training(args)


if __name__ == "__main__":
    sys.exit(main())
