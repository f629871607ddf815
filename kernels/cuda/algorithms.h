/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of algorithms names the algorithm by which cublasLt computes each product. ppprof --algorithms measures and
 * writes the file; ppexec and ppprof read it. docs/FORMATS.md has the format.
 *
 * An algorithm is stored as the bytes of cublasLtMatmulAlgo_t, which by cublasLt.h may be restored with the same
 * version of the library. So the file names the version and the GPU, and files of others are refused. Bits of results
 * depend on the file: its hash is in the device's text.
 */
#ifndef PP_KERNELS_CUDA_ALGORITHMS_H
#define PP_KERNELS_CUDA_ALGORITHMS_H

#include <cublasLt.h>
#include <stdio.h>

#include "core/base/status.h"

/* The operands in cublasLt's order: RESULT = FIRST x SECOND. FIRST is our B, SECOND our A (see gemm_plan.c). An FP8
 * product has an address more for each factor: of its scale. */
enum {
    PP_GEMM_FIRST,
    PP_GEMM_SECOND,
    PP_GEMM_RESULT,
    PP_GEMM_OPERANDS,
    PP_GEMM_FIRST_SCALE = PP_GEMM_OPERANDS,
    PP_GEMM_SECOND_SCALE,
    PP_GEMM_ADDRESSES
};

/* What the algorithm of a product, and with it the bits of the result, depends on in one worker. Keys are compared by
 * memcmp: all members are int, so there is no padding. */
struct pp_gemm_key {
    /* C is [m, n], with k terms in each sum; times: so many products of this shape in one call; wide: C is float32
     * although activations are bfloat16; gradient: A of an FP8 product is E5M2. */
    int kernel, m, n, k, times, precision, wide, gradient;
    int alignment[PP_GEMM_OPERANDS]; /* in bytes: a power of two, 16 at most */
};

struct pp_algorithm {
    struct pp_gemm_key key;
    int sms; /* multiprocessors of the worker; 0: all of the device */
    cublasLtMatmulAlgo_t algorithm;
    int line; /* where the file has it, from 1 on */
};

struct pp_algorithms {
    const char *path; /* NULL: there is no file */
    char gpu[160];    /* the GPU that the file must name */
    uint64_t hash;    /* FNV-1a of the file's bytes */
    struct pp_algorithm *v;
    int n;
    int64_t room;
};

/* An empty set, for this GPU and the version of cuBLAS that is loaded. */
void pp_algorithms_begin(struct pp_algorithms *a, const char *gpu);
/* Reads a file into an empty set. PP_INPUT, with a message: it cannot be read, is no file of algorithms, or is of
 * another GPU or cuBLAS. path is borrowed. */
pp_status pp_algorithms_read(struct pp_algorithms *a, const char *path) PP_MUST_CHECK;
void pp_algorithms_free(struct pp_algorithms *a);

/* The algorithm for a product on so many multiprocessors; NULL: the set has none. Valid until one is added. */
const struct pp_algorithm *pp_algorithms_find(const struct pp_algorithms *a, const struct pp_gemm_key *key, int sms);
/* Adds one to the set in memory. */
pp_status pp_algorithms_add(struct pp_algorithms *a, const struct pp_algorithm *algorithm) PP_MUST_CHECK;

/* Write the first lines of a file, and the line of one algorithm, which ends with "# remark". Errors are not reported:
 * the caller finds them when it closes the file. */
void pp_algorithms_write_head(const struct pp_algorithms *a, FILE *out);
void pp_algorithms_write(const struct pp_algorithm *algorithm, const char *remark, FILE *out);

#endif
