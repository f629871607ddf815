# SPDX-License-Identifier: Apache-2.0
"""Figures of `tiles` (sim/machines/README.md) that fit measured products.

Of an H200 they are fitted to its own products, as ppprof measured them: many one after another, as a training has them.
They are slower than single ones, perhaps by a lower clock, so the share of the peak is fitted, too. An H100 has the same
multiprocessors. Of a B200 they are fitted to single products that others published, on a GPU that was otherwise idle:
there the share stays as it is.
"""

import itertools
import json
import math
import statistics

from kernel_cases import PROFILES, machine_file, measured_products, read_cases

SINGLE = ("start_us", "load", "store", "split_us")
IN_A_ROW = (*SINGLE, "peak")
IN_A_ROW_FP8 = ("store", "peak")  # its products are all large: nothing tells the rest, which is that of bf16
LEAST = 0.1  # from where a figure goes on that was 0, which no factor moves
STEP, LAST_STEP = 0.3, 0.005  # of logarithms
CASES_FOR_A_FIGURE = 3  # at least


def keys_in_a_row(precision):
    return IN_A_ROW_FP8 if precision == "fp8" else IN_A_ROW


class Search:
    """Least squares of log(predicted / measured), over logarithms of the figures: Hooke and Jeeves' direct search (1961).
    It steps one figure after another up or down, and goes on in the direction in which all of them went, as long as that
    helps. Then the steps get smaller."""

    def __init__(self, predictor, name, precision, cases, keys):
        self.predictor, self.cases, self.keys = predictor, cases, keys
        self.machine = machine_file(name)
        self.tiles = self.machine["precisions"][precision]["tiles"]

    def loss(self, at):
        self.tiles.update({key: math.exp(value) for key, value in zip(self.keys, at)})
        if self.tiles["peak"] > 1:
            return math.inf
        found = self.predictor.microseconds(self.machine, self.cases)
        return statistics.mean(math.log(us / case.us) ** 2 for us, case in zip(found, self.cases))

    def explored(self, at, least, step):
        for i, change in itertools.product(range(len(at)), (step, -step)):
            moved = [*at[:i], at[i] + change, *at[i + 1 :]]
            now = self.loss(moved)
            if now < least:
                at, least = moved, now
        return at, least

    def figures(self):
        at, step = [math.log(max(self.tiles[key], LEAST)) for key in self.keys], STEP
        least = self.loss(at)
        while step > LAST_STEP:
            found, now = self.explored(at, least, step)
            if now >= least:
                step /= 2
            while now < least:
                further = [2 * new - old for new, old in zip(found, at)]
                at, least = found, now
                found, now = self.explored(further, self.loss(further), step)
        return {key: float(f"{math.exp(value):.3g}") for key, value in zip(self.keys, at)}


def fit(predictor, name, precision, cases, keys):
    return Search(predictor, name, precision, cases, keys).figures()


def own_products(name, precision=None):
    """Those of a GPU in profiles/, of one arithmetic or of all"""
    cases = measured_products(sorted(PROFILES.glob(f"{name}-*.tsv")))
    return [case for case in cases if precision in (None, case.precision)]


def of_own_products(predictor, name, precision):
    return fit(predictor, name, precision, own_products(name, precision), keys_in_a_row(precision))


def of_published_products(predictor, name, precision):
    cases = [c for c in read_cases("product") if (c.machine, c.group, c.times) == (name, precision, 1)]
    if not cases:
        raise SystemExit(f"nothing is published of products of {name} {precision}")
    return fit(predictor, name, precision, cases, SINGLE)


def of_the_same_chip(_, name, precision):
    """An H100 has the H200's multiprocessors, so to write a tile takes as long: another share of another bandwidth."""
    h100, h200 = machine_file(name), machine_file("h200")
    tiles = h200["precisions"][precision]["tiles"]
    shares = h100["memory"]["gb_per_s"] / h200["memory"]["gb_per_s"]
    return {key: float(f"{tiles[key] * (shares if key == 'store' else 1):.3g}") for key in IN_A_ROW}


WAYS = {"h100": of_the_same_chip, "h200": of_own_products, "b200": of_published_products}


def figures_of(predictor, name, precision):
    """What the machine file should have"""
    if name not in WAYS:
        raise SystemExit(f"no products of {name} are known: only of {', '.join(WAYS)}")
    return WAYS[name](predictor, name, precision)


def other_half(predictor, name, precision):
    """(cases, machine): every second product of a GPU's own, and its machine file, fitted to the others"""
    cases, machine = own_products(name, precision), machine_file(name)
    found = fit(predictor, name, precision, cases[::2], keys_in_a_row(precision))
    machine["precisions"][precision]["tiles"].update(found)
    return cases[1::2], machine


def measured_fits(predictor, name, cases):
    """What fits products of profiles best: lines of text, one for each arithmetic with enough of them"""
    lines = []
    for precision, figures in machine_file(name)["precisions"].items():
        some, keys = [case for case in cases if case.precision == precision], keys_in_a_row(precision)
        if "tiles" in figures and len(some) >= CASES_FOR_A_FIGURE * len(keys):
            lines.append(f"    {precision}: {json.dumps(fit(predictor, name, precision, some, keys))}")
    return ["Figures of `tiles` that fit these best:", "", *lines] if lines else []
