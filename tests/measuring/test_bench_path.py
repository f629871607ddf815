#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""analysis/bench_path.py on plans made by hand."""

import contextlib
import io
import pathlib
import sqlite3
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent.parent / "analysis"))
import bench_path as path  # noqa: E402

MS = 10**6
# Two ranks, two microbatches, gpipe: (kind, stage, microbatch, count, lane, ms). Lanes: ranks, then channels.
GPIPE = [
    ("F", 0, 0, 1, 0, 4),
    ("XFER_F", 0, 0, 1, 2, 1),
    ("F", 0, 1, 1, 0, 4),
    ("XFER_F", 0, 1, 1, 2, 1),
    ("F", 1, 0, 1, 1, 5),
    ("F", 1, 1, 1, 1, 5),
    ("B", 1, 0, 1, 1, 6),
    ("XFER_B", 1, 0, 1, 3, 2),
    ("B", 1, 1, 1, 1, 6),
    ("XFER_B", 1, 1, 1, 3, 2),
    ("B", 0, 0, 1, 0, 8),
    ("B", 0, 1, 1, 0, 8),
]
CLIP = [
    ("NORM", 0, -1, 0, 0, 1),
    ("NORM", 1, -1, 0, 1, 1),
    ("NORM_ALL", -1, -1, 0, 4, 3),
    ("STEP", 0, -1, 0, 0, 2),
    ("STEP", 1, -1, 0, 1, 5),
]


def length(rows, moving=True):
    tasks = [(i, *row[:5]) for i, row in enumerate(rows)]
    times = {i: row[5] for i, row in enumerate(rows) if moving or row[0] not in path.MOVES}
    return path.path_ns(tasks, path.edges_of(tasks), times)


class Path(unittest.TestCase):
    def test_steps_overlap_where_nothing_joins_the_ranks(self):
        # Rank 1 idles until the first activation: a step on rank 0 is 4 + 4 + wait + 16, and the next begins at once.
        # F 4, move 1, F 5 + 5, B 6: 21; move 2; B 8: 31; the second gradient is there at 29: B 8: 39.
        self.assertEqual(length(GPIPE), 39)

    def test_transfers_can_be_left_out(self):
        # F 4, F 5 + 5, B 6: 20; B 8 + 8: 36.
        self.assertEqual(length(GPIPE, moving=False), 36)

    def test_the_norm_joins_the_ranks(self):
        # 39, NORM 1, NORM_ALL 3: 43. Rank 0 ends its step at 45, and begins the next; rank 1 at 48, in good time: it is
        # needed at 45 + 5 = 50.
        self.assertEqual(length(GPIPE + CLIP), 45)

    def test_tied_gradients_join_the_first_and_the_last_stage(self):
        # As without a norm, but for the sum of 7 behind the first stage's last backward; then STEP 2.
        tied = [("REDUCE_TIED", 0, -1, 0, 4, 7), ("STEP", 0, -1, 0, 0, 2), ("STEP", 1, -1, 0, 1, 5)]
        self.assertEqual(length(GPIPE + tied), 39 + 7 + 2)
        # Behind the sums over replicas, of which the last stage's is longer: it begins at 27. 47, 7, 2.
        sums = [("REDUCE_GRAD", 1, -1, 0, 5, 20), ("REDUCE_GRAD", 0, -1, 0, 6, 3)]
        self.assertEqual(length(GPIPE + sums + tied), 47 + 7 + 2)

    def test_parameters_that_replicas_have_shares_of_are_gathered_behind_the_step(self):
        # 39, REDUCE_GRAD 3, STEP 2, GATHER_PARAM 7: the next step of rank 0 begins at 51. Rank 1's sum begins at 27, its
        # parameters are there at 27 + 20 + 5 + 4 = 56, when it gets the first activation of that step.
        sums = [("REDUCE_GRAD", 1, -1, 0, 5, 20), ("REDUCE_GRAD", 0, -1, 0, 6, 3)]
        sums += [("STEP", 0, -1, 0, 0, 2), ("STEP", 1, -1, 0, 1, 5)]
        gathers = [("GATHER_PARAM", 0, -1, 0, 6, 7), ("GATHER_PARAM", 1, -1, 0, 5, 4)]
        self.assertEqual(length(GPIPE + sums + gathers), 51)
        # The same at the begin of a step; in parts of 3 and 4 the first F can begin with 1 of its 4 earlier, which shows
        # where rank 1 does not need as long.
        self.assertEqual(length(gathers + GPIPE + sums), 51)
        sums[0] = ("REDUCE_GRAD", 1, -1, 0, 5, 10)
        parts = [("GATHER_PARAM", 0, -1, 0, 6, 3), ("GATHER_PARAM", 0, -1, 0, 6, 4), gathers[1]]
        self.assertEqual(length([*parts, ("F", 0, 0, 1, 0, 1), ("F", 0, 0, 1, 0, 3), *GPIPE[1:], *sums]), 50)

    def test_a_run_of_a_database(self):
        db = sqlite3.connect(":memory:")
        db.execute("CREATE TABLE run (id, tool, status, schedule, transport, plan, ms_per_batch)")
        db.execute("CREATE TABLE task (plan, id, kind, stage, microbatch, count, lane)")
        db.execute("CREATE TABLE event (run, step, worker, task, side, start_ns, end_ns)")
        db.execute("INSERT INTO run VALUES (3, 'ppexec', 'ok', 'gpipe', 'inproc', 1, 45)")
        db.execute("INSERT INTO run VALUES (4, 'ppexec', 'ok', 'not traced', 'inproc', 1, 45)")
        for i, row in enumerate(GPIPE):
            db.execute("INSERT INTO task VALUES (1, ?, ?, ?, ?, ?, ?)", (i, *row[:5]))
            for step, ms in enumerate((row[5], row[5], 10 * row[5])):  # the median counts
                ends = ((1, 100 * ms), (2, ms)) if row[0] in path.MOVES else ((0, ms),)
                for side, end in ends:  # the sender's end of a transfer does not
                    db.execute("INSERT INTO event VALUES (3, ?, 0, ?, ?, 0, ?)", (step, i, side, end * MS))
        self.assertEqual(list(path.measure(db)), [(3, "gpipe", "inproc", 45, 39.0, 36.0, 45 / 39)])
        # Shares of gradients, whose sums come microbatch by microbatch: no path rather than a wrong one.
        db.execute("INSERT INTO task VALUES (1, ?, 'ADD_GRAD', 0, -1, 0, 0)", (len(GPIPE),))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(list(path.measure(db)), [])
        self.assertIn("run 3 is left out: its plan has ADD_GRAD", said.getvalue())


if __name__ == "__main__":
    unittest.main()
