#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/fp8/ with PyTorch (fp8_model.py); check_fp8_golden.py reads it.

Each case is a folder: case.json (ppkit options, the loss of the first batch, and how far FP8 moves each gradient: the
distance between it and that of bf16, as if the tensor were a vector), init.safetensors (initial weights), grad.safetensors
(gradients of the first batch).
"""

import json
import sys

import torch

sys.dont_write_bytecode = True
import fp8_model  # noqa: E402
import make_golden  # noqa: E402

GOLDEN = make_golden.GOLDEN / "fp8"
COMMON = dict(layers=2, tokens=1, chunks=1, bias="no", mask="none", dropout=0.0, data="constant", vocab=24)
CASES = {
    "pre-swiglu": dict(
        COMMON, preset="small", d_model=32, heads=2, d_ff=48, rows=32, norm="pre", normalization="rmsnorm", activation="swiglu"
    ),
    "post-gelu": dict(
        COMMON, preset="lab", d_model=48, heads=2, d_ff=32, rows=48, norm="post", normalization="layernorm", activation="gelu"
    ),
    # Columns of the feed-forward that are no multiple of 16: its products are not in FP8, attention's are.
    "pre-mixed": dict(
        COMMON, preset="lab", d_model=32, heads=2, d_ff=40, rows=32, norm="pre", normalization="layernorm", activation="gelu-tanh"
    ),
}


def make(name, given):
    folder = GOLDEN / name
    o, parts, model = make_golden.prepare(name, given, folder)
    weights = {key: w.detach() for key, w in model.named_parameters()}
    step, plain = (fp8_model.Step(weights, o, in_fp8) for in_fp8 in (True, False))
    (loss, grads), (_, others) = (made.run(*parts["train"][0]) for made in (step, plain))
    moved = {key: float((grad - others[key]).double().norm()) for key, grad in grads.items()}
    make_golden.save(folder / "grad.safetensors", grads)
    case = {"options": given, "first_loss": loss, "moved": moved}
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")
    least = min(moved[key] / float(grad.norm()) for key, grad in grads.items())
    print(f"{name}: {step.products[True]} linears in FP8, {step.products[False]} in bf16; gradients move by {least:.1%} and more")


def main():
    torch.set_num_threads(1)
    for name, given in CASES.items():
        make(name, given)


if __name__ == "__main__":
    main()
