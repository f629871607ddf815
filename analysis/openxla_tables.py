#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The times of single products and collectives that OpenXLA has measured and ships, as published_kernels.tsv begins.

  pip download --no-deps jax-cuda12-pjrt==0.9.0 && unzip -q jax_cuda12_pjrt-*.whl
  openxla_tables.py jax_plugins/xla_cuda12/xla_cuda_plugin.so > published_kernels.tsv

The tables lie in that library as text; the same text is in the source of OpenXLA, in matmul_interpolator_data.h and
collective_interpolator_data.h of xla/service/gpu/model, and a copy of these files will do, too. What
others have measured stands behind these times in published_kernels.tsv, as transcribed.
"""

import argparse
import pathlib
import re
import sys

MACHINES = {"sm_90": "h100", "sm_100": "b200"}  # the compute capability, and whose it is
PRECISIONS = {
    "bf16xbf16->bf16": "bf16",
    "f32xf32->f32": "tf32",
    "f8e4m3fnxf8e4m3fn->bf16": "fp8",
    "f8e5m2xf8e4m3fn->bf16": "fp8-e5m2",  # that of A, in the gradient of an input or weight
}
TURNED = "h100"  # where a kernel turns B before each FP8 product
COLLECTIVES = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all"]
HEAD = """\
# Times of single matrix products and collectives on GPUs, by the OpenXLA Authors (Apache License 2.0; what they
# measured, as data): the tables of xla/service/gpu/model/matmul_interpolator_data.h and
# collective_interpolator_data.h, as jax-cuda12-pjrt 0.9.0 has them. Made by openxla_tables.py.
# Products: the median time of a kernel in ten runs, by CUPTI, one run after another has ended, of data that differ
# (xla/tools/matmul_perf_table_gen.cc). Row-major C [m,n] = A [m,k] B [k,n]. f32 products are held to be TF32's: they
# are up to six times as fast as plain float can be. GPU by compute capability: 9.0 H100, 10.0 B200.
# fp8: A and B E4M3; fp8-e5m2: A E5M2. C is bf16, and nothing is scaled. cuBLASLt wants B the other way on an H100 (gemm_rewriter.cc
# of OpenXLA), so that another kernel turns B first; and the median of an even number of times is the mean of the two in the middle
# (getMedianKernelTimeNs() of cupti_tracer there). So "turned" has the mean of a product's time and of that of turning B.
# Collectives: in a host of 8 GPUs, all of which work, in groups; bytes of the whole tensor
# (xla/tools/collective_perf_table_gen.cc).
#
# product, GPU, precision, times, m, n, k, microseconds
# turned, the same
# collective, GPU, its name, GPUs of a group, bytes, microseconds
"""


def tables(data, mark):
    """The texts, from one zero byte to the next, that hold the mark"""
    end = 0
    while (at := data.find(mark, end)) >= 0:
        start, end = data.rfind(b"\0", 0, at) + 1, data.find(b"\0", at)
        yield data[start:end].decode()


def by_machine(text):
    """(machine, its part of a table)"""
    parts = re.split(r'\n *key: "((?:sm|gfx)_?\w+)"', text)
    return [(MACHINES[key], part) for key, part in zip(parts[1::2], parts[2::2]) if key in MACHINES]


def products(data):
    entry = re.compile(r"\bb: (\d+)\s+m: (\d+)\s+n: (\d+)\s+k: (\d+)((?:\s+flops \{[^}]*\})+)")
    for text in tables(data, b'flops { key: "bf16xbf16->bf16"'):
        for machine, part in by_machine(text):
            for found in entry.finditer(part):
                *shape, rates = found.groups()
                times, m, n, k = map(int, shape)
                for kind, rate in re.findall(r'key: "([^"]+)" value: (\d+)', rates):
                    if kind in PRECISIONS:
                        us, precision = 2e6 * times * m * n * k / int(rate), PRECISIONS[kind]
                        name = "turned" if machine == TURNED and precision.startswith("fp8") else "product"
                        yield (name, machine, precision, times, m, n, k), us


def collectives(data):
    for text in tables(data, b"network_throughput_bytes_per_sec:"):
        for machine, part in by_machine(text):
            for entry in part.split("opcode: ")[1:]:
                name = entry.split('"')[1]
                if name not in COLLECTIVES:
                    continue
                size = 4 * int(re.findall(r"dimensions: (\d+)\s+layout", entry)[0])
                group = int(re.findall(r"num_devices_per_group: (\d+)", entry)[0])
                rate = int(re.findall(r"network_throughput_bytes_per_sec: (\d+)", entry)[0])
                size *= group if name == "reduce-scatter" else 1  # told by the shape of the result
                yield ("collective", machine, name, group, size), 1e6 * size / rate


def order(line):
    """By kind, machine and the rest, numbers as numbers"""
    return [[cell if isinstance(cell, str) else "", cell if isinstance(cell, int) else 0] for cell in line[0]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    try:
        data = b"".join(path.read_bytes() + b"\0" for path in parser.parse_args().files)
    except OSError as error:
        raise SystemExit(f"openxla_tables.py: {error}") from error
    lines = sorted([*products(data), *collectives(data)], key=order)
    if not lines:
        raise SystemExit("there is no table in these files")
    sys.stdout.write(HEAD)
    for cells, us in lines:
        print(*cells, f"{us:.2f}", sep="\t")


if __name__ == "__main__":
    main()
