/* SPDX-License-Identifier: Apache-2.0
 *
 * Products in TF32 by kernels of our own (tf32.cu), for GPUs of compute capability 9.0: which products take them, and
 * how they are divided in tiles. For the launchers of products, and for pp_cuda_scratch_bytes().
 *
 * Two things keep cuBLAS 13.1 from the rate of large squares. Its tiles are 128 or 256 rows high: a batch of 700
 * tokens times 4096 columns makes two waves of tiles on 132 multiprocessors, the second of them half empty. With tiles
 * of 176 rows it makes one. And tensor cores of a Hopper read TF32 factors only where the terms of a sum lie one
 * behind the other (PTX ISA, wgmma: "transpose" is of 16-bit types alone). In gradients of weights they do so in
 * neither factor, and in those of inputs in one of two. Our kernels take one factor as it lies, through registers,
 * which costs nothing; the other factor of a gradient of weights is turned first, into the worker's scratch, part by
 * part if it is large. That is the smaller one: where A has more columns than B, they compute C' = B' A and write it
 * as C. What all that gains is in docs/results/h200-findings.md (TF32).
 *
 * Sums are float32, added in an order that depends on the shape of the product and on nothing else. Factors are
 * rounded to the nearest TF32 number, as cuBLAS 13.1 rounds them on an H200. What is added to C is added by the memory,
 * to which numbers too small to be normal are zeros.
 */
#ifndef PP_KERNELS_CUDA_TF32_H
#define PP_KERNELS_CUDA_TF32_H

#include "kernels/cuda/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* COLUMNS: of C, in each tile. TERMS: of a sum, that are fetched at a time. ALIGNMENT: bytes, of the first number and
 * of each row of all three matrices: the copy engine wants it. */
enum { PP_TF32_COLUMNS = 128, PP_TF32_TERMS = 32, PP_TF32_ALIGNMENT = 16 };

/* Tiles of C, X(rows, columns_beside, rows_beside, stages, worth). So many tiles beside each other are computed by a
 * cluster of blocks, which share what they fetch: those of the same columns the factor B, those of the same rows the
 * factor A. stages: fetched ahead, as shared memory allows. worth: percent of the rate of the best tiles, where all
 * multiprocessors are busy (an H200). Of those that are as good as others the fewest are taken, or the first. */
#define PP_TF32_TILE_LIST(X)                                                                                           \
    X(176, 1, 2, 5, 97)                                                                                                \
    X(256, 2, 1, 4, 100)                                                                                               \
    X(128, 1, 2, 6, 90)                                                                                                \
    X(176, 2, 1, 5, 97)                                                                                                \
    X(128, 2, 1, 6, 90)

struct pp_tf32_tiles {
    int rows, columns_beside, rows_beside, stages, worth;
};
#define X(...) +1
enum { PP_TF32_TILES = 0 PP_TF32_TILE_LIST(X) };
#undef X
extern const struct pp_tf32_tiles pp_tf32_tiles[PP_TF32_TILES];

/* The best tiles for C [m,n] on so many multiprocessors, which is 2 or more: an index. *share, unless NULL: of the
 * rate of the best tiles that keep all multiprocessors busy. */
int pp_tf32_choose(int m, int n, int sms, double *share);

/* Is a product of this shape faster so than by cuBLAS, on so many multiprocessors of compute capability 9.0? */
bool pp_tf32_gains(const struct pp_call *call, int sms);

/* How a product is computed: as C [rows,columns]; or across, as C' of that shape. Of gradients of weights it is the
 * factor with `rows` that is turned. */
struct pp_tf32_sides {
    int rows, columns;
    bool across;
};
struct pp_tf32_sides pp_tf32_sides_of(const struct pp_call *call);

/* Bytes of scratch for a factor that is turned; 0: none is, on whatever GPU. */
int64_t pp_tf32_bytes(const struct pp_call *call);
/* Numbers in a row of a factor that is turned, [rows, pitch]: k, and zeros, so that rows begin where lines do. */
static inline int pp_tf32_pitch(int k) { return (k + PP_TF32_TERMS - 1) / PP_TF32_TERMS * PP_TF32_TERMS; }
/* Rows (of pp_tf32_sides) that are computed at a time (the last time there may be fewer), in parts about as large as
 * each other. All, where nothing is turned. 0: scratch has not even room for a tile's rows. */
int pp_tf32_rows(const struct pp_call *call, int64_t scratch_bytes);

/* C [m,n] = A [m, pitch] B, or C += A B; of A's rows the first k numbers. */
struct pp_tf32_product {
    const float *a;
    const float *b; /* [n,k]: the product with B'; or, as_it_lies, [k,n] */
    float *c;
    int m, n, k, pitch;
    int c_pitch; /* numbers from a row of C in memory to the next */
    bool as_it_lies, adds;
    bool across; /* C lies there as C' [n,m]; only as_it_lies */
    int sms;     /* that may be used */
};

/* Queues it. The GPU is of compute capability 9.0, and all are aligned (PP_TF32_ALIGNMENT). */
cudaError_t pp_cuda_tf32(cudaStream_t stream, const struct pp_tf32_product *product);

/* Queues the product of a call, so many rows at a time (pp_tf32_rows()), of which each time one factor is turned into
 * the call's scratch if need be. */
cudaError_t pp_tf32_multiply(const struct pp_cuda_call *c, int rows, bool adds);

#ifdef __cplusplus
}
#endif

#endif
