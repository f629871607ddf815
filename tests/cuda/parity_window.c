/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of attention with a window: of one token, of less than a tile, of a tile and one token more or less, and of
 * nearly all tokens, in rows that are worked on in shared memory, tile by tile, and on tensor cores.
 */
#include "parity.h"

#define PLAIN 0, false
#define LARGE 0, true
#define BARE .bare = true
/* Of workers that have two chunks of each row: the first and the last of two, and one of three. */
#define OUTER .context = 2, .halves = true
#define INNER .context = 2, .context_rank = 1, .halves = true
#define MIDDLE .context = 3, .context_rank = 1, .halves = true

/* Forward and backward. */
#define FLASH_BOTH(...)                                                                                                \
    {PP_KERNEL_FLASH, __VA_ARGS__}, { PP_KERNEL_FLASH_GRAD, __VA_ARGS__ }

const struct parity_case parity_windows[] = {
    /* rows, seq, heads, dh, causal, kv, keys, window */
    {PP_KERNEL_ATTENTION, {2, 9, 2, 6, 1, 0, 0, 1}, PLAIN},
    {PP_KERNEL_ATTENTION, {2, 35, 4, 20, 1, 2, 0, 7}, PLAIN},
    {PP_KERNEL_ATTENTION, {1, 128, 2, 64, 1, 0, 0, 100}, LARGE},
    {PP_KERNEL_ATTENTION, {1, 40, 2, 48, 1, 0, 0, 11}, PLAIN},
    {PP_KERNEL_ATTENTION, {1, 300, 1, 16, 1, 0, 0, 1}, LARGE},
    {PP_KERNEL_ATTENTION, {2, 257, 2, 3, 1, 1, 0, 50}, PLAIN, BARE},
    {PP_KERNEL_ATTENTION, {1, 333, 1, 33, 1, 0, 0, 65}, LARGE},
    {PP_KERNEL_ATTENTION, {1, 2100, 1, 4, 1, 0, 0, 300}, LARGE}, /* scores do not fit into scratch at once */
    {PP_KERNEL_ATTENTION_GRAD, {2, 9, 2, 6, 1, 0, 0, 1}, PLAIN},
    {PP_KERNEL_ATTENTION_GRAD, {2, 35, 4, 20, 1, 2, 0, 7}, PLAIN},
    {PP_KERNEL_ATTENTION_GRAD, {1, 128, 2, 64, 1, 0, 0, 100}, LARGE},
    {PP_KERNEL_ATTENTION_GRAD, {1, 40, 2, 48, 1, 0, 0, 11}, PLAIN},
    {PP_KERNEL_ATTENTION_GRAD, {1, 300, 1, 16, 1, 0, 0, 1}, LARGE},
    {PP_KERNEL_ATTENTION_GRAD, {2, 257, 2, 3, 1, 1, 0, 50}, PLAIN},
    {PP_KERNEL_ATTENTION_GRAD, {1, 333, 1, 33, 1, 0, 0, 65}, LARGE},
    {PP_KERNEL_ATTENTION_GRAD, {1, 1030, 4, 2, 1, 1, 0, 200}, LARGE}, /* nor do those of a group */
    FLASH_BOTH({2, 9, 2, 6, 1, 0, 0, 1}, PLAIN),
    FLASH_BOTH({1, 70, 4, 20, 1, 2, 0, 7}, PLAIN),
    FLASH_BOTH({2, 257, 1, 3, 1, 0, 0, 64}, LARGE),
    FLASH_BOTH({1, 333, 2, 33, 1, 1, 0, 65}, LARGE),
    FLASH_BOTH({1, 130, 1, 260, 1, 0, 0, 20}, LARGE),
    FLASH_BOTH({1, 200, 1, 16, 1, 0, 0, 199}, LARGE),
    FLASH_BOTH({1, 300, 2, 16, 1, 0, 0, 1}, LARGE), /* bf16: tensor cores */
    FLASH_BOTH({1, 70, 4, 64, 1, 2, 0, 9}, PLAIN),
    FLASH_BOTH({2, 300, 1, 96, 1, 0, 0, 63}, LARGE),
    FLASH_BOTH({1, 333, 2, 128, 1, 1, 0, 130}, LARGE),
    FLASH_BOTH({1, 260, 2, 192, 1, 1, 0, 33}, LARGE), /* wide */
    /* ... keys of whole rows: windows that end in the worker's chunk, before it, and reach into the first one */
    {PP_KERNEL_FLASH, {2, 20, 4, 6, 1, 2, 40, 5}, PLAIN, BARE, INNER},
    {PP_KERNEL_FLASH, {1, 140, 1, 20, 1, 0, 280, 100}, LARGE, BARE, OUTER},
    {PP_KERNEL_FLASH, {2, 20, 3, 16, 1, 0, 60, 15}, PLAIN, BARE, MIDDLE},
    {PP_KERNEL_FLASH, {1, 256, 2, 64, 1, 1, 512, 200}, LARGE, BARE, INNER},
    {PP_KERNEL_FLASH, {1, 70, 2, 192, 1, 2, 210, 90}, LARGE, BARE, MIDDLE},
    {PP_KERNEL_FLASH_GRAD, {2, 20, 4, 6, 1, 2, 40, 5}, PLAIN, INNER},
    {PP_KERNEL_FLASH_GRAD, {1, 140, 1, 20, 1, 0, 280, 100}, LARGE, OUTER},
    {PP_KERNEL_FLASH_GRAD, {2, 20, 3, 16, 1, 0, 60, 15}, PLAIN, MIDDLE},
    {PP_KERNEL_FLASH_GRAD, {1, 256, 2, 64, 1, 1, 512, 200}, LARGE, INNER},
    {PP_KERNEL_FLASH_GRAD, {1, 70, 2, 192, 1, 2, 210, 90}, LARGE, MIDDLE},
    {0},
};
