# SPDX-License-Identifier: Apache-2.0
"""What was published, and the program that predicts it: for published.py and its sections."""

import json
import pathlib
import sqlite3
import subprocess
import tempfile

COLUMNS = 120
FACTS = pathlib.Path(__file__).resolve().parent / "published.tsv"


def read_facts(path=FACTS):
    """{kind: [[cells]]}; numbers are numbers, "-" is None"""
    facts = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            kind, *cells = line.split("\t")
            facts.setdefault(kind, []).append([number(cell) for cell in cells])
    return facts


def number(cell):
    if cell == "-":
        return None
    try:
        return float(cell) if "." in cell else int(cell)
    except ValueError:
        return cell


def span(values):
    """ "+1 to +3" """
    return f"{min(values):+.0f} to {max(values):+.0f}"


def command(words):
    """A call of ppsim as a block of the page: an option and its values stay together on a line."""
    options = []
    for word in map(str, words):
        if word.startswith("--") or not options:
            options.append(word)
        else:
            options[-1] += f" {word}"
    lines = ["    ppsim"]
    for option in options:
        if len(lines[-1]) + len(option) + 3 > COLUMNS:
            lines.append("       ")
        lines[-1] += f" {option}"
    return " \\\n".join(lines)


class Program:
    """ppsim. library: attention of data sheets is that of other software's kernels"""

    def __init__(self, folder, library=False):
        self.path = str(pathlib.Path(folder).resolve() / "ppsim")
        self.library = ["--attention-kernel", "library"] if library else []

    def run(self, words):
        words = [self.path, *map(str, words), *(self.library if "--machine" in words else [])]
        with tempfile.TemporaryDirectory() as empty:  # where no pp.db lies
            done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=empty)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.stderr}")
        return done.stdout

    def predict(self, *words):
        return json.loads(self.run([*words, "--format", "json"]))[0]

    def events(self, words, query):
        """Rows that the query finds in the database of one prediction"""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "pp.db"
            self.run([*words, "--db", path])
            db = sqlite3.connect(path)
            found = db.execute(query).fetchall()
            db.close()
        return found
