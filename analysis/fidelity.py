#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How good are the predictions? Block by block (a model, a number of ranks and of their workers, a checkpoint mode, a precision): profiles,
writes the predictions down, then runs everything for real in random order, some of it beside a foreign load.

  fidelity.py --bin build/bin --out fidelity/ [--quick] [--models small,wide] [--transports threads,mpi] [--p4]
  fidelity.py --bin build/bin --out fidelity/ --models wide --schedules 1f1b --chunks 1,2,4,8 --held-out 4 --foreign
  fidelity.py --bin build/bin --out fidelity/ --device cuda --models tutorial --precisions fp32,tf32,bf16
      --stages 1,2,4 --transports threads --chunks 1,2,4,10,20 --held-out 5 --sample 60
      --profile profiles/h200-tutorial.tsv
                                     on one GPU that the workers share, by a profile as text that was made before

In a folder of --out for each block (one block for all with --profile): pp.db or profile.tsv and profile.json (the
profile), predictions.json (from ppsim, before anything of the block runs), runs.jsonl (a line for each real run). In
--out: table.md (the result), rewritten after every run. Started again with the same folder it goes on where it stopped.
Exit status: 3 out of time, 1 all else was run, but something failed.

Errors are (predicted - measured) / measured, measured = the median of the repeated runs, each run's figure being
ppexec's median step. Profiles and runs bracket themselves with a reference kernel and keep its time in their database;
the system's clocks say how much of the cores others had during a run; of a GPU nvidia-smi says clocks and power.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import hashlib
import json
import os
import pathlib
import shlex
import sqlite3
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import fidelity_design as design  # noqa: E402
import fidelity_gpu as gpu  # noqa: E402
import fidelity_load as load  # noqa: E402
import fidelity_table as table  # noqa: E402
import json_lines  # noqa: E402
import profile_text  # noqa: E402
from arguments import file, folder_of, names  # noqa: E402

PROCESSES = {"threads": 0, "mpi": 1}
WARMUP = 3


class Failed(Exception):
    """A program ended with an error; the others may work."""


class Impossible(Failed):
    """A program refused all that it was asked for."""


class Untimed(Failed):
    """Workers take turns on a GPU: so would as many of any other configuration."""


def say(text):
    print(text, file=sys.stderr, flush=True)


class Tools:
    """Starts the programs."""

    def __init__(self, args):
        self.bin, self.limit, self.keeps = pathlib.Path(args.bin).resolve(), args.limit, args.keep
        self.said = ""  # by the program that ended last, besides its result
        self.cores = sorted(os.sched_getaffinity(0))
        self.device = ["--device", args.device] + (["--gpus", "1"] if args.device != "cpu" else [])
        self.profile = ["--profile", "profile.tsv"] if args.profile else []
        self.environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def run(self, folder, program, words, processes=0, json_output=True, runs=1):
        """runs: how many the program does, each of which may take --limit."""
        launcher = []
        if processes:
            fits = processes <= len(self.cores)
            binding = ["--bind-to", "core"] if fits else ["--oversubscribe", "--bind-to", "none"]
            launcher = ["mpirun", *binding, "-n", str(processes)]
        command = [*launcher, str(self.bin / program), *words, *self.device]
        command += ["--format", "json"] if json_output else []
        settings = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=runs * self.limit, check=False)
        try:
            done = subprocess.run(command, cwd=folder, env=self.environment, **settings)
            if done.returncode:
                kind = Impossible if done.returncode == 2 else Failed
                raise kind(f"exit status {done.returncode}: {shlex.join(command)}\n{done.stderr[-2000:]}")
            self.said = done.stderr[-2000:]
            return json.loads(done.stdout) if json_output else None
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise Failed(f"{error}: {shlex.join(command)}") from error

    def possible(self, folder, words):
        """What ppsim does not refuse of a sweep."""
        try:
            return self.run(folder, "ppsim", [*words, "--no-eval"])
        except Impossible as error:
            say(error)
            return []


def query(database, text, *values):
    try:
        with contextlib.closing(sqlite3.connect(database)) as connection:
            return connection.execute(text, values).fetchall()
    except sqlite3.Error as error:
        raise Failed(f"{database}: {error}") from error


def reference_ns(database):
    """Time of the reference kernel in the newest run of a database that has one; None if there is none."""
    rows = query(database, "SELECT reference_ns FROM run WHERE reference_ns IS NOT NULL ORDER BY id DESC LIMIT 1")
    return rows[0][0] if rows else None


def runs_of(database):
    """[(number, when it began, when it ended, the reference kernel's time), ...]"""
    return query(database, "SELECT id, started, ended, reference_ns FROM run WHERE status = 'ok' ORDER BY id")


class Block:
    """A block's folder and what is in it."""

    def __init__(self, out, name, configs):
        self.name, self.configs, self.folder = name, configs, out / name
        self.profile = self.read("profile.json")
        self.predictions = self.read("predictions.json") or {}  # {key: ppsim's object}
        self.failed = self.read("failed.json") or []  # keys
        self.runs = json_lines.read(self.folder / "runs.jsonl")

    def read(self, name):
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def write(self, name, value):
        new = self.folder / (name + ".new")  # whoever is stopped leaves the old one, whole
        new.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        new.replace(self.folder / name)

    def runs_of(self, config, foreign=False):
        return [run for run in self.runs if run["key"] == design.key(config) and run["foreign"] == foreign]

    def add_run(self, run):
        self.runs.append(run)
        json_lines.append(self.folder / "runs.jsonl", run)

    def take_profile(self, args):
        """One that was made before; chunks that are held out must not be in it."""
        text = pathlib.Path(args.profile).read_bytes()
        asked = {"words": ["--profile", hashlib.sha256(text).hexdigest()], "processes": 0}
        if self.is_profiled(asked):
            return
        rows = profile_text.rows(text.decode(), args.profile)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "profile.tsv").write_bytes(text)
        runs = profile_text.of_kind(rows, profile_text.Run)
        known = [float(run.reference_ns) for run in runs if float(run.reference_ns) > 0]
        reference = statistics.median(known) if known else None
        self.profile = {**asked, "when": time.time(), "others": None, "reference_ns": reference}
        self.write("profile.json", self.profile)

    def is_profiled(self, asked):
        if self.profile and any(self.profile[name] != value for name, value in asked.items()):
            raise Failed(f"{self.folder}: was profiled with other options; take another folder for --out")
        return bool(self.profile)

    def make_profile(self, tools, args):
        """Under mpirun where MPI is asked for: it then times the links between threads too."""
        words = design.profile_options(self.configs)
        if words is None:
            raise Failed(f"{self.name}: all chunks are held out, nothing is left to profile")
        words += ["--db", "pp.db", "--seconds", str(args.seconds), "--no-eval"]
        mpi = any(PROCESSES[config["transport"]] for config in self.configs)
        processes = design.workers(self.configs[0]) if mpi else 0
        asked = {"words": [*words, *tools.device], "processes": processes}
        if self.is_profiled(asked):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.glob("pp.db*"):  # of one that was stopped
            old.unlink()
        say(f"profiling {self.name}")
        with load.Watch(tools.cores) as watch, gpu.Watch(args.device) as gpu_watch:
            tools.run(self.folder, "ppprof", words, processes, json_output=False)
        self.profile = {**asked, "when": time.time(), "others": watch.others, **gpu_watch.figures}
        self.profile["reference_ns"] = reference_ns(self.folder / "pp.db")
        self.write("profile.json", self.profile)

    def predict(self, tools):
        """Writes all of the block down at once; what is there already stays as it is. Returns how many failed."""
        made = dict(self.predictions)
        left = [config for config in self.configs if design.key(config) not in made]
        with concurrent.futures.ThreadPoolExecutor(len(tools.cores)) as pool:
            for config, prediction in zip(left, pool.map(lambda config: self.prediction(tools, config), left)):
                if prediction:
                    made[design.key(config)] = prediction
        self.write("predictions.json", made)
        self.predictions = made
        return sum(design.key(config) not in made for config in self.configs)

    def prediction(self, tools, config):
        """None if there is none."""
        transport = "mpi" if config["transport"] == "mpi" else "inproc"
        try:
            words = [*design.options(config), "--no-eval", "--transport", transport, *tools.profile]
            return tools.run(self.folder, "ppsim", words)[0]
        except Failed as error:
            say(error)
            return None

    def missing(self, args):
        """What is left to run, in order; what has failed comes last, for it may take long to."""
        done = collections.Counter((run["key"], run["foreign"]) for run in self.runs)
        left = []
        for config, foreign in design.order(self.name, self.configs, args):
            name = design.key(config), foreign
            if done[name]:
                done[name] -= 1
            else:
                left.append((config, foreign))
        return sorted(left, key=lambda run: design.key(run[0]) in self.failed)

    def add_failed(self, config):
        self.failed = sorted({*self.failed, design.key(config)})
        self.write("failed.json", self.failed)

    def measure(self, tools, configs, foreign, device):
        """Configurations of one program, in their order."""
        database = self.folder / "run.db"  # of this program alone
        core = tools.cores[-1] if foreign else None
        for old in self.folder.glob("run.db*"):
            old.unlink()
        words = [*design.options(configs[0]), "--no-eval", "--epochs", "1", "--warmup", str(WARMUP), "--db", "run.db"]
        words += ["--max-batches", str(design.MODELS[configs[0]["model"]]["steps"])]
        if len(configs) > 1:
            lines = [shlex.join(design.words(config, design.POINT)) for config in configs]
            (self.folder / "points").write_text("\n".join(lines) + "\n", encoding="utf-8")
            words += ["--points", "points"]
        processes = design.workers(configs[0]) * PROCESSES[configs[0]["transport"]]
        with load.foreign_load(core), load.Watch(tools.cores) as watch, gpu.Watch(device) as gpu_watch:
            results = tools.run(self.folder, "ppexec", words, processes, runs=len(configs))
        stored = runs_of(database)
        if not len(results) == len(stored) == len(configs):
            raise Failed(f"{len(results)} results and {len(stored)} stored runs of {len(configs)}:\n{tools.said}")
        for config, result in zip(configs, results):
            if result["ms_per_batch"] is None:
                raise Untimed(f"{design.key(config)}: ppexec refuses to tell times:\n{tools.said}")
        busy_of = "SELECT avg(busy_ns) / 1e6 FROM busy WHERE run = ? GROUP BY worker ORDER BY worker"
        for config, result, (number, begin, end, reference) in zip(configs, results, stored):
            busy = query(database, busy_of, number)
            result.pop("loss", None)
            run = {**result, "key": design.key(config), "foreign": foreign, "when": time.time()}
            run.update(gpu_watch.figures_between(begin, end) if len(configs) > 1 else gpu_watch.figures)
            run.update(others=watch.others, busy_ms=[row[0] for row in busy], reference_ns=reference)
            self.add_run(run)
        if tools.keeps:
            database.rename(self.folder / f"run-{len(self.runs)}.db")

    def rows(self):
        """(rows of configurations, rows of runs beside a foreign load)"""
        rows, foreign = [], []
        base = self.profile and self.profile["reference_ns"]
        for config in self.configs:
            prediction, runs = self.predictions.get(design.key(config)), self.runs_of(config)
            if prediction and runs:
                rows.append(table.compare(config, prediction, runs, base))
            alone = rows[-1] if prediction and runs else config
            if prediction:
                foreign += [table.compare_foreign(alone, prediction, run, base) for run in self.runs_of(config, True)]
        return rows, foreign

    def summary(self):
        base = self.profile and self.profile["reference_ns"]
        last = max((run["when"] for run in self.runs), default=None)
        return {
            "name": self.name,
            "configurations": len(self.configs),
            "runs": len(self.runs),
            "minutes": (last - self.profile["when"]) / 60 if last and self.profile else None,
            "reference_us": base / 1e3 if base else None,
            "others": self.profile and self.profile["others"],
        }


def write_table(out, blocks, args):
    """Returns the lines of the summary."""
    rows, foreign = [], []
    for block in blocks:
        of_block = block.rows()
        rows += of_block[0]
        foreign += of_block[1]
    command = shlex.join([os.path.relpath(sys.argv[0]), *sys.argv[1:]])
    summary, lines = table.document(command, rows, foreign, [block.summary() for block in blocks], args)
    (out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return summary


def late(args):
    return args.minutes and time.monotonic() - args.started > 60 * args.minutes


def do_block(tools, block, blocks, args):
    """Returns (how many programs failed, how many runs there was no time for)."""
    if not block.profile and late(args):
        return 0, len(block.missing(args))
    block.take_profile(args) if args.profile else block.make_profile(tools, args)
    failed = block.predict(tools)
    left = [(config, foreign) for config, foreign in block.missing(args) if design.key(config) in block.predictions]
    todo = collections.deque(design.together(left, args.at_once))
    broken, done = [], 0  # not to be tried again by this start; runs that were begun
    while todo:
        configs, foreign = todo.popleft()
        configs = [config for config in configs if config not in broken]
        if not configs:
            continue
        if late(args):
            return failed, len(left) - done
        beside = " beside a foreign load" if foreign else ""
        more = f" and {len(configs) - 1} more" if len(configs) > 1 else ""
        say(f"{block.name} {done + 1}/{len(left)}: {design.key(configs[0])}{more}{beside}")
        try:
            block.measure(tools, configs, foreign, args.device)
            write_table(args.out, blocks, args)
        except Failed as error:
            say(error)
            if len(configs) > 1:  # which of them? Each is tried alone
                todo.extendleft(([config], foreign) for config in reversed(configs))
                continue
            failed += 1
            same = isinstance(error, Untimed) and [c for c, _ in left if design.workers(c) == design.workers(configs[0])]
            broken += same or configs
            block.add_failed(configs[0])
        done += len(configs)
    return failed, 0


def numbers(text):
    return tuple(int(word) for word in text.split(",") if word)


def schedules(folder):
    """The names of those that its ppsim has."""
    command = [pathlib.Path(folder) / "ppsim", "--list", "--format", "json"]
    listed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return [schedule["name"] for schedule in json.loads(listed)["schedules"]]


def parse(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    transports = tuple(PROCESSES)
    tools = "ppprof", "ppsim", "ppexec"
    add("--bin", required=True, type=folder_of(*tools), help=f"folder with {', '.join(tools)}")
    add("--out", required=True, help="folder for profiles, predictions, runs and table")
    add("--models", type=names(design.MODELS), default=("small", "wide", "deep"), help="(default small,wide,deep)")
    add("--transports", type=names(transports), default=transports, help="(default threads,mpi)")
    schedules_help = "(default gpipe,1f1b,interleaved)"
    add("--schedules", type=lambda text: tuple(text.split(",")), default=design.SCHEDULES, help=schedules_help)
    add("--checkpoints", type=names((*design.CHECKPOINTS, "layers")), default=(), help="(default never,except_last,always)")
    add("--chunks", type=numbers, default=(), help="(default 1,2,4,5,8,10,20, as far as rows allow)")
    add("--stages", type=numbers, default=(), help="numbers of ranks (default 2; with --p4 2,4)")
    add("--tensors", type=numbers, default=(1,), help="workers of each rank, T (default 1)")
    add("--sequence-parallel", action="store_true", help="workers of a rank have parts of the tokens, too")
    add("--p4", action="store_true", help="four ranks too, on whatever cores there are")
    add("--held-out", type=numbers, default=(), help="chunks that are predicted and run but not profiled")
    quick = "chunks 1, 4, 10; checkpoints never and always; one run of each"
    profile = "a profile as text for all predictions, in place of one for each block"
    add("--profile", metavar="FILE", type=file, help=profile)
    add("--sample", type=int, default=0, metavar="N", help="only N of the configurations, drawn by --seed")
    add("--quick", action="store_true", help=quick)
    add("--repeats", type=int, default=0, help="runs of each configuration (default 3; quick 1)")
    runs = "so many configurations of each block and transport also beside a busy loop on the last core (default 2)"
    add("--foreign", type=int, nargs="?", const=2, default=0, metavar="N", help=runs)
    at_once = "runs of one program, where it can have them: starting it takes long on a GPU (default 1)"
    add("--at-once", type=int, default=1, metavar="N", help=at_once)
    keep = "keep each program's database as run-N.db, N being how many runs there were then"
    add("--keep", action="store_true", help=keep)
    add("--seconds", type=float, default=0.3, help="ppprof's time for each shape")
    add("--seed", type=int, default=1, help="of the random order")
    add("--minutes", type=float, default=0, help="start nothing after so long; the next start goes on")
    add("--limit", type=float, default=1800, metavar="SECONDS", help="of one program")
    add("--device", default="cpu", help="cpu, or cuda: one GPU for all workers")
    add("--precisions", type=lambda text: tuple(text.split(",")), default=("fp32",))
    args = parser.parse_args(words)
    if args.at_once < 1:
        parser.error("--at-once: at least 1")
    known = schedules(args.bin)
    if not set(args.schedules) <= set(known):
        parser.error(f"--schedules: not all of {','.join(args.schedules)} are among {','.join(known)}")
    args.repeats = args.repeats or (1 if args.quick else 3)
    args.out, args.started = pathlib.Path(args.out).resolve(), time.monotonic()
    return args


def main():
    args = parse()
    tools = Tools(args)
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        configs = design.configurations(args, len(tools.cores), lambda words: tools.possible(args.out, words))
    except Failed as error:
        raise SystemExit(str(error)) from error
    if not configs:
        raise SystemExit("nothing of what is asked for can be run")
    made = design.blocks(configs, bool(args.profile))
    blocks = [Block(args.out, name, configs) for name, configs in made.items()]
    failed = left = 0
    for block in blocks:
        try:
            block_failed, block_left = do_block(tools, block, blocks, args)
        except Failed as error:
            say(error)
            block_failed, block_left = 1, 0
        failed, left = failed + block_failed, left + block_left
    print("\n".join(write_table(args.out, blocks, args)))
    if failed or left:
        say(f"{failed} failed, {left} out of time: start again to go on")
    return 3 if left else 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
