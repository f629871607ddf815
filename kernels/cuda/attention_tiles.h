/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles in which the kernels of attention work, and which of them a call goes to: for the kernels, and, without
 * CUDA, for who counts what they compute (kernels/work.c).
 */
#ifndef PP_KERNELS_CUDA_ATTENTION_TILES_H
#define PP_KERNELS_CUDA_ATTENTION_TILES_H

#include <stdbool.h>

#include "kernels/kernels.h"

enum {
    /* Stored scores of rows that are no longer are made in shared memory, by quads, where it has room for them
     * (attention_short.cu). */
    PP_SHORT_SEQ = 128,
    PP_SHORT_QUAD = 4,
    /* All others in float arithmetic: a tile of a product has so many rows and columns, and so many terms at a time
     * (attention_tile.cuh). */
    PP_TILE_SIDE = 64,
    PP_TILE_TERMS = 16,
    PP_FLASH_COLUMNS = 256, /* that a block of attention_flash.cu has at most: wider heads are shared by several */
    /* In bf16, flash with heads of a multiple of so many columns, up to so many, goes to tensor cores
     * (attention_mma.cu, attention_mma_grad.cu), in tiles of the next multiple of PP_MMA_WIDTH. Those of more than
     * PP_MMA_NARROW are wide: tiles are of the next multiple of twice that. */
    PP_FLASH_STEP = 16,
    PP_FLASH_WIDEST = 256,
    PP_MMA_WIDTH = 32,
    PP_MMA_NARROW = 128,
    PP_MMA_TOKENS = 16,    /* of a warp: queries, or backward keys */
    PP_MMA_KEYS = 64,      /* of a tile that it goes over, forward */
    PP_MMA_WIDE_KEYS = 32, /* the same of wide heads */
    PP_MMA_OVER = 32,      /* tokens of such a tile, backward */
    PP_MMA_WARPS = 8,      /* that share a tile, forward */
    PP_MMA_GRAD_WARPS = 4
};

/* Operands, which are aligned to 16 bytes, can go to tensor cores. */
static inline bool pp_flash_multiplies(const struct pp_call *call)
{
    return call->precision == PP_BF16 && call->attention.dh % PP_FLASH_STEP == 0 &&
           call->attention.dh <= PP_FLASH_WIDEST;
}

/* Columns of a tile on tensor cores. */
static inline int pp_mma_width(int dh)
{
    const int step = dh <= PP_MMA_NARROW ? PP_MMA_WIDTH : 2 * PP_MMA_WIDTH;
    return (dh + step - 1) / step * step;
}

/* Tiles of columns that a block has in float arithmetic: as few as hold a head. */
static inline int pp_flash_tiles(int dh)
{
    return dh <= PP_TILE_SIDE ? 1 : dh <= 2 * PP_TILE_SIDE ? 2 : PP_FLASH_COLUMNS / PP_TILE_SIDE;
}

#endif
