/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of workers that have parts of the tokens of the same rows: where their tokens stand, which heads they have, and
 * what they exchange.
 */
#include "parity.h"

#define PLAIN 0, false
#define LARGE 0, true
/* Of two workers that have parts of each row, and of three; and of four, two to a tensor rank. */
#define FIRST .context = 2
#define SECOND .context = 2, .context_rank = 1
#define LAST .context = 3, .context_rank = 2
#define FOURTH .tensor = 2, .tensor_rank = 1, .context = 2, .context_rank = 1
/* The same where each has two chunks of a row: the first of two, the last one, one of three, and of tensor ranks. */
#define BARE .bare = true
#define OUTER .context = 2, .halves = true
#define INNER .context = 2, .context_rank = 1, .halves = true
#define MIDDLE .context = 3, .context_rank = 1, .halves = true
#define SHARED .tensor = 2, .tensor_rank = 1, .context = 2, .context_rank = 1, .halves = true

const struct parity_case parity_context_cases[] = {
    /* tokens, width, shared, parts */
    {PP_KERNEL_TO_PIECES, {1, 2, 2, 2}, PLAIN},
    {PP_KERNEL_TO_PIECES, {27, 24, 8, 2}, PLAIN},
    {PP_KERNEL_TO_PIECES, {27, 18, 6, 3}, PLAIN},
    {PP_KERNEL_TO_PIECES, {9, 8, 4, 4}, PLAIN},
    {PP_KERNEL_TO_PIECES, {9, 24, 6, 2}, PLAIN}, /* whole quads of queries alone */
    {PP_KERNEL_TO_PIECES, {9, 24, 24, 3}, PLAIN},
    {PP_KERNEL_TO_PIECES, {7, 64, 0, 4}, PLAIN},
    {PP_KERNEL_TO_PIECES, {7, 33, 0, 3}, PLAIN},
    {PP_KERNEL_TO_PIECES, {5, 2048, 512, 2}, LARGE},
    {PP_KERNEL_TO_PIECES, {3, 2004, 1002, 3}, LARGE},
    {PP_KERNEL_FROM_PIECES, {1, 2, 2, 2}, PLAIN},
    {PP_KERNEL_FROM_PIECES, {27, 24, 8, 2}, PLAIN},
    {PP_KERNEL_FROM_PIECES, {27, 18, 6, 3}, PLAIN},
    {PP_KERNEL_FROM_PIECES, {9, 8, 4, 4}, PLAIN},
    {PP_KERNEL_FROM_PIECES, {9, 24, 6, 2}, PLAIN},
    {PP_KERNEL_FROM_PIECES, {7, 64, 0, 4}, PLAIN},
    {PP_KERNEL_FROM_PIECES, {7, 33, 0, 3}, PLAIN},
    {PP_KERNEL_FROM_PIECES, {5, 2048, 512, 2}, LARGE},
    {PP_KERNEL_FROM_PIECES, {3, 2004, 1002, 3}, LARGE},
    {PP_KERNEL_ALL_TO_ALL, {8, 12, 2}, PLAIN, SECOND},
    {PP_KERNEL_ALL_TO_ALL, {8, 12, 2, 0, 0, PP_JOIN_CONTEXT_RANKS, 2}, PLAIN, INNER},
    {PP_KERNEL_ALL_TO_ALL, {8, 12, 2, 1, 0, PP_JOIN_CONTEXT_RANKS, 2}, PLAIN, INNER},
    {PP_KERNEL_SHIFT, {7, 12, 0, 0, 0, PP_JOIN_CONTEXT_RANKS}, PLAIN, INNER},
    {PP_KERNEL_SHIFT, {7, 12, 0, 0, 1, PP_JOIN_CONTEXT_RANKS}, PLAIN, INNER},
    /* tokens, width, shared, parts */
    {PP_KERNEL_COPY_KEYS, {1, 2, 1}, PLAIN},
    {PP_KERNEL_COPY_KEYS, {9, 24, 8}, PLAIN},
    {PP_KERNEL_COPY_KEYS, {9, 27, 9}, PLAIN},
    {PP_KERNEL_COPY_KEYS, {3, 2048, 512}, LARGE},
    {PP_KERNEL_SUM_KEYS, {1, 2, 1, 2}, PLAIN},
    {PP_KERNEL_SUM_KEYS, {9, 24, 8, 3}, PLAIN},
    {PP_KERNEL_SUM_KEYS, {9, 27, 9, 2}, PLAIN},
    {PP_KERNEL_SUM_KEYS, {3, 2048, 1536, 4}, LARGE},
    /* rows, seq, d, vocab, positions */
    {PP_KERNEL_EMBED, {3, 9, 12, 100}, 3.5f, false, FIRST},
    {PP_KERNEL_EMBED, {3, 9, 12, 100}, 3.5f, false, LAST},
    {PP_KERNEL_EMBED, {2, 5, 30, 17, PP_POSITIONS_ROPE}, 1, false, SECOND},
    {PP_KERNEL_EMBED, {2, 5, 30, 17, PP_POSITIONS_LEARNED}, 1, false, FIRST},
    {PP_KERNEL_EMBED, {2, 35, 12, 17, PP_POSITIONS_LEARNED}, 1, false, LAST},
    {PP_KERNEL_EMBED, {3, 9, 12, 50}, 3.5f, false, FOURTH},
    {PP_KERNEL_EMBED, {3, 8, 12, 100}, 3.5f, false, OUTER},
    {PP_KERNEL_EMBED, {2, 8, 12, 17, PP_POSITIONS_LEARNED}, 1, false, MIDDLE},
    {PP_KERNEL_EMBED_GRAD, {3, 8, 12, 100}, 3.5f, false, MIDDLE},
    {PP_KERNEL_EMBED_GRAD, {3, 9, 12, 100}, 3.5f, false, FIRST},
    {PP_KERNEL_EMBED_GRAD, {2, 35, 30, 17}, 1, false, LAST},
    {PP_KERNEL_EMBED_GRAD, {3, 9, 12, 50}, 3.5f, false, FOURTH},
    {PP_KERNEL_EMBED_GRAD, {5, 1000, 4, 300}, 2, true, SECOND}, /* more tokens than are sorted at a time */
    /* rows, seq, d, places: with none before or behind the worker's, and with some */
    {PP_KERNEL_POSITIONS_GRAD, {3, 9, 12, 18}, PLAIN, FIRST},
    {PP_KERNEL_POSITIONS_GRAD, {3, 9, 12, 18}, PLAIN, SECOND},
    {PP_KERNEL_POSITIONS_GRAD, {2, 5, 30, 17}, PLAIN, LAST},
    {PP_KERNEL_POSITIONS_GRAD, {2, 5, 30, 17}, PLAIN, FOURTH},
    {PP_KERNEL_POSITIONS_GRAD, {3, 8, 12, 18}, PLAIN, OUTER},
    {PP_KERNEL_POSITIONS_GRAD, {2, 6, 30, 18}, PLAIN, MIDDLE},
    /* rows, seq, heads, dh, causal, kv */
    {PP_KERNEL_ATTENTION, {2, 9, 2, 6, 1}, PLAIN, FIRST},
    {PP_KERNEL_ATTENTION, {2, 9, 4, 6, 1, 2}, PLAIN, LAST},
    {PP_KERNEL_ATTENTION, {2, 130, 2, 33, 0}, LARGE, SECOND},
    {PP_KERNEL_ATTENTION, {3, 9, 4, 6, 1, 2}, PLAIN, FOURTH},
    {PP_KERNEL_ATTENTION_GRAD, {2, 9, 2, 6, 1}, PLAIN, SECOND},
    {PP_KERNEL_ATTENTION_GRAD, {3, 9, 4, 6, 1, 2}, PLAIN, FOURTH},
    {PP_KERNEL_FLASH, {2, 9, 2, 6, 1}, PLAIN, SECOND},
    {PP_KERNEL_FLASH, {3, 20, 4, 6, 1, 2}, PLAIN, FOURTH},
    {PP_KERNEL_FLASH, {2, 20, 3, 16, 1}, PLAIN, LAST}, /* tensor cores */
    {PP_KERNEL_FLASH, {3, 20, 2, 64, 1, 1}, PLAIN, FOURTH},
    {PP_KERNEL_FLASH_GRAD, {2, 9, 2, 6, 1}, PLAIN, SECOND},
    {PP_KERNEL_FLASH_GRAD, {3, 20, 4, 6, 1, 2}, PLAIN, FOURTH},
    {PP_KERNEL_FLASH_GRAD, {2, 20, 3, 16, 1}, PLAIN, LAST}, /* tensor cores */
    {PP_KERNEL_FLASH_GRAD, {3, 20, 2, 64, 1, 1}, PLAIN, FOURTH},
    /* ... and tokens of whole rows: tiles in which chunks begin, keys that nobody sees, tensor cores, wide heads */
    {PP_KERNEL_FLASH, {2, 8, 2, 6, 1, 0, 16}, PLAIN, BARE, OUTER},
    {PP_KERNEL_FLASH, {2, 8, 4, 6, 0, 2, 24}, PLAIN, BARE, MIDDLE},
    {PP_KERNEL_FLASH, {2, 20, 4, 6, 1, 2, 40}, PLAIN, BARE, SHARED},
    {PP_KERNEL_FLASH, {1, 140, 1, 20, 1, 0, 280}, LARGE, BARE, INNER},
    {PP_KERNEL_FLASH, {2, 20, 3, 16, 1, 0, 60}, PLAIN, BARE, MIDDLE},
    {PP_KERNEL_FLASH, {1, 256, 2, 64, 1, 1, 512}, LARGE, BARE, OUTER},
    {PP_KERNEL_FLASH, {2, 70, 2, 32, 1, 1, 140}, LARGE, BARE, SHARED},
    {PP_KERNEL_FLASH, {1, 70, 2, 192, 1, 2, 140}, LARGE, BARE, INNER},
    {PP_KERNEL_FLASH, {1, 70, 2, 128, 1, 1, 140}, LARGE, BARE, INNER}, /* warps of 32 queries */
    {PP_KERNEL_FLASH, {1, 70, 2, 128, 1, 1, 140}, LARGE, BARE, OUTER},
    {PP_KERNEL_FLASH, {1, 156, 2, 96, 1, 1, 312}, LARGE, BARE, SHARED},
    {PP_KERNEL_FLASH_GRAD, {2, 8, 2, 6, 1, 0, 16}, PLAIN, OUTER},
    {PP_KERNEL_FLASH_GRAD, {2, 8, 4, 6, 0, 2, 24}, PLAIN, MIDDLE},
    {PP_KERNEL_FLASH_GRAD, {2, 20, 4, 6, 1, 2, 40}, PLAIN, SHARED},
    {PP_KERNEL_FLASH_GRAD, {1, 140, 1, 20, 1, 0, 280}, LARGE, INNER},
    {PP_KERNEL_FLASH_GRAD, {1, 36, 2, 260, 1, 0, 72}, LARGE, INNER},
    {PP_KERNEL_FLASH_GRAD, {2, 20, 3, 16, 1, 0, 60}, PLAIN, MIDDLE},
    {PP_KERNEL_FLASH_GRAD, {1, 256, 2, 64, 1, 1, 512}, LARGE, OUTER},
    {PP_KERNEL_FLASH_GRAD, {2, 70, 2, 32, 1, 1, 140}, LARGE, SHARED},
    {PP_KERNEL_FLASH_GRAD, {1, 70, 2, 192, 1, 2, 140}, LARGE, INNER},
    {PP_KERNEL_FLASH_GRAD, {1, 70, 2, 128, 1, 1, 140}, LARGE, INNER},
    {PP_KERNEL_FLASH_GRAD, {1, 70, 2, 128, 1, 1, 140}, LARGE, OUTER},
    {PP_KERNEL_FLASH_GRAD, {1, 156, 2, 96, 1, 1, 312}, LARGE, SHARED},
    /* ... and queries and keys of one chunk each: the same one, and another one */
    {PP_KERNEL_FLASH, {2, 9, 2, 6, 1, 0, 9}, PLAIN, BARE, OUTER},
    {PP_KERNEL_FLASH, {2, 9, 4, 6, 0, 2, 9}, PLAIN, BARE, MIDDLE},
    {PP_KERNEL_FLASH, {1, 140, 1, 20, 1, 0, 140}, LARGE, BARE, INNER},
    {PP_KERNEL_FLASH, {1, 70, 2, 260, 0, 1, 70}, LARGE, BARE, OUTER},
    {PP_KERNEL_FLASH, {2, 20, 3, 16, 1, 0, 20}, PLAIN, BARE, INNER}, /* tensor cores */
    {PP_KERNEL_FLASH, {1, 128, 2, 64, 1, 1, 128, 0, 32}, LARGE, BARE, MIDDLE},
    {PP_KERNEL_FLASH, {1, 131, 4, 128, 0, 2, 131}, LARGE, BARE, SHARED},
    {PP_KERNEL_FLASH, {1, 70, 2, 192, 1, 2, 70, 0, 128}, LARGE, BARE, OUTER},
    {PP_KERNEL_FLASH_GRAD, {2, 9, 2, 6, 1, 0, 9}, PLAIN, OUTER},
    {PP_KERNEL_FLASH_GRAD, {2, 9, 4, 6, 0, 2, 9}, PLAIN, MIDDLE},
    {PP_KERNEL_FLASH_GRAD, {1, 140, 1, 20, 1, 0, 140}, LARGE, INNER},
    {PP_KERNEL_FLASH_GRAD, {1, 70, 2, 260, 0, 1, 70}, LARGE, OUTER},
    {PP_KERNEL_FLASH_GRAD, {2, 20, 3, 16, 1, 0, 20}, PLAIN, INNER},
    {PP_KERNEL_FLASH_GRAD, {1, 128, 2, 64, 1, 1, 128, 0, 32}, LARGE, MIDDLE},
    {PP_KERNEL_FLASH_GRAD, {1, 131, 4, 128, 0, 2, 131}, LARGE, SHARED},
    {PP_KERNEL_FLASH_GRAD, {1, 70, 2, 192, 1, 2, 70, 0, 128}, LARGE, OUTER},
    /* tokens, heads, dv: quads of one head, and numbers; several blocks for a token */
    {PP_KERNEL_MERGE, {1, 1, 1}, PLAIN},
    {PP_KERNEL_MERGE, {9, 3, 8}, PLAIN},
    {PP_KERNEL_MERGE, {9, 3, 7}, PLAIN},
    {PP_KERNEL_MERGE, {5, 32, 128}, LARGE},
    {PP_KERNEL_MERGE, {5, 70, 20}, LARGE},
    {PP_KERNEL_MERGE, {3, 35, 33}, LARGE},
    /* rows, width, to_pitch, from_pitch, adds */
    {PP_KERNEL_ADD_COLUMNS, {1, 1, 1, 1, 0}, PLAIN},
    {PP_KERNEL_ADD_COLUMNS, {9, 12, 12, 24, 0}, PLAIN},
    {PP_KERNEL_ADD_COLUMNS, {9, 12, 20, 12, 0}, PLAIN},
    {PP_KERNEL_ADD_COLUMNS, {9, 13, 17, 13, 0}, PLAIN},
    {PP_KERNEL_ADD_COLUMNS, {9, 12, 18, 12, 0}, PLAIN}, /* whole quads of columns alone */
    {PP_KERNEL_ADD_COLUMNS, {9, 12, 20, 24, 1}, PLAIN},
    {PP_KERNEL_ADD_COLUMNS, {9, 13, 13, 17, 1}, PLAIN},
    {PP_KERNEL_ADD_COLUMNS, {9, 12, 20, 26, 1}, PLAIN},
    {PP_KERNEL_ADD_COLUMNS, {5, 2048, 3072, 2048, 0}, LARGE},
    {PP_KERNEL_ADD_COLUMNS, {5, 2048, 3072, 2048, 1}, LARGE},
    {PP_KERNEL_ADD_COLUMNS, {3, 1027, 3081, 1027, 1}, LARGE},
    {PP_KERNEL_ROPE, {2, 9, 4, 6, 0, 2}, 10000, false, SECOND}, /* of all tokens, whoever had them */
    {PP_KERNEL_ROPE, {2, 8, 4, 6, 0, 2}, 10000, false, MIDDLE},
    {PP_KERNEL_ROPE_GRAD, {2, 8, 4, 6, 0, 2}, 10000, false, OUTER},
    /* rows, seq, d, plain */
    {PP_KERNEL_LAYERNORM, {3, 9, 12}, 1e-2f, false, FIRST},
    {PP_KERNEL_LAYERNORM, {3, 9, 12}, 1e-2f, false, LAST},
    {PP_KERNEL_LAYERNORM, {2, 3, 131}, 1e-5f, false, true, SECOND},
    {PP_KERNEL_LAYERNORM, {1, 9, 4096}, 1e-5f, true, true, LAST},
    {PP_KERNEL_LAYERNORM_GRAD, {3, 9, 12}, PLAIN, FIRST},
    {PP_KERNEL_LAYERNORM_GRAD, {3, 9, 12}, PLAIN, true, LAST},
    {PP_KERNEL_LAYERNORM_GRAD, {1, 1000, 20}, LARGE, SECOND},
    {PP_KERNEL_RMSNORM, {3, 9, 12}, 1e-2f, false, true, SECOND},
    {PP_KERNEL_RMSNORM_GRAD, {3, 9, 12}, PLAIN, LAST},
    {PP_KERNEL_LAYERNORM, {3, 8, 12}, 1e-2f, false, MIDDLE},
    {PP_KERNEL_RESIDUAL, {3, 8, 12}, PLAIN, OUTER},
    {PP_KERNEL_RESIDUAL, {3, 4, 12, 0, 24, 2}, PLAIN, SHARED},
    {PP_KERNEL_RESIDUAL, {3, 9, 12}, PLAIN, SECOND},
    {PP_KERNEL_RESIDUAL, {2, 3, 1027}, PLAIN, LAST},
    {PP_KERNEL_RESIDUAL_GRAD, {3, 9, 12}, PLAIN, SECOND},
    {PP_KERNEL_RESIDUAL_GRAD, {2, 3, 1027}, PLAIN, LAST},
    /* rows, tokens of a row that the worker has room for, d, plain, tokens of all tensor ranks */
    {PP_KERNEL_LAYERNORM, {3, 5, 12, 0, 27}, 1e-2f, false, FOURTH},
    {PP_KERNEL_LAYERNORM_GRAD, {3, 5, 12, 0, 27}, PLAIN, true, FOURTH},
    {PP_KERNEL_RESIDUAL, {3, 5, 12, 0, 27}, PLAIN, FOURTH},
    {PP_KERNEL_RESIDUAL_GRAD, {3, 5, 12, 0, 27}, PLAIN, FOURTH},
    /* rows, seq, width */
    {PP_KERNEL_RELU, {3, 9, 12}, PLAIN, SECOND},
    {PP_KERNEL_RELU, {2, 3, 1028}, PLAIN, FOURTH},
    {PP_KERNEL_RELU_GRAD, {3, 9, 12}, PLAIN, SECOND},
    {PP_KERNEL_GELU, {3, 9, 12}, PLAIN, LAST},
    {PP_KERNEL_GELU_GRAD, {3, 9, 12}, PLAIN, SECOND},
    {PP_KERNEL_SWIGLU, {3, 9, 12}, PLAIN, LAST},
    {PP_KERNEL_SWIGLU_GRAD, {3, 9, 12}, PLAIN, FOURTH},
    {0},
};
