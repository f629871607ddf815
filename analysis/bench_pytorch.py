#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ms/batch of ppexec beside PyTorch's on the same cores: pipelining over gloo (2 processes, one pinned to each of two
cores, one thread each), plain PyTorch with two threads, and ppexec --stages 2 as threads and under mpirun. All take
turns within one run, so that drift of the machine hits all alike; each turn gives the median of its steps, the table
the median of the turns and their spread (largest - smallest, in % of the median).

  bench_pytorch.py --ppexec build/bin/ppexec [--python PYTHON-WITH-TORCH] [--models small,wide,lab] [--turns 3]

A step is everything: forward, backward, clipping over all parameters, SGD; dropout on. Input is random tokens
(PyTorch) and the generated text (ppexec); the time does not depend on the values.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

import arguments

MODELS = {
    "small": dict(
        preset="small",
        d_model=200,
        heads=2,
        d_ff=200,
        layers=2,
        vocab=28782,
        rows=20,
        tokens=35,
        mask="causal",
        dropout=0.2,
        lr=5.0,
        clip=0.5,
        chunks=4,
        steps=12,
    ),
    "wide": dict(
        preset="small",
        d_model=512,
        heads=8,
        d_ff=2048,
        layers=8,
        vocab=2000,
        rows=16,
        tokens=64,
        mask="causal",
        dropout=0.2,
        lr=5.0,
        clip=0.5,
        chunks=4,
        steps=8,
    ),
    "lab": dict(
        preset="lab",
        d_model=12,
        heads=4,
        d_ff=24,
        layers=2,
        vocab=100,
        rows=4,
        tokens=9,
        mask="none",
        dropout=0.1,
        lr=0.01,
        clip=0.0,
        chunks=2,
        steps=300,
    ),
}
# The schedules compared for each model, with V: interleaved needs 2 x 2 layers.
SCHEDULES = {
    "small": (("gpipe", 1), ("1f1b", 1)),
    "wide": (("gpipe", 1), ("1f1b", 1), ("interleaved", 2)),
    "lab": (("gpipe", 1),),
}
PPKIT_OPTIONS = (
    "preset",
    "d_model",
    "heads",
    "d_ff",
    "layers",
    "vocab",
    "rows",
    "tokens",
    "mask",
    "dropout",
    "lr",
    "clip",
)
WARMUP = 3


# PyTorch's side: this file run by a Python that has torch, as a process for each rank
# ------------------------------------------


def torch_stage(o, layers, first, last):
    """A stage of the model of tests/oracle/reference_model.py: `layers` encoder layers, embedding and decoder at the
    ends."""
    import math

    import torch
    from torch import nn

    class Stage(nn.Module):
        def __init__(self):
            super().__init__()
            d = o["d_model"]
            self.embedding = nn.Embedding(o["vocab"], d) if first else None
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(d, o["heads"], o["d_ff"], o["dropout"], batch_first=True)
                for _ in range(layers)
            )
            self.decoder = nn.Linear(d, o["vocab"]) if last else None
            self.drop = nn.Dropout(o["dropout"])
            self.scale = math.sqrt(d)
            index = torch.arange(o["tokens"]).unsqueeze(1)
            angle = index * torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
            self.register_buffer("table", torch.stack((angle.sin(), angle.cos()), 2).flatten(1)[:, :d])
            causal = nn.Transformer.generate_square_subsequent_mask(o["tokens"])
            self.register_buffer("mask", causal if o["mask"] == "causal" else None)

        def forward(self, x):
            if self.embedding is not None:
                x = self.drop(self.embedding(x) * self.scale + self.table)
            for layer in self.layers:
                x = layer(x, src_mask=self.mask, is_causal=self.mask is not None)
            return self.decoder(x) if self.decoder is not None else x

    return Stage()


def torch_batch(o):
    import torch

    return torch.randint(o["vocab"], (o["rows"], o["tokens"])), torch.randint(o["vocab"], (o["rows"], o["tokens"]))


def torch_loss(logits, targets):
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.flatten(0, 1), targets.flatten())


def torch_plain(o):
    """ms of each step, one process with two threads."""
    import torch

    torch.set_num_threads(2)
    model = torch_stage(o, o["layers"], True, True)
    optimizer = torch.optim.SGD(model.parameters(), lr=o["lr"])
    times = []
    for _ in range(o["steps"]):
        inputs, targets = torch_batch(o)
        start = time.perf_counter()
        optimizer.zero_grad()
        torch_loss(model(inputs), targets).backward()
        if o["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), o["clip"])
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def clip_over_ranks(parameters, limit):
    """clip_grad_norm_ over the parameters of both ranks."""
    import torch
    import torch.distributed as dist

    grads = [p.grad for p in parameters if p.grad is not None]
    total = torch.stack([g.norm() ** 2 for g in grads]).sum()
    dist.all_reduce(total)
    factor = (limit / (total.sqrt() + 1e-6)).clamp(max=1.0)
    for g in grads:
        g.mul_(factor)


def torch_pipeline(o, rank, port, name, virtual):
    """ms of each step of one rank of two."""
    import torch
    import torch.distributed as dist
    from torch.distributed import pipelining

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    device, count = torch.device("cpu"), 2 * virtual
    modules = [torch_stage(o, o["layers"] // count, s == 0, s == count - 1) for s in range(rank, count, 2)]
    stages = [pipelining.PipelineStage(m, s, count, device) for m, s in zip(modules, range(rank, count, 2))]
    kind = {
        "gpipe": pipelining.ScheduleGPipe,
        "1f1b": pipelining.Schedule1F1B,
        "interleaved": pipelining.ScheduleInterleaved1F1B,
    }[name]
    schedule = kind(stages if virtual > 1 else stages[0], o["chunks"], loss_fn=torch_loss)
    parameters = [p for m in modules for p in m.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=o["lr"])
    times = []
    for _ in range(o["steps"]):
        inputs, targets = torch_batch(o)
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        schedule.step(*([inputs] if rank == 0 else []), **({"target": targets, "losses": []} if rank == 1 else {}))
        if o["clip"] > 0:
            clip_over_ranks(parameters, o["clip"])
        optimizer.step()
        dist.barrier()
        times.append(1e3 * (time.perf_counter() - start))
    dist.destroy_process_group()
    return times


def child(words):
    o = json.loads(words[0])
    times = (
        torch_plain(o) if words[1] == "plain" else torch_pipeline(o, int(words[1]), words[2], words[3], int(words[4]))
    )
    print(json.dumps(times))


# The comparison
# ------------------------------------------------------------------------------------------------------------------


def run(command, environment=None):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, timeout=600, check=False
    )
    if done.returncode:
        raise SystemExit(f"exit status {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().split("\n")[-1] if "--child" in command else done.stdout)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def turn_plain(args, o, _):
    return statistics.median(run([args.python, __file__, "--child", json.dumps(o), "plain"])[WARMUP:])


def turn_pipeline(args, o, config):
    name, virtual = config
    port = str(free_port())
    cores = sorted(os.sched_getaffinity(0))
    commands = [
        [
            "taskset",
            "-c",
            str(cores[rank % len(cores)]),
            args.python,
            __file__,
            "--child",
            json.dumps(o),
            str(rank),
            port,
            name,
            str(virtual),
        ]
        for rank in (0, 1)
    ]
    with subprocess.Popen(commands[1], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
        try:
            return statistics.median(run(commands[0])[WARMUP:])
        finally:
            other.terminate()


def ppexec_command(args, o, config):
    name, virtual = config
    words = [
        args.ppexec,
        "--format",
        "json",
        "--no-eval",
        "--stages",
        "2",
        "--chunks",
        str(o["chunks"]),
        "--schedule",
        name,
        "--virtual",
        str(virtual),
        "--epochs",
        "1" if o["preset"] != "lab" else str(o["steps"] // 3),
        "--warmup",
        str(WARMUP),
        "--max-batches",
        str(o["steps"] if o["preset"] != "lab" else 0),
    ]
    for option in PPKIT_OPTIONS:
        words += ["--" + option.replace("_", "-"), str(o[option])]
    return words


def turn_threads(args, o, config, extra=()):
    return run([*ppexec_command(args, o, config), *extra])[0]["ms_per_batch"]


def turn_mpi(args, o, config, extra=()):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = ["mpirun", "--bind-to", "core", "-n", "2", *ppexec_command(args, o, config), *extra]
    return run(command, environment)[0]["ms_per_batch"]


def contestants(args, model):
    """(label, function, schedule and V)."""
    made = [] if args.no_pytorch else [("PyTorch, 2 threads", turn_plain, None)]
    for config in SCHEDULES[model]:
        if not args.no_pytorch:
            made.append((f"PyTorch pipelining {config[0]}", turn_pipeline, config))
        made.append((f"ppexec {config[0]}, threads", turn_threads, config))
        if not args.no_mpi:
            made.append((f"ppexec {config[0]}, MPI", turn_mpi, config))
    return made


def main(words):
    if words[:1] == ["--child"]:
        return child(words[1:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ppexec", required=True, type=arguments.program)
    parser.add_argument("--python", type=arguments.program, default=sys.executable, help="has PyTorch")
    parser.add_argument("--models", type=arguments.names(MODELS), default="small,wide,lab")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--no-mpi", action="store_true")
    parser.add_argument("--no-pytorch", action="store_true", help="ppexec alone")
    args = parser.parse_args(words)
    print(
        f"{' '.join([os.path.relpath(__file__), *words])}\n\n| model | what | ms/batch | spread % | of PyTorch's pipelining |\n"
        "| --- | --- | ---: | ---: | ---: |"
    )
    for model in args.models:
        rows = contestants(args, model)
        times = {label: [] for label, _, _ in rows}
        for _ in range(args.turns):
            for label, turn, config in rows:
                times[label].append(turn(args, MODELS[model], config))
        for label, _, config in rows:
            middle = statistics.median(times[label])
            peer = times.get(f"PyTorch pipelining {(config or ('gpipe',))[0]}")
            ratio = f"{middle / statistics.median(peer):.3f}" if peer else "-"
            spread = 100 * (max(times[label]) - min(times[label])) / middle
            print(f"| {model} | {label} | {middle:.2f} | {spread:.1f} | {ratio} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
