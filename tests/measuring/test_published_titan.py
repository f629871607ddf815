#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Section K of the page of analysis/published.py: the options that stand beside runs of torchtitan, and the errors."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "analysis"))
import published_facts  # noqa: E402
import published_titan  # noqa: E402

FACTS = published_facts.read_facts()


def value(words, option):
    return words[words.index(option) + 1]


class Fixed:
    """A program of which each checkpoint mode takes this many GiB, and makes as many tokens a second."""

    def __init__(self, **gib):
        self.gib = {name.replace("_", ":"): each for name, each in gib.items()}

    def predict(self, *words):
        each = self.gib[value(words, "--checkpoint")]
        return {"tokens_per_s": each * value(words, "--replicas"), "peak_bytes": [1, each * published_titan.GIB]}


class Titan(unittest.TestCase):
    def test_long_rows_use_all_gpus_of_a_host(self):
        for ranks, tokens, _, _ in FACTS["titan_long"]:
            words = published_titan.words_long(ranks, tokens)
            self.assertEqual(value(words, "--replicas") * ranks, published_titan.HOST)
            self.assertEqual(value(words, "--tokens"), 32768 * ranks)
            self.assertEqual("--context-parallel" in words, ranks > 1)

    def test_recomputation_is_what_comes_nearest_in_memory(self):
        program = Fixed(never=80, layers_16=60, layers=30)
        asked = [(90, "never"), (71, "never"), (69, "layers:16"), (46, "layers:16"), (44, "layers"), (3, "layers")]
        for gib, mode in asked:
            checkpoint, rate, arena = published_titan.nearest(program, "h100", 8, gib)
            self.assertEqual((checkpoint, rate, arena), (mode, *[program.gib[mode]] * 2))

    def test_errors_are_of_speed(self):
        facts = {"titan_fp8": [["h100", 8, 60, 40], ["h200", 8, 30, 40]]}
        _, words = published_titan.short_rows(Fixed(never=80, layers_16=60, layers=30), facts)
        self.assertEqual(words, {"titan_h100": "+50 to +50", "titan_h200": "-25 to -25", "titan_factor": "1.5"})


if __name__ == "__main__":
    unittest.main()
