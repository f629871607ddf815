# SPDX-License-Identifier: Apache-2.0
"""Llama 3.1 8B by torchtitan in FP8, also in long rows, by data sheets: section K of published.py's page."""

import statistics

from fidelity_table import markdown, percent
from published_facts import command, span
from published_modern import GIB

MODEL = ["--preset", "llama-3-8b", "--precision", "fp8", "--stages", 1, "--schedule", "gpipe", "--chunks", 1, "--zero", 3]
CHECKPOINTS = ["never", "layers:16", "layers"]  # in place of recomputing some operators
ROWS = 2
HOST = 8  # GPUs that have the long rows


def words_long(ranks, tokens):
    """Their keys and values are gathered, too (torchtitan's context_parallel_rotate_method allgather)."""
    context = ["--context-parallel", ranks, "--cp-comm-type", "all_gather"] if ranks > 1 else []
    return [
        *("--machine", "h100", *MODEL, "--tokens", tokens, "--rows", 1, "--replicas", HOST // ranks),
        *(*context, "--checkpoint", "layers", "--no-eval"),
    ]


def words_short(machine, gpus, checkpoint):
    return [
        *("--machine", machine, *MODEL, "--rows", ROWS, "--replicas", gpus, "--checkpoint", checkpoint, "--no-eval"),
    ]


def long_rows(program, facts):
    """(table, {word of the text: figure})"""
    rows, errors, falls = [], [], []
    for ranks, tokens, gib, rate in facts["titan_long"]:
        found = program.predict(*words_long(ranks, tokens))
        predicted, arena = found["tokens_per_s"] / HOST, max(found["peak_bytes"]) / GIB
        errors.append(percent(predicted, rate))
        falls.append((rate, predicted))
        rows.append([ranks, tokens, gib, f"{arena:.1f}", rate, f"{predicted:.0f}", f"{errors[-1]:+.0f}"])
    (most, most_predicted), *_, (least, least_predicted) = falls
    words = {
        "titan_long": span(errors),
        "titan_long_first": command(words_long(*facts["titan_long"][1][:2])),
        "titan_fall": f"{100 * least / most:.0f}",
        "titan_fall_predicted": f"{100 * least_predicted / most_predicted:.0f}",
        "titan_jump": f"{falls[1][0] / falls[2][0]:.1f}",  # from C = 2 to 4
    }
    head = ["C", "tokens", "GiB", "arena GiB", "tokens/s of a GPU", "ppsim", "error %"]
    return markdown(head, rows), words


def nearest(program, machine, gpus, gib):
    """(checkpoint mode, tokens a second of a GPU, GiB of an arena) of the mode that comes nearest to their memory"""
    found = []
    for checkpoint in CHECKPOINTS:
        each = program.predict(*words_short(machine, gpus, checkpoint))
        found.append((checkpoint, each["tokens_per_s"] / gpus, max(each["peak_bytes"]) / GIB))
    return min(found, key=lambda mode: abs(mode[2] - gib))


def short_rows(program, facts):
    """(table, {word of the text: figure})"""
    rows, errors = [], {"h100": [], "h200": []}
    for machine, gpus, gib, rate in facts["titan_fp8"]:
        checkpoint, predicted, arena = nearest(program, machine, gpus, gib)
        errors[machine].append(percent(predicted, rate))
        row = [machine, gpus, gib, f"`{checkpoint}`", f"{arena:.1f}", rate, f"{predicted:.0f}"]
        rows.append([*row, f"{errors[machine][-1]:+.0f}"])
    head = ["machine", "GPUs", "GiB", "nearest by memory", "arena GiB", "tokens/s of a GPU", "ppsim", "error %"]
    words = {f"titan_{machine}": span(each) for machine, each in errors.items()}
    return markdown(head, rows), {**words, "titan_factor": f"{1 + statistics.mean(errors['h100']) / 100:.1f}"}


def section(program, facts):
    """({name: table}, {word of the text: figure})"""
    table_long, words_of_long = long_rows(program, facts)
    table_short, words_of_short = short_rows(program, facts)
    return {"titan_long": table_long, "titan_fp8": table_short}, {**words_of_long, **words_of_short}
