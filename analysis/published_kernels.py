#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Single products, attention and collectives by the machine files beside published times of GPUs, as a page for docs/results.

  published_kernels.py --program build/tests/bench/bin/kernel_times --out docs/results/kernels.md
  published_kernels.py --program build/tests/bench/bin/kernel_times --fit h200 bf16    # "tiles" of the machine file
  published_kernels.py --program build/tests/bench/bin/kernel_times --machine h200 --profile profiles/h200-*.tsv

What was published is in published_kernels.tsv. The page's figures are what the program says; a test holds both together.
"""

import argparse
import copy
import json
import math
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
from fidelity_table import markdown  # noqa: E402
from kernel_cases import (  # noqa: E402
    ASKED,
    FACTS,
    HERE,
    Attention,
    Case,
    Predictor,
    grown_cases,
    machine_file,
    measured_products,
    read_cases,
)
from product_fit import figures_of, measured_fits, other_half, own_products  # noqa: E402
from published_facts import read_facts  # noqa: E402

TEXT = HERE / "published_kernels.md"
MIB = 2**20


def measured_table(predictor, machine, cases):
    """Products as measured beside the machine file: lines of a table"""
    rows = []
    for precision in ("fp8", "bf16", "tf32", "fp32"):
        for name in ("gemm_fp8", "gemm_nt", "gemm_nn", "gemm_tn"):
            for least, words in ((0, "all"), (1e10, "of 10 GFLOP and more")):
                some = [c for c in cases if (c.name, c.precision) == (name, precision) and c.flops >= least]
                if some:
                    rows.append([precision, name, words, len(some), *summary(predictor.errors(machine, some))])
    return markdown(["arithmetic", "product", "which", "shapes", "mean %", "mean size %", "90 % within %", "worst %"], rows)


def flat(name):
    """The machine as if nothing were known of tiles: products reach a share of the peak."""
    machine = machine_file(name)
    for precision in machine["precisions"].values():
        precision.pop("tiles", None)
    return machine


def table(head, rows):
    return "\n".join(markdown(head, rows))


def summary(errors):
    """mean error, mean size of it, 90th percentile and largest size, in %"""
    sizes = sorted(abs(error) for error in errors)
    ninth = sizes[min(len(sizes) - 1, math.ceil(0.9 * len(sizes)) - 1)]
    found = [statistics.mean(errors), statistics.mean(sizes), ninth, sizes[-1]]
    return [f"{100 * found[0]:+.0f}", *(f"{100 * each:.0f}" for each in found[1:])]


def own_table(predictor):
    """An H200's own products, as profiles/ have them"""
    rows = []
    for precision in ("bf16", "fp8", "tf32", "fp32"):
        cases = own_products("h200", precision)
        others, machine = other_half(predictor, "h200", precision)
        large = [case for case in cases if case.flops >= 1e10]
        kinds = [("all, fitted", cases, "h200"), ("every second, with what fits the others", others, machine)]
        for words, some, by in (*kinds, ("of 10 GFLOP and more", large, "h200")):
            rows.append([precision, words, len(some), *summary(predictor.errors(by, some))])
    return table(["arithmetic", "products", "cases", "mean %", "mean size %", "90 % within %", "worst %"], rows)


def products_table(predictor, cases):
    head = ["GPU", "arithmetic", "products", "cases", "mean %", "mean size %", "90 % within %", "worst %"]
    rows = []
    kinds = (
        ("one", lambda case: case.times == 1),
        ("two or four at once", lambda case: case.times > 1),
        ("of 10 GFLOP and more", lambda case: case.flops >= 1e10),
    )
    for name, precision in (("h100", "bf16"), ("h100", "tf32"), ("b200", "bf16"), ("b200", "tf32"), ("b200", "fp8")):
        here = [case for case in cases if (case.machine, case.group) == (name, precision)]
        for words, chosen in kinds:
            some = [case for case in here if chosen(case)]
            fitted = ", fitted" if (name, words) == ("b200", "one") else ""
            rows.append([name, precision, words + fitted, len(some), *both_summaries(predictor, name, some)])
    some = [case for case in cases if case.group == "fp8-e5m2"]
    rows.append(["b200", "fp8", "A in E5M2", len(some), *both_summaries(predictor, "b200", some)])
    return table([*head, "without tiles: mean size %"], rows)


def both_summaries(predictor, name, cases):
    """Cells of a table: the errors, and their mean size as if nothing were known of tiles"""
    plain = statistics.mean(map(abs, predictor.errors(flat(name), cases)))
    return [*summary(predictor.errors(name, cases)), f"{100 * plain:.0f}"]


def grown_table(predictor):
    """Products that were timed together with turning B"""
    head = ["GPU", "factors", "products", "cases", "mean %", "mean size %", "90 % within %", "worst %"]
    rows = []
    for group, words in (("fp8", "E4M3"), ("fp8-e5m2", "A in E5M2")):
        for least, which in ((0, "all"), (1e11, "that grow by 100 GFLOP and more")):
            some = [case for case in grown_cases() if case.group == group and case.flops >= least]
            rows.append(["h100", words, which, len(some), *both_summaries(predictor, "h100", some)])
    return table([*head, "without tiles: mean size %"], rows)


def turned():
    """{word of the text: figure} of products that were timed together with turning B"""
    (case,) = [c for c in read_cases("turned") if c.group == "fp8" and c.shape == (1, 4096, 4096, 4096)]
    peak = machine_file("h100")["precisions"]["fp8"]["peak_gflops"]
    return {"turned_rate": f"{case.flops / case.us / 1e6:.0f}", "h100_peak": f"{peak / 1e3:.0f}"}


def examples_table(predictor, cases):
    shapes = [(1, 4096, 4096, 4096), (1, 2048, 4096, 1024), (1, 1024, 1024, 4096), (1, 512, 4096, 1024)]
    shapes += [(1, 256, 1024, 1024), (1, 256, 256, 256), (1, 4096, 4096, 256), (4, 512, 512, 512)]
    some = [case for shape in shapes for case in cases if case.shape == shape and case.machine == "h100"]
    some = [case for case in some if case.group == "bf16"]
    rows, found = [], (predictor.microseconds(machine, some) for machine in ("h100", flat("h100")))
    peak = 1e3 * machine_file("h100")["precisions"]["bf16"]["peak_gflops"]  # operations in a microsecond
    for case, us, plain in zip(some, *found):
        percent = 100 * case.flops / case.us / peak
        rows.append([*case.shape, f"{case.us:.1f}", f"{percent:.0f}", f"{us:.1f}", f"{plain:.1f}"])
    return table(["times", "m", "n", "k", "measured us", "% of the peak", "ppsim us", "without tiles us"], rows)


def collectives_table(predictor, cases):
    head = ["GPU", "collective", "GPUs", *(f"{size} MiB" for size in (1, 4, 16, 64, 256, 1024)), "mean size %"]
    rows = []
    for name in ("h100", "b200"):
        for operation in ASKED:
            for devices in (2, 4, 8):
                here = [c for c in cases if (c.machine, c.group, c.devices) == (name, operation, devices)]
                here = sorted((c for c in here if c.bytes >= MIB), key=lambda c: c.bytes)
                errors = dict(zip((c.bytes // MIB for c in here), predictor.errors(name, here)))
                shown = [f"{100 * errors[size]:+.0f}" for size in (1, 4, 16, 64, 256, 1024)]
                rows.append([name, operation, devices, *shown, f"{100 * statistics.mean(map(abs, errors.values())):.0f}"])
    return table(head, rows)


def others_table(predictor):
    rows = []
    for name, precision, *shape, rate, whose in read_facts(FACTS)["other"]:
        case = Case("product", [name, precision, 1, *shape, 2e-6 * math.prod(shape) / rate])
        found = case.flops / 1e6 / predictor.microseconds(name, [case])[0]
        rows.append([name, *shape, precision, whose, f"{rate:.0f}", f"{found:.0f}", f"{100 * (found / rate - 1):+.0f}"])
    return table(["GPU", "m", "n", "k", "arithmetic", "whose", "TFLOP/s", "ppsim TFLOP/s", "too fast by %"], rows)


def grouped_table(predictor):
    rows = []
    for name, precision, *shape, rate, whose in read_facts(FACTS)["grouped"]:
        case = Case("product", [name, precision, *shape, 2e-6 * math.prod(shape) / rate])
        found = case.flops / 1e6 / predictor.microseconds(name, [case])[0]
        rows.append([name, *shape, whose, f"{rate:.0f}", f"{found:.0f}", f"{100 * (found / rate - 1):+.0f}"])
    return table(["GPU", "times", "m", "n", "k", "whose", "TFLOP/s", "ppsim TFLOP/s", "too fast by %"], rows)


def both_passes(predictor, name, cases):
    """[error of forward and backward together] of shapes of which both were measured"""
    found = {(case.shape, case.which): (case.us, us) for case, us in zip(cases, predictor.microseconds(name, cases))}
    errors = []
    for shape in {case.shape for case in cases}:
        if all((shape, which) in found for which in ("forward", "backward")):
            measured, predicted = map(sum, zip(found[shape, "forward"], found[shape, "backward"]))
            errors.append(predicted / measured - 1)
    return errors


def attention(predictor, library):
    """{word of the text: table or figure}"""
    cases = [Attention(*cells) for cells in read_facts(FACTS)["attention"]]
    rows, longer = [], {True: [], False: []}  # how many times as long as predicted, of alike kernels forward, and of others
    for key in dict.fromkeys((case.machine, case.whose, case.alike) for case in cases):
        some = [case for case in cases if (case.machine, case.whose, case.alike) == key]
        errors = list(zip(some, predictor.errors(key[0], some)))
        longer[key[2]] += [1 / (1 + error) for case, error in errors if case.which == "forward" or not key[2]]
        of_pass = [[error for case, error in errors if case.which == which] for which in ("forward", "backward")]
        shown = [shown_errors(each) for each in (*of_pass, both_passes(predictor, key[0], some))]
        shown.append("" if key[2] else shown_errors(library.errors(key[0], some)))
        rows.append([key[0], key[1], "yes" if key[2] else "no", len(some), *shown])
    head = ["GPU", "whose kernel", "`mma.sync`", "cases", "forward %", "backward %", "both together %", "`library` %"]
    words = {"attention": table(head, rows), "calls": len(cases)}
    alike, others = (statistics.median(longer[kind]) for kind in (True, False))
    return {**words, "longer": f"{alike:.1f}", "shorter": f"{others:.1f}"}


def shown_errors(errors):
    """ "-20 to -5", of what was measured"""
    return f"{100 * min(errors):+.0f} to {100 * max(errors):+.0f}" if errors else ""


def fitted_sums(predictor, name, cases):
    """latency_us and gb_per_s that are nearest to all collectives of a MiB and more, by the mean size of the error"""
    machine = copy.deepcopy(machine_file(name))
    some = [case for case in cases if case.machine == name and case.bytes >= MIB]
    if not some:
        raise SystemExit(f"no collectives of {name} were published")
    found = []
    for latency in range(20, 105, 5):
        for rate in range(200, 700, 20):
            machine["reduce"] = {"latency_us": latency, "gb_per_s": rate, "takes": 0}
            found.append((statistics.mean(map(abs, predictor.errors(machine, some))), latency, rate))
    return min(found)


def page(program):
    predictor = Predictor(program)
    products, collectives = read_cases("product"), read_cases("collective")
    return TEXT.read_text(encoding="utf-8").format(
        own=own_table(predictor),
        bf16_share=f"{100 * machine_file('h200')['precisions']['bf16']['tiles']['peak']:.0f}",
        own_cases=f"{len(own_products('h200')):,}",
        products=products_table(predictor, products),
        examples=examples_table(predictor, products),
        grown=grown_table(predictor),
        product_cases=f"{len(products) + len(read_cases('turned')):,}",
        other_cases=len(read_facts(FACTS)["other"]),
        **turned(),
        others=others_table(predictor),
        grouped=grouped_table(predictor),
        **attention(predictor, Predictor(program, library=True)),
        collectives=collectives_table(predictor, collectives),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="tests/bench/bin/kernel_times of a build")
    parser.add_argument("--out", type=pathlib.Path, help="the page to write")
    parser.add_argument("--fit", nargs=2, metavar=("GPU", "PRECISION"), help="print what fits products best")
    parser.add_argument("--fit-sums", metavar="GPU", help="print what fits collectives best")
    parser.add_argument("--machine", default="h200", help="for --profile")
    parser.add_argument("--profile", nargs="+", type=pathlib.Path, help="print how far off a GPU's own products are, and what fits")
    args = parser.parse_args()
    predictor = Predictor(args.program)
    if not (args.out or args.fit or args.fit_sums or args.profile):
        parser.error("say what to make: --out, --fit, --fit-sums or --profile")
    if args.fit:
        print(json.dumps(figures_of(predictor, *args.fit)))
    if args.fit_sums:
        error, latency, rate = fitted_sums(predictor, args.fit_sums, read_cases("collective"))
        print(f"latency_us {latency}, gb_per_s {rate}: off by {100 * error:.0f} % on average")
    if args.profile:
        measured = measured_products(args.profile)
        lines = [*measured_table(predictor, args.machine, measured), "", *measured_fits(predictor, args.machine, measured)]
        print("\n".join(lines))
    if args.out:
        args.out.write_text(page(args.program), encoding="utf-8")


if __name__ == "__main__":
    main()
