#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ms/batch of ppexec over the critical path of its own measured tasks: what it loses beside computing and moving.

  bench_path.py --ppexec build/bin/ppexec [--models small,wide,lab] [--turns 3]   # runs P = 2, all schedules
  bench_path.py --db pp.db                                                        # all traced runs of a database

Each task has its median length over the traced steps; the path is the longest way through the plan with these lengths
(docs/METRICS.md, "Critical path of measured tasks"). ms/batch is the median of the steps that are not traced. The
database knows what each task needs (view v_task_edge); runs of older files, whose plans have no such edges, are left
out.
"""

import argparse
import os
import pathlib
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
    "SELECT run.id, schedule, transport, plan, ms_per_batch, edges IS NOT NULL "
    "FROM run JOIN plan ON plan.id = run.plan WHERE tool = 'ppexec' AND status = 'ok' AND ms_per_batch > 0 "
    "AND EXISTS (SELECT 1 FROM event WHERE event.run = run.id) ORDER BY run.id"
)
TASKS = "SELECT id, kind, lane FROM task WHERE plan = ? ORDER BY id"
# What a task works on; not the memory, or the place in a list, that it also waits for.
EDGES = "SELECT task, needs, steps_back FROM v_task_edge WHERE plan = ? AND why IN ('input', 'parameters')"
# A transfer lasts from its last post to its arrival, which the receiver sees.
LENGTHS = "SELECT task, end_ns - start_ns FROM event WHERE run = ? AND side != 1"
MOVES = ("XFER_F", "XFER_B")
WITHOUT_EDGES = "an older ppkit stored its plan without edges; ppsim with the same options and --db adds them"


def lengths_of(db, run):
    """task -> median length in ns"""
    seen = {}
    for task, ns in db.execute(LENGTHS, (run,)):
        seen.setdefault(task, []).append(ns)
    return {task: statistics.median(all_ns) for task, all_ns in seen.items()}


def path_ns(tasks, edges, lengths):
    """Distance of the ends of two successive steps. tasks: (id, kind, lane) in order of ids; edges: (task, needs,
    steps_back). A task begins when the one before it on its lane has ended, and all that it needs."""
    needs = {}
    for task, needed, steps_back in edges:
        needs.setdefault(task, []).append((needed, steps_back))
    lane_end, steps, ends = {}, [{}, {}], [0]  # steps: task -> end, of this step and of the one before it
    for _ in range(STEPS):
        steps = [{}, steps[0]]
        for task, _, lane in tasks:
            given = (steps[back].get(needed, 0) for needed, back in needs.get(task, ()))
            steps[0][task] = lane_end[lane] = max(lane_end.get(lane, 0), *given, 0) + lengths.get(task, 0)
        ends.append(max(steps[0].values()))
    return ends[-1] - ends[-2]


def measure(db):
    """(run, schedule, transport, ms/batch, path, path without transfers, ratio) of each traced run"""
    for run, schedule, transport, plan, ms, has_edges in db.execute(RUNS).fetchall():
        if not has_edges:
            print(f"run {run} is left out: {WITHOUT_EDGES}", file=sys.stderr)
            continue
        tasks, edges = db.execute(TASKS, (plan,)).fetchall(), db.execute(EDGES, (plan,)).fetchall()
        lengths = lengths_of(db, run)
        still = {task: lengths.get(task, 0) for task, kind, _ in tasks if kind not in MOVES}
        path = path_ns(tasks, edges, lengths) / 1e6
        yield run, schedule, transport, ms, path, path_ns(tasks, edges, still) / 1e6, ms / path


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
        with sqlite3.connect(pathlib.Path(args.db).absolute().as_uri() + "?mode=ro", uri=True) as db:
            rows = list(measure(db))
    except sqlite3.Error as error:
        parser.error(f"argument --db: {args.db}: {error}; name a file that ppexec wrote with --db")
    print(HEAD.format("run"))
    for row in rows:
        print(COLUMNS.format(*row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
