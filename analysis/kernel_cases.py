# SPDX-License-Identifier: Apache-2.0
"""Measured times of single products, attention and collectives, and what kernel_times predicts for them."""

import json
import math
import pathlib
import subprocess
import tempfile

import profile_text
from published_facts import read_facts

HERE = pathlib.Path(__file__).resolve().parent
FACTS = HERE / "published_kernels.tsv"
MACHINES, PROFILES = HERE.parent / "sim" / "machines", HERE.parent / "profiles"
ASKED = {"all-reduce": "sum 2", "all-gather": "sum 1", "reduce-scatter": "sum 1", "all-to-all": "exchange"}
GROWN_ROWS = 1024  # of A, from which products grow that are timed together with turning B
GROWN_FLOPS = 2e10  # that they grow by, at least: below that, noise counts


class Timed:
    """What lines of kernel_times predict: the sum of their microseconds, each times its weight. Here it is one line."""

    def parts(self):
        return [(1, self.line)]


class Case(Timed):
    """A line of published_kernels.tsv"""

    def __init__(self, kind, cells):
        self.machine, self.us = cells[0], float(cells[-1])
        if kind == "collective":
            self.group, self.devices, self.bytes = cells[1:4]
            self.line = f"{ASKED[self.group]} {self.devices} {self.bytes}"
        else:
            self.group, self.times, self.shape = cells[1], cells[2], tuple(cells[2:6])
            self.flops = 2 * math.prod(self.shape)
            self.line = " ".join(map(str, ("product", self.group.split("-")[0], *self.shape)))


class Grown:
    """Two lines of kind "turned" of published_kernels.tsv, that differ in the rows of A: how much longer the larger one is.
    Turning B takes as long in both, so half the difference of the products is left."""

    def __init__(self, small, large):
        self.machine, self.group, self.times, self.shape = large.machine, large.group, large.times, large.shape
        self.us, self.flops = large.us - small.us, large.flops - small.flops
        self.lines = large.line, small.line

    def parts(self):
        return list(zip((0.5, -0.5), self.lines))


class Attention(Timed):
    """A line of kind "attention" of published_kernels.tsv. ppkit's kernel has mma.sync."""

    def __init__(self, name, which, rows, heads, tokens, width, mask, rate, whose, mma_sync):
        self.machine, self.which, self.whose, self.alike = name, which, whose, mma_sync == "yes"
        self.shape = (rows, heads, tokens, width, mask)
        flops = 4 * rows * heads * tokens**2 * width * {"forward": 1, "backward": 2.5}[which]
        self.us = flops / {"full": 1, "causal": 2}[mask] / rate / 1e6
        self.line = " ".join(map(str, ("attention", which, *self.shape)))


class Measured(Timed):
    """A product of a profile as text, alone on the whole GPU: "gemm_nt 175x600x200 times8 bf16 wide". That of FP8 says what
    its result has."""

    def __init__(self, name, shape, words, ns):
        self.name, self.us = name, ns / 1e3
        of_result = next((word for word in words if word in ("bf16", "tf32")), "fp32")
        self.precision = "fp8" if name == "gemm_fp8" else of_result
        times = next((int(word[5:]) for word in words if word.startswith("times")), 1)
        self.flops = 2 * times * math.prod(shape)
        of_weights = name == "gemm_tn" or (name == "gemm_fp8" and "wide" in words)
        wide, adds = ["wide"] * ("wide" in words), ["adds"] * (of_weights and "writes" not in words)
        self.line = " ".join(map(str, ("product", self.precision, times, *shape, *wide, *adds)))

    @classmethod
    def of(cls, kernel):
        """None if it is another kernel, or not alone"""
        name, *words = kernel.name.split()
        if not name.startswith("gemm_") or (kernel.share, kernel.busy) != ("-", "1"):
            return None
        return cls(name, tuple(map(int, words[0].split("x"))), words[1:], float(kernel.mean_ns))


def measured_products(paths):
    """Of profiles as text, each once"""
    found = {}
    for kernel in (row for path in paths for row in profile_text.of_kind(profile_text.read(path), profile_text.Kernel)):
        case = Measured.of(kernel)
        if case:
            found.setdefault((case.name, case.line), case)
    return list(found.values())


def read_cases(kind):
    return [Case(kind, cells) for cells in read_facts(FACTS)[kind]]


def grown_cases():
    """Products that were timed together with turning B, by what they grow from GROWN_ROWS rows on"""
    cases = read_cases("turned")
    small = {(c.machine, c.group, c.times, c.shape[2:]): c for c in cases if c.shape[1] == GROWN_ROWS}
    grown = [Grown(small[c.machine, c.group, c.times, c.shape[2:]], c) for c in cases if c.shape[1] > GROWN_ROWS]
    return [case for case in grown if case.flops >= GROWN_FLOPS]


def machine_file(name):
    return json.loads((MACHINES / f"{name}.json").read_text(encoding="utf-8"))


class Predictor:
    """library: attention is that of other software"""

    def __init__(self, program, library=False):
        self.program, self.library = str(pathlib.Path(program).resolve()), ["library"] if library else []
        if not pathlib.Path(self.program).is_file():
            raise SystemExit(f"{program}: there is no such program; build the target kernel_times")

    def microseconds(self, machine, cases):
        """machine: a name, or the content of a machine file"""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "machine.json"
            path.write_text(json.dumps(machine_file(machine) if isinstance(machine, str) else machine))
            lines = "".join(f"{line}\n" for case in cases for _, line in case.parts())
            words = [self.program, str(path), *self.library]
            done = subprocess.run(words, input=lines, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{self.program}: {done.stderr}")
        found = map(float, done.stdout.splitlines())
        return [sum(weight * next(found) for weight, _ in case.parts()) for case in cases]

    def errors(self, machine, cases):
        """(predicted - measured) / measured"""
        return [us / case.us - 1 for us, case in zip(self.microseconds(machine, cases), cases)]
