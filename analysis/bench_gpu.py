#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ppexec on a GPU beside PyTorch on the same GPU, in one call, and beside a floor from what that GPU was seen to do.

  bench_gpu.py ceilings --out FILE.json [--device cuda|cpu]
      rates of large products in each precision, and copy bandwidth
  bench_gpu.py speed --ppexec PATH --out FILE.jsonl [--models tutorial,tutorial-12] [--precisions fp32,tf32,bf16]
      [--chunks 1,8] [--device cuda|cpu] [--steps 12] [--tiny]
      a line for each model, precision and number of chunks; what is in FILE.jsonl already is not measured again
  bench_gpu.py follow --ppexec PATH --preset lab|small [--precision fp32]
      losses of --device cuda beside those of --device cpu: equal within a tolerance over the first 20 steps, then
      within 3 % in perplexity
  bench_gpu.py table FILE.jsonl
      the lines of `speed` as a table

A step is everything: forward, loss, backward, clipping over all parameters, SGD; dropout on; the model is that of
tests/oracle/reference_model.py. bf16 is autocast with float32 weights in PyTorch, as --precision bf16 is here. Times
are medians of whole steps, the device idle at both ends of each. The floor counts, for every product, the longer of its
operations at the best rate and its operands at the copy bandwidth, and the passes over all weights of norm and update.
Only `follow` and `table` work without PyTorch.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TINY = {"d_model": 32, "heads": 4, "d_ff": 48, "layers": 2, "vocab": 100, "rows": 8, "tokens": 8}
WARMUP = 3
# Largest difference of a loss over the first steps: rounding of products, then of activations.
TOLERANCE = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}


def torch_for(device):
    import torch

    torch.set_default_device(device)
    return torch


def wait(torch, device):
    if device == "cuda":
        torch.cuda.synchronize()


def set_precision(torch, precision):
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def best_seconds(torch, device, work, times=8):
    seconds = []
    for _ in range(times + 2):
        wait(torch, device)
        start = time.perf_counter()
        work()
        wait(torch, device)
        seconds.append(time.perf_counter() - start)
    return min(seconds[2:])


def measure_ceilings(device, tiny):
    """{"flops": {precision: FLOP/s}, "bytes": bytes/s}: reading and writing both count."""
    torch = torch_for(device)
    rates = {}
    for precision in ("fp32", "tf32", "bf16"):
        set_precision(torch, precision)
        rates[precision] = 0.0
        for n in (256,) if tiny else (4096, 8192):
            dtype = torch.bfloat16 if precision == "bf16" else torch.float32
            a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
            seconds = best_seconds(torch, device, lambda a=a, b=b: torch.matmul(a, b))
            rates[precision] = max(rates[precision], 2 * n**3 / seconds)
    source = torch.zeros((1 << 22) if tiny else (1 << 29))
    target = torch.empty_like(source)
    seconds = best_seconds(torch, device, lambda: target.copy_(source))
    return {"flops": rates, "bytes": 2 * source.numel() * 4 / seconds}


def microbatch_rows(rows, chunks):
    """As torch.chunk cuts."""
    piece = -(-rows // chunks)
    return [min(piece, rows - at) for at in range(0, rows, piece)]


def floor_ms(o, chunks, precision, ceilings):
    """See above. Weights' gradients of a later microbatch are read as well as written."""
    d, f, size = o["d_model"], o["d_ff"], 2 if precision == "bf16" else 4
    layer = ((3 * d, d), (d, d), (f, d), (d, f))
    products = [shape for _ in range(o["layers"]) for shape in layer] + [(o["vocab"], d)]
    seconds = 0.0
    for i, rows in enumerate(microbatch_rows(o["rows"], chunks)):
        tokens = rows * o["tokens"]
        for n, k in products:
            flops = 2.0 * tokens * n * k / ceilings["flops"][precision]
            forward = size * (tokens * k + n * k + tokens * n) / ceilings["bytes"]
            weights = (size * (tokens * k + tokens * n) + 4 * n * k * (1 if i == 0 else 2)) / ceilings["bytes"]
            seconds += 2 * max(flops, forward) + max(flops, weights)
    parameters = sum(n * k for n, k in products) + o["vocab"] * d
    return 1e3 * (seconds + parameters * (4 + 12 + (2 if precision == "bf16" else 0)) / ceilings["bytes"])


def torch_ms(o, chunks, precision, device, steps):
    """Median ms of a full step of PyTorch."""
    torch = torch_for(device)
    sys.path.insert(0, str(ROOT / "tests" / "oracle"))
    import reference_model

    set_precision(torch, precision)
    model = reference_model.build(o)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batch = torch.randint(o["vocab"], (2, o["rows"], o["tokens"]))
    count = o["rows"] * o["tokens"]
    autocast = torch.autocast(device, torch.bfloat16, enabled=precision == "bf16")
    times = []
    for _ in range(steps + WARMUP):
        wait(torch, device)
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for inputs, targets in zip(batch[0].split(-(-o["rows"] // chunks)), batch[1].split(-(-o["rows"] // chunks))):
            with autocast:
                logits = model(inputs)
            loss = torch.nn.functional.cross_entropy(
                logits.float().flatten(0, 1), targets.flatten(), reduction="sum"
            )
            (loss / count).backward()
        if o["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), o["clip"])
        optimizer.step()
        wait(torch, device)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[WARMUP:])


def ppexec(path, words):
    command = [path, *map(str, words), "--format", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"exit status {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)[0]


def ppexec_ms(args, o, model, chunks, precision):
    words = ["--preset", model, "--device", args.device, "--precision", precision, "--chunks", chunks, "--stages", 1]
    words += ["--replicas", 1, "--checkpoint", "never", "--no-eval", "--epochs", 1, "--warmup", WARMUP]
    words += ["--max-batches", args.steps + WARMUP, "--trace-steps", 0]
    for name, value in TINY.items() if args.tiny else ():
        words += ["--" + name.replace("_", "-"), value]
    return ppexec(args.ppexec, words)["ms_per_batch"]


def options_of(model, tiny):
    sys.path.insert(0, str(ROOT / "tests" / "oracle"))
    import reference_model

    return reference_model.options({"preset": model, **(TINY if tiny else {})})


def speed(args):
    out = pathlib.Path(args.out)
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    known = {(r["model"], r["precision"], r["chunks"]) for r in done}
    side = args.torch_device or args.device
    ceilings = measure_ceilings(side, args.tiny)
    for model in args.models.split(","):
        o = options_of(model, args.tiny)
        for precision in args.precisions.split(","):
            for chunks in map(int, args.chunks.split(",")):
                if (model, precision, chunks) in known:
                    continue
                row = {"model": model, "precision": precision, "chunks": chunks, "device": args.device}
                row["floor_ms"] = floor_ms(o, chunks, precision, ceilings)
                row["torch_ms"] = torch_ms(o, chunks, precision, side, args.steps)
                if side == "cuda":
                    torch_for("cuda").cuda.empty_cache()
                row["ppexec_ms"] = ppexec_ms(args, o, model, chunks, precision)
                row["ceilings"] = ceilings
                with open(out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)
    return 0


def table(args):
    print("| model | precision | chunks | ppexec ms | PyTorch ms | of PyTorch's | floor ms | of the floor |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for line in pathlib.Path(args.file).read_text().splitlines():
        r = json.loads(line)
        print(
            f"| {r['model']} | {r['precision']} | {r['chunks']} | {r['ppexec_ms']:.2f} | {r['torch_ms']:.2f} | "
            f"{r['ppexec_ms'] / r['torch_ms']:.2f} | {r['floor_ms']:.2f} | {r['ppexec_ms'] / r['floor_ms']:.2f} |"
        )
    return 0


def follow(args):
    """A batch or token order of its own would show at once; so would a wrong gradient."""
    words = ["--preset", args.preset, "--max-batches", args.batches, "--epochs", 1, "--trace-steps", 0]
    for name, value in {**TINY, "lr": 0.5}.items() if args.tiny else ():
        words += ["--" + name.replace("_", "-"), value]
    ours = ppexec(args.ppexec, [*words, "--device", "cuda", "--precision", args.precision])
    theirs = ppexec(args.ppexec, [*words, "--device", "cpu", "--vocab-multiple", 1])
    first = max(abs(a - b) for a, b in zip(ours["loss"][:20], theirs["loss"][:20]))
    ends = [result["valid_loss"][-1] if result["valid_loss"] else result["loss"][-1] for result in (ours, theirs)]
    perplexity = abs(math.exp(ends[0] - ends[1]) - 1)
    good = first <= TOLERANCE[args.precision] and perplexity <= 0.03
    print(
        f"{args.preset} {args.precision}: {len(ours['loss'])} steps, largest difference of the first 20 losses "
        f"{first:.2e} (allowed {TOLERANCE[args.precision]:.0e}), perplexity at the end {100 * perplexity:.2f} % apart: "
        f"{'ok' if good else 'NOT OK'}"
    )
    return 0 if good else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("ceilings")
    one.add_argument("--out", required=True)
    one.set_defaults(run=lambda a: pathlib.Path(a.out).write_text(json.dumps(measure_ceilings(a.device, a.tiny))) * 0)
    two = commands.add_parser("speed")
    two.add_argument("--ppexec", required=True)
    two.add_argument("--out", required=True)
    two.add_argument("--models", default="tutorial,tutorial-12")
    two.add_argument("--precisions", default="fp32,tf32,bf16")
    two.add_argument("--chunks", default="1,8")
    two.add_argument("--steps", type=int, default=12)
    two.add_argument("--torch-device", default="", help="another one for PyTorch, to try the script")
    two.set_defaults(run=speed)
    for command in (one, two):
        command.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    three = commands.add_parser("follow")
    three.add_argument("--ppexec", required=True)
    three.add_argument("--preset", required=True)
    three.add_argument("--precision", default="fp32", choices=tuple(TOLERANCE))
    three.add_argument("--batches", type=int, default=200)
    three.set_defaults(run=follow)
    for command in (one, two, three):
        command.add_argument("--tiny", action="store_true", help="a tiny model, to try the script")
    four = commands.add_parser("table")
    four.add_argument("file")
    four.set_defaults(run=table)
    args = parser.parse_args()
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
