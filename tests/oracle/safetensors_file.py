# SPDX-License-Identifier: Apache-2.0
"""Reads float32 safetensors files with the standard library alone."""

import array
import json
import struct
import sys


def read(path):
    """{name: array of float32}; shapes in the same order under read_shapes()."""
    with open(path, "rb") as file:
        header, data = parse(file.read(), path)
    tensors = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        values = array.array("f", data[start:end])
        if sys.byteorder == "big":
            values.byteswap()
        tensors[name] = values
    return tensors


def read_shapes(path):
    """{name: list of dimensions}."""
    with open(path, "rb") as file:
        header, _ = parse(file.read(), path)
    return {name: entry["shape"] for name, entry in header.items()}


def parse(raw, path):
    """(header without metadata, data bytes)."""
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    for name, entry in header.items():
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: {name} has type {entry['dtype']}, not F32")
    return header, raw[8 + size :]
