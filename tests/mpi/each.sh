#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mpirun -n 2 each.sh COMMAND0 COMMAND1: each process runs the command of its rank, split into words. (With mpirun's own `:` Open MPI 5.0.7
# ends in a segmentation fault.)
set -euo pipefail
commands=("$@")
# shellcheck disable=SC2086
exec ${commands[OMPI_COMM_WORLD_RANK]}
