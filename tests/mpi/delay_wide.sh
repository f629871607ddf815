#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# 64 ranks, thousands of tasks of 5 ms and more: prediction and execution within 1 %.
exec "$(dirname "$0")/delay.sh" 64 32 10,12,8,2 1
