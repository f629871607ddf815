#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs ppexec over many configurations and compares it with PyTorch's golden files and with itself. Standard library
only.

golden: for each case of tests/golden/train/ the loss and every gradient of the first batch (one step, --clip 0 --lr
1: --init minus --save), the losses of all steps, the weights after them, validation and test losses; all to 1e-4
relative. Of workers that share rows (--context-parallel), where PyTorch does not, no validation and test losses: what
of the last rows they cannot share is left out. bits: with dropout on, losses and saved weights are the same bits for
all configurations of one accumulation key (equal chunks, replicas, tensor degree, context parallel degree, and with or
without --sequence-parallel), whatever schedule, stages, virtual stages, checkpoint mode, processes.

Exit status 0: all agree; 1: not; 77: cannot be run here.
"""

import argparse
import functools
import itertools
import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import safetensors_file

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
PIECES = ("never", "except_last", "always")
CHECKPOINTS = PIECES + ("layers", "layers:1", "layers:2")
LEFT_OUT = ("dualpipev",)  # needs 2 P microbatches: more than the cases have, or than dice make sure of
OPTIMIZER = ("optimizer", "adam_beta1", "adam_beta2", "adam_eps", "weight_decay")
RATE = ("warmup_steps", "lr_schedule", "lr_steps", "min_lr")
SHARED = ("tensor", "sequence_parallel", "context_parallel", "attention", "cp_comm_type")
TOLERANCE = 1e-4
TINY = 1e-30  # below, float32 has few digits left
SKIP = 77
SECONDS = 120  # no run takes more than a few; a hang must not stop the tests


@functools.lru_cache(maxsize=None)
def schedules(program):
    """{name: what its --list says of it}"""
    listed = subprocess.run([program, "--list", "--format", "json"], stdout=subprocess.PIPE, check=True).stdout
    return {each["name"]: each for each in json.loads(listed)["schedules"] if each["name"] not in LEFT_OUT}


class Failure(Exception):
    """A comparison that does not hold; the text says which."""


def arguments(options):
    """Command line of a dict of options."""
    made = []
    for name, value in options.items():
        made += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    return made


class Mismatch(Failure):
    """Of numbers, each in its place: rounding.py may explain it."""


class Runner:
    """Runs ppexec and counts; keep = how to start it over processes."""

    def __init__(self, args):
        self.ppexec, self.mpirun, self.runs = args.ppexec, args.mpirun, 0
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ppkit-golden-"))
        self.environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def launcher(self, processes):
        if processes == 0:
            return []
        return [self.mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(processes)]

    def run(self, options, processes=0, save=False):
        """(result object, weights or None). processes 0: threads of one process, without mpirun."""
        weights = self.folder / "weights.safetensors"
        extra = ["--save", str(weights)] if save else []
        command = self.launcher(processes) + [self.ppexec] + arguments(options) + ["--format", "json"] + extra
        self.runs += 1
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                timeout=SECONDS,
                env=self.environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failure(f"no end within {SECONDS} s: {' '.join(command)}") from None
        if done.returncode != 0:
            raise Failure(f"exit status {done.returncode}: {' '.join(command)}\n{done.stderr.strip()[-1500:]}")
        result = json.loads(done.stdout)
        if len(result) != 1:
            raise Failure(f"{len(result)} objects instead of one: {' '.join(command)}")
        if None in result[0]["loss"] + result[0]["valid_loss"]:
            raise Failure(f"a loss is no finite number: {' '.join(command)}")
        return result[0], safetensors_file.read(weights) if save else None

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def largest(values):
    return max(map(abs, values), default=0.0)


def worst_of(distances):
    """The largest; infinite if any is no finite number, which max() may pass over."""
    found = list(distances)
    return max(found, default=0.0) if all(map(math.isfinite, found)) else math.inf


def compare_numbers(what, ours, theirs):
    if len(ours) != len(theirs):
        raise Failure(f"{what}: {len(ours)} values, PyTorch has {len(theirs)}")
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if not abs(a - b) <= TOLERANCE * abs(b) < math.inf:
            raise Mismatch(f"{what}[{i}]: {a!r}, PyTorch has {b!r}")


def compare_tensors(what, ours, theirs, floor=None):
    """floor: {name: absolute error that storing in float32 explains}."""
    if set(ours) != set(theirs):
        raise Failure(f"{what}: other tensors than PyTorch: {sorted(set(ours) ^ set(theirs))}")
    for name, expected in theirs.items():
        limit = TOLERANCE * largest(expected) + (floor[name] if floor else TINY)
        worst = worst_of(abs(a - b) for a, b in zip(ours[name], expected))
        if len(ours[name]) != len(expected):
            raise Failure(f"{what} of {name}: {len(ours[name])} values, PyTorch has {len(expected)}")
        if not worst <= limit < math.inf:
            raise Mismatch(f"{what} of {name}: differs by {worst:.3g}, largest value {largest(expected):.3g}")


def tensor_degrees(options):
    """T that the case's heads and columns, or experts, can be shared by; each worker's columns are a multiple of 4."""
    small = dict(heads=2, d_ff=200, kv_heads=0, vocab=1000, experts=0, shared_ff=0, dense_ff=0) | options
    dense = not small["experts"] or small.get("dense_layers") or small.get("experts_every", 1) > 1
    shared = [small["heads"], small["kv_heads"] or small["heads"], small["experts"], small["shared_ff"]]
    shared += [(small["dense_ff"] or small["d_ff"]) / 4] if dense else []
    words = small["vocab"]  # of which the last worker has some, too
    possible = [n for n in (1, 2, 4) if -(-words // n) * (n - 1) < words]
    return [n for n in possible if n == 1 or all(size % n == 0 for size in shared)]


def shared_layouts(options):
    """T, whole and with parts of tokens, and C: those of C workers that can share the case's rows, and of T heads, too.
    Experts would have other places."""
    degrees = tensor_degrees(options)
    made = [dict(tensor=n) for n in degrees] + [dict(tensor=n, sequence_parallel=True) for n in degrees if n > 1]
    for n, context in itertools.product(degrees, (2, 3)):
        heads, tokens = options.get("heads", 1), options.get("tokens", 1)
        shared = (tokens, heads // n, (options.get("kv_heads") or heads) // n)
        if options.get("experts"):
            continue
        if all(size % context == 0 for size in shared):
            made.append(dict(tensor=n, context_parallel=context))
        if tokens % (2 * context) == 0:
            kinds = ("all_gather",) if options["dropout"] or options.get("window_size") else ("all_gather", "p2p")
            made += [dict(tensor=n, context_parallel=context, attention="flash", cp_comm_type=kind) for kind in kinds]
    return made


def layouts(program, options, most):
    """(schedule, P, V, checkpoint, what workers share) that the case can have; at most so many of each way to share,
    always the same ones; 0: all."""
    shared = shared_layouts(options)
    return [{**layout, **same} for same in shared for layout in whole_layouts(program, options, most, same)]


def checkpoints(schedule, activation):
    """The modes that the two can have; schedule: of schedules(). Those of layers need backwards in one piece."""
    whole = schedule["backward"] == "whole"
    again = activation != "relu" and (activation != "swiglu" or whole)
    return (CHECKPOINTS if whole else PIECES) + (("activation",) if again else ())


def whole_layouts(program, options, most, same):
    layers, activation = options.get("layers", 2), options.get("activation", "relu")
    made = []
    for schedule, ranks in itertools.product(schedules(program).values(), (1, 2, 4)):
        for checkpoint, virtual in itertools.product(checkpoints(schedule, activation), (1, 2)):
            if ranks * virtual <= layers and schedule["virtual"] in (virtual, None):
                made.append(dict(schedule=schedule["name"], stages=ranks, virtual=virtual, checkpoint=checkpoint))
    if most == 0:
        return made
    text = "T" * same["tensor"] + "S" * ("sequence_parallel" in same) + "C" * same.get("context_parallel", 0)
    text += same.get("cp_comm_type", "")
    picked = random.Random(str(sorted(options.items())) + text).sample(made, min(most, len(made)))
    return made[:1] + [m for m in picked if m != made[0]] if same == dict(tensor=1) else picked[: (most + 1) // 2]


def process_counts(options, layout, mpi):
    """How many processes to spread the workers over; 0 = threads without mpirun."""
    world = layout["stages"] * layout["tensor"] * layout.get("context_parallel", 1) * options.get("replicas", 1)
    if not mpi:
        return [0]
    return sorted({n for n in (world, max(1, world // 2)) if n > 1})


def load_case(folder):
    """case.json of a folder, the text folder and the weight files as paths."""
    case = json.loads((folder / "case.json").read_text())
    if case["options"].get("data") == "text":
        case["options"]["data"] = str(GOLDEN / "text")
    case["files"] = {
        "init": folder.parent / case["init"] / "init.safetensors",
        "grad": folder / "grad.safetensors",
        "final": folder / "final.safetensors",
    }
    return case


def load_cases(only):
    folders = sorted(path.parent for path in (GOLDEN / "train").glob("*/case.json"))
    return {folder.name: load_case(folder) for folder in folders if only in (None, folder.name)}


def first_step(runner, case, options, processes):
    """(result object, gradients, what of each storing the weights in float32 rounds away)"""
    files = case["files"]
    one = {key: value for key, value in options.items() if key not in OPTIMIZER + RATE}
    one.update({"epochs": 1, "max_batches": 1, "clip": 0, "lr": 1, "init": files["init"], "no_eval": True})
    result, after = runner.run(one, processes, save=True)
    before = safetensors_file.read(files["init"])
    ours = {key: [a - b for a, b in zip(before[key], after[key])] for key in before}
    return result, ours, {key: TINY + 1.2e-7 * largest(before[key]) for key in before}


def check_first_step(runner, case, options, processes):
    result, ours, floor = first_step(runner, case, options, processes)
    compare_numbers("loss", result["loss"], [case["first_loss"]])
    compare_tensors("gradient", ours, safetensors_file.read(case["files"]["grad"]), floor)
    for key in ("parameters", "vocabulary"):
        if result[key] != case[key]:
            raise Failure(f"{key}: {result[key]}, PyTorch has {case[key]}")


def check_training(runner, case, options, processes):
    files = case["files"]
    whole = {**options, "init": files["init"]}
    result, weights = runner.run({**whole, "no_eval": True}, processes, save=True)
    compare_numbers("loss", result["loss"], case["loss"])
    compare_tensors("trained weights", weights, safetensors_file.read(files["final"]))
    if case["valid_loss"] and options.get("context_parallel") == case["options"].get("context_parallel"):
        result, _ = runner.run(whole, processes)
        compare_numbers("loss with evaluation", result["loss"], case["loss"])
        compare_numbers("valid_loss", result["valid_loss"], case["valid_loss"])
        compare_numbers("test_loss", [result["test_loss"]], [case["test_loss"]])


def check_case(runner, case, layout, processes):
    options = {**case["options"], **layout}
    check_first_step(runner, case, options, processes)
    check_training(runner, case, options, processes)


def check_golden(runner, args):
    for name, case in load_cases(args.case).items():
        for layout in layouts(args.ppexec, case["options"], args.most):
            for processes in process_counts(case["options"], layout, args.mpirun):
                yield (
                    f"golden {name} {describe(layout, processes)}",
                    functools.partial(check_case, runner, case, layout, processes),
                )


def compare_bits(runner, options, references, layout, processes):
    """references: keeps for each way to share layers and rows what P = 1, gpipe, nothing recomputed gave."""
    same = {name: layout[name] for name in SHARED if name in layout}
    key = tuple(same.items())
    if key not in references:
        base = dict(schedule="gpipe", stages=1, virtual=1, checkpoint="never", **same)
        references[key] = runner.run({**options, **base}, save=True)
    reference = references[key]
    result, weights = runner.run({**options, **layout}, processes, save=True)
    for key in ("loss", "valid_loss", "test_loss"):
        if result[key] != reference[0][key]:
            raise Failure(f"{key} has other bits: {result[key]} instead of {reference[0][key]}")
    if weights != reference[1]:
        changed = [key for key in weights if weights[key] != reference[1].get(key)]
        raise Failure(f"saved weights have other bits: {changed[:4]}")


def check_bits(runner, args):
    steps = {"epochs": 1, "max_batches": 4, "dropout": 0.2, "eval_batches": 2}
    for name, case in load_cases(args.case).items():
        options = {**case["options"], **steps, "seed": 7}
        references = {}
        for layout in layouts(args.ppexec, options, args.most)[1:]:
            for processes in process_counts(options, layout, args.mpirun):
                yield (
                    f"bits {name} {describe(layout, processes)}",
                    functools.partial(compare_bits, runner, options, references, layout, processes),
                )


def describe(layout, processes):
    text = "{schedule} P={stages} V={virtual} T={tensor} {checkpoint}".format(**layout)
    text += " sequence-parallel" if "sequence_parallel" in layout else ""
    text += f" C={layout['context_parallel']}" if "context_parallel" in layout else ""
    text += f" {layout['cp_comm_type']}" if "cp_comm_type" in layout else ""
    return text + (f" processes={processes}" if processes else " threads")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ppexec", required=True)
    parser.add_argument("--mpirun", help="start over processes with this program")
    parser.add_argument("--most", type=int, default=4, help="configurations of each case; 0: all there are")
    parser.add_argument("--part", choices=("golden", "bits"), help="only one of the two")
    parser.add_argument("--case", help="only one case")
    args = parser.parse_args()
    if args.mpirun and not shutil.which(args.mpirun):
        print(f"{args.mpirun} is not there: skipped")
        return SKIP
    runner = Runner(args)
    failures, checks = 0, 0
    for part, checker in (("golden", check_golden), ("bits", check_bits)):
        for title, check in checker(runner, args) if args.part in (None, part) else ():
            checks += 1
            try:
                check()
            except Failure as failure:
                failures += 1
                print(f"FAILED {title}: {failure}", flush=True)
    runner.close()
    print(f"{checks} configurations, {runner.runs} runs, {failures} failed")
    return 1 if failures or not checks else 0


if __name__ == "__main__":
    sys.exit(main())
