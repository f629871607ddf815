/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls about experts.
 */
#include "parity.h"

#define PLAIN 0, false
#define LARGE 0, true
#define FIRST .tensor = 2
#define SECOND .tensor = 2, .tensor_rank = 1

const struct parity_case parity_expert_cases[] = {
    /* rows, seq, experts, chosen, capacity, local, rules: of room for a share, for all, and for next to nothing */
    {PP_KERNEL_ROUTE, {1, 1, 1, 1, 1, 1}, PLAIN},
    {PP_KERNEL_ROUTE, {3, 9, 1, 1, 5, 1}, PLAIN},
    {PP_KERNEL_ROUTE, {3, 9, 3, 2, 18, 3}, PLAIN},
    {PP_KERNEL_ROUTE, {3, 9, 3, 3, 27, 3}, PLAIN},
    {PP_KERNEL_ROUTE, {3, 9, 8, 2, 7, 8}, PLAIN},
    {PP_KERNEL_ROUTE, {3, 9, 8, 2, 7, 8, PP_ROUTE_OF_ALL}, PLAIN},
    {PP_KERNEL_ROUTE, {3, 9, 8, 3, 7, 8, PP_ROUTE_OF_ALL | PP_ROUTE_SIGMOID}, PLAIN},
    {PP_KERNEL_ROUTE, {2, 35, 130, 8, 3, 130}, PLAIN},
    {PP_KERNEL_ROUTE, {2, 35, 130, 8, 3, 130, PP_ROUTE_SIGMOID}, PLAIN},
    {PP_KERNEL_ROUTE, {3, 9, 8, 2, 7, 4}, PLAIN, FIRST},
    {PP_KERNEL_ROUTE, {3, 9, 8, 2, 7, 4}, PLAIN, SECOND},
    {PP_KERNEL_ROUTE, {3, 9, 24, 4, 7, 12, 0, 2, 3}, PLAIN, SECOND},
    {PP_KERNEL_ROUTE, {2, 35, 130, 8, 3, 130, 0, 5, 13}, PLAIN},
    {PP_KERNEL_ROUTE, {3, 9, 8, 3, 7, 8, PP_ROUTE_SIGMOID}, PLAIN, .groups = 4, .picked = 2},
    {PP_KERNEL_ROUTE, {2, 35, 160, 6, 9, 160, PP_ROUTE_GROUP_BY_BEST}, PLAIN, .groups = 8, .picked = 3},
    {PP_KERNEL_ROUTE, {2, 35, 256, 8, 9, 256, PP_ROUTE_SIGMOID}, PLAIN, .groups = 64, .picked = 40},
    {PP_KERNEL_ROUTE, {7, 301, 8, 2, 300, 4}, LARGE, SECOND}, /* more choices than a block sees at a time */
    {PP_KERNEL_ROUTE, {1, 2, 4096, 64, 1, 4096}, LARGE},
    /* rows, seq, experts, chosen, rules; aux */
    {PP_KERNEL_ROUTE_GRAD, {1, 1, 1, 1}, 0.5f, false},
    {PP_KERNEL_ROUTE_GRAD, {3, 9, 3, 2}, 0, false},
    {PP_KERNEL_ROUTE_GRAD, {3, 9, 8, 2}, 0.5f, false},
    {PP_KERNEL_ROUTE_GRAD, {3, 9, 8, 2, PP_ROUTE_OF_ALL}, 0.5f, false},
    {PP_KERNEL_ROUTE_GRAD, {3, 9, 8, 2, PP_ROUTE_SIGMOID}, 0.5f, false},
    {PP_KERNEL_ROUTE_GRAD, {3, 9, 8, 3, PP_ROUTE_OF_ALL | PP_ROUTE_SIGMOID}, 0, false},
    {PP_KERNEL_ROUTE_GRAD, {2, 35, 130, 8}, 2, false},
    {PP_KERNEL_ROUTE_GRAD, {2, 35, 130, 8, PP_ROUTE_SIGMOID}, 2, false},
    {PP_KERNEL_ROUTE_GRAD, {1, 2, 4096, 64}, 0.5f, true},
    /* places, width, tokens, chosen */
    {PP_KERNEL_DISPATCH, {1, 1, 1, 1}, PLAIN},
    {PP_KERNEL_DISPATCH, {40, 12, 27, 2}, PLAIN},
    {PP_KERNEL_DISPATCH, {390, 131, 70, 8}, PLAIN},
    {PP_KERNEL_DISPATCH, {9, 4096, 9, 1}, LARGE},
    /* tokens, width, places, chosen, mode */
    {PP_KERNEL_COMBINE, {1, 1, 1, 1, PP_GEMM_WRITE}, PLAIN},
    {PP_KERNEL_COMBINE, {27, 12, 56, 2, PP_GEMM_WRITE}, PLAIN},
    {PP_KERNEL_COMBINE, {27, 12, 40, 2, PP_GEMM_ADD}, PLAIN},
    {PP_KERNEL_COMBINE, {70, 131, 390, 8, PP_GEMM_ADD}, PLAIN},
    {PP_KERNEL_COMBINE, {27, 10, 40, 2, PP_GEMM_ADD_ONCE}, PLAIN},
    {PP_KERNEL_COMBINE, {27, 12, 40, 2, PP_GEMM_ADD_ONCE}, PLAIN, FIRST},
    {PP_KERNEL_COMBINE, {27, 12, 40, 2, PP_GEMM_ADD_ONCE}, PLAIN, SECOND},
    {PP_KERNEL_COMBINE, {9, 4096, 9, 1, PP_GEMM_WRITE}, LARGE},
    /* places, width, tokens, chosen */
    {PP_KERNEL_WEIGH, {1, 1, 1, 1}, PLAIN},
    {PP_KERNEL_WEIGH, {40, 12, 27, 2}, PLAIN},
    {PP_KERNEL_WEIGH, {390, 131, 70, 8}, PLAIN},
    {PP_KERNEL_WEIGH, {9, 4096, 9, 1}, LARGE},
    {PP_KERNEL_WEIGH_GRAD, {1, 1, 1, 1}, PLAIN},
    {PP_KERNEL_WEIGH_GRAD, {40, 12, 27, 2}, PLAIN},
    {PP_KERNEL_WEIGH_GRAD, {390, 131, 70, 8}, PLAIN},
    {PP_KERNEL_WEIGH_GRAD, {9, 4096, 9, 1}, LARGE},
    {0},
};
