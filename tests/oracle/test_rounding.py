#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rounding.py over numbers made here: what it explains, and what not; what is no number agrees with nothing."""

import random
import unittest

import check_fp8_golden
import check_golden
import rounding

LIMITS = {"a": 1e-4, "b": 1e-3}
KINK = {"a": [1.0, 0.0], "b": [0.5]}  # what the other side of a relu's kink adds


def made(dice, noise, sides=0.0):
    """Numbers of a run, in whose last digits there is noise; sides: how many parts of KINK."""
    exact = {"a": [1.0, 2.0], "b": [3.0]}

    def value(what, i):
        return exact[what][i] + sides * KINK[what][i] + noise * LIMITS[what] * dice.uniform(-1, 1)

    return {what: [value(what, i) for i in range(len(values))] for what, values in exact.items()}


class Judge(unittest.TestCase):
    def setUp(self):
        self.dice = random.Random(1)
        self.exact = made(self.dice, 0)
        self.steady = [made(self.dice, 0.01) for _ in range(16)]

    def explained(self, ours, samples):
        return rounding.judge(ours, self.exact, samples, LIMITS).explained

    def test_other_side_of_a_kink(self):
        samples = self.steady[:12] + [made(self.dice, 0.01, 1) for _ in range(4)]
        self.assertTrue(self.explained(made(self.dice, 0.01, 1), samples))

    def test_kink_that_no_sample_saw(self):
        self.assertFalse(self.explained(made(self.dice, 0.01, 1), self.steady))

    def test_beside_both_sides(self):
        samples = self.steady[:8] + [made(self.dice, 0.01, 1) for _ in range(8)]
        for sides in (0.99, 0.5, -0.01, 2):
            self.assertFalse(self.explained(made(self.dice, 0.01, sides), samples), sides)

    def test_one_value_of_one_side_and_one_of_the_other(self):
        samples = self.steady[:8] + [made(self.dice, 0.01, 1) for _ in range(8)]
        self.assertFalse(self.explained({"a": samples[15]["a"], "b": samples[0]["b"]}, samples))

    def test_rounding_that_grows(self):
        samples = [made(self.dice, 20) for _ in range(16)]
        self.assertTrue(self.explained(made(self.dice, 20), samples))
        self.assertFalse(self.explained(made(self.dice, 20, 10), samples))

    def test_what_is_no_number(self):
        for bad in (float("nan"), float("inf")):
            self.assertFalse(self.explained({**self.exact, "b": [bad]}, self.steady))
            self.assertFalse(self.explained(self.exact, self.steady[1:] + [{**self.exact, "b": [bad]}]))


class NoNumber(unittest.TestCase):
    """Wherever it stands: max(0.0, nan) is 0.0."""

    def setUp(self):
        self.good = [1.0, 2.0, 3.0]
        bad = [(i, x) for i in range(3) for x in (float("nan"), float("inf"), float("-inf"))]
        self.bad = [self.good[:i] + [x] + self.good[i + 1 :] for i, x in bad]

    def test_the_worst_distance(self):
        self.assertEqual(check_golden.worst_of(self.good), 3)
        self.assertEqual(check_golden.worst_of([]), 0)
        for bad in self.bad:
            self.assertEqual(check_golden.worst_of(bad), float("inf"), bad)

    def test_numbers_and_tensors(self):
        check_golden.compare_numbers("loss", self.good, self.good)
        check_golden.compare_tensors("gradient", {"a": self.good}, {"a": self.good})
        for bad in self.bad:
            for ours, theirs in ((bad, self.good), (self.good, bad), (bad, bad)):
                with self.assertRaises(check_golden.Mismatch, msg=(ours, theirs)):
                    check_golden.compare_numbers("loss", ours, theirs)
                with self.assertRaises(check_golden.Mismatch, msg=(ours, theirs)):
                    check_golden.compare_tensors("gradient", {"a": ours}, {"a": theirs})

    def test_gradients_of_fp8(self):
        case, others = {"moved": {"a": 1.0, "b": 1.0}}, {"a": self.good, "b": self.good}
        self.assertEqual(check_fp8_golden.furthest(case, others, others), 0)
        for bad in self.bad:
            for name in others:
                self.assertEqual(check_fp8_golden.furthest(case, others, {**others, name: bad}), float("inf"), bad)


if __name__ == "__main__":
    unittest.main()
