# SPDX-License-Identifier: Apache-2.0
"""Judges whether a disagreement with PyTorch is rounding.

A comparison with float64 is blind where float32's last digits decide: a relu's input that is zero but for rounding, two
experts that are equally likely, a last place for a token; or where an optimizer divides by what is hardly more than
rounding. So the reference is computed again several times (the samples) in float32, from weights that are moved by
units in their last place. A right program is one more sample: it lies as near to one of these as they lie to each
other. A wrong one lies apart from all of them, because moving the weights so little hardly moves anything else.

Distances are the largest of all values, each in units of what the comparison allows it: 1 would pass.
"""

import array
import itertools
import math
import operator
import statistics
import typing

FACTOR = 4.0  # ppexec sums in another order than the samples, which share PyTorch's
SOME = 16  # samples tell what is usual


def scaled(measured, limits):
    """All values in one row."""
    return array.array("d", (value / limits[what] for what in limits for value in measured[what]))


def distance(a, b):
    return max(map(abs, map(operator.sub, a, b)))


def usual_distance(rows):
    """Of a row from the one that is nearest to it."""
    nearest = [math.inf] * len(rows)
    for i, j in itertools.combinations(range(len(rows)), 2):
        apart = distance(rows[i], rows[j])
        nearest[i], nearest[j] = min(nearest[i], apart), min(nearest[j], apart)
    return statistics.median(nearest)


class Verdict(typing.NamedTuple):
    explained: bool
    away: float  # from the exact reference
    nearest: float  # sample's distance
    usual: float  # distance of a sample from the one that is nearest to it

    def __str__(self):
        return f"{self.away:.3g} from float64, {self.nearest:.3g} from the nearest sample, usual {self.usual:.3g}"


def judge(ours, exact, samples, limits):
    """All measured as {what: values}, limits {what: allowed difference}."""
    own, truth, *others = rows = [scaled(measured, limits) for measured in (ours, exact, *samples)]
    if not all(all(map(math.isfinite, row)) for row in rows):
        return Verdict(False, math.inf, math.inf, math.inf)
    usual = usual_distance(others[:SOME])
    away, nearest = distance(own, truth), min(distance(own, row) for row in others)
    return Verdict(min(away, nearest) <= max(1.0, FACTOR * usual), away, nearest, usual)
