#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ms/batch of ppexec over the critical path of its own measured tasks: what it loses beside computing and moving.

  bench_path.py --ppexec build/bin/ppexec [--models small,wide,lab] [--turns 3]   # runs P = 2, all schedules
  bench_path.py --db pp.db                                                        # all traced runs of a database

Each task has its median length over the traced steps; the path is the longest way through the plan with these lengths
(docs/METRICS.md, "Critical path of measured tasks"). ms/batch is the median of the steps that are not traced. Plans of
--zero 2 and 3, whose tasks for shares it does not know, are left out; `ppreport --why` has their paths.
"""

import argparse
import os
import sqlite3
import statistics
import sys
import tempfile

import arguments
import bench_pytorch

TRACED = 20  # steps; as many again are measured without a trace
STEPS = 3  # simulated, to see how successive steps overlap
COLUMNS = "| {} | {} | {} | {:.3f} | {:.3f} | {:.3f} | {:.3f} |"
HEAD = (
    "| {} | schedule | transport | ms/batch | path, ms | without transfers | ms/batch of path |\n"
    "| --- | --- | --- | ---: | ---: | ---: | ---: |"
)
RUNS = (
    "SELECT id, schedule, transport, plan, ms_per_batch FROM run WHERE tool = 'ppexec' AND status = 'ok' "
    "AND ms_per_batch > 0 AND EXISTS (SELECT 1 FROM event WHERE event.run = run.id) ORDER BY id"
)
TASKS = "SELECT id, kind, stage, microbatch, count, lane FROM task WHERE plan = ? ORDER BY id"
# A transfer lasts from its last post to its arrival, which the receiver sees.
LENGTHS = "SELECT task, end_ns - start_ns FROM event WHERE run = ? AND side != 1"
MOVES = ("XFER_F", "XFER_B")
# Whose edges are known: of other kinds tasks would seem to wait for nothing, or for the wrong ones.
KINDS = {"F", "B", "I", "W", "R", *MOVES, "REDUCE_GRAD", "REDUCE_SHARE", "REDUCE_TIED", "GATHER_PARAM"}
KINDS |= {"NORM", "NORM_ALL", "STEP"}


def lengths_of(db, run):
    """task -> median length in ns"""
    seen = {}
    for task, ns in db.execute(LENGTHS, (run,)):
        seen.setdefault(task, []).append(ns)
    return {task: statistics.median(all_ns) for task, all_ns in seen.items()}


def edges_of(tasks):
    """task -> tasks it needs, beside the one before it on its lane (core/plan.h, Waiting); a later one: of the step
    before"""
    made, needs, gathered = {}, {}, gathered_for(tasks)
    last = max((stage for _, _, stage, *_ in tasks), default=0)
    steps = {stage: task for task, kind, stage, *_ in tasks if kind == "STEP"}
    for task, kind, stage, first, count, _ in tasks:
        group = range(first, first + count)
        if kind == "F":
            needs[task] = [made.get(("F", stage - 1, m)) for m in group] + gathered[task]
        elif kind in ("B", "I"):
            needs[task] = [made.get(("B", stage + 1, m)) for m in group]
        elif kind in MOVES:
            needs[task] = [made[kind[-1], stage, m] for m in group]
        elif kind == "REDUCE_GRAD":
            needs[task] = made.get(("grad", stage), [])
        elif kind == "REDUCE_SHARE":
            needs[task] = [made.get(("sum", stage))]
        elif kind == "REDUCE_TIED":
            needs[task] = [t for s in (0, last) for t in final(made, s)]
            made["sum", 0] = made["sum", last] = task
        elif kind == "GATHER_PARAM":
            needs[task] = [steps.get(stage)]
        elif kind == "NORM_ALL":
            needs[task] = made.get("norm", [])
        else:
            needs[task] = [made.get(("sum", stage)), made.get("norm all")]
        keep(made, task, kind, stage, group)
    return {task: [t for t in wanted if t is not None] for task, wanted in needs.items()}


def gathered_for(tasks):
    """F -> what gathers its parameters: of its part, if that begins the step; else all of its rank"""
    found, parts = {}, {}
    lanes = {stage: lane for _, kind, stage, *_, lane in tasks if kind == "F"}
    gathers = [(task, stage) for task, kind, stage, *_ in tasks if kind == "GATHER_PARAM"]
    for task, kind, stage, first, _, lane in tasks:
        if kind != "F":
            continue
        before = [t for t, s in gathers if s == stage and t < task]
        part = parts[stage, first] = parts.get((stage, first), -1) + 1
        found[task] = before[part : part + 1] or before[-1:] or [t for t, s in gathers if lanes[s] == lane]
    return found


def final(made, stage):
    """After which tasks a stage's gradients are final, but for those that are tied to another's"""
    return [made["sum", stage]] if ("sum", stage) in made else made.get(("grad", stage), [])


def keep(made, task, kind, stage, group):
    """Notes what the task makes; a transfer stands for what it brings."""
    if kind in ("F", "B", "I", *MOVES):
        for m in group:
            made["F" if kind in ("F", "XFER_F") else "B", stage, m] = task
    if kind in ("B", "W"):
        made.setdefault(("grad", stage), []).append(task)
    if kind in ("REDUCE_GRAD", "REDUCE_SHARE"):
        made["sum", stage] = task
    if kind == "NORM":
        made.setdefault("norm", []).append(task)
    if kind == "NORM_ALL":
        made["norm all"] = task


def path_ns(tasks, needs, lengths):
    """Distance of the ends of two successive steps."""
    lane_end, end, ends = {}, {}, [0]
    for _ in range(STEPS):
        for task, *_, lane in tasks:
            start = max([lane_end.get(lane, 0)] + [end.get(t, 0) for t in needs[task]])
            end[task] = lane_end[lane] = start + lengths.get(task, 0)
        ends.append(max(end.values()))
    return ends[-1] - ends[-2]


def measure(db):
    """(run, schedule, transport, ms/batch, path, path without transfers, ratio) of each traced run with known tasks"""
    for run, schedule, transport, plan, ms in db.execute(RUNS).fetchall():
        tasks = db.execute(TASKS, (plan,)).fetchall()
        unknown = sorted({kind for _, kind, *_ in tasks} - KINDS)
        if unknown:
            print(f"run {run} is left out: its plan has {', '.join(unknown)}; see ppreport --why", file=sys.stderr)
            continue
        needs, lengths = edges_of(tasks), lengths_of(db, run)
        still = {task: lengths.get(task, 0) for task, kind, *_ in tasks if kind not in MOVES}
        path = path_ns(tasks, needs, lengths) / 1e6
        yield run, schedule, transport, ms, path, path_ns(tasks, needs, still) / 1e6, ms / path


def run_model(ppexec, model, database):
    """All schedules of bench_pytorch.py, as threads and under mpirun."""
    o = dict(bench_pytorch.MODELS[model])
    if o["preset"] != "lab":
        o["steps"] = 2 * TRACED
    args = argparse.Namespace(ppexec=ppexec)
    extra = ["--db", database, "--trace-steps", str(TRACED)]
    for config in bench_pytorch.SCHEDULES[model]:
        bench_pytorch.turn_threads(args, o, config, extra)
        bench_pytorch.turn_mpi(args, o, config, extra)


def bench(ppexec, models, turns):
    print(HEAD.format("model"))
    for model in models:
        rows = {}
        for _ in range(turns):
            with tempfile.TemporaryDirectory() as folder:
                database = os.path.join(folder, "path.db")
                run_model(ppexec, model, database)
                with sqlite3.connect(database) as db:
                    for _, schedule, transport, *figures in measure(db):
                        rows.setdefault((schedule, transport), []).append(figures)
        for (schedule, transport), turn in rows.items():
            middle = [statistics.median(column) for column in zip(*turn)]
            print(COLUMNS.format(model, schedule, transport, *middle), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ppexec", type=arguments.program)
    parser.add_argument("--db", type=arguments.file)
    parser.add_argument("--models", type=arguments.names(bench_pytorch.MODELS), default="small,wide,lab")
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    if bool(args.ppexec) == bool(args.db):
        parser.error("one of --ppexec and --db")
    if args.ppexec:
        bench(args.ppexec, args.models, args.turns)
        return 0
    try:
        with sqlite3.connect(f"file:{args.db}?mode=ro", uri=True) as db:
            rows = list(measure(db))
    except sqlite3.Error as error:
        parser.error(f"argument --db: {args.db}: {error}; name a file that ppexec wrote with --db")
    print(HEAD.format("run"))
    for row in rows:
        print(COLUMNS.format(*row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
