# SPDX-License-Identifier: Apache-2.0
"""Trainings in FP8 beside the same in bf16, by data sheets: section J of published.py's page."""

import statistics
import tempfile

from fidelity_table import markdown, percent
from published_facts import command, span
from published_modern import Model, Run, runs_of, split_of, sums_of

SUMS = ("Nemotron-4 15B", 4)  # model and T of runs in which sums over tensor ranks count most
CURRENT = "bridge"  # who scales by the current amax, as ppkit does; the others by those of steps before


class Llama(Run):
    """A row of kind "fp8" of published.tsv."""

    def __init__(self, models, sums, source, name, machine, *cells):
        gpus, tensor, ranks, virtual, self.context, rows, batch, seconds, self.fp8_seconds, self.fp8_rate = cells
        sequence = "yes" if tensor > 1 else "no"
        settings = ("never", sequence, "both", seconds, None, 0)
        super().__init__(models[name], sums, source, name, machine, gpus, tensor, ranks, virtual, rows, batch, *settings)
        self.replicas //= self.context

    def hides_sums(self):
        return self.sequence == "yes"

    def words(self):
        """Keys and values go round a ring, as Megatron-LM sends them unless told otherwise."""
        context = ["--context-parallel", self.context, "--cp-comm-type", "p2p"] if self.context > 1 else []
        return [*super().words(), *context, *split_of(self.model.layers, self.ranks * self.virtual)]


class Pair:
    """A run in FP8, and in bf16 if that was measured, too"""

    def __init__(self, run, seconds, rate=None):
        self.run, self.context = run, getattr(run, "context", 1)
        self.fp8 = rate or run.tokens(seconds)
        self.bf16 = run.measured() if run.seconds else None

    def words(self, precision):
        words = self.run.words()
        at = words.index("--precision") + 1
        return [*words[:at], precision, *words[at + 1 :]]

    def predicted(self, program, folder, precision):
        """(seconds of a batch, part of them that sums over tensor ranks take)"""
        found = program.predict("--machine", self.run.on(folder), *self.words(precision))
        return found["ms_per_batch"] / 1e3, found["tensor_ms"] / found["ms_per_batch"]


def pairs_of(facts):
    models = {cells[0]: Model(*cells) for cells in facts["shape"]}
    twins = {(run.source, run.model.name, run.gpus, run.tensor): run for run in runs_of(facts)}
    found = [Pair(twins[tuple(cells[:4])], cells[4]) for cells in facts["fp8_twin"]]
    llamas = [Llama(models, sums_of(facts, *cells[:2]), *cells) for cells in facts["fp8"]]
    return found + [Pair(run, run.fp8_seconds, run.fp8_rate) for run in llamas]


class Figures:
    """What the program says of a pair. Errors are of speed, in %."""

    def __init__(self, pair, bf16, fp8):
        self.pair, self.fp8 = pair, percent(pair.run.tokens(fp8), pair.fp8)
        self.gain_predicted, self.gain, self.bf16 = bf16 / fp8, None, None
        if pair.bf16:
            self.bf16 = percent(pair.run.tokens(bf16), pair.bf16)
            self.gain = pair.fp8 / pair.bf16

    def row(self):
        run, pair = self.pair.run, self.pair
        cells = [run.model.name, run.machine, run.gpus, run.tensor, run.ranks, run.virtual, pair.context, run.rows]
        cells += [f"{pair.bf16:.0f}" if pair.bf16 else "", f"{pair.fp8:.0f}"]
        cells += [f"{self.bf16:+.0f}" if pair.bf16 else "", f"{self.fp8:+.0f}"]
        return [*cells, f"{self.gain:.2f}" if pair.bf16 else "", f"{self.gain_predicted:.2f}"]


HEAD = ["model", "machine", "GPUs", "T", "P", "V", "C", "rows", "bf16: tokens/s", "FP8: tokens/s", "bf16: error %"]
HEAD += ["FP8: error %", "gain", "gain, ppsim"]


def of_errors(name, errors):
    """{word of the text: figure} of errors in %"""
    return {name: span(errors), f"{name}_mean": f"{statistics.mean(errors):+.0f}"}


def of_gains(name, gains):
    """{word of the text: figure} of how many times as fast FP8 is"""
    return {name: f"{min(gains):.2f} to {max(gains):.2f}", f"{name}_mean": f"{statistics.mean(gains):.2f}"}


def fp8_range(found):
    """{word of the text: figure}: how many times the predicted time these took"""
    errors = [each.fp8 for each in found]
    return {"fp8_all": f"{1 + min(errors) / 100:.1f} to {1 + max(errors) / 100:.1f}"}


def section(program, facts):
    """({name: table}, {word of the text: figure}, [error of speed in % of Llama 3 in bf16])"""
    pairs = pairs_of(facts)
    blackwell = [pair for pair in pairs if pair.run.machine == "b200"]
    with tempfile.TemporaryDirectory() as folder:
        predicted = [[pair.predicted(program, folder, each) for each in ("bf16", "fp8")] for pair in pairs]
    found = [Figures(pair, *(seconds for seconds, _ in both)) for pair, both in zip(pairs, predicted)]
    sums = next(each for pair, each in zip(pairs, predicted) if (pair.run.model.name, pair.run.tensor) == SUMS)
    both = [each for each in found if each.pair.bf16]
    hopper = [each.fp8 for each in found if each.pair not in blackwell]
    current = [each.fp8 for each in found if each.pair.run.source == CURRENT and each.pair not in blackwell]
    words = {
        "fp8_first": command(["--machine", pairs[0].run.machine, *pairs[0].words("fp8")]),
        "fp8_runs": len(found),
        "fp8_factor": f"{1 + min(hopper) / 100:.1f} to {1 + max(hopper) / 100:.1f}",
        "fp8_both": len(both),
        **{f"fp8_sums_{name}": f"{100 * part:.0f}" for name, (_, part) in zip(("bf16", "fp8"), sums)},
        **of_errors("fp8_hopper", hopper),
        **of_errors("fp8_blackwell", [each.fp8 for each in found if each.pair in blackwell]),
        **of_errors("fp8_current", current),
        **of_errors("fp8_delayed", [each.fp8 for each in both]),
        **of_errors("fp8_bf16", [each.bf16 for each in both]),
        **of_gains("fp8_gain", [each.gain for each in both]),
        **of_gains("fp8_gain_predicted", [each.gain_predicted for each in both]),
    }
    llamas = [each.bf16 for each in both if isinstance(each.pair.run, Llama)]
    return {"fp8": markdown(HEAD, [each.row() for each in found])}, {**words, **fp8_range(found)}, llamas
