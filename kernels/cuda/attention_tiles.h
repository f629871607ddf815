/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles in which the kernels of attention work, and which of them a call goes to: for the kernels, and, without
 * CUDA, for who counts what they compute (kernels/work.c).
 */
#ifndef PP_KERNELS_CUDA_ATTENTION_TILES_H
#define PP_KERNELS_CUDA_ATTENTION_TILES_H

#include <stdbool.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
#define PP_FLASH_CONSTEXPR constexpr
#else
#define PP_FLASH_CONSTEXPR
#endif

enum {
    /* attention of rows up to so long is made in shared memory, by quads, if that has room (attention_short.cu). */
    PP_SHORT_SEQ = 128,
    PP_SHORT_QUAD = 4,
    /* In bf16 and TF32 it goes to tensor cores where the columns of heads are a multiple of PP_SHORT_STEP
     * (attention_short_mma.cu, attention_short_tf32.cu), in tiles of so many rows and columns. Sums over tokens have as
     * many terms as tiles, or in TF32 a multiple of so many. */
    PP_SHORT_STEP = 16,
    PP_SHORT_SIDE = 16,
    PP_SHORT_TF32_TERMS = 8,
    /* All else in float arithmetic: a tile of a product has so many rows and columns, and adds so many terms at a time
     * (attention_tile.cuh). */
    PP_TILE_SIDE = 64,
    PP_TILE_TERMS = 16,
    PP_FLASH_COLUMNS = 256, /* of a head, in a block of attention_flash.cu: several blocks share wider heads */
    /* flash in bf16 goes to tensor cores (attention_mma.cu, attention_mma_grad.cu) where the columns of a head are a
     * multiple of PP_FLASH_STEP, and PP_FLASH_WIDEST at most. Its tiles have as many columns, rounded up to a multiple
     * of PP_MMA_WIDTH; of wide heads, which have more than PP_MMA_NARROW, to a multiple of twice that. */
    PP_FLASH_STEP = 16,
    PP_FLASH_WIDEST = 256,
    PP_MMA_WIDTH = 32,
    PP_MMA_NARROW = 128,
    PP_MMA_TOKENS = 16,    /* tokens of a warp: queries, or backward keys */
    PP_MMA_KEYS = 64,      /* forward: keys of each tile that a warp goes over */
    PP_MMA_WIDE_KEYS = 32, /* the same for wide heads */
    PP_MMA_OVER = 32,      /* backward: tokens of each tile that a warp goes over */
    PP_MMA_WARPS = 8,      /* forward: warps that share these tiles, of 16 tokens each */
    PP_MMA_TWICE = 2,      /* forward: half as many warps have twice as many tokens (pp_mma_groups()) */
    PP_MMA_GRAD_WARPS = 4  /* the same backward */
};

/* Does a call of attention or attention_grad go to tensor cores, if its operands are aligned to 16 bytes, and if a
 * block has room for its rows? */
static inline bool pp_short_multiplies(const struct pp_call *call)
{
    const struct pp_attention_dims *n = &call->attention;
    return (call->precision == PP_BF16 || call->precision == PP_TF32) && n->seq <= PP_SHORT_SEQ &&
           n->dh % PP_SHORT_STEP == 0 && PP_VALUE_COLUMNS(n) % PP_SHORT_STEP == 0;
}

/* Does a call of flash or flash_grad go to tensor cores, if its operands are aligned to 16 bytes? */
static inline bool pp_flash_multiplies(const struct pp_call *call)
{
    const int columns = call->attention.dh, values = PP_VALUE_COLUMNS(&call->attention);
    return call->precision == PP_BF16 && columns % PP_FLASH_STEP == 0 && values % PP_FLASH_STEP == 0 &&
           columns <= PP_FLASH_WIDEST && values <= PP_FLASH_WIDEST;
}

/* Columns of a tile on tensor cores. widest: columns of a key or of a value, whichever is wider. */
static inline int pp_mma_width(int widest)
{
    const int step = widest <= PP_MMA_NARROW ? PP_MMA_WIDTH : 2 * PP_MMA_WIDTH;
    return (widest + step - 1) / step * step;
}

/* Rows of PP_MMA_TOKENS queries of a warp, forward on tensor cores, where a tile has so many columns. Two where they
 * have room in registers, but not where heads are so narrow that many warps of one run beside each other (64 columns,
 * on an H200: 187 TFLOP/s, with two 179; 128: 218, with two 283). */
static inline PP_FLASH_CONSTEXPR int pp_mma_groups(int width)
{
    return width > 2 * PP_MMA_WIDTH && width <= PP_MMA_NARROW ? PP_MMA_TWICE : 1;
}

/* Tiles of columns in a block, in float arithmetic: as few as hold a head, PP_FLASH_COLUMNS at most. widest: as above.
 */
static inline int pp_flash_tiles(int widest)
{
    return widest <= PP_TILE_SIDE ? 1 : widest <= 2 * PP_TILE_SIDE ? 2 : PP_FLASH_COLUMNS / PP_TILE_SIDE;
}
static inline int pp_flash_columns(int widest) { return pp_flash_tiles(widest) * PP_TILE_SIDE; }

#endif
