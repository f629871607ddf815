#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.pipelining beside ppsim --times: measures the blocks of a model with scripts/block-times, predicts
schedules, runs the same schedules and cuts in PyTorch, and prints both.

  analysis/bench_pipelining.py analysis/blocks_gpt.py --bin build/release/bin > table.md

On the cpu each rank is a process of one thread, sends by gloo, and blocks are measured by as many processes at a time as
there are ranks, since cores share caches and memory. Blocks are measured before each round of runs and after the last:
cuts are those of the first time, and predictions are of the medians, so a machine that is slower for some minutes slows
down both sides.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import pipelining

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
SCHEDULES = {
    "gpipe": ("ScheduleGPipe", 1),
    "1f1b": ("Schedule1F1B", 1),
    "interleaved": ("ScheduleInterleaved1F1B", 2),
    "interleaved-zb": ("ScheduleInterleavedZeroBubble", 2),
    "zbv": ("ScheduleZBVZeroBubble", 2),
}
WARM = 3


def load(path):
    spec = importlib.util.spec_from_file_location("blocks_model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stages_of(rank, ranks, schedule):
    """Numbers of a rank's stages."""
    if SCHEDULES[schedule][1] == 1:
        return [rank]
    return [rank, 2 * ranks - 1 - rank] if schedule == "zbv" else [rank, rank + ranks]


def make(model, rank, args, row):
    """(schedule, optimizers) of a rank."""
    blocks, name, cut = list(model.blocks()), row["schedule"], row["stage_layers"]
    kind = getattr(pipelining.schedules, SCHEDULES[name][0])
    stages = []
    for stage in stages_of(rank, args.ranks, name):
        begin = sum(cut[:stage])
        part = torch.nn.Sequential(*blocks[begin : begin + cut[stage]])
        stages.append(pipelining.PipelineStage(part, stage, len(cut), torch.device("cpu")))
    optimizers = [model.optimizer([x for x in s.submod.parameters() if x.requires_grad]) for s in stages]
    several = SCHEDULES[name][1] > 1
    schedule = kind(
        stages if several else stages[0], row["chunks"], loss_fn=lambda output, _: model.loss(output), scale_grads=False
    )
    return schedule, optimizers, [s.is_first for s in stages], [s.is_last for s in stages]


def run(model, rank, args, row):
    """Milliseconds of each step on this rank."""
    torch.manual_seed(0)
    schedule, optimizers, first, last = make(model, rank, args, row)
    batch = torch.cat([model.example() for _ in range(row["chunks"])])
    target = torch.zeros(len(batch))
    times = []
    for _ in range(WARM + args.steps):
        start = time.perf_counter()
        schedule.step(*([batch] if any(first) else []), **({"target": target, "losses": []} if any(last) else {}))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        times.append(1e3 * (time.perf_counter() - start))
    return times[WARM:]


def hop(model, rank, args):
    """Milliseconds from one rank to the next, of what layers hand on."""
    blocks = list(model.blocks())
    value = blocks[0](model.example()).detach()
    times = []
    for _ in range(100):
        dist.barrier()
        start = time.perf_counter()
        if rank == 0:
            dist.send(value, 1)
            dist.recv(value, 1)
        elif rank == 1:
            dist.recv(value, 0)
            dist.send(value, 0)
        times.append(1e3 * (time.perf_counter() - start) / 2)
    return statistics.median(times)


def core_of(rank):
    cores = sorted(os.sched_getaffinity(0))
    return cores[rank % len(cores)]


def work(rank, args, rows, folder):
    """One process: the hop, or (rows) all configurations in turn."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {core_of(rank)})
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    model = load(args.model)
    if rows is None:
        result = hop(model, rank, args)
    else:
        result = []
        for row in rows:
            result.append(statistics.median(run(model, rank, args, row)))
            dist.barrier()
            if rank == 0:
                print(f"{row['schedule']} {row['chunks']}: {result[-1]:.1f} ms", file=sys.stderr)
    if rank == 0:
        (pathlib.Path(folder) / "result.json").write_text(json.dumps(result))
    dist.destroy_process_group()


def spawn(args, rows):
    with tempfile.TemporaryDirectory() as folder:
        args.port += 1
        mp.spawn(work, (args, rows, folder), nprocs=args.ranks)
        return json.loads((pathlib.Path(folder) / "result.json").read_text())


def measure_blocks(args):
    """(head, lines) of the table of blocks, measured by several processes at a time; the first one's count."""
    command = [sys.executable, REPOSITORY / "scripts" / "block-times", args.model, "--threads", "1", "--seconds", "1"]
    running = [
        subprocess.Popen(["taskset", "-c", str(core_of(rank)), *map(str, command)], stdout=subprocess.PIPE, text=True)
        for rank in range(args.ranks)
    ]
    texts = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        sys.exit("block-times failed")
    head, *lines = [line.split("\t") for line in texts[0].splitlines() if not line.startswith("#")]
    return head, lines


def write_medians(tables, path):
    """The table of blocks whose figures are the medians of those of several."""
    head = tables[0][0]
    with path.open("w") as file:
        print(*head, sep="\t", file=file)
        for same in zip(*(lines for _, lines in tables)):
            figures = (statistics.median(map(float, cells)) for cells in list(zip(*same))[1:])
            print(same[0][0], *(f"{figure:.6g}" for figure in figures), sep="\t", file=file)


def ppsim(args, words):
    command = [pathlib.Path(args.bin) / "ppsim", *words, "--format", "json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def cut(args, times):
    """A row of ppsim for each configuration."""
    rows = []
    for schedule in args.schedules.split(","):
        words = ["--times", times, "--stages", str(args.ranks), "--schedule", schedule, "--chunks", args.chunks]
        rows += ppsim(args, words)
    return rows


def predict(args, times, row):
    """Milliseconds of a row's schedule and stages, with these times."""
    stages = ",".join(map(str, row["stage_layers"]))
    words = ["--times", times, "--stages", str(args.ranks), "--schedule", row["schedule"], "--split", stages]
    return ppsim(args, [*words, "--chunks", str(row["chunks"])])[0]["ms_per_batch"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--schedules", default="gpipe,1f1b,interleaved,interleaved-zb,zbv")
    parser.add_argument("--chunks", default="2,4,8")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=29600)
    parser.add_argument("--blocks", type=pathlib.Path, help="write the block times there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.blocks or pathlib.Path(folder) / "blocks.tsv"
        hops, tables, measured = [spawn(args, None)], [measure_blocks(args)], []
        write_medians(tables, path)
        rows = cut(args, f"{path},{hops[0]:.6f}")
        for _ in range(args.rounds):
            measured.append(spawn(args, rows))
            hops.append(spawn(args, None))
            tables.append(measure_blocks(args))
        write_medians(tables, path)
        hop_ms = statistics.median(hops)
        predicted = [predict(args, f"{path},{hop_ms:.6f}", row) for row in rows]
    print(f"A hop takes {hop_ms:.3f} ms.\n")
    print("| schedule | M | blocks of stages | predicted ms | measured ms | of runs | error % |")
    print("| --- | ---: | --- | ---: | ---: | --- | ---: |")
    errors = []
    for row, ms, times in zip(rows, predicted, zip(*measured)):
        real = statistics.median(times)
        errors.append(100 * (ms / real - 1))
        stages, spread = ",".join(map(str, row["stage_layers"])), f"{min(times):.1f} to {max(times):.1f}"
        what = f"{row['schedule']} | {row['chunks']} | {stages}"
        print(f"| {what} | {ms:.1f} | {real:.1f} | {spread} | {errors[-1]:+.1f} |")
    mean = statistics.mean(map(abs, errors))
    print(f"\nErrors are {mean:.1f} % on average, {max(map(abs, errors)):.1f} % at most.")


if __name__ == "__main__":
    main()
