#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""analysis/cuts.py over a ppsim that only pretends."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

CUTS = pathlib.Path(__file__).resolve().parent.parent.parent / "analysis" / "cuts.py"
PPSIM = """#!/bin/sh
case "$*" in
*"--split time "*) echo '[{"ms_per_batch": 11, "stage_layers": [4]}]' ;;
*"--split 1,"*) echo '[{"ms_per_batch": 10, "stage_layers": [5]}]' ;;
*) OTHERS ;;
esac
"""


class Cuts(unittest.TestCase):
    def start(self, others):
        with tempfile.TemporaryDirectory() as folder:
            ppsim = pathlib.Path(folder) / "ppsim"
            ppsim.write_text(PPSIM.replace("OTHERS", others))
            ppsim.chmod(0o755)
            command = [sys.executable, "-B", str(CUTS), "--ppsim", str(ppsim), "--plans", "1"]
            return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_what_is_impossible_is_left_out(self):
        done = self.start("exit 2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 plans, 10.00 % longer on average, 10.0 % at most", done.stdout)
        self.assertIn("10.0 %: [4], the quickest is [5]: --preset ", done.stdout)

    def test_a_crash_is_not_taken_for_an_impossible_plan(self):
        done = self.start("echo away >&2; kill -SEGV $$")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"exit status -11: .*/ppsim --preset .* --split 0,(.|\n)*away")


if __name__ == "__main__":
    unittest.main()
