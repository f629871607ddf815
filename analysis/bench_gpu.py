#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ppexec on a GPU: beside PyTorch on the same GPU in one call, beside a floor from what that GPU was seen to do, beside
its own losses on the cpu, and learning.

  bench_gpu.py speed --ppexec PATH --out FILE.jsonl [--models tutorial,tutorial-12] [--precisions fp32,tf32,bf16]
      [--chunks 1,8] [--turns 2] [--steps 12] [--device cuda|cpu] [--tiny] [--ppprof PATH] [--tuned bf16]
      a line for each model, precision and number of chunks; what is in FILE.jsonl already is not measured again
  bench_gpu.py metrics
      what ncu is asked for, with commas between
  bench_gpu.py slower FILE.jsonl
      "model precision chunks" of the lines in which ppexec misses a goal
  bench_gpu.py follow --ppexec PATH --preset lab|small [--precision fp32] [--keep FOLDER]
      losses of --device cuda beside those of --device cpu: equal within a tolerance over the first 20 steps, then
      within 3 % in perplexity; FOLDER keeps the cpu's, which are the same for each precision
  bench_gpu.py learn --ppexec PATH --out FILE.json [--data FOLDER]
      the tutorial at full size, 3 epochs of 50 batches, four workers: losses (valid and test: of 50 batches), ms/batch,
      memory

A step is everything: forward, loss, backward, clipping over all parameters, SGD; dropout on; PyTorch's model is that of
tests/oracle/reference_model.py, "chunks" are microbatches whose gradients add up. bf16 is autocast with float32 weights
in PyTorch, as --precision bf16 is here. Both sides take turns; a turn's figure is the median of whole steps, the device
idle at both ends of each. With several microbatches ppexec runs with --batch-w too (weights' gradients of all of them
at once), and with --ppprof also by the algorithms for products which that measures first (--algorithms): in the first
turn only. The floor
counts, for every product, the longer of its operations at the best rate and its operands at the copy bandwidth, both
measured in the same call, and the passes over all weights of norm and update. Without PyTorch that
sees the GPU, `speed` measures ppexec alone.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import fidelity_design as design  # noqa: E402
import fidelity_gpu as gpu  # noqa: E402
import json_lines  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = {
    "tutorial": dict(d_model=4096, d_ff=4096, layers=8, vocab=28782, rows=20, tokens=35),
    "tutorial-12": dict(d_model=4096, d_ff=4096, layers=12, vocab=28782, rows=20, tokens=25),
}
TINY = {name: value for name, value in design.TINY.items() if name not in ("preset", "replicas")}
# What was expected of an H200 before one was measured: the vendor's fp32 peak, four fifths of its other rates, and the
# copy bandwidth that others saw.
PAPER = {"flops": {"fp32": 67e12, "tf32": 400e12, "bf16": 790e12}, "bytes": 4.3e12}
TUNING_SECONDS = 90
RUN_SECONDS = 90  # ten times what a run of `speed` takes
WAYS = ("ppexec_ms", "batch_w_ms", "algorithms_ms")
GOAL = 1.25  # of the measured floor, with one microbatch
WARMUP = 3
EVALUATED = 50  # batches of an evaluation: all of WikiText-2's would take minutes after each epoch
# Largest difference of a loss over the first steps: rounding of products, then of activations.
TOLERANCE = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}

# What ncu measures of a kernel, for scripts/gpu to ask and gpu_report.py to read.
NCU = ("gpu__time_duration.sum", *(f"{u}__throughput.avg.pct_of_peak_sustained_elapsed" for u in ("sm", "dram")))
NCU += ("launch__waves_per_multiprocessor",)


def microbatch_rows(rows, chunks):
    """As torch.chunk cuts."""
    piece = -(-rows // chunks)
    return [min(piece, rows - at) for at in range(0, rows, piece)]


def floor_ms(o, chunks, precision, ceilings, batch_w=1):
    """See above. Weights' gradients of later microbatches are read as well as written; batch_w: of so many at once."""
    d, f, size = o["d_model"], o["d_ff"], 2 if precision == "bf16" else 4
    rate, width = ceilings["flops"][precision], ceilings["bytes"]
    layer = ((3 * d, d), (d, d), (f, d), (d, f))
    products = [shape for _ in range(o["layers"]) for shape in layer] + [(o["vocab"], d)]
    tokens = [rows * o["tokens"] for rows in microbatch_rows(o["rows"], chunks)]
    together = [sum(tokens[at : at + batch_w]) for at in range(0, len(tokens), batch_w)]
    seconds = 0.0
    for n, k in products:
        for t in tokens:  # forward, and gradients of inputs
            seconds += 2 * max(2.0 * t * n * k / rate, size * (t * k + n * k + t * n) / width)
        for i, t in enumerate(together):
            moved = size * (t * k + t * n) + 4 * n * k * (1 if i == 0 else 2)
            seconds += max(2.0 * t * n * k / rate, moved / width)
    embedding = o["vocab"] * d
    parameters = sum(n * k for n, k in products) + embedding
    passes = parameters * (4 + 12 + (2 if precision == "bf16" else 0)) + 4 * embedding  # its gradient is cleared
    return 1e3 * (seconds + passes / width)


class Torch:
    """PyTorch's side, on `device`; raises ImportError where it cannot be."""

    def __init__(self, device, tiny):
        import torch

        if device == "cuda" and not torch.cuda.is_available():
            raise ImportError("PyTorch sees no GPU")
        self.torch, self.device, self.model = torch, device, None
        with torch.device(device):
            self.ceilings = self.measure_ceilings(tiny)

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def set_precision(self, precision):
        self.torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")

    def best_seconds(self, work, times=8):
        seconds = []
        for _ in range(times + 2):
            self.wait()
            start = time.perf_counter()
            work()
            self.wait()
            seconds.append(time.perf_counter() - start)
        return min(seconds[2:])

    def measure_ceilings(self, tiny):
        """{"flops": {precision: FLOP/s}, "bytes": bytes/s}: reading and writing both count."""
        torch, rates = self.torch, {}
        for precision in TOLERANCE:
            self.set_precision(precision)
            rates[precision] = 0.0
            for n in (256,) if tiny else (4096, 8192):
                dtype = torch.bfloat16 if precision == "bf16" else torch.float32
                a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
                seconds = self.best_seconds(lambda a=a, b=b: torch.matmul(a, b))
                rates[precision] = max(rates[precision], 2 * n**3 / seconds)
        source = torch.randn((1 << 22) if tiny else (1 << 29))
        target = torch.empty_like(source)
        seconds = self.best_seconds(lambda a=source, b=target: b.copy_(a))
        del source, target
        self.release()
        return {"flops": rates, "bytes": 2 * 4 * ((1 << 22) if tiny else (1 << 29)) / seconds}

    def release(self):
        """What PyTorch keeps for later, so that ppexec has the memory."""
        if self.device == "cuda":
            self.torch.cuda.empty_cache()

    def take(self, model, tiny):
        """No default device in steps: it would take some us of each call. Nor do they make the table of positions."""
        sys.path.insert(0, str(ROOT / "tests" / "oracle"))
        import reference_model

        self.model = None
        self.release()
        self.o = reference_model.options({"preset": model, **(TINY if tiny else {})})
        with self.torch.device(self.device):
            self.model = reference_model.build(self.o)
            table = self.model.sinusoids(self.o["tokens"], self.o["d_model"], self.model.decoder.weight.detach())
        self.model.sinusoids = lambda *_: table
        self.model.train()
        self.optimizer = self.torch.optim.SGD(self.model.parameters(), lr=1e-6)

    def step(self, batch, chunks, autocast):
        o, piece = self.o, -(-self.o["rows"] // chunks)
        self.optimizer.zero_grad(set_to_none=True)
        for inputs, targets in zip(batch[0].split(piece), batch[1].split(piece)):
            with autocast:
                logits = self.model(inputs)
            entropy = self.torch.nn.functional.cross_entropy
            loss = entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="sum")
            (loss / (o["rows"] * o["tokens"])).backward()
        if o["clip"] > 0:
            self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), o["clip"])
        self.optimizer.step()

    def ms(self, chunks, precision, steps):
        """Median of full steps."""
        torch, times = self.torch, []
        self.set_precision(precision)
        batch = torch.randint(self.o["vocab"], (2, self.o["rows"], self.o["tokens"]), device=self.device)
        autocast = torch.autocast(self.device, torch.bfloat16, enabled=precision == "bf16")
        for _ in range(steps + WARMUP):
            self.wait()
            start = time.perf_counter()
            self.step(batch, chunks, autocast)
            self.wait()
            times.append(1e3 * (time.perf_counter() - start))
        self.optimizer.zero_grad(set_to_none=True)
        self.release()
        return statistics.median(times[WARMUP:])


def ppexec(path, words, seconds=None):
    command = [path, *map(str, words), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    sys.stderr.write(done.stderr)
    if done.returncode:
        raise SystemExit(f"exit status {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
    return {**json.loads(done.stdout)[0], "command": " ".join(["ppexec", *command[1:]])}


def tiny_words(args, **more):
    words = []
    for name, value in {**TINY, **more}.items() if args.tiny else ():
        words += ["--" + name.replace("_", "-"), value]
    return words


def ppexec_words(args, model, chunks, precision):
    words = ["--preset", model, "--device", args.device, "--precision", precision, "--chunks", chunks, "--stages", 1]
    words += ["--replicas", 1, "--checkpoint", "never", "--no-eval", "--epochs", 1, "--warmup", WARMUP]
    return [*words, "--max-batches", args.steps + WARMUP, "--trace-steps", 0, *tiny_words(args)]


def watched(args, call):
    """(what it returns, figures of the GPU)"""
    with gpu.Watch(args.device) as watch:
        result = call()
    return result, watch.figures


def algorithms(args, model, precision):
    """ppprof's file of the fastest algorithms for the model's products, beside --out; "": none is wanted."""
    if not args.ppprof or precision not in args.tuned.split(","):
        return ""
    path = pathlib.Path(args.out).parent / f"{model}-{precision}.algorithms"
    if not path.exists():
        words = ["--preset", model, "--device", args.device, "--precision", precision, "--chunks", args.chunks]
        words += ["--stages", 1, "--replicas", 1, "--no-eval", "--seconds", 0.001, "--rounds", 1, *tiny_words(args)]
        words += ["--algorithms", path, "--db", path.with_suffix(".db")]
        try:
            subprocess.run([args.ppprof, *map(str, words)], stdout=sys.stderr, check=False, timeout=TUNING_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"{path.name}: not made within {TUNING_SECONDS} s", file=sys.stderr)
        path.with_suffix(".db").unlink(missing_ok=True)
    return str(path) if path.exists() else ""


def ms_of(result):
    if result["ms_per_batch"] is None:
        raise SystemExit("ppexec refuses to tell times; it says why above")
    return result["ms_per_batch"]


def other_way(args, words):
    """[ms/batch]; nothing if it does not work, which does not take the other figures along."""
    try:
        return [ms_of(ppexec(args.ppexec, words, RUN_SECONDS))]
    except (SystemExit, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return []


def torch_turn(args, torch, chunks, precision):
    """([ms/batch], figures of the GPU); nothing of a side that fails, which does not take ppexec's figures along."""
    try:
        taken, figures = watched(args, lambda: torch.ms(chunks, precision, args.steps))
        return [taken], figures
    except RuntimeError as error:
        print(f"PyTorch: {error}", file=sys.stderr)
        return [], {}


def turns(args, torch, model, precision, chunks, chosen):
    """A line of `speed`: all sides, one after the other, --turns times. `chosen`: a file of algorithms, or ""."""
    o, words = {**SHAPES[model], **(TINY if args.tiny else {})}, ppexec_words(args, model, chunks, precision)
    m = len(microbatch_rows(o["rows"], chunks))
    row = {"model": model, "precision": precision, "chunks": chunks, "microbatches": m, "device": args.device}
    row.update(paper_ms=floor_ms(o, chunks, precision, PAPER), torch_ms=[], ppexec_ms=[], batch_w_ms=[])
    row.update(algorithms_ms=[], torch_gpu=[], ppexec_gpu=[], ceilings=torch and torch.ceilings)
    row["floor_ms"] = torch and floor_ms(o, chunks, precision, torch.ceilings)
    row["batch_w_floor_ms"] = torch and m > 1 and floor_ms(o, chunks, precision, torch.ceilings, m) or None
    ways = {"batch_w_ms": ["--batch-w", m] if m > 1 else []}
    ways["algorithms_ms"] = ["--algorithms", chosen] if chosen else []
    for turn in range(args.turns):
        if torch:
            taken, figures = torch_turn(args, torch, chunks, precision)
            row["torch_ms"] += taken
            row["torch_gpu"].append(figures)
        result, figures = watched(args, lambda: ppexec(args.ppexec, words, RUN_SECONDS))
        row["ppexec_ms"].append(ms_of(result))
        row["ppexec_gpu"].append(figures)
        row["command"] = result["command"]
        for name, more in ways.items() if turn == 0 else ():
            if more:
                row[name] += other_way(args, [*words, *more])
    return row


def speed_in(args, torch, model, precision, wanted):
    """The lines of a model in one precision, of the wanted numbers of chunks; returns how many failed. Where one hangs,
    the others are not tried."""
    failed, chosen = 0, algorithms(args, model, precision)
    for chunks in wanted:
        try:
            row = turns(args, torch, model, precision, chunks, chosen)
        except SystemExit as error:
            print(error, file=sys.stderr)
            failed += 1
            continue
        except subprocess.TimeoutExpired as error:
            print(error, file=sys.stderr)
            return failed + 1
        json_lines.append(args.out, row)
        print(json.dumps(row), flush=True)
    return failed


def speed_of(args, torch, model, known):
    """The lines of a model; returns how many failed."""
    failed, taken = 0, False
    for precision in args.precisions.split(","):
        wanted = [c for c in map(int, args.chunks.split(",")) if (model, precision, c) not in known]
        if not wanted:
            continue
        if torch and not taken:
            torch.take(model, args.tiny)
        taken = True
        failed += speed_in(args, torch, model, precision, wanted)
    return failed


def speed(args):
    known = {(r["model"], r["precision"], r["chunks"]) for r in json_lines.read(args.out)}
    try:
        torch = Torch(args.torch_device or args.device, args.tiny)
    except (ImportError, RuntimeError) as error:
        torch = None
        print(f"ppexec alone: {error}", file=sys.stderr)
    return 1 if sum(speed_of(args, torch, model, known) for model in args.models.split(",")) else 0


def verdict(row):
    """(ppexec's best way over the floor, over PyTorch, are the goals met?); None: not known."""
    ways = {name: statistics.median(row[name]) for name in WAYS if row.get(name)}
    alike = min(ms for name, ms in ways.items() if name != "batch_w_ms")
    floor = alike / row["floor_ms"] if row["floor_ms"] else None
    peer = min(ways.values()) / statistics.median(row["torch_ms"]) if row["torch_ms"] else None
    if floor is None or peer is None:
        return floor, peer, None
    return floor, peer, peer <= 1 and (row["microbatches"] > 1 or floor <= GOAL)


def metrics(_):
    print(",".join(NCU))
    return 0


def slower(args):
    for row in json_lines.read(args.file):
        if verdict(row)[2] is False:
            print(row["model"], row["precision"], row["chunks"])
    return 0


def follow(args):
    """A batch or token order of its own would show at once; so would a wrong gradient."""
    words = ["--preset", args.preset, "--max-batches", args.batches, "--epochs", 1, "--trace-steps", 0]
    words += tiny_words(args, lr=0.5)
    kept = pathlib.Path(args.keep) / f"follow-{args.preset}.json" if args.keep else None
    ours = ppexec(args.ppexec, [*words, "--device", "cuda", "--precision", args.precision])
    if kept and kept.exists():
        theirs = json.loads(kept.read_text(encoding="utf-8"))
    else:
        theirs = ppexec(args.ppexec, [*words, "--device", "cpu", "--vocab-multiple", 1])
        if kept:
            kept.write_text(json.dumps(theirs), encoding="utf-8")
    ends = [result["valid_loss"][-1] if result["valid_loss"] else result["loss"][-1] for result in (ours, theirs)]
    if None in (*ours["loss"], *theirs["loss"], *ends):
        print(f"{args.preset} {args.precision}: a loss is no number: NOT OK")
        return 1
    first = max(abs(a - b) for a, b in zip(ours["loss"][:20], theirs["loss"][:20]))
    perplexity = abs(math.expm1(min(ends[0] - ends[1], 100)))
    good = first <= TOLERANCE[args.precision] and perplexity <= 0.03
    print(
        f"{args.preset} {args.precision}: {len(ours['loss'])} steps, largest difference of the first 20 losses "
        f"{first:.2e} (allowed {TOLERANCE[args.precision]:.0e}), perplexity at the end {100 * perplexity:.2f} % apart: "
        f"{'ok' if good else 'NOT OK'}"
    )
    return 0 if good else 1


def learn(args):
    words = ["--preset", "tutorial", "--device", "cuda", "--gpus", 1, *tiny_words(args, lr=0.5)]
    words += ["--data", args.data] if args.data else []
    words += ["--max-batches", 5] if args.tiny else []
    words += ["--eval-batches", EVALUATED]
    result, figures = watched(args, lambda: ppexec(args.ppexec, words))
    pathlib.Path(args.out).write_text(json.dumps({**result, "gpu": figures}) + "\n", encoding="utf-8")
    return 0


COMMANDS = (speed, metrics, slower, follow, learn)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    known = {function.__name__: commands.add_parser(function.__name__) for function in COMMANDS}
    for function in COMMANDS:
        known[function.__name__].set_defaults(run=function)
    for name in ("speed", "follow", "learn"):
        known[name].add_argument("--ppexec", required=True)
        known[name].add_argument("--tiny", action="store_true", help="a tiny model, to try the script")
        known[name].add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    for name in ("speed", "learn"):
        known[name].add_argument("--out", required=True)
    known["slower"].add_argument("file")
    add = known["speed"].add_argument
    add("--models", default="tutorial,tutorial-12")
    add("--precisions", default="fp32,tf32,bf16")
    add("--chunks", default="1,8")
    add("--steps", type=int, default=12)
    add("--turns", type=int, default=2)
    add("--ppprof", default="", help="choose algorithms for products first, and run with them as well")
    add("--tuned", default="fp32,tf32,bf16", help="precisions for which --ppprof chooses algorithms")
    add("--torch-device", default="", help="another one for PyTorch, to try the script")
    add = known["follow"].add_argument
    add("--preset", required=True)
    add("--precision", default="fp32", choices=tuple(TOLERANCE))
    add("--batches", type=int, default=200)
    add("--keep", default="")
    known["learn"].add_argument("--data", default="")
    args = parser.parse_args()
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
