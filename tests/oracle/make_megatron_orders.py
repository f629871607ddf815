#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/orders/interleaved-megatron.csv: Megatron-LM's interleaved orders, with N microbatches in turn.

Run it with a Python that has PyTorch and megatron-core (2.15 and 0.16.1 made the committed file; `pip install --no-deps
megatron-core` is enough); the build and the default tests only read it. Each case is a line "# P V M N" and then the
rows of make_orders.py.
"""

import argparse
import pathlib
import types

from megatron.core.pipeline_parallel import schedules


def cases():
    """(P, V, M, N) that Megatron-LM runs."""
    for ranks in (2, 3, 4):
        for virtual in (2, 3):
            for microbatches in (2, 3, 4, 5, 7, 8, 11, 12):
                for turn in range(ranks, microbatches + 1):
                    left = microbatches % turn
                    if (left == 0 or left >= ranks) and (ranks < 4 or virtual == 2):
                        yield ranks, virtual, microbatches, turn
    yield 4, 4, 16, 6
    yield 8, 3, 32, 12


def order(ranks, virtual, microbatches, turn):
    """By its own functions for warm-up and order; what follows the warm-up is a forward and a backward in turn."""
    table = schedules.get_schedule_table(microbatches, virtual, turn)
    for rank in range(ranks):
        group = types.SimpleNamespace(size=lambda: ranks, rank=lambda rank=rank: rank)
        place = types.SimpleNamespace(pp_group=group, virtual_pipeline_model_parallel_size=virtual)
        counts = schedules.get_pp_rank_microbatches(microbatches, virtual, turn, p2p_communicator=place)
        forwards = [f"{chunk * ranks + rank}F{microbatch}" for microbatch, chunk in table]
        backwards = [f"{(virtual - 1 - chunk) * ranks + rank}B{microbatch}" for microbatch, chunk in table]
        total, _, ahead, remaining = counts
        row = forwards[:ahead]
        for i in range(remaining):
            row += [forwards[ahead + i], backwards[i]]
        yield row + backwards[remaining:total]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = pathlib.Path(__file__).resolve().parent.parent / "golden" / "orders" / "interleaved-megatron.csv"
    parser.add_argument("--out", type=pathlib.Path, default=default)
    args = parser.parse_args()
    with open(args.out, "w", encoding="ascii") as out:
        for case in cases():
            print("#", *case, file=out)
            out.writelines(",".join(row) + "\n" for row in order(*case))
    print(f"{args.out.name}: {len(list(cases()))} cases")


if __name__ == "__main__":
    main()
