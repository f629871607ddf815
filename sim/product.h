/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a matrix product takes on a GPU. The result is computed in tiles, as many at a time as there are
 * multiprocessors: one such round is called a wave.
 *
 * NVIDIA's "Matrix Multiplication Background User's Guide" and CUTLASS's "Efficient GEMM in CUDA" describe what
 * libraries do (tiles, waves, K cut into several parts). The formula is our own (docs/TIMES.md); its figures are
 * fitted to measured products (analysis/published_kernels.py, docs/results/kernels.md).
 */
#ifndef PP_SIM_PRODUCT_H
#define PP_SIM_PRODUCT_H

#include "core/shape/work.h"

/* How a GPU computes products in one precision. */
struct pp_tiles {
    int multiprocessors; /* 0: tiles are not known */
    double start_ns;     /* time of each product in addition to call_overhead_ns of the machine */
    double peak;         /* the share of the peak at which a multiprocessor multiplies, > 0 */
    double load;         /* time in each step of K to load a row or column of a tile, in multiply-adds */
    double store;    /* the part of the time to write a tile that is not hidden behind the computation of another one */
    double split_ns; /* if K is cut: time of the second pass, in addition to moving its bytes */
    double memory;   /* the share of the memory bandwidth at which operands and results move, > 0 */
};

/* The shortest time of all shapes of tiles and cuts of K that are tried. start_ns is not included, nor the time to
 * bring the operands from memory. flops_per_ns: peak of all multiprocessors; bytes_per_ns: memory bandwidth of all. */
double pp_product_ns(const struct pp_tiles *tiles, const struct pp_product *product, double flops_per_ns,
                     double bytes_per_ns);

#endif
