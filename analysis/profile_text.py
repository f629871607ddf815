# SPDX-License-Identifier: Apache-2.0
"""Profiles as text (docs/FORMATS.md): their lines, in order, as named tuples whose values are texts."""

import collections

VERSION = "# ppkit profile 1"

Run = collections.namedtuple(
    "Run", "device description cores threads processes when version status reference_ns workload"
)
Link = collections.namedtuple("Link", "link parameter value")
Task = collections.namedtuple("Task", "signature context busy samples mean_ns median_ns p5_ns p95_ns")
Issue = collections.namedtuple("Issue", "signature share busy samples mean_ns")
Kernel = collections.namedtuple("Kernel", "name share busy samples mean_ns")
KINDS = {"run": Run, "link": Link, "task": Task, "issue": Issue, "kernel": Kernel}


class NoProfile(SystemExit):
    """Ends the program with its text, where nobody catches it."""


def rows(text, name):
    """name: of the file, for messages"""
    version, *lines = text.splitlines() or [""]
    if version != VERSION:
        raise NoProfile(f'{name}: its first line is not "{VERSION}": no profile as text, or one of another version')
    made = []
    for number, line in enumerate(lines, 2):
        if line == "end":
            return made
        if not line or line.startswith("#"):
            continue
        kind, *cells = line.split("\t")
        if kind not in KINDS or len(cells) != len(KINDS[kind]._fields):
            raise NoProfile(f"{name}:{number}: is no line of a profile as text")
        made.append(KINDS[kind](*cells))
    raise NoProfile(f"{name}: the file was cut short")


def read(path):
    return rows(path.read_text(encoding="utf-8"), path)


def of_kind(found, kind):
    """Those of rows() that are Run, Link, ..."""
    return [row for row in found if isinstance(row, kind)]
