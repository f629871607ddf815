# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM's runs with tensor parallelism, by the data sheet of the A100: section D of published.py's page."""

import statistics

from fidelity_table import markdown, percent
from published_facts import command, span

TOKENS, VOCABULARY = 2048, 51200
MANY = 1024  # GPUs of the largest runs of 2021, of 76.1B and more


class Run:
    """A row of kind "tensor" of published.tsv."""

    def __init__(self, *cells):
        (self.paper, self.model, self.layers, self.heads, self.width, self.tensor, self.ranks, self.virtual) = cells[:8]
        (self.rows, self.batch, self.gpus, self.teraflops, self.seconds) = cells[8:]
        self.replicas = self.gpus // self.tensor // self.ranks

    def operations(self):
        """Of a batch, as the paper counts them: with a second forward."""
        layers, width = self.layers, self.width
        beside = 1 + TOKENS / 6 / width + VOCABULARY / 16 / layers / width
        return 96 * self.batch * TOKENS * layers * width**2 * beside

    def rate(self, seconds):
        """teraFLOP/s of a GPU"""
        return self.operations() / self.gpus / seconds / 1e12

    def measured(self):
        return self.teraflops or self.rate(self.seconds)

    def words(self, sequence=False):
        """sequence: with parts of the tokens, and nothing computed twice."""
        kept = ["--checkpoint", "never", "--sequence-parallel"] if sequence else ["--checkpoint", "layers"]
        schedule = ["interleaved", "--virtual", self.virtual] if self.virtual > 1 else ["1f1b"]
        return [
            *("--machine", "a100", "--precision", "bf16", "--d-model", self.width, "--heads", self.heads),
            *("--d-ff", 4 * self.width, "--layers", self.layers, "--vocab", VOCABULARY, "--vocab-multiple", 128),
            *("--tokens", TOKENS, "--mask", "causal", "--norm", "pre", "--activation", "gelu", "--dropout", 0.1),
            *("--positions", "learned", "--bias", "layers", "--tie-embeddings", "yes"),
            *("--optimizer", "adamw", "--clip", 1, "--no-eval", *kept),
            *("--stages", self.ranks, "--tensor", self.tensor, "--replicas", self.replicas),
            *("--rows", self.batch // self.replicas, "--micro-batch-size", self.rows, "--schedule", *schedule),
        ]


def table(program, facts, attentions):
    """(table, {attention: errors in %}, runs, [part of the time that sums take, of the first attention]); attentions:
    {name: options}"""
    rows, shares, errors = [], [], {name: [] for name in attentions}
    runs = [Run(*cells) for cells in facts["tensor"]]
    for run in runs:
        row = [run.paper, run.model, run.gpus, run.tensor, run.ranks, run.virtual, f"{run.measured():.0f}"]
        found = {name: program.predict(*run.words(), *words) for name, words in attentions.items()}
        for name, prediction in found.items():
            rate = run.rate(prediction["ms_per_batch"] / 1e3)
            errors[name].append(percent(rate, run.measured()))
            row += [f"{rate:.0f}", f"{errors[name][-1]:+.0f}"]
        first = next(iter(found.values()))
        shares.append(first["tensor_ms"] / first["ms_per_batch"])
        rows.append([*row, f"{100 * shares[-1]:.0f}", f"{max(first['peak_bytes']) / 1e9:.0f}"])
    head = ["paper", "model", "GPUs", "T", "P", "V", "TFLOP/s"]
    for name in attentions:
        head += [name, "error %"]
    return markdown([*head, "sums %", "arena GB"], rows), errors, runs, shares


def sequence_table(program, facts, attentions):
    """The runs of 2022 with sequence parallelism, beside those that recomputed all: (table, {attention: errors of speed
    in %}, {"measured" or attention: by how many % they are faster}, [part of the time that sums take])"""
    rows, shares, errors = [], [], {name: [] for name in attentions}
    gains = {name: [] for name in ("measured", *attentions)}
    runs = {run.model: run for run in (Run(*cells) for cells in facts["tensor"]) if run.paper == 2022}
    for model, seconds in facts["sequence"]:
        run = runs[model]
        gains["measured"].append(percent(run.seconds, seconds))
        row, sums, arenas = [model, run.gpus, run.tensor, run.ranks, run.virtual, f"{seconds:.2f}"], [], []
        for name, words in attentions.items():
            full, now = (program.predict(*run.words(sequence), *words) for sequence in (False, True))
            errors[name].append(percent(seconds, now["ms_per_batch"] / 1e3))
            gains[name].append(percent(full["ms_per_batch"], now["ms_per_batch"]))
            row += [f"{now['ms_per_batch'] / 1e3:.2f}", f"{errors[name][-1]:+.0f}"]
            sums.append(now["tensor_ms"] / now["ms_per_batch"])
            arenas.append(f"{max(now['peak_bytes']) / 1e9:.0f}")
        shares.append(sums[0])
        rows.append([*row, f"{100 * sums[0]:.0f}", *arenas, *(f"{found[-1]:+.0f}" for found in gains.values())])
    head = ["model", "GPUs", "T", "P", "V", "s"]
    for name in attentions:
        head += [name, "error %"]
    head += ["sums %", *(f"{name}: arena GB" for name in attentions), "gain %", *(f"{name} %" for name in attentions)]
    return markdown(head, rows), errors, gains, shares


def ranges(kind, errors):
    """{word of the text: figure}: of each attention the mean, the least and the most"""
    words = {}
    for name, found in errors.items():
        words[f"{kind}_{name}"] = f"{statistics.mean(found):+.0f}"
        words[f"{kind}_{name}_least"] = f"{min(found):+.0f}"
        words[f"{kind}_{name}_most"] = f"{max(found):+.0f}"
    return words


def slower(share):
    """By how many % a run gets slower whose sums, such a part of its time, take half as long again"""
    return percent(1 / (1 + share / 2), 1)


def section(program, facts, attentions):
    """({name: table}, {word of the text: figure}, {attention: errors of all runs in %})"""
    whole, errors, runs, shares = table(program, facts, attentions)
    parts, errors_parts, gains, shares_parts = sequence_table(program, facts, attentions)
    shares = [share for share in [*shares, *shares_parts] if share > 0]
    many, of_2022 = (
        [error for run, error in zip(runs, errors["math"]) if run.paper == paper and run.gpus >= least]
        for paper, least in ((2021, MANY), (2022, 0))
    )
    words = {
        "tensor_first": command(runs[3].words()),
        "sequence_first": command(runs[-3].words(True)),
        "tensor_many": span(many),
        "tensor_2022": span(of_2022),
        "tensor_sums": f"{100 * max(shares):.0f}",
        "tensor_slower_least": f"{-slower(min(shares)):.0f}",
        "tensor_slower_most": f"{-slower(max(shares)):.0f}",
        **ranges("tensor", errors),
        **ranges("sequence", errors_parts),
        **ranges("gain", gains),
    }
    together = {name: [*found, *errors_parts[name]] for name, found in errors.items()}
    return {"tensor": whole, "sequence": parts}, words, together
