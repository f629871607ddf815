/* SPDX-License-Identifier: Apache-2.0 */
#include "parity.h"

/* fp32 and tf32 differ from the cpu by the order of sums and by how tf32 cuts operands of products (2^-10); bf16
 * rounds what it writes (2^-8), and the inner steps of attention. Operands are the same numbers on both sides. */
const struct parity_kernel parity_kernels[PP_KERNELS] = {
    [PP_KERNEL_COPY] = {.variants = PARITY_ABSENT, .absent = 1, .tolerance = {0, 0, 0}},
    [PP_KERNEL_EMBED] = {.variants = PARITY_DROP, .probability = 1, .tolerance = {1e-6, 1e-6, 4e-3}},
    [PP_KERNEL_EMBED_GRAD] = {.variants = PARITY_DROP | PARITY_ACCUMULATE,
                              .probability = 1,
                              .tolerance = {5e-6, 5e-6, 5e-6}},
    [PP_KERNEL_GEMM_NT] = {.variants = PARITY_ACCUMULATE, .tolerance = {3e-5, 5e-3, 4e-3}},
    [PP_KERNEL_GEMM_NN] = {.variants = PARITY_ACCUMULATE, .tolerance = {3e-5, 5e-3, 4e-3}},
    [PP_KERNEL_GEMM_TN] = {.variants = PARITY_ACCUMULATE, .tolerance = {3e-5, 5e-3, 4e-3}},
    [PP_KERNEL_ATTENTION] = {.variants = PARITY_DROP, .tolerance = {1e-5, 2e-3, 1e-2}},
    [PP_KERNEL_ATTENTION_GRAD] = {.variants = PARITY_DROP, .tolerance = {1e-5, 2e-3, 2e-2}},
    [PP_KERNEL_FLASH] = {.variants = PARITY_DROP, .tolerance = {1e-5, 1e-5, 1e-2}},
    [PP_KERNEL_FLASH_GRAD] = {.variants = PARITY_DROP, .tolerance = {1e-5, 1e-5, 2e-2}},
    [PP_KERNEL_LAYERNORM] = {.variants = PARITY_DROP | PARITY_ABSENT, .tolerance = {1e-5, 1e-5, 4e-3}},
    [PP_KERNEL_LAYERNORM_GRAD] = {.variants = PARITY_DROP | PARITY_ACCUMULATE | PARITY_ALIAS,
                                  .alias = {0, 3},
                                  .tolerance = {1e-5, 1e-5, 4e-3}},
    [PP_KERNEL_RELU] = {.variants = PARITY_DROP, .tolerance = {1e-6, 1e-6, 4e-3}},
    [PP_KERNEL_RELU_GRAD] = {.variants = PARITY_DROP, .tolerance = {1e-6, 1e-6, 4e-3}},
    [PP_KERNEL_CROSS_ENTROPY] = {.variants = PARITY_ALIAS, .alias = {3, 0}, .tolerance = {1e-5, 1e-5, 4e-3}},
    [PP_KERNEL_COLSUM] = {.variants = PARITY_ACCUMULATE, .tolerance = {1e-5, 1e-5, 1e-5}},
    [PP_KERNEL_SUMSQ] = {.variants = 0, .tolerance = {1e-12, 1e-12, 1e-12}},
    [PP_KERNEL_SGD] = {.variants = PARITY_ABSENT, .absent = 2, .tolerance = {1e-6, 1e-6, 1e-6}},
    [PP_KERNEL_ADAMW] = {.variants = PARITY_ABSENT, .absent = 2, .tolerance = {2e-6, 2e-6, 2e-6}},
};

#define PLAIN 0, false
#define LARGE 0, true

/* Rows of widths that are not whole quads, of whole warps, beyond a block's threads and beyond its registers. */
const struct parity_case parity_cases[] = {
    {PP_KERNEL_COPY, {7, 12}, PLAIN},
    {PP_KERNEL_COPY, {35, 36}, PLAIN},
    {PP_KERNEL_COPY, {1, 1}, PLAIN},
    {PP_KERNEL_COPY, {175, 200}, PLAIN},
    /* rows, seq, d, vocab */
    {PP_KERNEL_EMBED, {1, 1, 2, 1}, 1, false},
    {PP_KERNEL_EMBED, {3, 9, 12, 100}, 3.5f, false},
    {PP_KERNEL_EMBED, {7, 35, 200, 1003}, 14.1f, false},
    {PP_KERNEL_EMBED, {2, 5, 30, 17}, 1, false},
    {PP_KERNEL_EMBED, {1, 1000, 6, 11}, 2, false},
    {PP_KERNEL_EMBED, {2, 9, 4096, 40}, 64, true},
    {PP_KERNEL_EMBED, {5, 35, 12, 28782}, 1, true},
    {PP_KERNEL_EMBED_GRAD, {1, 1, 2, 1}, 1, false},
    {PP_KERNEL_EMBED_GRAD, {3, 9, 12, 100}, 3.5f, false},
    {PP_KERNEL_EMBED_GRAD, {7, 35, 200, 1003}, 14.1f, false},
    {PP_KERNEL_EMBED_GRAD, {2, 128, 30, 3}, 1, false}, /* words that come again and again */
    {PP_KERNEL_EMBED_GRAD, {2, 9, 4096, 40}, 64, true},
    {PP_KERNEL_EMBED_GRAD, {5, 35, 12, 28782}, 1, true},
    {PP_KERNEL_EMBED_GRAD, {5, 1000, 4, 300}, 2, true}, /* more tokens than are sorted at a time */
    /* m, n, k, mode, wide */
    {PP_KERNEL_GEMM_NT, {1, 1, 1, PP_GEMM_WRITE, 0}, PLAIN},
    {PP_KERNEL_GEMM_NT, {27, 36, 12, PP_GEMM_WRITE, 0}, PLAIN},
    {PP_KERNEL_GEMM_NT, {35, 100, 12, PP_GEMM_WRITE, 1}, PLAIN},
    {PP_KERNEL_GEMM_NT, {70, 600, 200, PP_GEMM_WRITE, 0}, LARGE},
    {PP_KERNEL_GEMM_NT, {9, 28800, 24, PP_GEMM_WRITE, 1}, LARGE},
    {PP_KERNEL_GEMM_NT, {8, 64, 4096, PP_GEMM_WRITE, 0}, LARGE},
    {PP_KERNEL_GEMM_NT, {9, 28782, 24, PP_GEMM_WRITE, 1}, LARGE}, /* rows that no quad fits, as without padding */
    {PP_KERNEL_GEMM_NT, {35, 1003, 24, PP_GEMM_WRITE, 0}, LARGE},
    {PP_KERNEL_GEMM_NN, {27, 12, 36, PP_GEMM_WRITE, 0}, PLAIN},
    {PP_KERNEL_GEMM_NN, {27, 12, 36, PP_GEMM_ADD, 0}, PLAIN},
    {PP_KERNEL_GEMM_NN, {35, 200, 200, PP_GEMM_ADD, 0}, LARGE},
    {PP_KERNEL_GEMM_NN, {9, 24, 28800, PP_GEMM_WRITE, 0}, LARGE},
    {PP_KERNEL_GEMM_NN, {9, 24, 28782, PP_GEMM_WRITE, 0}, LARGE},
    {PP_KERNEL_GEMM_TN, {36, 12, 27, PP_GEMM_BY_FRAME, 1}, PLAIN},
    {PP_KERNEL_GEMM_TN, {100, 12, 35, PP_GEMM_BY_FRAME, 1}, PLAIN},
    {PP_KERNEL_GEMM_TN, {200, 200, 175, PP_GEMM_BY_FRAME, 1}, LARGE},
    {PP_KERNEL_GEMM_TN, {28800, 12, 9, PP_GEMM_BY_FRAME, 1}, LARGE},
    {PP_KERNEL_GEMM_TN, {28782, 12, 9, PP_GEMM_BY_FRAME, 1}, LARGE},
    /* rows, seq, heads, dh, causal */
    {PP_KERNEL_ATTENTION, {1, 1, 1, 2, 1}, PLAIN},
    {PP_KERNEL_ATTENTION, {2, 9, 2, 6, 1}, PLAIN},
    {PP_KERNEL_ATTENTION, {2, 9, 2, 6, 0}, PLAIN},
    {PP_KERNEL_ATTENTION, {3, 35, 2, 100, 1}, PLAIN},
    {PP_KERNEL_ATTENTION, {1, 128, 3, 64, 1}, LARGE},
    {PP_KERNEL_ATTENTION, {1, 35, 2, 256, 0}, LARGE},
    {PP_KERNEL_ATTENTION, {2, 130, 2, 33, 0}, PLAIN},
    {PP_KERNEL_ATTENTION, {1, 300, 1, 16, 1}, LARGE},
    {PP_KERNEL_ATTENTION, {2, 257, 1, 3, 1}, LARGE},
    {PP_KERNEL_ATTENTION, {1, 2100, 1, 4, 1}, LARGE}, /* scores do not fit into scratch at once */
    {PP_KERNEL_ATTENTION_GRAD, {1, 1, 1, 2, 1}, PLAIN},
    {PP_KERNEL_ATTENTION_GRAD, {2, 9, 2, 6, 1}, PLAIN},
    {PP_KERNEL_ATTENTION_GRAD, {2, 9, 2, 6, 0}, PLAIN},
    {PP_KERNEL_ATTENTION_GRAD, {3, 35, 2, 100, 1}, PLAIN},
    {PP_KERNEL_ATTENTION_GRAD, {1, 128, 3, 64, 1}, LARGE},
    {PP_KERNEL_ATTENTION_GRAD, {1, 35, 2, 256, 0}, LARGE},
    {PP_KERNEL_ATTENTION_GRAD, {2, 130, 2, 33, 0}, PLAIN},
    {PP_KERNEL_ATTENTION_GRAD, {1, 300, 1, 16, 1}, LARGE},
    {PP_KERNEL_ATTENTION_GRAD, {2, 257, 1, 3, 1}, LARGE},
    {PP_KERNEL_ATTENTION_GRAD, {1, 2100, 1, 4, 1}, LARGE}, /* scores do not fit into scratch at once */
    {PP_KERNEL_FLASH, {1, 1, 1, 1, 1}, PLAIN},
    {PP_KERNEL_FLASH, {2, 9, 2, 6, 1}, PLAIN},
    {PP_KERNEL_FLASH, {2, 9, 2, 6, 0}, PLAIN},
    {PP_KERNEL_FLASH, {1, 70, 2, 20, 1}, PLAIN},
    {PP_KERNEL_FLASH, {1, 128, 2, 64, 1}, LARGE},
    {PP_KERNEL_FLASH, {2, 130, 1, 33, 0}, LARGE},
    {PP_KERNEL_FLASH, {1, 65, 1, 100, 0}, LARGE}, /* two tiles of columns */
    {PP_KERNEL_FLASH, {1, 66, 1, 256, 1}, LARGE}, /* four */
    {PP_KERNEL_FLASH, {1, 35, 2, 260, 1}, LARGE}, /* more than a block has */
    {PP_KERNEL_FLASH, {2, 257, 1, 3, 1}, LARGE},
    {PP_KERNEL_FLASH, {1, 1100, 1, 4, 1}, LARGE},
    {PP_KERNEL_FLASH_GRAD, {1, 1, 1, 1, 1}, PLAIN},
    {PP_KERNEL_FLASH_GRAD, {2, 9, 2, 6, 1}, PLAIN},
    {PP_KERNEL_FLASH_GRAD, {2, 9, 2, 6, 0}, PLAIN},
    {PP_KERNEL_FLASH_GRAD, {1, 70, 2, 20, 1}, PLAIN},
    {PP_KERNEL_FLASH_GRAD, {1, 128, 2, 64, 1}, LARGE},
    {PP_KERNEL_FLASH_GRAD, {2, 130, 1, 33, 0}, LARGE},
    {PP_KERNEL_FLASH_GRAD, {1, 65, 1, 100, 0}, LARGE}, /* two tiles of columns */
    {PP_KERNEL_FLASH_GRAD, {1, 66, 1, 256, 1}, LARGE}, /* four */
    {PP_KERNEL_FLASH_GRAD, {1, 35, 2, 260, 1}, LARGE}, /* more than a block has */
    {PP_KERNEL_FLASH_GRAD, {2, 257, 1, 3, 1}, LARGE},
    {PP_KERNEL_FLASH_GRAD, {1, 1100, 1, 4, 1}, LARGE},
    {PP_KERNEL_FLASH_GRAD, {1, 64, 85, 260, 0}, LARGE}, /* gradients do not fit into scratch at once */
    /* rows, seq, d */
    {PP_KERNEL_LAYERNORM, {1, 1, 2}, 1e-5f, false},
    {PP_KERNEL_LAYERNORM, {3, 9, 12}, 1e-2f, false},
    {PP_KERNEL_LAYERNORM, {7, 35, 200}, 1e-5f, false},
    {PP_KERNEL_LAYERNORM, {2, 3, 131}, 1e-5f, false},
    {PP_KERNEL_LAYERNORM, {1, 128, 768}, 1e-5f, false},
    {PP_KERNEL_LAYERNORM, {1, 9, 1100}, 1e-5f, true},
    {PP_KERNEL_LAYERNORM, {2, 9, 4096}, 1e-5f, true},
    {PP_KERNEL_LAYERNORM, {1, 3, 12288}, 1e-5f, true},
    {PP_KERNEL_LAYERNORM, {1, 2, 16390}, 1e-5f, true},
    {PP_KERNEL_LAYERNORM_GRAD, {1, 1, 2}, PLAIN},
    {PP_KERNEL_LAYERNORM_GRAD, {3, 9, 12}, PLAIN},
    {PP_KERNEL_LAYERNORM_GRAD, {7, 35, 200}, PLAIN},
    {PP_KERNEL_LAYERNORM_GRAD, {2, 3, 131}, PLAIN},
    {PP_KERNEL_LAYERNORM_GRAD, {1, 1000, 20}, LARGE},
    {PP_KERNEL_LAYERNORM_GRAD, {1, 9, 1100}, LARGE},
    {PP_KERNEL_LAYERNORM_GRAD, {2, 9, 4096}, LARGE},
    {PP_KERNEL_LAYERNORM_GRAD, {1, 3, 12288}, LARGE},
    {PP_KERNEL_LAYERNORM_GRAD, {1, 2, 16390}, LARGE},
    /* rows, seq, width */
    {PP_KERNEL_RELU, {3, 9, 12}, PLAIN},
    {PP_KERNEL_RELU, {7, 35, 200}, PLAIN},
    {PP_KERNEL_RELU, {1, 2, 1}, PLAIN},
    {PP_KERNEL_RELU, {2, 3, 1027}, PLAIN},
    {PP_KERNEL_RELU, {1, 9, 4096}, LARGE},
    {PP_KERNEL_RELU_GRAD, {3, 9, 12}, PLAIN},
    {PP_KERNEL_RELU_GRAD, {7, 35, 200}, PLAIN},
    {PP_KERNEL_RELU_GRAD, {1, 3, 1}, PLAIN},
    {PP_KERNEL_RELU_GRAD, {1, 9, 4096}, LARGE},
    /* rows, seq, vocab, gradient, columns */
    {PP_KERNEL_CROSS_ENTROPY, {1, 1, 1, 1, 1}, PLAIN},
    {PP_KERNEL_CROSS_ENTROPY, {3, 9, 100, 1, 100}, PLAIN},
    {PP_KERNEL_CROSS_ENTROPY, {3, 9, 100, 0, 128}, PLAIN},
    {PP_KERNEL_CROSS_ENTROPY, {2, 9, 1003, 1, 1003}, PLAIN},
    {PP_KERNEL_CROSS_ENTROPY, {2, 35, 1003, 1, 1024}, PLAIN},
    {PP_KERNEL_CROSS_ENTROPY, {1, 128, 6, 1, 8}, PLAIN},
    {PP_KERNEL_CROSS_ENTROPY, {1, 5, 28782, 1, 28800}, LARGE},
    {PP_KERNEL_CROSS_ENTROPY, {1, 3, 28782, 1, 28782}, LARGE},
    /* rows, width */
    {PP_KERNEL_COLSUM, {1, 1}, PLAIN},
    {PP_KERNEL_COLSUM, {27, 12}, PLAIN},
    {PP_KERNEL_COLSUM, {245, 200}, PLAIN},
    {PP_KERNEL_COLSUM, {1000, 37}, PLAIN},
    {PP_KERNEL_COLSUM, {128, 4096}, LARGE},
    {PP_KERNEL_COLSUM, {70, 28800}, LARGE},
    /* rows, width, index */
    {PP_KERNEL_SUMSQ, {1, 1, 0}, PLAIN},
    {PP_KERNEL_SUMSQ, {12, 36, 3}, PLAIN},
    {PP_KERNEL_SUMSQ, {1003, 131, 1}, PLAIN},
    {PP_KERNEL_SUMSQ, {4096, 200, 2}, LARGE},
    /* rows, width */
    {PP_KERNEL_SGD, {1, 1}, PLAIN},
    {PP_KERNEL_SGD, {12, 36}, PLAIN},
    {PP_KERNEL_SGD, {131, 67}, PLAIN},
    {PP_KERNEL_SGD, {1003, 200}, LARGE},
    {PP_KERNEL_ADAMW, {1, 1}, PLAIN},
    {PP_KERNEL_ADAMW, {12, 36}, PLAIN},
    {PP_KERNEL_ADAMW, {131, 67}, PLAIN},
    {PP_KERNEL_ADAMW, {1003, 200}, LARGE},
};

const int parity_ncases = sizeof parity_cases / sizeof parity_cases[0];
