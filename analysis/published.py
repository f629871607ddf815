#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predictions of ppsim beside published measurements of GPU clusters, as a page for docs/results. It takes seconds.

  published.py --bin build/bin --out docs/results/published.md

What was published is in published.tsv. The page's figures are what the program says; a test holds both together.
"""

import argparse
import functools
import itertools
import json
import math
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
import arguments  # noqa: E402
import published_experts  # noqa: E402
import published_fp8  # noqa: E402
import published_fsdp  # noqa: E402
import published_llama  # noqa: E402
import published_modern  # noqa: E402
import published_pairs  # noqa: E402
import published_tensor  # noqa: E402
import published_titan  # noqa: E402
from fidelity_table import markdown, percent  # noqa: E402
from published_facts import Program, command, read_facts  # noqa: E402

TEXT = pathlib.Path(__file__).resolve().parent / "published_text.md"
COLUMNS = ["1F1B", "1F1B-I", "ZB-1p", "ZB-2p"]  # as the paper calls them, and in the order of published.tsv
INTERLEAVED = "1F1B-I"
SCHEDULES = {  # what ppsim has for each
    "1F1B": ["1f1b"],
    "1F1B-I": ["interleaved", "--virtual", "{V}"],
    "ZB-1p": ["zb-auto:{P}"],
    "ZB-2p": ["zb-auto:{P2}"],
}
TOKENS = 1024
VOCABULARY = 50257  # GPT-2's, padded to a multiple of 128
A100 = pathlib.Path(__file__).resolve().parent.parent / "sim" / "machines" / "a100.json"
A100_BYTES_PER_MS = 1e6 * json.loads(A100.read_text(encoding="utf-8"))["memory"]["gb_per_s"]
EVENTS = "event JOIN run ON run.id = event.run JOIN task ON task.plan = run.plan AND task.id = event.task"
FLASH = ["--attention", "flash"]
STATE_BYTES = 18  # for each parameter: fp16 weight; fp32 gradient, master weight, Adam's two moments


class Model:
    def __init__(self, name, layers, heads, width, rows, ranks, virtual):
        self.name, self.layers, self.heads, self.width = name, layers, heads, width
        self.rows, self.ranks, self.virtual = rows, ranks, virtual
        self.of_rank = (layers + 2) // ranks  # but one less on the first and on the last
        self.split = [self.of_rank - 1] + [self.of_rank] * (ranks - 2) + [self.of_rank - 1]
        # Bytes that the paper counts for a token and layer until the end of the input gradient, and from there to W's.
        self.held, self.held_weight = 34 * width + 5 * heads * TOKENS, 32 * width

    def most_in_flight(self):
        """Most microbatches that any order has between F and W in the bytes of 2P: all but one are past I."""
        return int(1 + (2 * self.ranks - 1) * self.held / self.held_weight)

    def samples(self, row):
        """samples/GPU/s of a prediction"""
        return 1e3 * row["microbatches"] * self.rows / self.ranks / row["ms_per_batch"]

    def split_of(self, column):
        """Of 1F1B-I: a layer in each stage, but none in the first and the last one."""
        return [0] + [1] * self.layers + [0] if column == INTERLEAVED else self.split

    def options(self, column):
        """Those of ppsim that say what the model is; the batch is left to the caller."""
        return [
            *("--d-model", self.width, "--heads", self.heads, "--d-ff", 4 * self.width, "--layers", self.layers),
            *("--vocab", VOCABULARY, "--vocab-multiple", 128, "--tokens", TOKENS, "--mask", "causal"),
            *("--dropout", 0.1, "--checkpoint", "never", "--replicas", 1, "--no-eval"),
            *("--stages", self.ranks, "--split", ",".join(map(str, self.split_of(column)))),
        ]


def words_of(column):
    return " ".join(SCHEDULES[column]).format(V="V", P="P", P2="2P")


def schedule(column, model):
    values = {"V": model.virtual, "P": model.ranks, "P2": 2 * model.ranks}
    return ["--schedule", *(word.format(**values) for word in SCHEDULES[column])]


def first_of_each(rows):
    """{model: cells of its first row}"""
    found = {}
    for name, *cells in rows:
        found.setdefault(name, cells)
    return found


def of_times(program, facts, models):
    """A: {(model, M, column): prediction} from the authors' own times"""
    times = {(name, m): ms for name, m, *ms in facts["times"]}
    first = {name: ms for name, (_, *ms) in first_of_each(facts["times"]).items()}
    found = {}
    for name, m, *cells in facts["measured"]:
        if name not in first:
            continue
        for column, measured in zip(COLUMNS, cells):
            if measured is not None:
                ms = ",".join(map(str, times.get((name, m), first[name])))
                words = ["--times", ms, "--stages", models[name].ranks, "--chunks", m]
                found[name, m, column] = program.predict(*words, *schedule(column, models[name]))
    return found


def stopped(facts, models, found):
    """What if a rank computed nothing while a message of its own is under way, as Megatron-LM's do that do not overlap
    them? Twice for each microbatch and stage: {column: errors in % of speed}"""
    first = {name: ms for name, (_, *ms) in first_of_each(facts["times"]).items()}
    hops = {(name, m): ms[-1] for name, m, *ms in facts["times"]}
    errors = {column: [] for column in COLUMNS}
    for name, m, *cells in facts["measured"]:
        for column, measured in zip(COLUMNS, cells):
            if (name, m, column) in found:
                stages = models[name].virtual if column == INTERLEAVED else 1
                ms = found[name, m, column]["ms_per_batch"] + 2 * stages * m * hops.get((name, m), first[name][-1])
                row = {**found[name, m, column], "ms_per_batch": ms}
                errors[column].append(percent(models[name].samples(row), measured))
    return errors


def stopped_table(errors, errors_stopped):
    means = [[statistics.mean(each[column]) for each in (errors, errors_stopped)] for column in COLUMNS]
    rows = [[column, *(f"{mean:+.1f}" for mean in both)] for column, both in zip(COLUMNS, means)]
    return markdown(["schedule", "mean error %", "if hops stop computing: mean error %"], rows)


def sheet_words(model, m, column):
    """A norm of all gradients that every rank waits for, but where the paper does without it."""
    clip = 0 if column.startswith("ZB") else 1
    words = ["--machine", "a100", "--precision", "bf16", *model.options(column), "--rows", m * model.rows, "--chunks", m]
    return [*words, "--clip", clip, *schedule(column, model)]


def of_data_sheet(program, facts, models, *words):
    """B: the same from the data sheet of the a100."""
    found = {}
    for name, m, *cells in facts["measured"]:
        for column, measured in zip(COLUMNS, cells):
            if measured is not None:
                found[name, m, column] = program.predict(*sheet_words(models[name], m, column), *words)
    return found


def throughput(facts, models, found, columns):
    """(rows of a table, {column: errors in %})"""
    rows, errors = [], {column: [] for column in columns}
    for name, m, *cells in facts["measured"]:
        if (name, m, "1F1B") not in found:
            continue
        row = [name, models[name].ranks, m]
        for column, measured in zip(COLUMNS, cells):
            if column not in columns:
                continue
            if measured is None:
                row += ["", "", ""]
                continue
            predicted = models[name].samples(found[name, m, column])
            errors[column].append(percent(predicted, measured))
            row += [f"{measured:.{2 if measured < 10 else 1}f}", f"{predicted:.2f}", f"{errors[column][-1]:+.1f}"]
        rows.append(row)
    head = ["model", "P", "M"]
    for column in columns:
        head += [column, "ppsim", "error %"]
    return markdown(head, rows), errors


def pairs(facts, models, found, columns=COLUMNS):
    """([pairs of schedules in another order than measured], of how many), of pairs of one model and M that differ"""
    wrong, total = [], 0
    for name, m, *cells in facts["measured"]:
        points = [
            (column, measured, models[name].samples(found[name, m, column]))
            for column, measured in zip(COLUMNS, cells)
            if (name, m, column) in found and column in columns
        ]
        for (a, measured_a, a_predicted), (b, measured_b, b_predicted) in itertools.combinations(points, 2):
            total += measured_a != measured_b
            if (measured_a - measured_b) * (a_predicted - b_predicted) <= 0 and measured_a != measured_b:
                wrong.append(f"{a} and {b}")
    return wrong, total


def of_pairs(order):
    """ "34 of 38" of what pairs() says"""
    wrong, total = order
    return f"{total - len(wrong)} of {total}"


def error_summary(found):
    """found: [(what, {column: errors}, what pairs() says)]"""
    rows = []
    for what, errors, order in found:
        for column, values in errors.items():
            of_order = of_pairs(order) if column == next(iter(errors)) else ""
            worst = max(values, key=abs)
            rows.append([what, column, len(values), f"{statistics.mean(values):+.1f}", f"{worst:+.1f}", of_order])
    return markdown(["from", "schedule", "cases", "mean error %", "worst %", "pairs in the measured order"], rows)


def ratios(facts, a, b):
    """Speed over 1F1B's: (table, {A or B, and whether it is 1F1B-I's: errors in %})."""
    rows, errors = [], {(key, interleaved): [] for key in "AB" for interleaved in (False, True)}
    for name, m, base, *cells in facts["measured"]:
        row = [name, m]
        for column, measured in zip(COLUMNS[1:], cells):
            row.append("" if measured is None else f"{measured / base:.2f}")
            for key, found in (("A", a), ("B", b)):
                if (name, m, column) not in found:
                    row.append("")
                    continue
                predicted = found[name, m, "1F1B"]["ms_per_batch"] / found[name, m, column]["ms_per_batch"]
                errors[key, column == INTERLEAVED].append(percent(predicted, measured / base))
                row.append(f"{predicted:.2f}")
        rows.append(row)
    return markdown(["model", "M", "1F1B-I", "A", "B", "ZB-1p", "A", "B", "ZB-2p", "A", "B"], rows), errors


def bubbles(program, facts, models, found):
    """(table, errors in % of ZB-2p's speed with the most microbatches, bytes of K = P and 2P in % of the limits)"""
    times = {(name, m): ",".join(map(str, ms)) for name, m, *ms in facts["times"]}
    measured = {(name, m): cells[-1] for name, m, *cells in facts["measured"]}
    rows, errors, bytes_used = [], [], []
    for name, m, *cells in facts["bubble"]:
        model, row = models[name], [name, m]
        common = ["--times", times[name, m], "--stages", model.ranks, "--chunks", m]
        for column, rate in zip(COLUMNS, cells):
            row += [f"{100 * rate:.2f}", f"{100 * found[name, m, column]['bubble_span']:.2f}"]
        for limit, column in ((1, "ZB-1p"), (2, "ZB-2p")):
            used = max(held(program, model, [*common, *schedule(column, model)]))
            bytes_used.append(100 * used / limit / model.ranks)
        words = [*common, "--schedule", f"zb-auto:{model.most_in_flight()}"]
        most = program.predict(*words)
        errors.append(percent(model.samples(most), measured[name, m]))
        used = max(held(program, model, words)) / 2 / model.ranks
        rows.append([*row, model.most_in_flight(), f"{100 * most['bubble_span']:.2f}", f"{100 * used:.0f}"])
    head = ["model", "M"]
    for column in COLUMNS:
        head += [column + " %", "ppsim %"]
    return markdown([*head, "K", "ppsim %", "bytes %"], rows), errors, bytes_used


def both(values, form):
    return " and ".join(format(value, form) for value in values)


def kinds(program, facts, models):
    """Where B's error is: tasks of rank 1, which has all its layers. (table, words for the text)"""
    names = {"F": "F", "I": "I", "W": "W", "XFER_F": "hop"}
    rows, missing, unfused, links = [], [], [], []
    errors = {(kind, attention): [] for kind in names for attention in ("math", "flash")}
    for name, (m, *profiled) in first_of_each(facts["times"]).items():
        model = models[name]
        words = sheet_words(model, m, "ZB-1p")
        words[words.index("--schedule") + 1 :] = ["zb-h1"]
        for attention, more in (("math", []), ("flash", FLASH)):
            sheet = mean_ms(program, words + more)
            row = [name, attention]
            for kind, ms in zip(names, profiled):
                errors[kind, attention].append(percent(sheet[kind], ms))
                row += [f"{ms:.2f}", f"{sheet[kind]:.2f}", f"{errors[kind, attention][-1]:+.0f}"]
            rows.append(row)
        tokens = model.rows * TOKENS
        missing.append(profiled[0] - sheet["F"])  # of flash
        unfused.append(11 * model.heads * TOKENS * tokens * model.of_rank / A100_BYTES_PER_MS)
        links.append(tokens * model.width * 2 / profiled[3] / 1e6)
    head = ["model", "attention"]
    for kind in names.values():
        head += [kind + " ms", "data sheet", "error %"]
    text = {f"{kind.lower()}_{attention}": both(errors[kind, attention], "+.0f") + " %" for kind, attention in errors}
    text.update(missing=both(missing, ".1f"), unfused=both(unfused, ".1f"), links=both(links, ".0f"))
    return markdown(head, rows), text


def mean_ms(program, words):
    """{kind: ms} of the tasks of stage 1"""
    query = f"SELECT kind, avg(end_ns - start_ns) / 1e6 FROM {EVENTS} WHERE stage = 1 AND side != 1 GROUP BY kind"
    return dict(program.events(words, query))


def held(program, model, words, virtual=1):
    """[ranks] most bytes that the paper counts there, as microbatches before I"""
    part = model.held_weight / model.held
    change = {"F": 1, "B": -1, "I": part - 1, "W": -part}
    when = "CASE kind WHEN 'F' THEN start_ns ELSE end_ns END"
    query = f"SELECT worker, kind FROM {EVENTS} WHERE kind IN ('F', 'B', 'I', 'W') ORDER BY {when}, kind = 'F'"
    now, most = [0.0] * model.ranks, [0.0] * model.ranks
    for rank, kind in program.events(words, query):
        now[rank] += change[kind] / virtual
        most[rank] = max(most[rank], now[rank])
    return most


def counted_gb(program, model, m, column):
    """Of rank 1: the paper's bytes of the microbatches that ppsim has there, and state of the optimizer."""
    words = ["--times", "1,1,1", "--stages", model.ranks, "--chunks", m, *schedule(column, model)]
    microbatches = held(program, model, words, model.virtual if column == "1F1B-I" else 1)[1]
    of_layer = model.rows * TOKENS * model.held
    return model.of_rank * (microbatches * of_layer + STATE_BYTES * 12 * model.width**2) / 1e9


def memory(program, facts, models, sheet):
    """(table, errors in %)"""
    first = {}
    for name, m, *cells in facts["measured"]:
        if None not in cells:
            first.setdefault(name, m)
    rows, errors = [], []
    for name, *cells in facts["memory"]:
        row = [name]
        for column, measured in zip(COLUMNS, cells):
            gb = counted_gb(program, models[name], first[name], column)
            errors.append(percent(gb, measured))
            row += [measured, f"{gb:.0f}", f"{errors[-1]:+.0f}"]
        for column in COLUMNS:
            row.append(f"{max(sheet[name, first[name], column]['peak_bytes']) / 1e9:.0f}")
        rows.append(row)
    head = ["model"]
    for column in COLUMNS:
        head += [column + " GB", "counted", "error %"]
    return markdown([*head, "ppkit's arena: 1F1B", *COLUMNS[1:]], rows), errors


def gpipe(program, facts):
    """C: (table, errors in % on P40s)"""

    @functools.lru_cache(None)
    def ms(ranks, m, checkpoint):
        each = f"{6400 / ranks / m}"  # F; the backward takes twice that
        words = ["--times", f"{each},{each},{each}", "--schedule", "gpipe", "--checkpoint", checkpoint]
        return program.predict(*words, "--stages", ranks, "--chunks", m)["ms_per_batch"]

    rows, errors = [], []
    for ranks, m, gpus, tpus in facts["gpipe"]:
        predicted = ms(2, 1, "always") / ms(ranks, m, "always")
        errors.append(percent(predicted, gpus))
        row = [ranks, m, f"{gpus:.2f}", f"{predicted:.2f}", f"{errors[-1]:+.0f}"]
        rows.append([*row, f"{ms(2, 1, 'never') / ms(ranks, m, 'never'):.2f}", f"{tpus:.2f}"])
    head = ["P", "M", "P40 speed-up", "ppsim", "error %", "nothing recomputed", "TPU speed-up"]
    return markdown(head, rows), errors


def size(errors):
    """ "5.1 % on average (worst -12.0 %)" of errors in % """
    return f"{statistics.mean(map(abs, errors)):.1f} % on average (worst {max(errors, key=abs):+.1f} %)"


def times_longer(errors):
    """ "0.9 to 1.3": how many times the predicted time the runs took whose speed was predicted with errors of so many % """
    return f"{1 + min(errors) / 100:.1f} to {math.ceil(10 + max(errors) / 10) / 10:.1f}"


def today(program, facts):
    """({name: table}, {word of the text: figure}) of runs of today's frameworks"""
    tables, words = {}, {}
    for section in (published_llama, published_pairs, published_experts, published_titan):
        more_tables, more_words = section.section(program, facts)
        tables, words = {**tables, **more_tables}, {**words, **more_words}
    tables_modern, words_modern, errors_modern, computing = published_modern.section(program, facts)
    tables_fsdp, words_fsdp, errors_fsdp = published_fsdp.section(program, facts)
    tables_fp8, words_fp8, errors_llama = published_fp8.section(program, facts)
    all_errors = [*errors_modern, *errors_fsdp, *errors_llama]
    words.update(words_modern, **words_fsdp, **words_fp8, **published_modern.of_all("today", all_errors))
    words["modern_factor"] = times_longer([*computing, *errors_llama])
    return {**tables, **tables_modern, **tables_fsdp, **tables_fp8}, words


def page(folder):
    """The page, and its figures, by the ppsim in the folder."""
    program, facts = Program(folder), read_facts()
    models = {cells[0]: Model(*cells) for cells in facts["model"]}
    a, b = of_times(program, facts, models), of_data_sheet(program, facts, models)
    flash = of_data_sheet(program, facts, models, *FLASH)
    table_a, errors_a = throughput(facts, models, a, COLUMNS)
    table_b, errors_b = throughput(facts, models, b, COLUMNS)
    _, errors_flash = throughput(facts, models, flash, COLUMNS)
    table_ratios, errors_ratios = ratios(facts, a, b)
    table_kinds, words_kinds = kinds(program, facts, models)
    table_memory, errors_memory = memory(program, facts, models, b)
    table_gpipe, errors_gpipe = gpipe(program, facts)
    tables_tensor, words_tensor, errors_tensor = published_tensor.section(program, facts, {"math": [], "flash": FLASH})
    tables_today, words_today = today(program, facts)
    _, words_library = today(Program(folder, library=True), facts)
    table_bubbles, errors_most, bytes_used = bubbles(program, facts, models, a)
    means = [statistics.mean(errors) for errors in errors_a.values()]
    all_b, all_flash = (list(itertools.chain(*errors.values())) for errors in (errors_b, errors_flash))
    sheet = {name: [*of_b, *errors_tensor[name]] for name, of_b in (("math", all_b), ("flash", all_flash))}
    summary = [
        ("A", errors_a, pairs(facts, models, a)),
        ("B", errors_b, pairs(facts, models, b)),
        ("B, flash", errors_flash, pairs(facts, models, flash)),
    ]
    tables = {
        "summary": error_summary(summary),
        "times": table_a,
        "stopped": stopped_table(errors_a, stopped(facts, models, a)),
        "bubbles": table_bubbles,
        "sheet": table_b,
        "kinds": table_kinds,
        "ratios": table_ratios,
        "memory": table_memory,
        "gpipe": table_gpipe,
        **tables_tensor,
        **tables_today,
    }
    words = {
        "schedules": ", ".join(f"{c} is `{words_of(c)}`" for c in COLUMNS[1:]),
        "bytes": f"{max(bytes_used):.0f}",
        "most_2p": f"{statistics.mean(errors_most):+.1f}",
        "most_2p_worst": f"{max(errors_most, key=abs):+.1f}",
        "first": command(sheet_words(models["1.5B"], 24, "1F1B")),
        "least": f"{min(means):.0f}",
        "most": f"{max(means):.0f}",
        "mean_b": f"{statistics.mean(all_b):+.0f}",
        "least_b": f"{min(all_b):+.0f}",
        "most_b": f"{max(all_b):+.0f}",
        "mean_flash": f"{statistics.mean(all_flash):.0f}",
        "wrong": "; ".join(sorted({pair for _, _, (wrong, _) in summary for pair in wrong})) or "none",
        "pairs_b": of_pairs(pairs(facts, models, b, [c for c in COLUMNS if c != INTERLEAVED])),
        **{f"ratio_{key.lower()}": size(errors_ratios[key, False]) for key in "AB"},
        **{f"interleaved_{key.lower()}": f"{statistics.mean(errors_ratios[key, True]):+.0f}" for key in "AB"},
        "memory": size(errors_memory),
        "gpipe": size(errors_gpipe),
        **words_kinds,
        **words_tensor,
        **published_tensor.ranges("sheet", sheet),
        **words_today,
        **{f"library_{word}": figure for word, figure in words_library.items()},
    }
    text = TEXT.read_text(encoding="utf-8")
    return text.format(**words, **{"table_" + name: "\n".join(lines) for name, lines in tables.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=arguments.folder_of("ppsim"), help="folder of ppsim")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    args = parser.parse_args()
    args.out.write_text(page(args.bin), encoding="utf-8")


if __name__ == "__main__":
    main()
