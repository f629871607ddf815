# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts on H100, B200 and GB200, by their data sheets: section I of published.py's page."""

import copy
import json
import math
import pathlib
import tempfile

from fidelity_table import markdown, percent
from published_facts import command, read_facts, span
from published_modern import GIB, OVERLAP, machine_file, split_of, sums_of

TOKENS = 4096
KERNEL_FACTS = pathlib.Path(__file__).resolve().parent / "published_kernels.tsv"
WHOSE = {
    "mcore": "Megatron-Core 0.8",
    "recipes": "Megatron-LM",
    "automodel": "NeMo AutoModel",
    "bridge": "Megatron Bridge",
    "users": "a user of Bridge",
    "zoo": "Megatron MoE Model Zoo",
}
MOST_US = 1e4  # that issuing a call may take, in the search for what the host would have to take


class Mixture:
    """A row of kind "mixture" of published.tsv."""

    def __init__(self, name, *cells):
        self.name = name
        (self.layers, self.heads, self.kv_heads, self.columns, self.width, self.ff) = cells[:6]
        (self.experts, self.chosen, self.vocab, self.qk_norm, self.window) = cells[6:]

    def words(self):
        window = ["--window-size", self.window, "--window-attn-skip-freq", 2] if self.window else []
        return [
            *("--preset", "qwen3-30b-a3b", "--layers", self.layers, "--d-model", self.width, "--heads", self.heads),
            *("--head-dim", self.columns, "--kv-heads", self.kv_heads, "--d-ff", self.ff, "--experts", self.experts),
            *("--experts-per-token", self.chosen, "--capacity-factor", 1, "--qk-norm", self.qk_norm),
            *("--vocab", self.vocab, "--tokens", TOKENS, *window),
        ]

    def products(self):
        """Operations of a token's forward in matrix products, but those inside attention and the router"""
        of_attention = 2 * (self.heads + self.kv_heads) * self.columns
        return 2 * self.width * (self.layers * (of_attention + 3 * self.ff * self.chosen) + self.vocab)

    def counted(self, causal):
        """Operations of a token, as Megatron-LM counts them: all scores of attention, or half of them (causal)"""
        scores = 2 * 2 * TOKENS * self.heads * self.columns * self.layers
        return 3 * (self.products() + (scores / 2 if causal else scores))

    def once(self, ranks):
        """Rows that leave a GPU, of `ranks` that share the experts: what is left of them if a token is sent once to
        each GPU that has one of its experts, drawn evenly"""
        without = math.comb(self.experts - self.experts // ranks, self.chosen) / math.comb(self.experts, self.chosen)
        return (1 - without) * ranks / self.chosen


class Run:
    """A row of kind "experts" of published.tsv."""

    def __init__(self, models, sums, source, name, machine, *cells):
        self.source, self.model, self.machine, self.sums = source, models[name], machine, sums
        (self.gpus, self.tensor, self.shared, self.ranks, self.virtual, self.rows, self.batch) = cells[:7]
        (self.checkpoint, self.zero, self.overlap, self.clip, self.seconds, self.rate, self.teraflops) = cells[7:]
        self.replicas = self.gpus // self.tensor // self.ranks
        self.microbatches = self.batch // self.replicas // self.rows

    def tokens(self, seconds):
        """Tokens a second of a GPU"""
        return self.batch * TOKENS / seconds / self.gpus

    def measured(self):
        if self.teraflops:
            return self.teraflops * 1e12 / self.model.counted(causal=self.source != "mcore")
        return self.rate or self.tokens(self.seconds)

    def words(self):
        """All but the machine"""
        schedule = ["interleaved", "--virtual", self.virtual] if self.virtual > 1 else ["1f1b"]
        return [
            *("--precision", "bf16", *self.model.words(), "--clip", self.clip, "--no-eval"),
            *("--checkpoint", self.checkpoint, "--stages", self.ranks, "--tensor", self.tensor),
            *("--expert-parallel", self.shared // self.tensor, "--replicas", self.replicas),
            *("--rows", self.batch // self.replicas, "--micro-batch-size", self.rows),
            *("--schedule", *schedule, *split_of(self.model.layers, self.ranks * self.virtual), "--zero", self.zero),
            *(OVERLAP[self.overlap] if self.overlap else []),
            *(["--sequence-parallel"] if self.tensor > 1 else []),
            *self.sums,
        ]

    def within(self):
        """Do workers that share experts have NVLink to each other?"""
        return self.shared <= machine_file(self.machine)["host"]["devices"]

    def layer_ms(self, rate):
        """The time of a batch for each layer of a rank and each microbatch; rate: tokens a second of a GPU"""
        layers = (self.microbatches + (self.ranks - 1) / self.virtual) * self.model.layers / self.ranks
        return 1e3 * self.batch * TOKENS / self.gpus / rate / layers

    def lost_ms(self, predicted):
        """What that is longer than predicted"""
        return self.layer_ms(self.measured()) - self.layer_ms(predicted)

    def lost_gb(self, predicted):
        """The bytes that memory moves in that time, for each row of the microbatch"""
        return self.lost_ms(predicted) * machine_file(self.machine)["memory"]["gb_per_s"] / 1e3 / self.rows


def runs_of(facts, kind="experts"):
    models = {cells[0]: Mixture(*cells) for cells in facts["mixture"]}
    return [Run(models, sums_of(facts, *cells[:2]), *cells) for cells in facts[kind]]


class Predictor:
    """Predictions on machines that are files in a folder."""

    def __init__(self, program, folder):
        self.program, self.path = program, pathlib.Path(folder) / "machine.json"

    def row(self, run, machine=None, words=None):
        self.path.write_text(json.dumps(machine or machine_file(run.machine)), encoding="utf-8")
        return self.program.predict("--machine", self.path, *(words or run.words()))

    def rate(self, *words):
        """Tokens a second of a GPU"""
        return words[0].tokens(self.row(*words)["ms_per_batch"] / 1e3)


def slowest_products():
    """GFLOP/s of the slowest grouped products by Transformer Engine on an H100."""
    rows = read_facts(KERNEL_FACTS)["grouped"]
    return min(row[-2] for row in rows if row[0] == "h100" and row[-1].startswith("Transformer Engine")) * 1e3


def slowest_efficiency():
    """Their part of the peak."""
    return slowest_products() / machine_file("h100")["precisions"]["bf16"]["peak_gflops"]


def slow_products(machine):
    arithmetic = machine["precisions"]["bf16"]
    del arithmetic["tiles"]
    arithmetic["efficiency"] = slowest_efficiency()


def slow_memory(machine):
    for rate in ("gb_per_s", "loaded_gb_per_s"):
        machine["memory"][rate] /= 2


def slow_links(machine):
    for part in ("reduce", "network"):
        machine[part]["gb_per_s"] /= 2
        machine[part]["latency_us"] *= 2


SLOWER = {"products": [slow_products], "memory": [slow_memory], "links": [slow_links]}
SLOWER["all three"] = [slow_products, slow_memory, slow_links]


def slower(machine, changes):
    machine = copy.deepcopy(machine)
    for change in changes:
        change(machine)
    return machine


def host_us(predictor, run):
    """Microseconds that the host would have to take for each call, so that the prediction is as slow as the run"""
    machine = machine_file(run.machine)
    least, most = machine["issue_us"], MOST_US
    while most - least > 1:
        machine["issue_us"] = (least + most) / 2
        if predictor.rate(run, machine) > run.measured():
            least = machine["issue_us"]
        else:
            most = machine["issue_us"]
    return most


def without_window(run):
    words = run.words()
    at = words.index("--window-size")
    return words[:at] + words[at + 4 :]


def causes_table(predictor, runs):
    """What each cause alone would do to the error"""
    rows = []
    for run in runs:
        errors = {"": percent(predictor.rate(run), run.measured())}
        for cause, changes in SLOWER.items():
            errors[cause] = percent(predictor.rate(run, slower(machine_file(run.machine), changes)), run.measured())
        if run.model.window:
            errors["windows"] = percent(predictor.rate(run, None, without_window(run)), run.measured())
        shown = [f"{errors[key]:+.0f}" if key in errors else "" for key in ("", *SLOWER, "windows")]
        host = f"{host_us(predictor, run):.0f}" if errors[""] > 0 else ""
        rows.append([WHOSE[run.source], run.model.name, run.machine, run.shared, run.rows, *shown, host])
    return markdown(["whose", "model", "machine", "EP", "rows", "error %", *SLOWER, "no windows", "host us"], rows)


def sent_once(run, row):
    """Tokens a second of a GPU of a run of one rank, if a token were sent once to each GPU that has its experts"""
    return run.tokens((row["ms_per_batch"] - row["tensor_ms"] * (1 - run.model.once(run.shared))) / 1e3)


def table(found):
    rows = []
    for run, row, rate, error in zip(found.runs, found.rows, found.rates, found.errors):
        cells = [WHOSE[run.source], run.model.name, run.machine, run.gpus, run.tensor, run.shared, run.ranks]
        cells += [run.virtual, run.rows, run.checkpoint, f"{run.measured():.0f}", f"{rate:.0f}", f"{error:+.0f}"]
        cells += [f"{100 * row['tensor_ms'] / row['ms_per_batch']:.0f}", f"{max(row['peak_bytes']) / GIB:.0f}"]
        rows.append([*cells, f"{run.lost_ms(rate):.1f}", f"{run.lost_gb(rate):.0f}"])
    head = ["whose", "model", "machine", "GPUs", "T", "EP", "P", "V", "rows", "`--checkpoint`", "tokens/s", "ppsim"]
    return markdown([*head, "error %", "exchanges %", "arena GiB", "lost ms", "as GB"], rows)


# What the experts of GPT-OSS read and write in Megatron-LM, beyond what those of ppkit do, in bytes:
# - for each number of the row of a choice: the second bias, which is added expert by expert in float32 (28 forward, 40 back) and has a
#   gradient (2); rows are sorted by experts twice, in both passes (16);
# - for each number that the activation reads: a clamp of both halves, which are then put together again (8 forward, 8 when activations
#   are computed again, 10 back); the gradient of the first bias (2).
ROW_BYTES, INNER_BYTES = 28 + 40 + 2 + 16, 8 + 8 + 10 + 2


def passes_gb(model):
    """GB that these are for each row of tokens and layer"""
    return TOKENS * model.chosen * (ROW_BYTES * model.width + INNER_BYTES * 2 * model.ff) / 1e9


def logits_gb(model):
    """GB of a row's logits in float32"""
    return TOKENS * model.vocab * 4 / 1e9


def of_rows(facts):
    """{word of the text: figure}: of each pair of runs, milliseconds of a layer and microbatch; and of the other facts"""
    figures = {}
    for key, layers, *runs in facts["experts_rows"]:
        times = [1e3 * rows * TOKENS / rate / layers for rows, rate in zip(runs[::2], runs[1::2])]
        figures.update({f"experts_{key}_{i}": f"{ms:.1f}" for i, ms in enumerate(times)})
    for tokens, _, rate in facts["experts_tokens"]:
        figures[f"experts_tokens_{tokens}"] = rate
    natural = [-percent(as_is, even) for _, even, as_is in facts["experts_even"]]
    return {**figures, "experts_natural": f"{min(natural):.0f} to {max(natural):.0f}"}


def uneven(predictor, run, factor):
    """The error in %, if the busiest expert had so many times its share of the tokens"""
    words = run.words()
    words[words.index("--capacity-factor") + 1] = factor
    return percent(predictor.rate(run, None, words), run.measured())


def of_host(predictor, tuned, filed):
    """{word of the text: figure} of two runs of a model on the same GPUs: tuned, and filed because it was slow"""
    rates = [predictor.rate(run) for run in (tuned, filed)]
    times = {
        "experts_tuned": tuned.layer_ms(tuned.measured()),
        "experts_tuned_predicted": tuned.layer_ms(rates[0]),
        "experts_filed": filed.layer_ms(filed.measured()),
        "experts_filed_predicted": filed.layer_ms(rates[1]),
    }
    error = f"{percent(rates[1], filed.measured()):+.0f}"
    return {**{key: f"{ms:.1f}" for key, ms in times.items()}, "experts_filed_error": error}


class Found:
    """Runs with their predictions, tokens a second and errors."""

    def __init__(self, runs, rows):
        self.runs, self.rows = runs, rows
        self.rates = [run.tokens(row["ms_per_batch"] / 1e3) for run, row in zip(runs, rows)]
        self.errors = [percent(rate, run.measured()) for run, rate in zip(runs, self.rates)]

    def those(self, which):
        return [i for i, run in enumerate(self.runs) if which(run)]

    def span(self, which):
        return span([self.errors[i] for i in self.those(which)])

    def lost(self, at, value, digits):
        """ "12.9 to 13.1" of some runs; value: Run.lost_ms or Run.lost_gb"""
        found = [value(self.runs[i], self.rates[i]) for i in at]
        return f"{min(found):{digits}} to {max(found):{digits}}"


def figures(found):
    """{word of the text: figure}"""
    first = found.runs[0]
    bridge = found.those(lambda run: run.source == "bridge" and run.model.name == "GPT-OSS 120B")
    (hopper,) = (i for i in bridge if found.runs[i].machine == "h100")
    blackwell = [i for i in bridge if i != hopper]
    (pytorch,) = found.those(lambda run: run.model.name == "GPT-OSS 20B")
    run, rate = found.runs[hopper], found.rates[hopper]
    qwen = found.those(lambda run: run.model.name == "Qwen3 30B-A3B" and run.source != "bridge")
    sent = [percent(sent_once(found.runs[i], found.rows[i]), found.runs[i].measured()) for i in qwen]
    exchanges = [100 * found.rows[i]["tensor_ms"] / found.rows[i]["ms_per_batch"] for i in blackwell]
    return {
        "experts_runs": len(found.runs),
        "experts_all": span(found.errors),
        "experts_factor": f"{1 + min(found.errors) / 100:.1f} to {1 + max(found.errors) / 100:.1f}",
        "experts_first": command(["--machine", first.machine, *first.words()]),
        "experts_mixtral": f"{found.errors[0]:+.0f}",
        "experts_qwen": span([found.errors[i] for i in qwen]),
        "experts_slow": found.span(lambda run: run.model.name != "Qwen3 30B-A3B" and run.within()),
        "experts_between": found.span(lambda run: not run.within()),
        "experts_once": span(sent),
        "experts_exchanges": f"{min(exchanges):.0f} to {max(exchanges):.0f}",
        "experts_lost": found.lost(blackwell, Run.lost_ms, ".1f"),
        "experts_lost_gb": found.lost([hopper, *blackwell], Run.lost_gb, ".0f"),
        "experts_lost_pytorch": f"{found.runs[pytorch].lost_gb(found.rates[pytorch]):.0f}",
        "experts_ms": f"{run.layer_ms(run.measured()):.1f}",
        "experts_ms_predicted": f"{run.layer_ms(rate):.1f}",
        "experts_last": f"{run.layer_ms(run.measured()) * run.model.layers / run.ranks:.0f}",
        "experts_passes": f"{passes_gb(run.model):.1f}",
        "experts_logits": f"{logits_gb(run.model) / machine_file(run.machine)['memory']['gb_per_s'] * 1e3:.1f}",
        "experts_slowest": f"{100 * slowest_efficiency():.0f}",
    }


def section(program, facts):
    """({name: table}, {word of the text: figure})"""
    runs = runs_of(facts)
    with tempfile.TemporaryDirectory() as folder:
        predictor = Predictor(program, folder)
        found = Found(runs, [predictor.row(run) for run in runs])
        causes = causes_table(predictor, [run for run in runs if run.tensor == 1])
        (tuned,) = (run for run in runs if run.source == "users")
        (filed,) = runs_of(facts, "experts_filed")
        words = {**figures(found), **of_rows(facts), **of_host(predictor, tuned, filed)}
        words["experts_uneven"] = f"{uneven(predictor, runs[0], 1.25):+.0f}"
    return {"experts": table(found), "causes": causes}, words
