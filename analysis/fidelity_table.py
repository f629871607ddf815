# SPDX-License-Identifier: Apache-2.0
"""The statistics of fidelity.py and its tables. Percentages and errors are as its description says."""

import statistics

from fidelity_design import KEY

QUIET_SPREAD = 1.5  # %; runs that repeat so well are held to narrower goals
BEST_WITHIN = 1.01  # a chunk count that takes so much of the best one's time is named rightly
# A run was disturbed if others had so much of a core, on average over the run, or if the reference kernel was so much
# slower, in %, than in the profile. Both come from beside the model, so an error of the model cannot look like that.
OTHERS_LIMIT = 0.05
DRIFT_LIMIT = 5.0
CONFIGURATION = ["model", "transport", "P", "schedule", "V", "chunks", "M", "checkpoint", "precision"]
GPU = {"sm_mhz": "SM MHz", "watts": "W", "beside_mib": "MiB beside arenas"}  # columns, where there was one
# Mean and worst error in % of those that repeat and of the others, worst bubble in points, process memory in %.
GOALS = {
    "cpu": {"time": (2, 6, 3, 8), "bubble": 1.5, "process memory": 3},
    "cuda": {"time": (3, 8, 3, 8), "bubble": 2, "process memory": None},
}
GROUP = ["model", "transport", "P", "configurations"]
TIME = ["mean %", "worst %", "norm. mean %", "norm. worst %"]
LEGEND = f"""\
- **error**: (predicted - measured) / measured ms/batch, where measured is the median of a configuration's runs. Minus:
  the prediction is too fast.
- **spread**: (slowest - fastest run) / median.
- **repeating**: configurations whose runs, two or more, spread less than {QUIET_SPREAD:g} %.
- **normalised** (norm.): the error, if the prediction is multiplied by the reference kernel's time in the runs over
  that in the profile.
- **drift**: of the reference kernel's time, from the profile to the runs.
- **other load**: cores that others had, on average over a run.
- **disturbed**: runs in which others had more than {OTHERS_LIMIT:g}, or the reference kernel was over \
{DRIFT_LIMIT:g} % slower than in the
  profile. Such runs count everywhere.
- **memory error**: of the process that is furthest off.
- **arena equal**, **plans equal**: bytes of the workers' arenas, and the plan, are those that were predicted.
- **from**: where the times of the prediction come from. `profile`: the same tasks were measured.
- **SM MHz**, **W**: of a GPU, medians of its clock and power while it was busy.
- **MiB beside arenas**: the most memory in use on a GPU, less the arenas of all workers. That is what contexts and
  libraries take, which is no part of the prediction."""


def percent(value, base):
    return None if value is None or not base else 100 * (value - base) / base


def median(values, kind=statistics.median):
    values = [value for value in values if value is not None]
    return kind(values) if values else None


def show(value, form):
    return "-" if value is None else format(value, form)


def markdown(head, rows):
    """Lines of a table whose columns are padded, those of numbers to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(3, *(len(row[i]) for row in [head, *rows])) for i in range(len(head))]
    words = [any(row[i].strip("-+.0123456789") for row in rows) for i in range(len(head))]
    lines = [[f"{cell:<{w}}" if word else f"{cell:>{w}}" for cell, w, word in zip(row, widths, words)] for row in rows]
    rule = ["-" * w if word else "-" * (w - 1) + ":" for w, word in zip(widths, words)]
    title = [f"{cell:<{w}}" if word else f"{cell:>{w}}" for cell, w, word in zip(head, widths, words)]
    return ["| " + " | ".join(line) + " |" for line in (title, rule, *lines)]


def signs(run, base):
    """By what a run looks disturbed: some of "others", "reference"."""
    drift = percent(run.get("reference_ns"), base)
    found = ["others"] if (run.get("others") or 0) > OTHERS_LIMIT else []
    return found + (["reference"] if drift is not None and drift > DRIFT_LIMIT else [])


def memory_error(predicted, measured):
    """% of the process that is furthest off; a number, or one for each rank. None where either is not known."""
    if predicted is None or measured is None:
        return None
    lists = [value if isinstance(value, list) else [value] for value in (predicted, measured)]
    if len(lists[0]) != len(lists[1]):
        lists = [[max(values)] for values in lists]
    errors = [percent(p, m) for p, m in zip(*lists) if p and m]
    return max(errors, key=abs) if errors else None


def compare(config, prediction, runs, base):
    """A row: a configuration, its prediction and its runs; `base` is the reference kernel's time in the profile."""
    times = [run["ms_per_batch"] for run in runs]
    measured, predicted = statistics.median(times), prediction["ms_per_batch"]
    # What disturbed the reference kernel of one run did not disturb its steps as much: of two runs the lower counts.
    reference = median((run.get("reference_ns") for run in runs), statistics.median_low)
    row = dict(config, predicted=predicted, measured=measured, runs=len(runs), microbatches=prediction["microbatches"])
    row["error"] = percent(predicted, measured)
    row["drift"] = percent(reference, base)
    row["normalised"] = percent(predicted * reference / base, measured) if reference and base else None
    row["spread"] = 100 * (max(times) - min(times)) / measured if len(times) > 1 else None
    row["bubble_predicted"] = prediction["bubble"]
    row["bubble_measured"] = median(run.get("bubble") for run in runs)
    row["arena_equal"] = all(run["peak_bytes"] == prediction["peak_bytes"] for run in runs)
    row["plan_equal"] = all(run["plan"] == prediction["plan"] for run in runs)
    memory = [memory_error(prediction.get("process_bytes"), run.get("process_bytes")) for run in runs]
    row["memory"] = max((error for error in memory if error is not None), key=abs, default=None)
    row["others"] = median(run.get("others") for run in runs)
    row["disturbed"] = sum(bool(signs(run, base)) for run in runs)
    row["source"] = prediction.get("cost_source")
    row.update({name: median(run.get(name) for run in runs) for name in ("sm_mhz", "watts", "used_mib")})
    arenas = prediction["peak_bytes"] if isinstance(prediction["peak_bytes"], list) else [prediction["peak_bytes"]]
    row["beside_mib"] = None if row["used_mib"] is None else row["used_mib"] - sum(arenas) / 2**20
    return row


def compare_foreign(row, prediction, run, base):
    """The row of a configuration, if it ran alone too, and one run of it beside a foreign load."""
    made = compare({n: row[n] for n in (*KEY, "virtual", "sequence")}, prediction, [run], base)
    made["alone"] = row.get("measured")
    made["signs"] = signs(run, base)
    busy = [prediction["makespan_ms"] * (1 - bubble) for bubble in prediction.get("rank_bubble") or ()]
    made["ranks"] = [ms / expected for ms, expected in zip(run.get("busy_ms") or (), busy) if expected]
    return made


def ranks_cell(row):
    """P, or of ranks of several workers P x T, which may have parts of the tokens."""
    sequence = " sequence" if row["sequence"] else ""
    return row["stages"] if row["tensor"] == 1 else f"{row['stages']} x T {row['tensor']}{sequence}"


def groups(rows):
    """{cells of its name: rows}, and all together where there are several."""
    made = {}
    for row in rows:
        model = row["model"] if row["precision"] == "fp32" else f"{row['model']} {row['precision']}"
        made.setdefault((model, row["transport"], ranks_cell(row)), []).append(row)
    if len(made) > 1:
        made["all", "", ""] = rows
    return made


def mean_and_worst(values):
    """Of their sizes; None: there are none."""
    values = [abs(value) for value in values if value is not None]
    return (statistics.mean(values), max(values)) if values else (None, None)


def mean_and_worst_cells(values):
    return [show(value, ".2f") for value in mean_and_worst(values)]


def time_cells(rows):
    return [
        len(rows),
        *mean_and_worst_cells(row["error"] for row in rows),
        *mean_and_worst_cells(row["normalised"] for row in rows),
    ]


def is_quiet(row):
    return row["spread"] is not None and row["spread"] < QUIET_SPREAD


def time_summary(rows, goals):
    """`goals`: of GOALS, a row of its own; None: none."""
    head = [*GROUP, "repeating", *TIME, "not repeating", *TIME]
    lines = []
    for name, group in groups(rows).items():
        quiet = [row for row in group if is_quiet(row)]
        other = [row for row in group if not is_quiet(row)]
        lines.append([*name, len(group), *time_cells(quiet), *time_cells(other)])
    if goals:
        quiet_mean, quiet_worst, mean, worst = ("" if goal is None else f"{goal:.2f}" for goal in goals["time"])
        lines.append(["goal", "", "", "", "", quiet_mean, quiet_worst, "", "", "", mean, worst, "", ""])
    return markdown(head, lines)


def best_chunks(rows):
    """(how often the predicted best chunk count is the best or within 1 % of it, of how many sweeps)."""
    sweeps = {}
    for row in rows:
        sweeps.setdefault(tuple(row[name] for name in KEY if name != "chunks"), []).append(row)
    sweeps = [sweep for sweep in sweeps.values() if len(sweep) > 1]
    right = 0
    for sweep in sweeps:
        chosen = min(sweep, key=lambda row: row["predicted"])
        right += chosen["measured"] <= BEST_WITHIN * min(row["measured"] for row in sweep)
    return right, len(sweeps)


def bubble_points(row):
    if row["bubble_measured"] is None or row["bubble_predicted"] is None:
        return None
    return 100 * (row["bubble_predicted"] - row["bubble_measured"])


def other_summary(rows, goals):
    head = [*GROUP, "bubble mean points", "worst points", "best chunks named", "arena bytes equal", "plans equal"]
    head += ["process memory worst %", "runs", "disturbed"]
    lines = []
    for name, group in groups(rows).items():
        cells = [*name, len(group), *mean_and_worst_cells(map(bubble_points, group))]
        cells.append("{} of {}".format(*best_chunks(group)))
        cells += [f"{sum(row[what] for row in group)} of {len(group)}" for what in ("arena_equal", "plan_equal")]
        cells.append(mean_and_worst_cells(row["memory"] for row in group)[1])
        lines.append([*cells, sum(row["runs"] for row in group), sum(row["disturbed"] for row in group)])
    bubble, memory = show(goals["bubble"], ".2f"), show(goals["process memory"], ".2f")
    lines.append(["goal", "", "", "", "", bubble, "all", "all", "all", memory, "", ""])
    return markdown(head, lines)


def configuration_cells(row):
    names = ("schedule", "virtual", "chunks", "microbatches", "checkpoint", "precision")
    return [row["model"], row["transport"], ranks_cell(row), *(row[name] for name in names)]


def each(rows):
    """A line for each configuration."""
    head = [*CONFIGURATION, "predicted ms", "measured ms", "error %", "normalised %", "spread %", "runs"]
    head += ["bubble predicted", "measured", "arena equal", "memory error %", "drift %", "other load", "from"]
    known = [name for name in GPU if any(row[name] is not None for row in rows)]
    head += [GPU[name] for name in known]
    lines = []
    for row in rows:
        cells = [*configuration_cells(row), f"{row['predicted']:.2f}", f"{row['measured']:.2f}", f"{row['error']:+.2f}"]
        cells += [show(row["normalised"], "+.2f"), show(row["spread"], ".1f"), row["runs"]]
        cells += [show(row["bubble_predicted"], ".3f"), show(row["bubble_measured"], ".3f")]
        cells += ["yes" if row["arena_equal"] else "NO", show(row["memory"], "+.1f"), show(row["drift"], "+.1f")]
        cells += [show(row["others"], ".2f"), row["source"] or "-"]
        lines.append([*cells, *(show(row[name], ".0f") for name in known)])
    return markdown(head, lines)


def foreign_table(rows, plain):
    """Runs beside a foreign load; `plain`: rows of those without one, in which the same signs are false alarms."""
    head = [*CONFIGURATION, "predicted ms", "alone ms", "beside ms", "error %", "normalised %", "drift %", "other load"]
    head += ["ranks: measured / predicted work", "taken for", "by"]
    lines = []
    for row in rows:
        cells = [*configuration_cells(row), f"{row['predicted']:.2f}", show(row["alone"], ".2f")]
        cells += [f"{row['measured']:.2f}", f"{row['error']:+.2f}", show(row["normalised"], "+.2f")]
        cells += [show(row["drift"], "+.1f"), show(row["others"], ".2f")]
        cells.append(", ".join(f"{ratio:.2f}" for ratio in row["ranks"]) or "-")
        lines.append([*cells, "disturbed" if row["signs"] else "model's error", ", ".join(row["signs"]) or "-"])
    told, runs = sum(bool(row["signs"]) for row in rows), sum(row["runs"] for row in plain)
    return [
        f"{told} of {len(rows)} runs beside a busy loop on the last core are told apart from an error of the model.",
        f"{sum(row['disturbed'] for row in plain)} of {runs} runs without it look disturbed, too.",
        "",
        *markdown(head, lines),
    ]


def block_table(blocks):
    """`blocks`: dicts of name, configurations, runs, minutes, and of the profile: reference_us, others."""
    head = ["block", "configurations", "runs", "minutes from profile to last run"]
    head += ["profile: reference kernel us", "profile: other load"]
    lines = []
    for b in blocks:
        cells = [b["name"], b["configurations"], b["runs"], show(b["minutes"], ".1f")]
        lines.append([*cells, show(b["reference_us"], ".1f"), show(b["others"], ".2f")])
    return markdown(head, lines)


def verdict(rows, goals):
    """Of all rows together, whatever was held out: the goals, and whether they are met."""
    mean, worst = mean_and_worst(row["error"] for row in rows)
    bubbles = [abs(points) for points in map(bubble_points, rows) if points is not None]
    unequal = sum(not row["arena_equal"] for row in rows)
    checks = [("mean error", mean, goals["time"][2], "%"), ("worst error", worst, goals["time"][3], "%")]
    if bubbles:
        checks.append(("bubble at most", max(bubbles), goals["bubble"], "points off"))
    words = [
        f"{name} {found:.2f} {unit} (goal {goal:.2f}: {'met' if found <= goal else 'NOT met'})"
        for name, found, goal, unit in checks
    ]
    words.append("arena bytes as predicted in all" if unequal == 0 else f"arena bytes NOT as predicted in {unequal}")
    sheet = sum(row["source"] == "machine" for row in rows)
    words += [f"{sheet} predicted by data sheet, if only a kernel of them"] if sheet else []
    return f"All {len(rows)} together: " + "; ".join(words) + "."


def missing(rows, blocks, repeats):
    configurations = sum(block["configurations"] for block in blocks)
    few = sum(row["runs"] < repeats for row in rows)
    if len(rows) == configurations and not few:
        return f"Nothing is missing: {configurations} configurations, {repeats} run{'s' * (repeats > 1)} of each at least."
    return (
        f"MISSING: {configurations - len(rows)} of {configurations} configurations have no run yet, {few} have fewer "
        f"than {repeats}."
    )


def document(command, rows, foreign, blocks, args):
    """(lines of the summary, lines of the whole page); args: `device`, `repeats`."""
    goals = GOALS.get(args.device, GOALS["cuda"])
    held_out = [row for row in rows if row["held_out"]]
    crowded = [row for row in rows if row["crowded"] and not row["held_out"]]
    main = [row for row in rows if not row["held_out"] and not row["crowded"]]
    summary, details = ["# Predicted and measured", "", "    " + command, "", LEGEND, ""], []
    summary += [missing(rows, blocks, args.repeats), *([verdict(rows, goals)] if rows and args.device != "cpu" else [])]
    for title, group, of_group in (
        ("Profiled shapes", main, goals),
        ("Shapes never profiled", held_out, None),
        ("More ranks than cores", crowded, {"time": (None, goals["time"][1], None, goals["time"][3])}),
    ):
        if group:
            summary += ["", "## " + title, "", *time_summary(group, of_group), "", *other_summary(group, goals)]
            details += ["", f"## {title}: each configuration", "", *each(group)]
    if foreign:
        summary += ["", "## Beside a foreign load", "", *foreign_table(foreign, rows)]
    return summary, [*summary, *details, "", "## Blocks", "", *block_table(blocks)]
