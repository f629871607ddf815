# SPDX-License-Identifier: Apache-2.0
"""Pretends to be ppprof, ppsim, ppexec or mpirun, whichever name it was given: test_fidelity.py runs it as such.

Adds a line to the file $FAKE_LOG, as ppexec for each configuration of --points; ends with an error if $FAKE_FAIL is its name and some of its options; as ppexec
it takes $FAKE_SECONDS, and with the options $FAKE_REFUSES it tells no times. Figures depend on the chunks alone:
predicted 100 + chunks ms, measured 2 % more; the reference kernel takes 1000 ns in the profile and 1010 in runs.

ppsim --list, and what it is asked outside of a block, which is what can be run (all but 64 stages), is answered and not
noted.
"""

import itertools
import json
import os
import sys
import time

PROFILE = "CREATE TABLE run (id INTEGER PRIMARY KEY, reference_ns REAL); INSERT INTO run (reference_ns) VALUES (1000);"
RUNS = """
CREATE TABLE run (id INTEGER PRIMARY KEY, started TEXT, ended TEXT, status TEXT, reference_ns REAL);
CREATE TABLE busy (run INTEGER, worker INTEGER, busy_ns INTEGER);
"""
RUN = """
INSERT INTO run VALUES ({0}, '2026-11-27T04:00:0{0}.000Z', '2026-11-27T04:00:0{0}.900Z', 'ok', 1010);
INSERT INTO busy VALUES ({0}, 0, 40000000), ({0}, 0, 60000000), ({0}, 1, 80000000);
"""


def store(path, script):
    import sqlite3  # takes longer than all else, and ppsim needs none

    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


def possible(option):
    """A row for each value of the lists."""
    names = ("schedule", "stages", "chunks", "checkpoint")
    for values in itertools.product(*(option["--" + name].split(",") for name in names)):
        row = dict(zip(names, values), tensor=int(option["--tensor"]), virtual=1, microbatches=int(values[2]))
        yield {**row, "stages": int(values[1]), "chunks": int(values[2])}


def main():
    name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
    if name == "mpirun":  # -n 2 PROGRAM option ...
        at = words.index("-n") + 2
        os.environ["FAKE_PROCESSES"] = words[at - 1]
        os.execv(words[at], words[at:])
    option = {word: value for word, value in zip(words, words[1:]) if word.startswith("--")}
    if "--list" in words:
        print(json.dumps({"schedules": [{"name": schedule} for schedule in ("gpipe", "1f1b", "interleaved")]}))
        return 0
    if name == "ppsim" and os.path.basename(os.getcwd()) == "out":
        if option["--stages"] == "64":
            print("64 stages are more than layers", file=sys.stderr)
            return 2
        print(json.dumps(list(possible(option))))
        return 0
    written = 0
    if os.path.exists("predictions.json"):
        with open("predictions.json", encoding="utf-8") as predictions:
            written = len(json.load(predictions))
    entry = dict(program=name, block=os.path.basename(os.getcwd()), written=written, option=option)
    entry["processes"] = int(os.environ.get("FAKE_PROCESSES", 0))
    runs = [option]
    if "--points" in option:
        with open(option["--points"], encoding="utf-8") as points:
            lines = [line.split() for line in points]
        runs = [{**option, **dict(zip(line[::2], line[1::2]))} for line in lines]
        words += [word for line in lines for word in line]
    with open(os.environ["FAKE_LOG"], "a", encoding="utf-8") as log:
        for number, run in enumerate(runs):
            log.write(json.dumps({**entry, "option": run, "number": number}) + "\n")
    fails, _, fault = os.environ.get("FAKE_FAIL", "").partition(" ")
    if name == fails and fault in " ".join(words):
        print("pretends to fail", file=sys.stderr)
        return 1
    if name == "ppprof":
        store("pp.db", PROFILE)
        return 0
    if name == "ppexec":
        store("run.db", RUNS + "".join(RUN.format(number + 1) for number in range(len(runs))))
        time.sleep(float(os.environ.get("FAKE_SECONDS", 0)))
    print(json.dumps([result_of(name, int(run["--chunks"]), " ".join(words)) for run in runs]))
    return 0


def result_of(name, chunks, words):
    result = dict(ms_per_batch=100.0 + chunks, microbatches=chunks, bubble=0.25, peak_bytes=[5, 7], plan="p")
    if name == "ppsim":
        result.update(makespan_ms=100.0, rank_bubble=[0.5, 0.6], cost_source="profile", process_bytes=1010)
        return result
    result.update(ms_per_batch=1.02 * (100 + chunks), bubble=0.24, loss=[1.0], process_bytes=1000)
    if os.environ.get("FAKE_REFUSES", "no words") in words:  # to tell times
        print("the workers do not compute at the same time", file=sys.stderr)
        result["ms_per_batch"] = None
    return result


if __name__ == "__main__":
    sys.exit(main())
