#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs whose n-th call of a kind fails: memory, a full disk, a disk that errs, a file that is read, a lock that is taken.

inject.py LIBRARY [--runs N] [--only TEXT]: for each program and kind so many n. A run must end within two minutes, with success or with
exit status 1 and one line that says why; nothing is printed on standard output then, or, where only what follows a training failed, all
its results. No half of a file is left. What a run prints that succeeds, and the weights that it saves, are those of a run without a fault; where they hold measured
times, they can be read. The database must be sound, hold what was in it, and have the steps of a run without a gap. A run that was to go
on from a checkpoint must still be able to, to the weights of a run that never stopped. Where a file cannot be read, the line says why.
fail_nth.c is the library; it must see the calls that an option makes which names a file.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile

LIMIT_S = 120  # a second or two, on a machine that is idle
LASTING = 1000000
ASAN_OPTIONS = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0:allocator_may_return_null=1"

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

LAB = ["--preset", "lab"]
COMMANDS = {
    "ppsim": ["ppsim", *LAB, "--chunks", "1,2", "--db", "run.db"],
    "ppsim-draw": ["ppsim", *LAB, "--schedule", "1f1b", "--draw", "--machine", "a100"],
    "ppsim-text": ["ppsim", *LAB, "--data", "text", "--no-eval", "--format", "json"],
    "ppsim-file": ["ppsim", *LAB, "--schedule", "./order.csv", "--format", "json"],
    "ppsim-workers": ["ppsim", *LAB, "--machine", "h100", "--workers", "2", "--global-rows", "8", "--chunks", "2,4,9", "--db", "run.db"],
    "ppsim-top": ["ppsim", *LAB, "--machine", "h200", "--layers", "9", "--workers", "2,4", "--global-rows", "8", "--chunks", "1,2,4",
                  "--split", "time", "--format", "json", "--top", "1"],
    "ppexec": ["ppexec", *LAB, "--tensor", "2", "--epochs", "2", "--trace-steps", "1", "--save", "out.safetensors", "--db", "run.db"],
    "ppexec-text": ["ppexec", *LAB, "--data", "text", "--rows", "2", "--eval-rows", "2", "--epochs", "1", "--tokens", "3", "--replicas", "2",
                    "--clip", "1", "--format", "json", "--init", "in.safetensors"],
    "ppexec-resume": ["ppexec", *LAB, "--epochs", "3", "--save", "kept.safetensors", "--save-every", "1", "--resume", "--db", "run.db"],
    "ppprof": ["ppprof", *LAB, "--seconds", "0.001", "--db", "run.db"],
    "ppreport": ["ppreport", "run.db", "--no-plots", "--chrome", "trace.json"],
    "ppreport-plots": ["ppreport", "run.db", "--format", "json"],
}
READERS = {
    "ppsim-order": COMMANDS["ppsim-file"],
    "ppexec-points": ["ppexec", *LAB, "--epochs", "1", "--format", "json", "--points", "points.txt"],
    "ppsim-blocks": ["ppsim", "--format", "json", "--times", "blocks.tsv", "--stages", "2", "--schedule", "gpipe", "--chunks", "4"],
    "ppsim-machine": ["ppsim", *LAB, "--format", "json", "--machine", "./machine.json"],
    "ppsim-profile": ["ppsim", *LAB, "--format", "json", "--profile", "profile.tsv"],
    "ppexec-words": COMMANDS["ppexec-text"][:-2],
    "ppexec-tokens": ["ppexec", *LAB, "--epochs", "1", "--format", "json", "--data", "tokens"],
}
COMMANDS.update(READERS)
MEASURED = ("ppexec", "ppexec-text", "ppexec-resume", "ppprof", "ppexec-points", "ppexec-words",
            "ppexec-tokens")  # what these print holds times
# kind, how many calls fail from the n-th on
KINDS = [("memory", 1), ("memory", LASTING), ("full", LASTING), ("io", 1), ("io", LASTING), ("busy", 1)]
READER_KINDS = [("reading", 1), ("reading", LASTING)]
# With the option there are more calls of the kind than without it and its value.
MORE_CALLS = {("ppreport", "full"): "--chrome", ("ppsim-order", "reading"): "--schedule", ("ppexec-points", "reading"): "--points",
              ("ppsim-blocks", "reading"): "--times", ("ppsim-machine", "reading"): "--machine", ("ppsim-profile", "reading"): "--profile", ("ppexec-words", "reading"): "--data",
              ("ppexec-tokens", "reading"): "--data"}
# Kinds of which a program may have no call: it opens no database, or only reads one. Else the library misses them.
NO_CALLS = {"ppsim-draw": ("busy",), "ppsim-text": ("busy",), "ppsim-file": ("busy",), "ppsim-top": ("busy",), "ppexec-text": ("busy",)}


def run(library, folder, command, kind=None, at=0, count=1):
    environment = dict(os.environ, LD_PRELOAD=library, PP_FAULT_AT=str(at), PP_FAULT_COUNT=str(count), PP_FAULT_FILE=folder + "/calls",
                       ASAN_OPTIONS=ASAN_OPTIONS)
    if kind:
        environment["PP_FAULT_KIND"] = kind
    return subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False)


def count_calls(library, start, command, kind):
    """Of a run without a fault: its result, its folder, and how many calls of the kind it makes."""
    folder = tempfile.mkdtemp(dir=os.path.dirname(start)) + "/run"
    shutil.copytree(start, folder)
    result = run(library, folder, command, kind)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} fails without a fault")
    with open(folder + "/calls", encoding="utf-8") as report:
        return result, folder, int(report.read())


def unseen(library, start, name, kind, calls):
    """What is wrong with the number of calls: the library does not see some, so they cannot fail; None if nothing is."""
    option = MORE_CALLS.get((name, kind))
    if option:
        at = COMMANDS[name].index(option)
        less = count_calls(library, start, COMMANDS[name][:at] + COMMANDS[name][at + 2:], kind)[2]
        return None if calls > less else f"{calls} calls are seen, and {less} without {option}"
    return None if calls or kind in NO_CALLS.get(name, ()) else "no call of that kind is seen, so none can fail"


def prepare(folder):
    """What the runs begin with: texts, weights, and a database in which all programs have written."""
    os.makedirs(folder + "/text")
    for name in ("train", "valid", "test"):
        with open(f"{folder}/text/{name}.txt", "w", encoding="utf-8") as out:
            out.write("the cat saw a dog , and the dog saw a cat .\n" * 8)
    rows = subprocess.run(["ppsim", *LAB, "--schedule", "1f1b", "--emit", "csv"], cwd=folder, capture_output=True, check=True).stdout
    with open(folder + "/order.csv", "wb") as out:
        out.write(rows.rstrip(b"\n") + b"," * 500 + b"\n")  # the last row takes more memory than those before it
    with open(folder + "/points.txt", "w", encoding="utf-8") as out:
        out.writelines(f"--schedule {schedule} --chunks {chunks}\n" for chunks in (2, 4) for schedule in ("gpipe", "1f1b", "zb-h1"))
    with open(folder + "/blocks.tsv", "w", encoding="utf-8") as out:
        out.write("block\tforward_ms\tinput_ms\tweight_ms\n" + "".join(f"layer {i}\t{i + 1}\t12\t8\n" for i in range(20)))
    shutil.copy(SOURCE + "/sim/machines/h100.json", folder + "/machine.json")
    os.makedirs(folder + "/tokens")
    for name in ("train", "valid", "test"):
        with open(f"{folder}/tokens/{name}.bin", "wb") as out:
            out.write(bytes(value for i in range(300) for value in (i % 100, 0)))  # numbers of 16 bits
    database = ["--db", "run.db"]
    text = COMMANDS["ppexec-text"][:-2]
    for command in (["ppprof", *LAB, "--seconds", "0.001", *database], ["ppsim", *LAB, *database],
                    ["ppexec", *LAB, "--epochs", "2", "--trace-steps", "1", *database], [*text, "--save", "in.safetensors"],
                    ["ppexec", *LAB, "--epochs", "3", "--save", "whole.safetensors"],
                    ["ppexec", *LAB, "--epochs", "1", "--save", "kept.safetensors", "--save-every", "1"]):
        subprocess.run(command, cwd=folder, capture_output=True, check=True)
    with sqlite3.connect(folder + "/run.db") as sql:
        sql.execute("PRAGMA journal_mode = DELETE")
    profile = subprocess.run(["ppreport", "run.db", "--profiles"], cwd=folder, capture_output=True, check=True).stdout
    with open(folder + "/profile.tsv", "wb") as out:
        out.write(profile)


def files(folder, name):
    """{name: content} of what a program writes beside the database."""
    command = COMMANDS[name]
    paths = [command[command.index(option) + 1] for option in ("--save", "--chrome") if option in command]
    paths += ["run-plots/" + path for path in os.listdir(folder + "/run-plots")] if os.path.isdir(folder + "/run-plots") else []
    found = {}
    for path in paths:
        if os.path.exists(f"{folder}/{path}"):
            with open(f"{folder}/{path}", "rb") as file:
                found[path] = file.read()
    return found


def product(folder, name, printed):
    """What is the same in every run that succeeds: what it prints, if that holds no times, and its files. ValueError: cannot be read."""
    command, left = COMMANDS[name], files(folder, name)
    if "--format" in command:
        json.loads(printed)
    for path, content in left.items():
        if path.endswith((".safetensors", ".json")):
            json.loads(content if path.endswith(".json") else content[8:8 + int.from_bytes(content[:8], "little")])
    return None if name in MEASURED else printed, left


def halves(start, folder, name, wanted):
    """What is wrong with the files that a run left which failed; None if nothing is: what is there is whole, or as it was."""
    before = files(start, name)
    for path, content in files(folder, name).items():
        if content not in (wanted[1].get(path), before.get(path)):
            return f"half of {path} is left"
    parts = [path for path in os.listdir(folder) if path.endswith(".part")]
    return f"{parts[0]} is left" if parts else None


def changed(folder, name, wanted, result):
    """What is wrong with the results of a run that succeeded; None if nothing is."""
    try:
        return None if product(folder, name, result.stdout) == wanted else "other results than without a fault"
    except (OSError, ValueError) as error:
        return f"results that cannot be read: {error}"


def are_results(result):
    """Is this all that ppexec prints of a training?"""
    if "json" in result.args:
        try:
            return "loss" in json.loads(result.stdout)[0]
        except ValueError:
            return False
    return re.search(rb"^schedule .*\ngpipe .*\n\Z", result.stdout, re.MULTILINE) is not None


def complaint(folder, before, result):
    """What is wrong with how a run ended; None if nothing is."""
    program = result.args[0] + ": "
    said = [line for line in result.stderr.decode().splitlines() if line.startswith(program) and not line.startswith(program + "warning: ")]
    if b"AddressSanitizer: CHECK failed" in result.stderr:
        return None  # the sanitizer itself had no memory
    if result.returncode not in (0, 1):
        return f"exit status {result.returncode}"
    if result.returncode == 1 and (len(said) != 1 or len(said[0]) < 20):
        return f"{len(said)} messages, or a short one"
    if result.returncode == 1 and result.stdout and not (result.args[0] == "ppexec" and are_results(result)):
        return "a failed run printed something, which is not the results of a training"
    sql = sqlite3.connect(folder + "/run.db", timeout=1)
    try:
        if sql.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            return "the database is damaged"
        if sql.execute("SELECT count(*) FROM run WHERE id <= ? AND status = 'ok'", (before,)).fetchone()[0] != before:
            return "earlier runs are gone from the database"
        if sql.execute("SELECT count(*) FROM (SELECT run FROM step GROUP BY run HAVING count(*) <> max(step) - min(step) + 1)").fetchone()[0]:
            return "steps are missing in the database"
        if result.returncode == 0 and sql.execute("SELECT count(*) FROM run WHERE status IS NOT 'ok'").fetchone()[0]:
            return "a run succeeded that is not in the database as such"
    except sqlite3.Error as error:
        return f"the database cannot be read: {error}"
    finally:
        sql.close()
    return None


def spoilt(folder):
    """What is wrong with the checkpoint that a run left; None if nothing is."""
    result = subprocess.run(COMMANDS["ppexec-resume"], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False)
    if result.returncode != 0 or b"resumed " not in result.stderr:
        return "the run does not go on from its checkpoint"
    with open(folder + "/kept.safetensors", "rb") as kept, open(folder + "/whole.safetensors", "rb") as whole:
        return None if kept.read() == whole.read() else "the run goes on to other weights"


def attempt(library, start, name, wanted, kind, at, count):
    with tempfile.TemporaryDirectory() as parent:
        folder = parent + "/run"
        shutil.copytree(start, folder)
        with sqlite3.connect(folder + "/run.db") as sql:
            before = sql.execute("SELECT count(*) FROM run").fetchone()[0]
        sql.close()
        call = f"{name}: {kind} call {at}{' and all after it' if count > 1 else ''}"
        try:
            result = run(library, folder, COMMANDS[name], kind, at, count)
        except subprocess.TimeoutExpired:
            return f"{call}: still running after {LIMIT_S} s", False
        wrong = complaint(folder, before, result)
        if kind == "reading" and result.returncode and b"Input/output error" not in result.stderr:
            wrong = wrong or "it is not said that a file cannot be read"
        wrong = wrong or (halves(start, folder, name, wanted) if result.returncode else changed(folder, name, wanted, result))
        wrong = wrong or (spoilt(folder) if name == "ppexec-resume" else None)
        if wrong:
            said = result.stderr.decode(errors="replace").strip().splitlines()
            return f"{call}: {wrong}: {' | '.join(said[-3:])}", False
        return None, result.returncode == 1


def numbers(calls, runs):
    """The first calls, and others evenly."""
    if calls <= runs:
        return list(range(1, calls + 1))
    first = runs // 4
    rest = runs - first
    return list(range(1, first + 1)) + [first + 1 + (calls - first - 1) * i // max(1, rest - 1) for i in range(rest)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library")
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if os.environ.get("PP_BIN"):
        os.environ["PATH"] = os.environ["PP_BIN"] + os.pathsep + os.environ["PATH"]
    wrong = 0
    with tempfile.TemporaryDirectory() as parent, concurrent.futures.ThreadPoolExecutor(2) as pool:
        start = parent + "/start"
        prepare(start)
        for name, command in COMMANDS.items():
            known = {}  # kind: calls of a run without a fault
            for kind, count in READER_KINDS if name in READERS else KINDS:
                if options.only not in f"{name} {kind}":
                    continue
                if kind not in known:
                    result, folder, known[kind] = count_calls(options.library, start, command, kind)
                    wanted = product(folder, name, result.stdout)
                    message = unseen(options.library, start, name, kind, known[kind])
                    if message:
                        print(f"{name}, {kind}: {message}")
                        wrong += 1
                calls = known[kind]
                jobs = [pool.submit(attempt, options.library, start, name, wanted, kind, at, count) for at in numbers(calls, options.runs)]
                results = [job.result() for job in jobs]
                for message in filter(None, (message for message, _ in results)):
                    print(message)
                    wrong += 1
                print(f"{name}, {kind}{' (lasting)' if count > 1 else ''}: {len(jobs)} of {calls} calls, "
                      f"{sum(refused for _, refused in results)} refused", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
