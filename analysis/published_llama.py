# SPDX-License-Identifier: Apache-2.0
"""Llama 3 405B on thousands of H100, by their data sheet: section E of published.py's page."""

from fidelity_table import markdown, percent
from published_facts import command

LAYERS, WIDTH, TOKENS, PARAMETERS = 126, 16384, 8192, 405853388800
VIRTUAL = 8  # stages of one layer, but for the first and the last of the model, which have none
GIB = 1 << 30


def words(ranks, tensor, replicas, rows):
    stages = ranks * VIRTUAL
    split = [0, *[1] * (stages - 2), 0]
    assert sum(split) == LAYERS
    return [
        *("--preset", "llama-3-405b", "--machine", "h100", "--precision", "bf16", "--no-eval"),
        *("--stages", ranks, "--virtual", VIRTUAL, "--split", ",".join(map(str, split)), "--tensor", tensor),
        *("--replicas", replicas, "--rows", rows, "--micro-batch-size", 1, "--schedule", "interleaved"),
    ]


# What is added one after the other; all of it is theirs.
STEPS = {
    "plain": ["--zero", 1],
    "sequence": ["--zero", 1, "--sequence-parallel"],
    "overlap": ["--zero", 1, "--sequence-parallel", "--overlap-grad-reduce", "--overlap-param-gather"],
}


def operations(rows, replicas, attention):
    """Of a batch: six for each token and parameter, and those of attention: of all scores, or none."""
    tokens = rows * replicas * TOKENS
    return tokens * (6 * PARAMETERS + attention * 12 * LAYERS * WIDTH * TOKENS)


def table(program, facts):
    """(table, {step: [(least error of speed in %, largest), ...]}, [ms of the last step])"""
    rows, errors, last = [], {step: [] for step in STEPS}, []
    for gpus, tensor, ranks, replicas, each, measured in facts["llama"]:
        assert gpus == tensor * ranks * replicas
        row = [gpus, tensor, ranks, replicas, each, measured]
        for step, options in STEPS.items():
            found = program.predict(*words(ranks, tensor, replicas, each), *options)
            seconds = found["ms_per_batch"] / 1e3
            rates = [operations(each, replicas, all_of) / seconds / gpus / 1e12 for all_of in (0, 1)]
            errors[step].append([percent(rate, measured) for rate in rates])
            row += [f"{seconds:.2f}", f"{rates[0]:.0f} - {rates[1]:.0f}"]
        last.append(seconds)
        row.append(" to ".join(f"{each:+.0f}" for each in errors["overlap"][-1]))
        rows.append([*row, f"{max(found['peak_bytes']) / GIB:.0f}"])
    head = ["GPUs", "T", "P", "D", "rows", "measured TFLOP/s"]
    for step in STEPS:
        head += [f"{step}: s", f"{step}: TFLOP/s"]
    return markdown([*head, "overlap: error %", "arena GiB"], rows), errors, last


def section(program, facts):
    """({name: table}, {word of the text: figure})"""
    lines, errors, seconds = table(program, facts)
    rates = [cells[-1] for cells in facts["llama"]]
    figures = {
        "llama_first": command([*words(16, 8, 64, 32), *STEPS["overlap"]]),
        "llama_twice": f"{percent(rates[1], rates[0]):+.0f}",
        "llama_twice_predicted": f"{percent(seconds[0] / seconds[1] / 2, 1):+.0f}",
    }
    for step, found in errors.items():
        figures[f"llama_{step}_least"] = f"{min(least for least, _ in found):+.0f}"
        figures[f"llama_{step}_most"] = f"{max(most for _, most in found):+.0f}"
    return {"llama": lines}, figures
