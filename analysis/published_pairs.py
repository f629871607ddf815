# SPDX-License-Identifier: Apache-2.0
"""The same trainings on A100 and on H100, in software that fuses little: section H of published.py's page."""

import statistics

from fidelity_table import markdown, percent
from published_facts import command, span
from published_modern import Model, machine_file

GPUS = ("a100", "h100")  # in the order of published.tsv
HOST = 8
SHORT = 1024  # tokens of a row, of which attention is a small part
VOCABULARY = 50368


class Side:
    """One of the two runs of a row of kind "both" of published.tsv."""

    def __init__(self, pair, gpu, rows, microbatches, measured):
        self.pair, self.gpu, self.rows, self.microbatches, self.measured = pair, gpu, rows, microbatches, measured
        self.rate = None  # tokens a second, as predicted

    def words(self):
        return [
            *("--machine", self.gpu, "--precision", "bf16", "--attention", "flash", *self.pair.model.words()),
            *("--optimizer", "adamw", "--clip", 1, "--no-eval", "--checkpoint", self.pair.checkpoint),
            *("--stages", 1, "--schedule", "1f1b", "--replicas", HOST, "--zero", 3),
            *("--rows", self.rows * self.microbatches, "--chunks", self.microbatches),
        ]

    def predict(self, program):
        tokens = self.rows * self.microbatches * self.pair.model.tokens
        self.rate = tokens / program.predict(*self.words())["ms_per_batch"] * 1e3

    def error(self):
        return percent(self.rate, self.measured)

    def lost_us(self):
        """Microseconds that a token took longer than predicted, in each layer"""
        return (1e6 / self.measured - 1e6 / self.rate) / self.pair.model.layers

    def products_us(self):
        """What its products take for each token and layer, at the part of the peak that is predicted for large ones"""
        layers, decoder = self.pair.model.products()
        arithmetic = machine_file(self.gpu)["precisions"]["bf16"]
        times = 3 if self.pair.checkpoint == "never" else 4
        work = times * layers + 3 * decoder
        return work / arithmetic["peak_gflops"] / arithmetic["efficiency"] / 1e3 / self.pair.model.layers

    def reached(self):
        """% of the peak that products reached, were there nothing else"""
        efficiency = machine_file(self.gpu)["precisions"]["bf16"]["efficiency"]
        return 100 * efficiency * self.products_us() * self.pair.model.layers * self.measured / 1e6


class Pair:
    def __init__(self, models, name, tokens, checkpoint, *cells):
        layers, heads, width = models[name]
        sizes = (layers, heads, heads, width, 4 * width, tokens, VOCABULARY)
        self.model = Model(name, *sizes, 64, "gelu", "layernorm", "layers", "learned", "yes", 0)
        self.checkpoint = checkpoint
        self.sides = [Side(self, gpu, *cells[3 * i : 3 * i + 3]) for i, gpu in enumerate(GPUS)]

    def row(self):
        cells = [self.model.name, self.model.tokens, "" if self.checkpoint == "never" else "yes"]
        for side in self.sides:
            cells += [f"{side.measured:.0f}", f"{side.rate:.0f}", f"{side.error():+.0f}", f"{side.reached():.0f}"]
        return cells + [f"{side.lost_us():.2f}" for side in self.sides]

    def slower_products(self):
        """By how many % products of the H100 would have to be slower than predicted, if all that the A100 lost were
        traffic of memory"""
        old, new = self.sides
        return 100 * (new.lost_us() - old.lost_us() / faster_memory()) / new.products_us()


def faster_memory():
    """How much faster the second GPU's memory is than the first one's"""
    old, new = (machine_file(gpu)["memory"]["gb_per_s"] for gpu in GPUS)
    return new / old


def section(program, facts):
    """({name: table}, {word of the text: figure})"""
    models = {name: cells for name, *cells in facts["mpt"]}
    pairs = [Pair(models, *cells) for cells in facts["both"]]
    for pair in pairs:
        for side in pair.sides:
            side.predict(program)
    head = ["model", "tokens", "recomputed"]
    for gpu in GPUS:
        head += [f"{gpu.upper()}: tokens/s", "ppsim", "error %", "products %"]
    head += [f"lost us, {gpu.upper()}" for gpu in GPUS]
    short = [pair for pair in pairs if pair.model.tokens <= SHORT]
    words = {"pairs": len(pairs), "pairs_first": command(pairs[0].sides[1].words())}
    for i, gpu in enumerate(GPUS):
        errors = [pair.sides[i].error() for pair in pairs]
        words[f"pairs_{gpu}"], words[f"pairs_{gpu}_mean"] = span(errors), f"{statistics.mean(errors):+.0f}"
        words[f"pairs_{gpu}_short"] = span([pair.sides[i].error() for pair in short])
    factors = [1 + pair.sides[1].error() / 100 for pair in short]
    words["pairs_factor"] = f"{min(factors):.1f} to {max(factors):.1f}"
    slower = [pair.slower_products() for pair in short]
    words["pairs_slower"] = f"{min(slower):.0f} to {max(slower):.0f}"
    best = max(pairs, key=lambda pair: pair.sides[0].reached())
    words["pairs_best"], words["pairs_reached"] = best.model.name, f"{best.sides[0].reached():.0f}"
    shares = [pair.sides[1].lost_us() / pair.sides[0].lost_us() for pair in short]
    words["pairs_memory"] = f"{faster_memory():.1f}"
    words["pairs_lost"] = f"{min(shares):.1f} to {max(shares):.1f}"
    return {"pairs": markdown(head, [pair.row() for pair in pairs])}, words
