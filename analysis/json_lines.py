# SPDX-License-Identifier: Apache-2.0
"""Files with an object of JSON in each line, which grow while something is measured, and may be cut off where that was
stopped: a last line without its end was never written whole, and counts for nothing."""

import json
import pathlib


def whole(path):
    """The lines that have an end, as bytes."""
    path = pathlib.Path(path)
    text = path.read_bytes() if path.exists() else b""
    return text[: text.rfind(b"\n") + 1]


def read(path):
    return [json.loads(line) for line in whole(path).splitlines()]


def append(path, row):
    kept = whole(path)
    with open(path, "ab") as file:
        file.truncate(len(kept))
        file.write(json.dumps(row).encode() + b"\n")
