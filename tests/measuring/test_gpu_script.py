#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu over programs that only pretend to: which steps it runs, resumes and leaves out."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = """#!/bin/sh
case "$*" in *--version*) exit 0 ;; *"--precision $FAIL "*) exit 1 ;; esac
echo "$(basename "$0") $*" >>"$CALLS"
while [ $# -gt 0 ]; do if [ "$1" = --db ]; then : >"$2"; fi; shift; done
printf '# ppkit profile 1\\nend\\n'
"""


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results, self.calls = pathlib.Path(folder.name) / "results", pathlib.Path(folder.name) / "calls"
        (self.results / "build" / "bin").mkdir(parents=True)
        for name in ("ppsim", "ppexec", "ppprof", "ppreport"):
            program = self.results / "build" / "bin" / name
            program.write_text(PROGRAM)
            program.chmod(0o755)

    def start(self, *parts, status=0, **environment):
        """Returns the calls of ppprof, and what was said."""
        self.calls.write_text("")
        known = {**os.environ, "PP_GPU_RESULTS": str(self.results), "PP_GPU_EMULATED": "1", "CALLS": str(self.calls)}
        known.update(PP_GPU_QUICK="1", FAIL="none", OUT="")
        command = ["bash", str(ROOT / "scripts" / "gpu"), *parts]
        done = subprocess.run(command, env={**known, **environment}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return [c for c in self.calls.read_text().splitlines() if c.startswith("ppprof")], done.stdout + done.stderr

    def test_steps_by_a_pattern_then_the_others_and_none_twice(self):
        calls, _ = self.start("profile", PP_GPU_ONLY="profile.tutorial-bf16-@(1|2)")
        self.assertEqual([c.split("--precision ")[1].split()[0] for c in calls], ["bf16", "bf16"])
        self.assertTrue((self.results / "profiles" / "emulated-tutorial.tsv").exists())
        self.assertIn("profile.tutorial-fp32-2 comes first", self.start("fidelity")[1])
        calls, _ = self.start("profile")
        self.assertEqual({c.split("--precision ")[1].split()[0] for c in calls}, {"fp32"})
        self.assertEqual(self.start("profile")[0], [])

    def test_what_fails_is_told_and_tried_again(self):
        calls, said = self.start("profile", status=1, FAIL="bf16")
        self.assertEqual(len(calls), 2)
        self.assertIn("failed (1)", said)
        self.assertEqual(len(self.start("profile")[0]), 2)

    def test_time_that_is_up_is_told_by_the_exit_status(self):
        self.assertEqual(self.start("profile", status=3, PP_GPU_MINUTES="0.25")[0], [])

    def test_a_build_that_does_not_run_here_is_made_again(self):
        done = self.results / "done"
        done.mkdir()
        (done / "build.compile").write_text("")
        self.start("build", PP_GPU_ONLY="none")
        self.assertTrue((done / "build.compile").exists())
        (self.results / "build" / "bin" / "ppexec").write_text("#!/none\n")
        self.start("build", PP_GPU_ONLY="none")
        self.assertFalse((done / "build.compile").exists())
        self.assertIn("there is no build yet", self.start("profile")[1])

    def test_page_and_archives_come_back(self):
        out = self.results.parent / "out"
        out.mkdir()
        self.assertNotIn("could not be made", self.start("report", OUT=str(out))[1])
        self.assertEqual({path.name for path in out.iterdir()}, {"emulated.md", "results.tar.gz", "build.tar.gz"})
        self.assertIn("Emulated", (out / "emulated.md").read_text())

    def test_no_such_part(self):
        self.assertIn("there is no part fidel", self.start("fidel", status=2)[1])


if __name__ == "__main__":
    sys.exit(unittest.main())
