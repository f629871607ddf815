#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""analysis/bench_path.py on plans made by hand."""

import contextlib
import io
import pathlib
import sqlite3
import sys
import tempfile
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent.parent / "analysis"))
import bench_path as path  # noqa: E402

MS = 10**6
# Two ranks, two microbatches, gpipe: (kind, lane, ms, ids of tasks that it needs). Lanes: ranks, then channels.
GPIPE = [
    ("F", 0, 4, ()),
    ("XFER_F", 2, 1, (0,)),
    ("F", 0, 4, ()),
    ("XFER_F", 2, 1, (2,)),
    ("F", 1, 5, (1,)),
    ("F", 1, 5, (3,)),
    ("B", 1, 6, ()),
    ("XFER_B", 3, 2, (6,)),
    ("B", 1, 6, ()),
    ("XFER_B", 3, 2, (8,)),
    ("B", 0, 8, (7,)),
    ("B", 0, 8, (9,)),
]
CLIP = [
    ("NORM", 0, 1, ()),
    ("NORM", 1, 1, ()),
    ("NORM_ALL", 4, 3, (12, 13)),
    ("STEP", 0, 2, (14,)),
    ("STEP", 1, 5, (14,)),
]


def edges_of(rows, wraps=()):
    """wraps: (task, what it needs of the step before)"""
    here = [(task, needs, 0) for task, row in enumerate(rows) for needs in row[3]]
    return here + [(task, needs, 1) for task, needs in wraps]


def length(rows, wraps=(), moving=True):
    tasks = [(i, kind, lane) for i, (kind, lane, *_) in enumerate(rows)]
    times = {i: row[2] for i, row in enumerate(rows) if moving or row[0] not in path.MOVES}
    return path.path_ns(tasks, edges_of(rows, wraps), times)


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
        tied = [("REDUCE_TIED", 4, 7, (11, 8)), ("STEP", 0, 2, (12,)), ("STEP", 1, 5, (12,))]
        self.assertEqual(length(GPIPE + tied), 39 + 7 + 2)
        # Behind the sums over replicas, of which the last stage's is longer: it begins at 27. 47, 7, 2.
        sums = [("REDUCE_GRAD", 5, 20, (8,)), ("REDUCE_GRAD", 6, 3, (11,))]
        tied = [("REDUCE_TIED", 4, 7, (13, 12)), ("STEP", 0, 2, (14,)), ("STEP", 1, 5, (14,))]
        self.assertEqual(length(GPIPE + sums + tied), 47 + 7 + 2)

    def test_parameters_that_replicas_have_shares_of_are_gathered_behind_the_step(self):
        # 39, REDUCE_GRAD 3, STEP 2, GATHER_PARAM 7: the next step of rank 0 begins at 51. Rank 1's sum begins at 27, its
        # parameters are there at 27 + 20 + 5 + 4 = 56, when it gets the first activation of that step.
        sums = [("REDUCE_GRAD", 5, 20, (8,)), ("REDUCE_GRAD", 6, 3, (11,))]
        sums += [("STEP", 0, 2, (13,)), ("STEP", 1, 5, (12,))]
        gathers = [("GATHER_PARAM", 6, 7, (14,)), ("GATHER_PARAM", 5, 4, (15,))]
        self.assertEqual(length(GPIPE + sums + gathers, [(0, 16), (4, 17)]), 51)

    def test_what_is_needed_of_the_step_before_is_over(self):
        # The second gradient of this step is there at 29, 6 later than the first.
        self.assertEqual(length(GPIPE, [(10, 9)]), 39)
        self.assertEqual(length([*GPIPE[:10], ("B", 0, 8, (7, 9)), GPIPE[11]]), 45)

    def test_a_run_of_a_database(self):
        db = sqlite3.connect(":memory:")
        db.execute("CREATE TABLE run (id, tool, status, schedule, transport, plan, ms_per_batch)")
        db.execute("CREATE TABLE plan (id, edges)")
        db.execute("CREATE TABLE task (plan, id, kind, lane)")
        db.execute("CREATE TABLE v_task_edge (plan, task, needs, steps_back, why)")
        db.execute("CREATE TABLE event (run, step, worker, task, side, start_ns, end_ns)")
        db.execute("INSERT INTO run VALUES (3, 'ppexec', 'ok', 'gpipe', 'inproc', 1, 45)")
        db.execute("INSERT INTO run VALUES (4, 'ppexec', 'ok', 'not traced', 'inproc', 1, 45)")
        db.execute("INSERT INTO plan VALUES (1, 9)")
        for i, (kind, lane, length_ms, _) in enumerate(GPIPE):
            db.execute("INSERT INTO task VALUES (1, ?, ?, ?)", (i, kind, lane))
            for step, ms in enumerate((length_ms, length_ms, 10 * length_ms)):  # the median counts
                ends = ((1, 100 * ms), (2, ms)) if kind in path.MOVES else ((0, ms),)
                for side, end in ends:  # the sender's end of a transfer does not
                    db.execute("INSERT INTO event VALUES (3, ?, 0, ?, ?, 0, ?)", (step, i, side, end * MS))
        for edge in edges_of(GPIPE):
            db.execute("INSERT INTO v_task_edge VALUES (1, ?, ?, ?, 'input')", edge)
        # Memory and the order of receives are no data: rank 1 would wait for the last task of rank 0.
        db.execute("INSERT INTO v_task_edge VALUES (1, 4, 11, 1, 'receive slot'), (1, 5, 2, 0, 'receive order')")
        self.assertEqual(list(path.measure(db)), [(3, "gpipe", "inproc", 45, 39.0, 36.0, 45 / 39)])
        # Of a file whatever its name is.
        with tempfile.TemporaryDirectory() as folder:
            for name in ("q?.db", "f%41.db", "h#.db"):
                file = pathlib.Path(folder) / name
                with contextlib.closing(sqlite3.connect(file)) as copy:
                    db.commit()
                    db.backup(copy)
                with contextlib.redirect_stdout(io.StringIO()) as told, unittest.mock.patch.object(
                    sys, "argv", ["bench_path.py", "--db", str(file)]
                ):
                    self.assertEqual(path.main(), 0)
                self.assertIn("gpipe", told.getvalue())
            self.assertEqual(len(list(pathlib.Path(folder).iterdir())), 3)
        # No path rather than a wrong one.
        db.execute("UPDATE plan SET edges = NULL")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(list(path.measure(db)), [])
        self.assertIn("run 3 is left out: an older ppkit stored its plan", said.getvalue())


if __name__ == "__main__":
    unittest.main()
