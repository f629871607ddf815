#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ppsim --times against an evaluation of PyTorch's orders written independently here, and against published figures.
Standard library only.

Evaluation: each rank runs its row of tests/golden/orders/ in order; an action starts when the rank is free and its
input is there; a hop between ranks takes C and occupies nothing. Where a backward is split (I and W), only I has
and makes an input for others. Published: bubble rates of Zero Bubble (ICLR 2024),
tables 5 and 9, and for the interleaved schedule the rate with all dependencies kept.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

ORDERS = pathlib.Path(__file__).resolve().parent.parent / "golden" / "orders"
ACTION = re.compile(r"(\d+)([FBIW])(\d+)")
TIMES = ((1, 1, 1, 0), (10, 12, 8, 0), (10, 12, 8, 1), (3, 5, 2, 7))
# P, M, F, I, W, C, and the bubble rates, to four digits, of 1F1B, of 1F1B-I with V chunks, of ZB-H1 and of ZB-H2.
PUBLISHED = (
    (8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431, 3, 0.1090, 0.1585, 0.1083),
    (8, 32, 18.513, 18.086, 9.331, 0.626, 0.1985, 3, 0.0847, 0.1242, 0.0837),
    (8, 64, 18.546, 18.097, 9.321, 0.762, 0.1240, 3, 0.0461, 0.0674, 0.0444),
    (16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552, 3, 0.1136, 0.1397, 0.0672),
    (16, 64, 11.307, 11.254, 8.101, 0.379, 0.2082, 3, 0.0878, 0.1088, 0.0516),
    (16, 128, 11.325, 11.308, 8.109, 0.378, 0.1251, 3, 0.0459, 0.0576, 0.0266),
)
HALF_A_DIGIT = 0.50001e-4  # of these rates


def read_orders(schedule):
    """Yields (P, V, M, rows); a row is a list of (stage, kind, microbatch)."""
    lines = (ORDERS / f"{schedule}.csv").read_text().splitlines()
    at = 0
    while at < len(lines):
        ranks, virtual, microbatches = map(int, lines[at][2:].split())
        rows = [[(int(s), k, int(m)) for s, k, m in ACTION.findall(line)] for line in lines[at + 1 : at + 1 + ranks]]
        yield ranks, virtual, microbatches, rows
        at += 1 + ranks


def evaluate(rows, virtual, times, steps=1):
    """{action and step: (start, end)}. A step begins on a rank when the rank has ended the one before."""
    takes = {"F": times[0], "B": times[1] + times[2], "I": times[1], "W": times[2]}
    stages = len(rows) * virtual
    ranks, rank_of = len(rows), {stage: rank for rank, row in enumerate(rows) for stage, _, _ in row}
    lists = [[(step, *action) for step in range(steps) for action in row] for row in rows]
    done, free, at = {}, [0.0] * ranks, [0] * ranks
    moved = True
    while moved:
        moved = False
        for rank, actions in enumerate(lists):
            while at[rank] < len(actions):
                step, stage, kind, m = action = actions[at[rank]]
                source = input_of(step, stage, kind, m, stages)
                if source and source not in done:
                    break
                lag = times[3] if source and rank_of[source[1]] != rank else 0
                start = max(free[rank], done[source][1] + lag if source else 0)
                done[action] = start, start + takes[kind] / virtual
                free[rank] = done[action][1]
                at[rank] += 1
                moved = True
    return done


def input_of(step, stage, kind, m, stages):
    if kind == "F":
        return (step, stage - 1, "F", m) if stage else None
    if kind == "W":
        return step, stage, "I", m
    return (step, stage + 1, kind, m) if stage + 1 < stages else (step, stage, "F", m)


def peak(row, virtual):
    live = most = 0
    for _, kind, _ in row:
        live += {"F": 1, "W": 0}.get(kind, -1)
        most = max(most, live)
    return most / virtual


def figures(rows, virtual, times):
    """What ppsim should print."""
    done = evaluate(rows, virtual, times)
    ends = [(min(done[0, *a][0] for a in row), max(done[0, *a][1] for a in row)) for row in rows]
    makespan = max(e for _, e in ends) - min(s for s, _ in ends)
    span = max(e - s for s, e in ends)
    busy = sum(e - s for s, e in done.values())
    return {
        "makespan_ms": makespan,
        "span_ms": span,
        "bubble": 1 - busy / (len(rows) * makespan),
        "bubble_span": 1 - busy / (len(rows) * span),
        "peak_microbatches": [peak(row, virtual) for row in rows],
    }


def steady_distance(rows, virtual, times, steps=8):
    """Time between the ends of the last two of several steps on rank 0, without a barrier between them."""
    done = evaluate(rows, virtual, times, steps)
    before, last = (max(done[(step, *action)][1] for action in rows[0]) for step in (steps - 2, steps - 1))
    return last - before


def close(a, b):
    if isinstance(a, list):
        return len(a) == len(b) and all(map(close, a, b))
    return abs(a - b) <= 2e-6 * max(1, abs(a))


class Checker:
    def __init__(self, ppsim):
        self.ppsim, self.failures, self.count = ppsim, 0, 0

    def simulate(self, schedule, ranks, virtual, chunks, times):
        """Objects of ppsim, one for each chunk count."""
        command = [
            self.ppsim,
            "--format",
            "json",
            "--times",
            ",".join(map(str, times)),
            "--schedule",
            schedule,
            "--stages",
            str(ranks),
            "--virtual",
            str(virtual),
            "--chunks",
            ",".join(map(str, chunks)),
        ]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)

    def compare(self, what, expected, result):
        self.count += 1
        for name, value in expected.items():
            if not close(value, result[name]):
                self.failures += 1
                print(f"FAILED {what}: {name} {result[name]}, should be {value}")

    def orders(self, schedule):
        sweeps = {}
        for ranks, virtual, microbatches, rows in read_orders(schedule):
            sweeps.setdefault((ranks, virtual), {})[microbatches] = rows
        for (ranks, virtual), cases in sweeps.items():
            for times in TIMES:
                for result in self.simulate(schedule, ranks, virtual, cases, times):
                    rows = cases[result["microbatches"]]
                    what = f"{schedule} P={ranks} V={virtual} M={result['microbatches']} times={times}"
                    expected = figures(rows, virtual, times)
                    if len(rows) * virtual * result["microbatches"] <= 100:
                        expected["ms_per_batch"] = steady_distance(rows, virtual, times)
                    self.compare(what, expected, result)

    def published(self):
        for ranks, m, f, i, w, c, one, virtual, interleaved, *zero in PUBLISHED:
            rates = [("1f1b", 1, one), ("interleaved", virtual, interleaved)]
            rates += [(name, 1, rate) for name, rate in zip(("zb-h1", "zb-h2"), zero)]
            for schedule, v, rate in rates:
                result = self.simulate(schedule, ranks, v, [m], (f, i, w, c))[0]
                self.count += 1
                if not abs(result["bubble_span"] - rate) <= HALF_A_DIGIT:
                    self.failures += 1
                    print(
                        f"FAILED published {schedule} P={ranks} M={m}: bubble {result['bubble_span']:.6f}, not {rate}"
                    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ppsim", required=True)
    checker = Checker(parser.parse_args().ppsim)
    for schedule in ("gpipe", "1f1b", "interleaved", "interleaved-zb", "zbv"):
        checker.orders(schedule)
    checker.published()
    print(f"{checker.count} simulations, {checker.failures} differences")
    return 1 if checker.failures or not checker.count else 0


if __name__ == "__main__":
    sys.exit(main())
