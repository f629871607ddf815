# SPDX-License-Identifier: Apache-2.0
"""Trainings by PyTorch's FSDP on A100, by their data sheet: section G of published.py's page."""

import statistics
import tempfile

from fidelity_table import markdown, percent
from published_facts import command, span
from published_modern import GIB, Model, machine_as, sums_of

WHOSE = {"ibm": "fms-fsdp", "titan": "torchtitan"}
MEMORY = ["--preset", "llama-3-8b", "--machine", "h100", "--precision", "bf16", "--stages", 1, "--schedule", "gpipe"]
MEMORY += ["--rows", 2, "--chunks", 1, "--zero", 3, "--checkpoint", "layers:16", "--no-eval"]


class Run:
    """A row of kind "fsdp" of published.tsv."""

    def __init__(self, models, sums, source, name, machine, *cells):
        self.source, self.model, self.machine, self.sums = source, models[name], machine, sums
        self.gpus, self.group, self.rows, self.checkpoint, self.measured = cells

    def words(self, rounded=True):
        """All but the machine; rounded: gradients are summed as they do"""
        return [
            *("--precision", "bf16", "--attention", "flash", *self.model.words()),
            *("--optimizer", "adamw", "--clip", 1, "--no-eval", "--checkpoint", self.checkpoint),
            *("--stages", 1, "--schedule", "gpipe", "--replicas", self.gpus, "--rows", self.rows, "--chunks", 1),
            *("--zero", 3, *(["--shard-degree", self.group] if self.group else []), *(self.sums if rounded else [])),
        ]

    def predicted(self, program, folder, rounded=True):
        """(tokens a second of a GPU, GiB of an arena)"""
        found = program.predict("--machine", machine_as(self.machine, folder), *self.words(rounded))
        tokens = self.rows * self.model.tokens
        return tokens / found["ms_per_batch"] * 1e3, max(found["peak_bytes"]) / GIB


def memory(program, facts):
    """(table, {word of the text: figure}) of Llama 3.1 8B on H100"""
    rows, saved, errors = [], [], []
    for gpus, gib, rate in facts["fsdp_memory"]:
        found = program.predict(*MEMORY, "--replicas", gpus)
        arena, predicted = max(found["peak_bytes"]) / GIB, found["tokens_per_s"] / gpus
        rows.append([gpus, gib, f"{arena:.1f}", rate, f"{predicted:.0f}"])
        saved.append((gib, arena))
        errors.append(percent(predicted, rate))
    (more, more_predicted), (less, less_predicted) = saved
    words = {"fsdp_saved": f"{more - less:.1f}", "fsdp_saved_predicted": f"{more_predicted - less_predicted:.1f}"}
    head = ["GPUs", "GiB, measured", "GiB, predicted", "tokens/s of a GPU, measured", "predicted"]
    return markdown(head, rows), {**words, "fsdp_h100": span(errors)}


def section(program, facts):
    """({name: table}, {word of the text: figure}, [error of speed in %])"""
    models = {cells[0]: Model(*cells) for cells in facts["shape"]}
    runs = [Run(models, sums_of(facts, *cells[:2]), *cells) for cells in facts["fsdp"]]
    rows, errors = [], []
    with tempfile.TemporaryDirectory() as folder:
        found = [run.predicted(program, folder) for run in runs]
        exact = {run: run.predicted(program, folder, rounded=False)[0] for run in runs if run.source == "ibm"}
    for run, (rate, arena) in zip(runs, found):
        errors.append(percent(rate, run.measured))
        row = [WHOSE[run.source], run.model.name, run.gpus, run.group or "", run.rows, run.checkpoint]
        rows.append([*row, run.measured, f"{rate:.0f}", f"{errors[-1]:+.0f}", f"{arena:.0f}"])
    head = ["whose", "model", "GPUs", "of each", "rows", "`--checkpoint`", "tokens/s", "ppsim", "error %", "arena GiB"]
    words = {"fsdp_first": command(["--machine", "a100", *runs[0].words()]), "fsdp_runs": len(runs)}
    (narrow,) = (run for run in runs if run.group and run.rows == 1)
    words["fsdp_exact"] = f"{percent(exact[narrow], narrow.measured):+.0f}"
    words["fsdp_ibm_exact"] = span([percent(rate, run.measured) for run, rate in exact.items()])
    for source in WHOSE:
        words[f"fsdp_{source}"] = span([error for run, error in zip(runs, errors) if run.source == source])
        words[f"fsdp_{source}_mean"] = f"{statistics.mean(e for r, e in zip(runs, errors) if r.source == source):+.0f}"
    table_memory, words_memory = memory(program, facts)
    return {"fsdp": markdown(head, rows), "fsdp_memory": table_memory}, {**words, **words_memory}, errors
