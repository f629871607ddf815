#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/orders/: the compute orders of torch.distributed.pipelining, one file per schedule.

Run it with a Python that has PyTorch (2.15 made the committed files); the build and the default tests only read them.
Each case is a line "# P V M" and then PyTorch's compute-only CSV: one row per rank, one action per cell, without the
idle cells and without REDUCE_GRAD.

One correction is made. The order that PyTorch's 1F1B class shows (not the one it runs) numbers the forwards of the
last rank from 1 to M instead of 0 to M-1, because its counter of forwards starts behind a warm-up that the last rank
does not have. Here the last rank gets the numbers that PyTorch runs.

DualPipeV's pairs of a forward and a backward are written one after the other, as PyTorch runs them by default, and a
backward of a stage that also has I and W as I and W: ppkit splits all of a stage's backwards or none.
"""

import argparse
import pathlib

from torch.distributed.pipelining import _schedule_visualizer as visualizer
from torch.distributed.pipelining.schedules import _Action, _ComputationType

TORCH_NAMES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}
TORCH_NAMES.update({"interleaved-zb": "InterleavedZeroBubble", "zbv": "ZBVZeroBubble", "dualpipev": "DualPipeV"})
COMPUTE = ("F", "B", "I", "W")


def cases():
    """(schedule, P, V, M): small ones densely, some large ones."""
    for ranks in (1, 2, 3, 4, 5, 8):
        for microbatches in (1, 2, 3, 4, 5, 7, 8, 10, 13, 16):
            if ranks in (1, 2, 4) or microbatches in (3, 7, 8, 16):
                yield "gpipe", ranks, 1, microbatches
                if microbatches >= ranks:  # PyTorch refuses fewer; ppkit does not
                    yield "1f1b", ranks, 1, microbatches
    yield "1f1b", 16, 1, 40
    yield "gpipe", 16, 1, 9
    for ranks in (1, 2, 3, 4, 8):
        for virtual in (2, 3, 4):
            for microbatches in (1, 2, 3, 4, 6, 8, 9, 10, 12, 16):
                rounds = max(1, microbatches // ranks)
                if microbatches % rounds == 0 and (ranks != 3 or virtual == 2):
                    yield "interleaved", ranks, virtual, microbatches
                    yield "interleaved-zb", ranks, virtual, microbatches
                if virtual == 2:
                    yield "zbv", ranks, 2, microbatches
                if virtual == 2 and microbatches >= 2 * ranks:
                    yield "dualpipev", ranks, 2, microbatches
    yield "interleaved", 16, 2, 32
    yield "zbv", 16, 2, 40
    yield "dualpipev", 4, 2, 24
    yield "dualpipev", 8, 2, 20
    yield "dualpipev", 16, 2, 40


def undo_last_rank_slip(row, microbatches):
    """PyTorch's introspection order of 1F1B counts the last rank's forwards from 1: count them from 0."""
    forwards = [a.microbatch_index for a in row if a.computation_type == _ComputationType.FORWARD]
    if forwards != list(range(1, microbatches + 1)):
        return row
    return [
        (
            _Action(a.stage_index, a.computation_type, a.microbatch_index - 1)
            if a.computation_type == _ComputationType.FORWARD
            else a
        )
        for a in row
    ]


def unpaired(row):
    """The actions of a row, those of overlapped pairs one by one."""
    for action in row:
        if action is not None:
            yield from getattr(action, "sub_actions", None) or (action,)


def split_alike(row):
    """Every B of a stage with I and W as I and W."""
    split = {a.stage_index for a in row if a.computation_type == _ComputationType.BACKWARD_WEIGHT}
    for a in row:
        if a.computation_type == _ComputationType.FULL_BACKWARD and a.stage_index in split:
            yield _Action(a.stage_index, _ComputationType.BACKWARD_INPUT, a.microbatch_index)
            yield _Action(a.stage_index, _ComputationType.BACKWARD_WEIGHT, a.microbatch_index)
        else:
            yield a


def order(schedule, ranks, virtual, microbatches):
    rows = visualizer.get_schedule_ops(TORCH_NAMES[schedule], ranks, microbatches, virtual)
    rows = [[a for a in unpaired(row) if a.computation_type.value in COMPUTE] for row in rows]
    rows = [list(split_alike(row)) for row in rows]
    if schedule == "1f1b":
        rows[-1] = undo_last_rank_slip(rows[-1], microbatches)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = pathlib.Path(__file__).resolve().parent.parent / "golden" / "orders"
    parser.add_argument("--out", type=pathlib.Path, default=default)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in TORCH_NAMES:
        mine = [case for case in cases() if case[0] == name]
        with open(args.out / f"{name}.csv", "w", encoding="ascii") as out:
            for schedule, ranks, virtual, microbatches in mine:
                rows = order(schedule, ranks, virtual, microbatches)
                out.write(f"# {ranks} {virtual} {microbatches}\n")
                out.writelines(",".join(map(str, row)) + "\n" for row in rows)
        print(f"{name}: {len(mine)} cases")


if __name__ == "__main__":
    main()
