# SPDX-License-Identifier: Apache-2.0
"""Runs with fused attention on H100 and A100, by their data sheets: section F of published.py's page."""

import copy
import json
import pathlib
import statistics
import tempfile

from fidelity_table import markdown, percent
from kernel_cases import machine_file
from published_facts import command, span

KEYS = {  # what the text calls each model
    "gpt": "GPT-3 175B",
    "small": "Nemotron-4 15B",
    "wide": "Nemotron-4 340B",
    "tests": "Megatron 7B",
    "intern": "InternLM 7B",
}
RECIPES = ("gpt", "small", "wide")  # NVIDIA's
WIDE = "Nemotron-4 340B"  # heads of 192 columns
OVERLAP = {"grad": ["--overlap-grad-reduce"], "both": ["--overlap-grad-reduce", "--overlap-param-gather"]}
PIECES = 4  # of Transformer Engine's sums behind products, unless it is told otherwise (num_splits)
GIB = 1 << 30


def machine_as(name, folder):
    """What --machine takes: a name, or of "a100/4" a copy of its file in the folder, with a quarter of its network"""
    name, _, part = name.partition("/")
    if not part:
        return name
    machine = machine_file(name)
    machine["network"]["gb_per_s"] /= int(part)
    path = pathlib.Path(folder) / f"{name}.json"
    path.write_text(json.dumps(machine), encoding="utf-8")
    return path


def sums_of(facts, source, model):
    """Words: how it sums gradients"""
    return ["--grad-reduce-in-bf16"] if [source, model] in facts["bf16_sums"] else []


def split_of(layers, stages):
    """Words: equal stages; where layers do not divide, the first and the last have one less."""
    if layers % stages == 0:
        return []
    each = (layers + 2) // stages
    return ["--split", ",".join(map(str, [each - 1] + [each] * (stages - 2) + [each - 1]))]


class Model:
    """A row of kind "shape" of published.tsv."""

    def __init__(self, name, *cells):
        self.name = name
        (self.layers, self.heads, self.kv_heads, self.width, self.ff, self.tokens) = cells[:6]
        (self.vocab, self.multiple, self.activation, self.norm, self.bias) = cells[6:11]
        (self.positions, self.tied, self.dropout) = cells[11:]

    def products(self):
        """Operations of a token's forward in matrix products, but those inside attention: (all layers, the decoder)"""
        of_attention = 2 * self.width**2 * (1 + self.kv_heads / self.heads)
        of_feed_forward = (3 if self.activation == "swiglu" else 2) * self.width * self.ff
        return 2 * self.layers * (of_attention + of_feed_forward), 2 * self.width * self.vocab

    def words(self):
        return [
            *("--d-model", self.width, "--heads", self.heads, "--kv-heads", self.kv_heads, "--d-ff", self.ff),
            *("--layers", self.layers, "--vocab", self.vocab, "--vocab-multiple", self.multiple),
            *("--tokens", self.tokens, "--mask", "causal", "--norm", "pre", "--normalization", self.norm),
            *("--activation", self.activation, "--positions", self.positions, "--bias", self.bias),
            *("--tie-embeddings", self.tied, "--dropout", self.dropout),
        ]


class Run:
    """A row of kind "modern" of published.tsv."""

    def __init__(self, model, sums, source, _, machine, *cells):
        self.model, self.sums, self.source, self.waits = model, sums, source, False
        self.asked, self.machine = machine, machine.partition("/")[0]
        (self.gpus, self.tensor, self.ranks, self.virtual, self.rows, self.batch) = cells[:6]
        (self.checkpoint, self.sequence, self.overlap, self.seconds, self.rate, self.group) = cells[6:]
        self.replicas = self.gpus // self.tensor // self.ranks

    def tokens(self, seconds):
        """Tokens a second of a GPU"""
        return self.batch * self.model.tokens / seconds / self.gpus

    def hides_sums(self):
        """NVIDIA's recipes do, over tensors, beside products."""
        return self.source == "dgxc" and not self.waits

    def measured(self):
        return self.rate or self.tokens(self.seconds)

    def products(self):
        """Part of the peak that matrix products reached, were there nothing else: they reached more."""
        layers, decoder = self.model.products()
        times = 3 if self.checkpoint == "never" else 4
        peak = machine_file(self.machine)["precisions"]["bf16"]["peak_gflops"] * 1e9
        return (times * layers + 3 * decoder) * self.measured() / peak

    def with_narrow_heads(self):
        """The same matrices, of twice as many heads with half as many columns"""
        narrow = copy.copy(self)
        narrow.model = copy.copy(self.model)
        narrow.model.heads, narrow.model.kv_heads = 2 * self.model.heads, 2 * self.model.kv_heads
        return narrow

    def part(self):
        """What runs that differ in replicas only have in common"""
        return self.machine, self.tensor, self.ranks, self.virtual, self.rows, self.checkpoint, self.group

    def but_for_groups(self):
        """What runs that differ in who shares the optimizer only have in common"""
        return self.model.name, self.gpus, self.part()[:-1]

    def on(self, folder):
        return machine_as(self.asked, folder)

    def that_waits(self):
        """The same, but that computing waits for all sums over tensors"""
        waiting = copy.copy(self)
        waiting.waits = True
        return waiting

    def words(self):
        """All but the machine"""
        schedule = ["interleaved", "--virtual", self.virtual] if self.virtual > 1 else ["1f1b"]
        return [
            *("--precision", "bf16", "--attention", "flash", *self.model.words()),
            *("--optimizer", "adamw", "--clip", 1, "--no-eval", "--checkpoint", self.checkpoint),
            *("--stages", self.ranks, "--tensor", self.tensor, "--replicas", self.replicas),
            *("--rows", self.batch // self.replicas, "--micro-batch-size", self.rows, "--schedule", *schedule),
            *("--zero", 1, *OVERLAP[self.overlap], *(["--sequence-parallel"] if self.sequence == "yes" else [])),
            *(["--overlap-tensor-sums", PIECES] if self.hides_sums() else []),
            *(["--shard-degree", self.group] if self.group else []),
            *self.sums,
        ]


def runs_of(facts):
    models = {cells[0]: Model(*cells) for cells in facts["shape"]}
    return [Run(models[cells[1]], sums_of(facts, *cells[:2]), *cells) for cells in facts["modern"]]


def predicted(program, run, folder):
    """(tokens a second of a GPU, part of the time that sums over tensors take, GiB of the largest arena)"""
    found = program.predict("--machine", run.on(folder), *run.words())
    sums = found["tensor_ms"] / found["ms_per_batch"]
    return run.tokens(found["ms_per_batch"] / 1e3), sums, max(found["peak_bytes"]) / GIB


def table(runs, found):
    """found: what predicted() says of each run. (table, [error of speed in %])"""
    rows, errors = [], []
    for run, (rate, sums, arena) in zip(runs, found):
        errors.append(percent(rate, run.measured()))
        row = [run.model.name, run.machine, run.gpus, run.tensor, run.ranks, run.virtual]
        row += [run.replicas, run.group or "", run.rows, "" if run.checkpoint == "never" else "yes"]
        row += [f"{run.measured():.0f}", f"{rate:.0f}", f"{errors[-1]:+.0f}"]
        rows.append([*row, f"{100 * sums:.0f}", f"{arena:.0f}", f"{100 * run.products():.0f}"])
    head = ["model", "machine", "GPUs", "T", "P", "V", "D", "of each", "rows"]
    head += ["recomputed", "tokens/s", "ppsim", "error %"]
    return markdown([*head, "sums %", "arena GiB", "products %"], rows), errors


def of_models(runs, found, errors):
    """{word of the text: figure} of each model"""
    figures = {}
    for key, name in KEYS.items():
        at = [i for i, run in enumerate(runs) if run.model.name == name]
        figures[f"modern_{key}"] = span([errors[i] for i in at])
        figures[f"modern_{key}_mean"] = f"{statistics.mean(errors[i] for i in at):+.0f}"
        same = [i for i in at if runs[i].part() == runs[at[0]].part()]
        first, last = same[0], same[-1]
        figures[f"modern_{key}_many"] = f"{percent(runs[last].measured(), runs[first].measured()):+.1f}"
        figures[f"modern_{key}_many_predicted"] = f"{percent(found[last][0], found[first][0]):+.1f}"
    return figures


def of_hosts(figures):
    """By how many points, at most, NVIDIA's recipes lose more on many hosts than predicted"""
    lost = [(float(figures[f"modern_{key}_many_predicted"]), float(figures[f"modern_{key}_many"])) for key in RECIPES]
    return f"{max(predicted - measured for predicted, measured in lost):.0f}"


def without_tiles(run, folder):
    """A copy of the machine's file as if nothing were known of tiles: products reach its efficiency."""
    machine = json.loads(pathlib.Path(run.on(folder)).read_text(encoding="utf-8"))
    machine["precisions"]["bf16"].pop("tiles")
    path = pathlib.Path(folder) / "flat.json"
    path.write_text(json.dumps(machine), encoding="utf-8")
    return path


def of_first(run, whole, flat):
    """{word of the text: figure} of a run of InternLM that only computes: seconds of a batch for its products, and for
    all else. whole, flat: its seconds by prediction, with products in tiles and without"""
    measured = run.batch * run.model.tokens / run.measured() / run.gpus
    at_peak = measured * run.products()
    products = at_peak / machine_file(run.machine)["precisions"]["bf16"]["efficiency"] + whole - flat
    seconds = {"whole": measured, "products": products, "else": measured - products, "else_predicted": whole - products}
    seconds["predicted"] = whole
    times = f"{seconds['else'] / seconds['else_predicted']:.1f}"
    figures = {f"modern_first_{name}": f"{each:.2f}" for name, each in seconds.items()}
    return {**figures, "modern_first_reached": f"{100 * at_peak / products:.0f}", "modern_first_times": times}


def computing(runs, errors):
    """[error of speed in %] where little but computing counts: InternLM on one host, and NVIDIA's recipes, whose sums
    over tensors are hidden"""
    on_host = [run.source == "internlm" and run.gpus == 8 for run in runs]
    return [error for run, host, error in zip(runs, on_host, errors) if host or run.hides_sums()]


def of_all(name, errors):
    """{word of the text: figure} of so many runs"""
    figures = {"mean": statistics.mean(errors), "least": min(errors), "most": max(errors)}
    return {f"{name}_runs": len(errors), **{f"{name}_{word}": f"{figure:+.0f}" for word, figure in figures.items()}}


def of_groups(runs, found, errors):
    """(table of runs whose replicas share in groups, beside those that all share; {word of the text: figure})"""
    rows, grouped = [], [i for i, run in enumerate(runs) if run.group]
    together = {run.but_for_groups(): i for i, run in enumerate(runs) if not run.group}
    for i in grouped:
        run, other = runs[i], together[runs[i].but_for_groups()]
        gains = [percent(run.measured(), runs[other].measured()), percent(found[i][0], found[other][0])]
        rows.append([run.gpus, run.tensor, run.group, *(f"{gain:+.0f}" for gain in gains)])
    errors = [errors[i] for i in grouped]
    figures = {"modern_groups": span(errors), "modern_groups_mean": f"{statistics.mean(errors):+.0f}"}
    return markdown(["GPUs", "T", "of each", "measured %", "predicted %"], rows), figures


def section(program, facts):
    """({name: table}, {word of the text: figure}, [error of speed in %], [those of runs where computing counts])"""
    runs = runs_of(facts)
    wide = [run.with_narrow_heads() for run in runs if run.model.name == WIDE]
    hiding = [i for i, run in enumerate(runs) if run.hides_sums()]
    waiting = [runs[i].that_waits() for i in hiding]
    intern = [i for i, run in enumerate(runs) if run.source == "internlm"]
    host, few = ([i for i in intern if runs[i].gpus <= gpus and not runs[i].group] for gpus in (8, 128))
    largest = [i for i in intern if runs[i].gpus == 1024 and not runs[i].group]
    with tempfile.TemporaryDirectory() as folder:
        found, narrow, waited = (
            [predicted(program, run, folder) for run in these] for these in (runs, wide, waiting)
        )
        first = runs[host[0]]
        machines = (first.on(folder), without_tiles(first, folder))
        seconds = [program.predict("--machine", each, *first.words())["ms_per_batch"] / 1e3 for each in machines]
    lines, errors = table(runs, found)
    small = [i for i, run in enumerate(runs) if run.model.name == KEYS["small"] and run.gpus == 16]  # T = 4, then 2
    waits = dict(zip(hiding, waited))
    computed = computing(runs, errors)
    figures = {
        "modern_first": command(["--machine", runs[0].machine, *runs[0].words()]),
        **of_all("modern", errors),
        "modern_median": f"{statistics.median(errors):+.0f}",
        "modern_hidden": span([errors[i] for i in hiding]),
        "modern_waiting": span([percent(rate, runs[i].measured()) for i, (rate, _, _) in waits.items()]),
        "modern_pieces": PIECES,
        "modern_computing": f"{max(computed):.0f}",
        "modern_narrow": span([percent(rate, run.measured()) for run, (rate, _, _) in zip(wide, narrow)]),
        "modern_narrower": f"{percent(runs[small[1]].measured(), runs[small[0]].measured()):+.0f}",
        "modern_narrower_predicted": f"{percent(found[small[1]][0], found[small[0]][0]):+.0f}",
        "modern_narrower_waiting": f"{percent(waits[small[1]][0], waits[small[0]][0]):+.0f}",
        "modern_host": span([errors[i] for i in host]),
        "modern_few": span([errors[i] for i in few]),
        "modern_few_mean": f"{statistics.mean(errors[i] for i in few):+.0f}",
        "modern_largest": span([errors[i] for i in largest]),
        **of_first(first, *seconds),
        **of_models(runs, found, errors),
    }
    figures["modern_hosts"] = of_hosts(figures)
    groups, words = of_groups(runs, found, errors)
    return {"modern": lines, "groups": groups}, {**figures, **words}, errors, computed
