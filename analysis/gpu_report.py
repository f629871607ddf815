#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/gpu has measured, as a page for docs/results: tables, each with its command, plots, and what is missing.

  gpu_report.py RESULTS --out docs/results/h200.md [--machine h200] [--bin build/bin] [--tiny]
                [--kernel-times build/tests/bench/bin/kernel_times]

RESULTS is scripts/gpu's folder, or what its archive holds; it may be empty. Plots (gnuplot) become files beside the
page. With --bin, ppsim says from what it would predict each preset on a machine without a GPU.
"""

import argparse
import csv
import json
import math
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import bench_gpu as bench  # noqa: E402
import fidelity_design as design  # noqa: E402
import json_lines  # noqa: E402
import profile_text  # noqa: E402
from fidelity_table import markdown  # noqa: E402
from kernel_cases import MACHINES, Predictor, measured_products  # noqa: E402
from product_fit import measured_fits  # noqa: E402
from published_kernels import measured_table  # noqa: E402

FAMILIES = ("tutorial", "tutorial-12", "small", "gpt")  # of profiles, as scripts/gpu has them
PLOTS = pathlib.Path(__file__).resolve().parent / "plots"
TUTORIAL = """\
The tutorial's program does the same on four GPUs, one for each worker; here four workers share one GPU, a quarter each.
Its ms/batch: 386 in a run of its own, 699 as published. Its losses cannot be compared: they pair rows of logits and of
targets wrongly, and divide by another count. `ppexec`'s are means over tokens."""
SPEED = f"""\
One worker, a whole step (forward, backward, clipping, SGD); PyTorch and ppexec take turns on the same GPU in the same
call. Goals: at most {bench.GOAL} of the measured floor with one microbatch, and never slower than PyTorch (the best of
ppexec's ways counts). The paper floor is an H200's, computed before anything was measured."""
PRODUCTS = """\
Matrix products as `ppprof` measured them, each alone on the whole GPU, beside `sim/machines/{}.json`. Errors are
(predicted - measured) / measured of times; a prediction has nothing for launching. gemm_nt is forward, gemm_nn makes
gradients of inputs, gemm_tn those of weights; gemm_fp8 makes all three in FP8."""
FROM = """\
What `ppsim --machine {} --preset PRESET --precision PRECISION` predicts from, with these files and without a GPU, for a
GPU for each worker. Links between GPUs cannot be measured on one GPU: they are data-sheet values."""


def read(path):
    return path.read_text(encoding="utf-8") if path.exists() else ""


def read_lines(path):
    return read(path).splitlines()


def last_steps(folder):
    """{name: (state, seconds, command)}, the newest of each, in the order of the first."""
    steps = {}
    for line in read_lines(folder / "steps.tsv"):
        name, *cells = line.split("\t")
        steps[name] = cells
    return steps


def commands(steps, begin, most=3):
    """Those of the steps that begin so, each once, indented; several alike are one line and a number."""
    found = {cells[2]: 0 for name, cells in steps.items() if name.startswith(begin) and cells[0] == "ok"}
    more = [f"    ... and {len(found) - most} more; all are in the last table"] if len(found) > most else []
    return ["    " + command for command in list(found)[:most]] + more


def host_lines(folder, machine, steps):
    found = [line for line in read_lines(folder / "host.txt") if line.startswith("GPU: ")]
    if machine == "emulated":
        return ["**Emulated: no figure here says anything about a GPU.**"]
    unknown = "Its GPU is not known: nvidia-smi said nothing." if steps else "No host has been measured yet."
    return [found[0] if found else unknown]


# The profile


def known_machine(args):
    return args.machine if args.machine != "emulated" else "h200"


def ppsim(args, family, precision, folder):
    """Cells: workers, the source of task times, of links, ms/batch; or why there are none."""
    # As part of --machine: copies inside one GPU do not stand for a link between GPUs.
    text = read(folder / "profiles" / f"{args.machine}-{family}.tsv").splitlines(keepends=True)
    words = [str(pathlib.Path(args.bin) / "ppsim"), "--preset", family, "--precision", precision, "--device", "cuda"]
    words += ["--machine", known_machine(args)]
    for name, value in bench.TINY.items() if args.tiny else ():
        words += ["--" + name.replace("_", "-"), str(value)]
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as profile:
        profile.write("".join(line for line in text if not line.startswith("link\tinproc ")))
        profile.flush()
        words += ["--profile", profile.name, "--format", "json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return f"MISSING ({said[-1]})".replace("|", r"\|"), "-", "-", "-"
    row = json.loads(done.stdout)[0]
    link = "data sheet" if row["link_source"] == "machine" else row["link_source"] or "-"
    return f"P {row['stages']}, D {row['replicas']}", row["cost_source"], link, f"{row['ms_per_batch']:.2f}"


def profile_section(args, folder, steps):
    lines, rows, missing = ["## Profile", ""], [], []
    for family in FAMILIES:
        path = folder / "profiles" / f"{args.machine}-{family}.tsv"
        try:
            found = profile_text.read(path)
        except FileNotFoundError:
            missing.append(f"the profile of {family}")
            continue
        except profile_text.NoProfile as error:
            missing.append(str(error))
            continue
        runs, tasks = set(profile_text.of_kind(found, profile_text.Run)), profile_text.of_kind(found, profile_text.Task)
        # What several runs have measured counts once; all but the figures name it.
        names = {(task.signature, task.context, task.busy) for task in tasks}
        kernels = {(row.name, row.share, row.busy) for row in profile_text.of_kind(found, profile_text.Kernel)}
        cut_short = sum(run.status == "interrupted" for run in runs)
        shares = sorted({(task.context.rsplit("share ", 1) + ["whole"])[1] for task in tasks})
        runs = f"{len(runs)}, {cut_short} cut short" if cut_short else len(runs)
        rows.append([path.name, runs, len(names), len(kernels), ", ".join(shares)])
    if rows:
        lines += markdown(["file", "runs of ppprof", "tasks", "kernels", "shares of the GPU"], rows)
        lines += ["", *commands(steps, "profile."), *commands(steps, "sweep.")]
    if rows and args.bin:
        head = ["preset", "precision", "workers", "task times from", "links from", "predicted ms/batch"]
        found = [[f, p, *ppsim(args, f, p, folder)] for f in FAMILIES[:3] for p in bench.TOLERANCE]
        lines += ["", FROM.format(known_machine(args)), "", *markdown(head, found)]
    return lines, missing


def products_section(args, folder, _):
    """What a machine file would have said, where there is one."""
    machine = known_machine(args)
    try:
        cases = measured_products(sorted((folder / "profiles").glob(f"{args.machine}-*.tsv")))
    except profile_text.NoProfile as error:
        return [], [str(error)]
    if not args.kernel_times or not cases or not (MACHINES / f"{machine}.json").exists():
        return [], []
    predictor = Predictor(args.kernel_times)
    lines = [*measured_table(predictor, machine, cases), "", *measured_fits(predictor, machine, cases)]
    return ["## Products beside the data sheet", "", PRODUCTS.format(machine), "", *lines], []


# Predictions


def fidelity_rows(folder):
    """[(predicted, measured, key)]"""
    block = folder / "fidelity" / "all"
    predictions, runs = json.loads(read(block / "predictions.json") or "{}"), {}
    for run in json_lines.read(block / "runs.jsonl"):
        runs.setdefault(run["key"], []).append(run["ms_per_batch"])
    return [(predictions[key]["ms_per_batch"], statistics.median(times), key) for key, times in runs.items()]


def held_out(steps):
    """Chunks of predictions that were not profiled: as fidelity.py was asked."""
    words = [shlex.split(cells[2]) for name, cells in steps.items() if name.startswith(("fidelity.", "again."))]
    asked = [each[each.index("--held-out") + 1] for each in words if "--held-out" in each[:-1]]
    return {chunks for text in asked for chunks in text.split(",")}


def fidelity_section(args, folder, steps):
    lines, missing = ["## Predictions against runs", ""], []
    text = read_lines(folder / "fidelity" / "table.md")
    if not text:
        return lines, ["predictions against runs"]
    missing += [line.removeprefix("MISSING: ") for line in text if line.startswith("MISSING: ")]
    lines += ["#" + line if line.startswith("#") else line for line in text[2:]]  # after its title
    rows = fidelity_rows(folder)
    failed = set(json.loads(read(folder / "fidelity" / "all" / "failed.json") or "[]")) - {key for *_, key in rows}
    missing += [f"a run of {key}, which failed" for key in sorted(failed)]
    points, unknown_chunks = [], held_out(steps)
    for predicted, measured, key in rows:
        config = dict(zip(design.KEY, key.split()))
        unknown = int(config["chunks"] in unknown_chunks)
        points.append(f"{measured} {100 * (predicted - measured) / measured} {config['stages']} {unknown}")
    data = "\n".join(points)
    return lines + plot(args, "fidelity", "Error of the prediction against measured ms/batch", {"$data": data}), missing


# Speed


def times(values, form=".2f"):
    """The median, and the spread of several in %."""
    if not values:
        return "-"
    middle = statistics.median(values)
    spread = f" ±{50 * (max(values) - min(values)) / middle:.1f} %" if len(values) > 1 else ""
    return format(middle, form) + spread


def clock(figures):
    known = [f["sm_mhz"] for f in figures if "sm_mhz" in f]
    watts = [f["watts"] for f in figures if "watts" in f]
    return f"{statistics.median(known):.0f} MHz, {statistics.median(watts):.0f} W" if known and watts else "-"


def two(value):
    return "-" if value is None else f"{value:.2f}"


def speed_section(args, folder, steps):
    rows, lines, data = json_lines.read(folder / "speed.jsonl"), ["## Speed", ""], []
    wanted = {(m, p, c) for m in bench.SHAPES for p in bench.TOLERANCE for c in (1, 8)}
    known = {(r["model"], r["precision"], r["chunks"]) for r in rows}
    missing = [f"speed of {m} {p} in {c} chunks" for m, p, c in sorted(wanted - known)]
    if not rows:
        return lines, ["speed beside PyTorch and the floor"]
    head = ["model", "precision", "chunks", "M", "ppexec ms", "with --batch-w M", "its floor ms", "with --algorithms"]
    head += ["PyTorch ms", "of PyTorch's", "floor ms", "of the floor", "paper floor ms", "goals"]
    head += ["ppexec at", "PyTorch at"]
    cells = []
    for r in rows:
        floor, peer, good = bench.verdict(r)
        verdict = {None: "not known", True: "met", False: "NOT met"}[good]
        cells.append(
            [
                r["model"],
                r["precision"],
                r["chunks"],
                r["microbatches"],
                times(r["ppexec_ms"]),
                times(r["batch_w_ms"]),
                two(r["batch_w_floor_ms"]),
                times(r.get("algorithms_ms", [])),
                times(r["torch_ms"]),
                two(peer),
                two(r["floor_ms"]),
                two(floor),
                f"{r['paper_ms']:.2f}",
                verdict,
                clock(r["ppexec_gpu"]),
                clock(r["torch_gpu"]),
            ]
        )
        sides = [statistics.median(r[n]) if r.get(n) else "?" for n in (*bench.WAYS, "torch_ms")]
        name = f"{r['model']} {r['precision']} M={r['microbatches']}"
        data.append(" ".join(map(str, [json.dumps(name), *sides, r["floor_ms"] or "?"])))
        missing += [] if r["torch_ms"] else [f"PyTorch beside {name}"]
    lines += [SPEED, "", *markdown(head, cells)]
    ceilings = [r["ceilings"] for r in rows if r["ceilings"]]
    if ceilings:
        rates = {p: statistics.median(c["flops"][p] for c in ceilings) / 1e12 for p in bench.TOLERANCE}
        copies = statistics.median(c["bytes"] for c in ceilings) / 1e12
        rates = ", ".join(f"{p} {rate:.1f}" for p, rate in rates.items())
        lines += [
            "",
            f"Ceilings measured in those calls (median): {rates} TFLOP/s; copies {copies:.2f} TB/s, both ways.",
        ]
    lines += ["", *commands(steps, "speed."), "", *sorted({"    " + r["command"] for r in rows if "command" in r})[:2]]
    lines += ncu_lines(folder)
    return lines + plot(args, "speed", "ms/batch of one worker", {"$data": "\n".join(data)}), missing


def ncu_rows(text, most=12):
    """Cells of the kernels that take the most time, of ncu's raw page as CSV in base units (ns). Waves: how often the
    thread blocks of a call fill the GPU; 1.1 take as long as 2."""
    table = [line for line in text.splitlines() if line.startswith('"')]
    kernels = {}
    for row in csv.DictReader(table):
        try:
            ns, *shares = (float(row[name].replace(",", "")) for name in bench.NCU)
        except (KeyError, ValueError, AttributeError):  # the line of units
            continue
        kernels.setdefault(row["Kernel Name"], []).append((ns, *shares))
    whole = sum(ns for calls in kernels.values() for ns, *_ in calls)
    rows = []
    for name, calls in sorted(kernels.items(), key=lambda item: -sum(call[0] for call in item[1]))[:most]:
        ns = sum(call[0] for call in calls)
        means = [sum(call[0] * call[i] for call in calls) / ns for i in (1, 2, 3)]
        cells = [f"`{name[:60]}`", len(calls), f"{ns / 1e3:.1f}", f"{100 * ns / whole:.1f}"]
        rows.append(cells + [f"{mean:.0f}" for mean in means[:2]] + [f"{means[2]:.2f}"])
    return rows


def ncu_lines(folder):
    """Of each ncu log the kernels that take most of the time, with the shares of peak that ncu saw."""
    lines = []
    for path in sorted((folder / "log").glob("ncu.*.log")):
        rows = ncu_rows(read(path))
        if rows:
            head = ["kernel", "calls", "us", "share %", "SM % of peak", "DRAM % of peak", "waves"]
            lines += ["", f"Slower than a goal: {path.stem.removeprefix('ncu.')}, kernels by time (ncu):", ""]
            lines += markdown(head, rows)
    return lines


# Learning


def perplexity(loss):
    """None where the loss is no number: a training that diverged is part of the page, too."""
    try:
        return None if loss is None else math.exp(loss)
    except OverflowError:
        return math.inf


def loss_cells(losses):
    """Of the mean of losses, all of which must be numbers."""
    if not losses or None in losses:
        return ["-", "-"]
    mean = statistics.mean(losses)
    return [f"{mean:.3f}", f"{perplexity(mean):.1f}"]


def learning_section(args, folder, steps):
    lines, text = ["## Learning", ""], read(folder / "learning.json")
    if not text:
        return lines, ["learning"]
    r = json.loads(text)
    loss, epochs = r["loss"], max(1, len(r["valid_loss"]))
    each = len(loss) // epochs
    head = ["epoch", "training loss (last 10 batches)", "perplexity", "validation loss", "perplexity"]
    cells = []
    for i in range(epochs):
        valid = r["valid_loss"][i] if r["valid_loss"] else None
        train = loss_cells(loss[i * each : (i + 1) * each][-10:])
        cells.append([i + 1, *train, two(valid), two(perplexity(valid))])
    lines += ["    " + r["command"], "", *markdown(head, cells), ""]
    memory = ", ".join(f"{bytes_ / 1e9:.2f}" for bytes_ in r["peak_bytes"])
    used = r["gpu"].get("used_mib")
    tests = "{} ({})".format(*loss_cells([r.get("test_loss")])) if r.get("test_loss") else "-"
    rows = [
        ["ms/batch", "-" if r["ms_per_batch"] is None else f"{r['ms_per_batch']:.1f}", "386", "699"],
        ["memory of a worker, GB, by rank", memory, "11.4 to 11.7", "-"],
        ["memory of the GPU in use, GB", f"{used * 2**20 / 1e9:.1f}" if used else "-", "-", "-"],
        ["test loss (perplexity)", tests, "not comparable", "not comparable"],
        ["clock and power", clock([r["gpu"]]), "-", "-"],
    ]
    lines += [*markdown(["", "ppexec, here", "tutorial's program", "as published"], rows), "", TUTORIAL]
    data = "\n".join(f"{i + 1} {'?' if value is None else value}" for i, value in enumerate(loss))
    return lines + plot(args, "learning", "Training loss of preset tutorial", {"$data": data}), []


# The page


def plot(args, what, title, blocks):
    """Lines that show it: a picture beside the page."""
    name = f"{args.out.stem}-{what}"
    if not any(blocks.values()):
        return []
    script = "".join(f"{block} << EOD\n{data}\nEOD\n" for block, data in blocks.items())
    path, plots = (str(part).replace("'", "''") for part in (args.out.parent / name, PLOTS))  # in gnuplot's quotes
    script += f"what = '{what}'; title = '{title}'; workload = ''; name = '{path}'\n"
    script += "".join(f"load '{plots}/{file}'\n" for file in ("style.gp", "gpu.gp"))
    try:
        done = subprocess.run(["gnuplot", "-"], input=script, capture_output=True, text=True, check=False, timeout=60)
        problem = done.stderr.strip() if done.returncode else ""
    except OSError:
        problem = "there is no gnuplot on this machine; make the page again on one that has it"
    if problem:
        return ["", f"Plot `{name}.svg`: MISSING ({problem.splitlines()[-1]})"]
    return ["", f"![{title}]({name}.svg)"]


def steps_section(folder, steps):
    lines = ["## Everything that was run", ""]
    for path in sorted((folder / "log").glob("presets.follow-*.log")):
        lines += [*read_lines(path)[-1:], ""]
    states = [[name, cells[0], cells[1], f"`{cells[2]}`"] for name, cells in steps.items()]
    return lines + (markdown(["step", "state", "s", "command"], states) if states else ["Nothing yet."])


def document(args):
    folder, steps = args.results, last_steps(args.results)
    sections, missing = [], []
    for make in (profile_section, products_section, fidelity_section, speed_section, learning_section):
        lines, lacks = make(args, folder, steps)
        sections += [*lines, "", *([f"MISSING: {'; '.join(lacks)}."] if lacks else []), ""]
        missing += lacks
    failed = [f"{name} ({cells[0]})" for name, cells in steps.items() if cells[0] != "ok"]
    head = [f"# One {args.machine.upper()}: profile, predictions, speed, learning", ""]
    head += [*host_lines(folder, args.machine, steps), ""]
    command = shlex.join(["analysis/gpu_report.py", "gpu-results", "--out", f"docs/results/{args.out.name}"])
    head += ["Made by `scripts/gpu` and, from its archive, by:", "", f"    {command} --machine {args.machine}", ""]
    head += [f"**Missing:** {'; '.join(missing)}." if missing else "Nothing is missing.", ""]
    head += [f"**Not done, or not as it should be:** {', '.join(failed)}.", ""] if failed else []
    text = "\n".join([*head, *sections, *steps_section(folder, steps)])
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--machine", default="h200")
    parser.add_argument("--bin", default="")
    parser.add_argument("--kernel-times", default="", help="says what a machine file has for a product")
    parser.add_argument("--tiny", action="store_true", help="the results are those of tiny models")
    args = parser.parse_args()
    args.out.write_text(document(args), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
