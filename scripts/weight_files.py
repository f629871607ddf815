# SPDX-License-Identifier: Apache-2.0
"""Files of convert-weights: safetensors, read and written tensor by tensor, and JSON. What is damaged is Refused."""

import contextlib
import errno
import json
import math
import os
import pathlib
import struct
import sys
import zlib

try:
    import numpy
except ImportError:
    numpy = None

BLOCK = 1 << 22  # numbers that are read at once
LARGEST_JSON = 100_000_000  # bytes; that of safetensors' headers
MOST_DIMENSIONS = 16
MOST_LAYERS = 1 << 16  # of ppkit's options
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SUMS, SUM_DIGITS, PIECE = "crc32 of each MiB", 8, 1 << 20  # checksums of ppkit's files, as exec/weights_sums.h has them
WIDTHS = {"F32": 4, "F16": 2, "BF16": 2}
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"


class Refused(Exception):
    """What is wrong, in one line."""


FAILURES = (Refused, OSError, RecursionError)


def say(text):
    """To standard output, at once: what cannot be written is no later surprise."""
    try:
        print(text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what the end of the program flushes
        raise


def tell(program, what):
    """One line on standard error. what: a text, or one of the failures; names in files may hold anything."""
    text = f"{what.filename}: {what.strerror}" if isinstance(what, OSError) and what.filename else str(what)
    print(f"{program}: {''.join(letter if letter.isprintable() else '?' for letter in text)}", file=sys.stderr)


# --- JSON ---


def named_once(pairs):
    """An object; of a name that stands twice, readers differ in which value they take."""
    made = {}
    for name, value in pairs:
        if name in made:
            raise ValueError(f"{name} stands twice")
        made[name] = value
    return made


def parse_object(raw, what):
    try:
        made = json.loads(raw.decode(), object_pairs_hook=named_once)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{what} is no sound JSON: {error}") from error
    if not isinstance(made, dict):
        raise Refused(f"{what} is no JSON object")
    return made


def read_json(path):
    with open(path, "rb") as file:
        raw = file.read(LARGEST_JSON + 1)
    if len(raw) > LARGEST_JSON:
        raise Refused(f"{path} has more than {LARGEST_JSON} bytes")
    return parse_object(raw, path)


# --- safetensors ---


def widen(kind, raw):
    """Numbers of a type as float32, both with the least byte first."""
    if numpy and kind == "BF16":
        return (numpy.frombuffer(raw, "<u2").astype("<u4") << 16).astype("<u4").tobytes()
    if numpy and kind == "F16":
        return numpy.frombuffer(raw, "<f2").astype("<f4").tobytes()
    if kind == "BF16":
        made = bytearray(2 * len(raw))
        made[2::4], made[3::4] = raw[0::2], raw[1::2]
        return made
    if kind == "F16":
        count = len(raw) // 2
        return struct.pack(f"<{count}f", *struct.unpack(f"<{count}e", raw))
    return raw


def are_sizes(values):
    """JSON's true and 1.0 are no sizes, though Python counts with them."""
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 63 for value in values)


def is_sound(kind, shape, place, data_size):
    if not (isinstance(kind, str) and are_sizes(shape) and are_sizes(place)):
        return False
    if len(shape) > MOST_DIMENSIONS or len(place) != 2 or not place[0] <= place[1] <= data_size:
        return False
    return kind not in WIDTHS or place[1] - place[0] == WIDTHS[kind] * math.prod(shape)


class Tensor:
    """One tensor of a file; its numbers are read when they are asked for."""

    def __init__(self, path, name, entry, data_start, data_size):
        entry = entry if isinstance(entry, dict) else {}
        kind, shape, place = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
        if not is_sound(kind, shape, place, data_size):
            raise Refused(f"{path}: {name} is damaged: its type, shape and place do not fit each other or the file")
        self.path, self.name, self.kind, self.shape = path, name, kind, tuple(shape)
        self.first, self.end = place
        self.start, self.size = data_start + self.first, self.end - self.first

    def blocks(self, first=0, count=None):
        """float32, in pieces of BLOCK numbers, whatever their type: `count` numbers from number `first` on, or all."""
        if self.kind not in WIDTHS:
            raise Refused(f"{self.path}: {self.name} has type {self.kind}; only {', '.join(WIDTHS)} are known")
        width = WIDTHS[self.kind]
        left = self.size - first * width if count is None else count * width
        for raw in self.raw(first * width, left, width):
            if len(raw) % width:
                raise Refused(f"{self.path} ends within {self.name}")
            yield widen(self.kind, raw)

    def raw(self, first=0, left=None, width=4):
        """The bytes as they are, in pieces of BLOCK times `width`: `left` bytes from byte `first` on, or all."""
        left = self.size if left is None else left
        with open(self.path, "rb") as file:
            file.seek(self.start + first)
            while left:
                raw = file.read(min(left, BLOCK * width))
                if not raw:
                    raise Refused(f"{self.path} ends within {self.name}")
                left -= len(raw)
                yield raw


def sum_text(value):
    return f"{value:0{SUM_DIGITS}x}".encode()


def sums_of(pieces):
    """The checksums of a tensor that comes in pieces of any size, as digits."""
    made, value, room = b"", 0, PIECE
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            part, rest = rest[:room], rest[room:]
            value, room = zlib.crc32(part, value), room - len(part)
            if not room:
                made, value, room = made + sum_text(value), 0, PIECE
    return made + sum_text(value) if room < PIECE else made


def sums_place(header):
    """Where the digits of the checksums begin in a header's bytes; -1: they do not stand there as ppkit writes them."""
    name = f'"{SUMS}":"'.encode()
    return header.find(name) + len(name) if name in header else -1


def sums_are_named(name):
    """Is it the name of checksums, or was it before one bit of it changed?"""
    pairs = zip(map(ord, name), map(ord, SUMS))
    return len(name) == len(SUMS) and sum(bin(a ^ b).count("1") for a, b in pairs) <= 1


def header_sum(header, place):
    return sum_text(zlib.crc32(header[:place] + b"0" * SUM_DIGITS + header[place + SUM_DIGITS :]))


def check_sums(path, header, sums, tensors):
    """tensors: in the order of the data. Reads all of them."""
    place = sums_place(header)
    damaged = f"than when it was written, so {path} is damaged: take another copy"
    if place < 0 or header[place : place + SUM_DIGITS] != header_sum(header, place):
        raise Refused(f"{path}: the header has another checksum {damaged}")
    at = SUM_DIGITS
    for tensor in tensors:
        found = sums_of(tensor.raw())
        if sums[at : at + len(found)].encode() != found:
            raise Refused(f"{path}: {tensor.name} has another checksum {damaged}")
        at += len(found)
    if at != len(sums):
        raise Refused(f"{path} is damaged: it has more checksums than pieces of tensors")


def read_header(path):
    """{name: Tensor} of a safetensors file, whose data are these tensors, one behind the other. Where the file has
    ppkit's checksums, all of it is read and checked."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
        if not 2 <= length <= min(size - 8, LARGEST_JSON):
            raise Refused(f"{path} is no safetensors file, or cut off")
        raw = file.read(length)
        header = parse_object(raw, f"{path}: the header")
    metadata = header.pop("__metadata__", None)
    metadata = metadata if isinstance(metadata, dict) else {}
    sums = next((text for name, text in metadata.items() if sums_are_named(name)), None)
    data = (8 + length, size - 8 - length)
    tensors = {name: Tensor(path, name, entry, *data) for name, entry in header.items()}
    at, in_order = 0, sorted(tensors.values(), key=lambda tensor: (tensor.first, tensor.end))
    for tensor in in_order:
        if tensor.first != at:
            what = "lies over the one before it" if tensor.first < at else "has bytes before it that are no tensor's"
            raise Refused(f"{path} is damaged: {tensor.name} {what}")
        at = tensor.end
    if at != data[1]:
        raise Refused(f"{path} is damaged: {data[1] - at} bytes at its end are no tensor's")
    if sums is not None:
        check_sums(path, raw, str(sums), in_order)
    return tensors


def part_paths(folder, index):
    """{name: path} of what the index says."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict):
        raise Refused(f"{index} has no weight_map")
    for name, part in places.items():
        if not isinstance(part, str) or not part.isprintable() or pathlib.PurePath(part).name != part:
            raise Refused(f"{index}: the place of {name} is no name of a file")
    return {name: folder / part for name, part in places.items()}


def read_checkpoint(folder):
    """{name: Tensor} of model.safetensors, or of all parts that the index names."""
    if (folder / WHOLE).exists():
        return read_header(folder / WHOLE)
    if not (folder / INDEX).exists():
        raise Refused(f"{folder} holds neither {WHOLE} nor {INDEX}, which save_pretrained() writes")
    parts, made = {}, {}
    for name, path in part_paths(folder, folder / INDEX).items():
        if path not in parts:
            parts[path] = read_header(path)
        if name not in parts[path]:
            raise Refused(f"{path} has no {name}, which {INDEX} says is there")
        made[name] = parts[path][name]
    return made


# --- writing ---


@contextlib.contextmanager
def replaced(path, sources):
    """A file that has its name when it is complete; neither it nor the one beside it may be one that is read."""
    part = path.with_name(path.name + ".part")
    for made in (path, part):
        if made.exists() and not made.is_file():
            raise Refused(f"{made} is no regular file")
        if made.exists() and any(source.exists() and made.samefile(source) for source in sources):
            raise Refused(f"{path}: {made.name} would be written over, which is read; name another place")
    try:
        with open(part, "wb") as file:
            yield file
        os.replace(part, path)
    except OSError as error:  # a write knows no name
        if error.filename is None and error.errno in NO_ROOM:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        part.unlink(missing_ok=True)


def written(pieces, file):
    for piece in pieces:
        file.write(piece)
        yield piece


def write_tensors(path, tensors, sources, with_sums):
    """tensors: [(name, shape, function that yields its float32 in pieces)]. with_sums: as ppkit's files have them."""
    metadata, at = {"format": "pt"}, 0
    if with_sums:
        pieces = sum(-(-4 * math.prod(shape) // PIECE) for _, shape, _ in tensors)
        metadata[SUMS] = "0" * SUM_DIGITS * (1 + pieces)
    header = {"__metadata__": metadata}
    for name, shape, _ in tensors:
        end = at + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with replaced(path, sources) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        sums = [sums_of(written(pieces(), file)) for _, _, pieces in tensors]
        if with_sums:
            place = sums_place(text)
            behind = place + SUM_DIGITS
            text = text[:behind] + b"".join(sums) + text[behind + sum(map(len, sums)) :]
            file.seek(8 + place)
            file.write(header_sum(text, place) + text[behind : behind + sum(map(len, sums))])
