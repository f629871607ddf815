# SPDX-License-Identifier: Apache-2.0
"""The text side of training, written a second time and independently of exec/: tokens, vocabulary, columns, replicas,
batches."""

import collections
import pathlib


def basic_english(line):
    """torchtext's basic_english: lower case, ' . , ( ) ! ? stand alone, quotes go, ; : and <br /> become blanks."""
    line = line.lower()
    for old, new in (
        ("'", " ' "),
        ('"', ""),
        (".", " . "),
        ("<br />", " "),
        (",", " , "),
        ("(", " ( "),
        (")", " ) "),
        ("!", " ! "),
        ("?", " ? "),
        (";", " "),
        (":", " "),
    ):
        line = line.replace(old, new)
    return line.split()


def words(path):
    """All words of a file, lines joined."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    return [word for line in text.split("\n") for word in basic_english(line)]


def vocabulary(train_words):
    """word -> id: <unk> is 0, then by falling count, ties in code point order."""
    counts = collections.Counter(train_words)
    counts.pop("<unk>", None)
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: i for i, word in enumerate(["<unk>"] + ordered)}


def load(folder):
    """(vocabulary, {"train": ids, "valid": ids, "test": ids}) of a folder with train.txt, valid.txt and test.txt."""
    parts = {name: words(pathlib.Path(folder) / f"{name}.txt") for name in ("train", "valid", "test")}
    table = vocabulary(parts["train"])
    return table, {name: [table.get(word, 0) for word in part] for name, part in parts.items()}


def columns(ids, rows):
    """Row b is the text from b*n to (b+1)*n, n = tokens div rows."""
    n = len(ids) // rows
    return [ids[b * n : (b + 1) * n] for b in range(rows)]


def replica_columns(ids, rows, replicas):
    """Columns of all replicas under each other: replica k reads time steps k*(n div D) .. (k+1)*(n div D) - 1 of
    every row."""
    whole = columns(ids, rows)
    n = len(whole[0]) // replicas
    return [row[k * n : (k + 1) * n] for k in range(replicas) for row in whole]


def batches(rows, tokens, most=0, parts=1):
    """Lists of (inputs, targets) of the given rows, in reading order; at most `most` of them (0 = all). Of the last one
    as much as so many parts can share evenly, unless there are `most`."""
    n = len(rows[0])
    made = []
    for t in range(0, n - 1, tokens):
        length = min(tokens, n - 1 - t) // parts * parts
        if length == 0:
            break
        made.append(([row[t : t + length] for row in rows], [row[t + 1 : t + 1 + length] for row in rows]))
    return made[:most] if most else made


def constant_batches(rows, tokens, vocab, most=0):
    """The lab's sequences of equal tokens (sequence k is all k), `rows` at a time in three batches: 12 of them with
    the lab's 4 rows."""
    made = []
    for first in range(0, 3 * rows, rows):
        lines = [[k % vocab] * (tokens + 1) for k in range(first, first + rows)]
        made.append(([line[:-1] for line in lines], [line[1:] for line in lines]))
    return made[:most] if most else made
