#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every kernel has a launcher for GPUs, and a case that compares it with the cpu's: so hosts without CUDA know, too.
set -euo pipefail
cd "$1"
bad=0
kernels=$(sed -n '/^#define PP_KERNEL_LIST/,/^$/p' kernels/kernels.h | grep -oE 'X\([A-Z0-9_]+, [a-z0-9_]+')
while IFS='(, ' read -r _ id name; do
    grep -qE "^cudaError_t pp_cuda_$name\(" kernels/cuda/*.cu kernels/cuda/*.c ||
        { echo "kernels/cuda: there is no pp_cuda_$name()" && bad=1; }
    grep -qE "\{PP_KERNEL_$id," tests/cuda/parity_*.c || { echo "tests/cuda/parity_*.c: there is no case {PP_KERNEL_$id, ...}" && bad=1; }
done <<<"$kernels"
exit $bad
