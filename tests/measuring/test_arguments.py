#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the scripts of analysis/ say of arguments that name nothing: one line, and no traceback."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ANALYSIS = pathlib.Path(__file__).resolve().parent.parent.parent / "analysis"
CASES = [
    (["bench.py", "--bin", "no"], "argument --bin: there is no program no/ppsim"),
    (["bench_path.py", "--ppexec", "no/ppexec"], "argument --ppexec: there is no program no/ppexec"),
    (["bench_path.py", "--db", "no.db"], "argument --db: there is no file no.db"),
    (["bench_path.py", "--db", "empty.db"], "argument --db: empty.db: no such table: run"),
    (["bench_path.py", "--db", "text.db"], "argument --db: text.db: file is not a database"),
    (["bench_path.py", "--ppexec", sys.executable, "--models", "no"], "argument --models: not all of no are among small"),
    (["bench_pytorch.py", "--ppexec", "no"], "argument --ppexec: there is no program no"),
    (["cuts.py", "--ppsim", "no"], "argument --ppsim: there is no program no"),
    (["fidelity.py", "--out", "out", "--bin", "no"], "argument --bin: there is no program no/ppprof"),
    (["published.py", "--out", "out", "--bin", "no"], "argument --bin: there is no program no/ppsim"),
]


class Arguments(unittest.TestCase):
    def test_what_is_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "empty.db").touch()
            (pathlib.Path(folder) / "text.db").write_text("no database, but long enough to be looked at " * 20)
            for (script, *words), message in CASES:
                command = [sys.executable, "-B", str(ANALYSIS / script), *words]
                done = subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True, check=False)
                self.assertEqual(done.returncode, 2, (command, done.stderr))
                self.assertIn(f"{script}: error: {message}", done.stderr)
                self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
