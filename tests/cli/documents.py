#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What README.md and docs/*.md show as output of ppsim is what it prints.

Looked at are code blocks between ``` in which a line "$ COMMAND" calls ppsim, and no other of the programs and no
database: these would measure. The lines below it are its output; a line "..." stands for any number of lines. As a user
would, bash runs the command in an empty folder, with the programs of PP_BIN first in PATH, and scripts behind them.
"""

import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Outputs shown in each, at least: a block that is no longer recognised must not go unnoticed.
LEAST = {"README.md": 3, "docs/FORMATS.md": 1, "docs/PLANNING.md": 4}
MEASURES = re.compile(r"\b(ppprof|ppexec|ppreport)\b|--db|pp\.db|\$MODEL\b")
NEEDS = ("bash", "jq")
SCRIPTS = ("framework-options",)  # found as if they were installed, with ppkit- before the name


def blocks(text):
    """(number of the first line, lines) of each block between ```"""
    lines, begin = text.splitlines(), None
    for i, line in enumerate(lines):
        if line.startswith("```"):
            if begin is not None:
                yield begin + 1, lines[begin:i]
            begin = i + 1 if begin is None else None


def shown(text):
    """(number of its line, command, lines of output) of each command"""
    for first, lines in blocks(text):
        i = 0
        while i < len(lines):
            if not lines[i].startswith("$ "):
                i += 1
                continue
            begin = i
            while lines[i].endswith(("\\", "|")):
                i += 1
            command = "\n".join(lines[begin : i + 1])[2:]
            i += 1
            output = i
            while i < len(lines) and not lines[i].startswith("$ "):
                i += 1
            yield first + begin, command, lines[output:i]


def is_like(printed, wanted):
    """As whole lines, of which "..." are any."""
    parts = [r"(.*\n)*?" if line == "..." else re.escape(line + "\n") for line in wanted]
    return re.fullmatch("".join(parts), printed)


def run(command):
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as links:
        for name in SCRIPTS:
            pathlib.Path(links, f"ppkit-{name}").symlink_to(ROOT / "scripts" / name)
        path = os.pathsep.join((os.environ["PP_BIN"], links, os.environ["PATH"]))
        environment = {**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        words = ["bash", "-o", "pipefail", "-c", command]
        return subprocess.run(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def check(name):
    """(outputs that were looked at, whether all were right) of a document"""
    seen, right = 0, True
    for line, command, wanted in shown((ROOT / name).read_text(encoding="utf-8")):
        if not re.search(r"\bppsim\b", command) or MEASURES.search(command) or not wanted:
            continue
        seen += 1
        done = run(command)
        printed = re.sub(r" +$", "", done.stdout, flags=re.MULTILINE)  # documents have no blanks at ends of lines
        if done.returncode or not is_like(printed, wanted):
            right = False
            print(f"{name}:{line}: {command}\nexit status {done.returncode} {done.stderr if done.returncode else ''}")
            print("\n".join(difflib.unified_diff(wanted, printed.splitlines(), "shown", "printed", lineterm="")))
    if seen < LEAST.get(name, 0):
        right = False
        print(f"{name}: {seen} outputs were found, not {LEAST[name]}")
    return seen, right


def main():
    missing = [name for name in NEEDS if not shutil.which(name)]
    if missing:
        print(f"skipped: there is no {missing[0]}")
        return 77
    os.nice(5)  # some take seconds, and nobody compares their times
    names = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
    found = [check(name) for name in names]
    print(f"{sum(seen for seen, _ in found)} outputs of {len(names)} documents")
    return 0 if all(right for _, right in found) else 1


if __name__ == "__main__":
    sys.exit(main())
