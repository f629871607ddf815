/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a matrix product takes a GPU: in tiles of the result, so many of them at once as there are multiprocessors.
 *
 * What libraries of products do (tiles, waves, K cut in several parts) is in NVIDIA's "Matrix Multiplication Background
 * User's Guide" and in CUTLASS's "Efficient GEMM in CUDA"; the formula is our own, its four figures are fitted to
 * measured products (analysis/published_kernels.py, docs/results/kernels.md).
 */
#ifndef PP_SIM_PRODUCT_H
#define PP_SIM_PRODUCT_H

#include "core/work.h"

/* Of a GPU in one arithmetic. */
struct pp_tiles {
    int multiprocessors; /* 0: nothing is known of tiles */
    double start_ns;     /* of each product, besides what each call takes */
    double load;         /* multiply-adds lost for each row and column of a tile, in each step of K */
    double store;        /* the part of writing a tile that its multiprocessor does not hide behind another one */
    double split_ns;     /* where K is cut: a second pass, besides its memory */
};

/* flops_per_ns: the peak of all multiprocessors; bytes_per_ns: what they have of memory. The shortest time of all tiles
 * and cuts of K that are tried, besides start_ns; memory is not asked whether it can bring the operands in time. */
double pp_product_ns(const struct pp_tiles *tiles, const struct pp_product *product, double flops_per_ns,
                     double bytes_per_ns);

#endif
