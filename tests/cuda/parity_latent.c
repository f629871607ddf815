/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of latent attention: keys and values of different widths, rotation of some columns, and kernels of its own.
 */
#include "parity.h"

#define PLAIN 0, false
#define LARGE 0, true
#define BARE false, true /* without a bias, behind PLAIN or LARGE */
/* Of two workers that have two chunks of each row: the first and the last. */
#define OUTER .context = 2, .halves = true
#define INNER .context = 2, .context_rank = 1, .halves = true

const struct parity_case parity_latent_cases[] = {
    /* values narrower than keys, and wider: short rows, long ones, parts that go through scratch */
    {PP_KERNEL_ATTENTION, {2, 9, 2, 6, 1, 0, 0, 0, 4}, PLAIN},
    {PP_KERNEL_ATTENTION, {2, 9, 4, 6, 0, 2, 0, 0, 11}, PLAIN},
    {PP_KERNEL_ATTENTION, {1, 35, 2, 24, 1, 0, 0, 0, 16}, LARGE, BARE},
    {PP_KERNEL_ATTENTION, {1, 35, 2, 48, 1, 0, 0, 0, 32}, LARGE}, /* bf16 and tf32: tensor cores */
    {PP_KERNEL_ATTENTION, {2, 130, 2, 33, 0, 0, 0, 0, 70}, LARGE},
    {PP_KERNEL_ATTENTION, {1, 300, 4, 96, 1, 2, 0, 9, 64}, LARGE},
    {PP_KERNEL_ATTENTION_GRAD, {2, 9, 2, 6, 1, 0, 0, 0, 4}, PLAIN},
    {PP_KERNEL_ATTENTION_GRAD, {2, 9, 4, 6, 0, 2, 0, 0, 11}, PLAIN},
    {PP_KERNEL_ATTENTION_GRAD, {1, 35, 2, 24, 1, 0, 0, 0, 16}, LARGE},
    {PP_KERNEL_ATTENTION_GRAD, {1, 35, 2, 48, 1, 0, 0, 0, 32}, LARGE},
    {PP_KERNEL_ATTENTION_GRAD, {2, 130, 2, 33, 0, 0, 0, 0, 70}, LARGE},
    {PP_KERNEL_ATTENTION_GRAD, {1, 300, 4, 96, 1, 2, 0, 9, 64}, LARGE},
    {PP_KERNEL_ATTENTION_GRAD, {1, 2100, 1, 4, 1, 0, 0, 0, 8}, LARGE},
    {PP_KERNEL_FLASH, {2, 9, 2, 6, 1, 0, 0, 0, 4}, PLAIN},
    {PP_KERNEL_FLASH, {1, 70, 6, 20, 0, 2, 0, 0, 66}, LARGE},
    {PP_KERNEL_FLASH, {1, 66, 1, 100, 1, 0, 0, 0, 260}, LARGE},
    {PP_KERNEL_FLASH, {1, 70, 3, 48, 1, 0, 0, 0, 32}, PLAIN}, /* bf16: tensor cores */
    {PP_KERNEL_FLASH, {2, 131, 2, 192, 1, 0, 0, 0, 128}, LARGE, BARE},
    {PP_KERNEL_FLASH, {1, 70, 4, 64, 0, 2, 0, 0, 144}, LARGE},
    {PP_KERNEL_FLASH_GRAD, {2, 9, 2, 6, 1, 0, 0, 0, 4}, PLAIN},
    {PP_KERNEL_FLASH_GRAD, {1, 70, 6, 20, 0, 2, 0, 0, 66}, LARGE},
    {PP_KERNEL_FLASH_GRAD, {1, 66, 1, 100, 1, 0, 0, 0, 260}, LARGE},
    {PP_KERNEL_FLASH_GRAD, {1, 35, 2, 260, 1, 1, 0, 0, 3}, LARGE},
    {PP_KERNEL_FLASH_GRAD, {1, 70, 3, 48, 1, 0, 0, 0, 32}, PLAIN},
    {PP_KERNEL_FLASH_GRAD, {1, 70, 4, 32, 1, 2, 0, 0, 96}, PLAIN},
    {PP_KERNEL_FLASH_GRAD, {2, 131, 2, 192, 1, 0, 0, 0, 128}, LARGE},
    {PP_KERNEL_FLASH_GRAD, {1, 70, 4, 64, 0, 2, 0, 0, 144}, LARGE},
    /* rows, seq, heads, dh, columns, kv, still, dv */
    {PP_KERNEL_ROPE, {2, 9, 3, 7, 4, 0, 3, 5}, 10000, false, BARE},
    {PP_KERNEL_ROPE, {2, 35, 4, 24, 8, 2, 16, 16}, 500000, false},
    {PP_KERNEL_ROPE_GRAD, {2, 9, 3, 7, 4, 0, 3, 5}, 10000, false},
    {PP_KERNEL_ROPE_GRAD, {2, 35, 4, 24, 8, 2, 16, 16}, 500000, false},
    /* rows, seq, rank, shared */
    {PP_KERNEL_LATENT_NORM, {1, 1, 1, 2}, PLAIN},
    {PP_KERNEL_LATENT_NORM, {2, 9, 6, 0}, PLAIN},
    {PP_KERNEL_LATENT_NORM, {3, 35, 64, 16}, PLAIN},
    {PP_KERNEL_LATENT_NORM, {1, 3, 131, 6}, LARGE},
    {PP_KERNEL_LATENT_NORM, {2, 5, 1536, 0}, LARGE},
    {PP_KERNEL_LATENT_NORM_GRAD, {1, 1, 1, 2}, PLAIN},
    {PP_KERNEL_LATENT_NORM_GRAD, {2, 9, 6, 0}, PLAIN},
    {PP_KERNEL_LATENT_NORM_GRAD, {3, 35, 64, 16}, PLAIN},
    {PP_KERNEL_LATENT_NORM_GRAD, {1, 150, 131, 6}, LARGE}, /* several slices of tokens */
    {PP_KERNEL_LATENT_NORM_GRAD, {2, 150, 512, 64}, LARGE},
    /* rows, seq, heads, still, shared, values, rank */
    {PP_KERNEL_JOIN_HEADS, {1, 1, 1, 1, 2, 1, 1}, PLAIN},
    {PP_KERNEL_JOIN_HEADS, {2, 9, 3, 6, 4, 5, 10}, PLAIN},
    {PP_KERNEL_JOIN_HEADS, {2, 9, 4, 16, 8, 12, 32}, PLAIN}, /* whole quads */
    {PP_KERNEL_JOIN_HEADS, {1, 5, 16, 128, 64, 128, 512}, LARGE},
    {PP_KERNEL_SPLIT_HEADS, {1, 1, 1, 1, 2, 1, 1}, PLAIN},
    {PP_KERNEL_SPLIT_HEADS, {2, 9, 3, 6, 4, 5, 10}, PLAIN},
    {PP_KERNEL_SPLIT_HEADS, {2, 9, 4, 16, 8, 12, 32}, PLAIN},
    {PP_KERNEL_SPLIT_HEADS, {1, 5, 16, 128, 64, 128, 512}, LARGE},
    /* keys and values of whole rows: rows, seq, heads, dh, causal, kv, keys, window, dv */
    {PP_KERNEL_FLASH, {2, 8, 2, 6, 1, 0, 16, 0, 4}, PLAIN, .bare = true, OUTER},
    {PP_KERNEL_FLASH, {1, 70, 2, 48, 1, 0, 140, 0, 32}, PLAIN, .bare = true, INNER},
    {PP_KERNEL_FLASH_GRAD, {2, 8, 2, 6, 1, 0, 16, 0, 4}, PLAIN, OUTER},
    {PP_KERNEL_FLASH_GRAD, {1, 70, 2, 48, 1, 0, 140, 0, 32}, PLAIN, INNER},
    {PP_KERNEL_FLASH_GRAD, {1, 70, 2, 192, 1, 0, 140, 0, 128}, LARGE, INNER},
    /* tokens, width, shared, parts, values */
    {PP_KERNEL_TO_PIECES, {27, 24, 24, 3, 18}, PLAIN},
    {PP_KERNEL_TO_PIECES, {9, 48, 48, 2, 32}, PLAIN},
    {PP_KERNEL_FROM_PIECES, {27, 24, 24, 3, 18}, PLAIN},
    {PP_KERNEL_FROM_PIECES, {9, 48, 48, 2, 32}, PLAIN},
    {PP_KERNEL_COPY_KEYS, {9, 24, 8, 0, 12}, PLAIN},
    {PP_KERNEL_COPY_KEYS, {9, 27, 9, 0, 4}, PLAIN},
    {PP_KERNEL_SUM_KEYS, {9, 24, 8, 3, 12}, PLAIN},
    {PP_KERNEL_SUM_KEYS, {9, 27, 9, 2, 4}, PLAIN},
    {0},
};
