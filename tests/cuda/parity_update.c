/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls on gradients and weights.
 */
#include "parity.h"

#define PLAIN 0, false
#define LARGE 0, true
#define FIRST .tensor = 2
#define SECOND .tensor = 2, .tensor_rank = 1

const struct parity_case parity_update_cases[] = {
    /* rows, width */
    {PP_KERNEL_COLSUM, {1, 1}, PLAIN},
    {PP_KERNEL_COLSUM, {27, 12}, PLAIN},
    {PP_KERNEL_COLSUM, {245, 200}, PLAIN},
    {PP_KERNEL_COLSUM, {1000, 37}, PLAIN},
    {PP_KERNEL_COLSUM, {128, 4096}, LARGE},
    {PP_KERNEL_COLSUM, {70, 28800}, LARGE},
    /* rows, width */
    {PP_KERNEL_TAKE, {1, 1}, PLAIN},
    {PP_KERNEL_TAKE, {3, 37}, PLAIN},
    {PP_KERNEL_TAKE, {40, 4096}, LARGE},
    /* rows, width, index */
    {PP_KERNEL_SUMSQ, {1, 1, 0}, PLAIN},
    {PP_KERNEL_SUMSQ, {12, 36, 3}, PLAIN},
    {PP_KERNEL_SUMSQ, {1003, 131, 1}, PLAIN},
    {PP_KERNEL_SUMSQ, {4096, 200, 2}, LARGE},
    {PP_KERNEL_SUMSQ, {12, 36, 3, 1}, PLAIN, FIRST},
    {PP_KERNEL_SUMSQ, {12, 36, 3, 1}, PLAIN, SECOND},
    {PP_KERNEL_SUMSQ, {12, 36, 3, 0}, PLAIN, SECOND},
    /* rows, width */
    {PP_KERNEL_SGD, {1, 1}, PLAIN},
    {PP_KERNEL_SGD, {12, 36}, PLAIN},
    {PP_KERNEL_SGD, {131, 67}, PLAIN},
    {PP_KERNEL_SGD, {1003, 200}, LARGE},
    {PP_KERNEL_ADAMW, {1, 1}, PLAIN},
    {PP_KERNEL_ADAMW, {12, 36}, PLAIN},
    {PP_KERNEL_ADAMW, {131, 67}, PLAIN},
    {PP_KERNEL_ADAMW, {1003, 200}, LARGE},
    {PP_KERNEL_ADAMW_BF16, {1, 1}, PLAIN},
    {PP_KERNEL_ADAMW_BF16, {131, 67}, PLAIN},
    {PP_KERNEL_ADAMW_BF16, {1003, 200}, LARGE},
    /* rows, width, experts, chosen: loads around a mean of 0 */
    {PP_KERNEL_BALANCE, {1, 1, 1, 1}, 0.125f, false},
    {PP_KERNEL_BALANCE, {1, 300, 300, 8}, 0.001f, false},
    {0},
};
