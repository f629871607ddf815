/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of algorithms: by which one each product is computed. ppprof --algorithms measures and writes it, runs read
 * it. docs/FORMATS.md has the format.
 *
 * An algorithm is cublasLt's own structure, byte by byte, which its header calls good for the same version of the
 * library; so the file names the version, and the GPU, and serves no others. It is part of what equal bits need: its
 * hash is in the device's text.
 */
#ifndef PP_KERNELS_CUDA_ALGORITHMS_H
#define PP_KERNELS_CUDA_ALGORITHMS_H

#include <cublasLt.h>
#include <stdio.h>

#include "core/status.h"

/* The factors in cublasLt's order: C' = first second. */
enum { PP_GEMM_FIRST, PP_GEMM_SECOND, PP_GEMM_RESULT, PP_GEMM_OPERANDS };

/* All that the algorithm, and so the bits of a product, depends on in one worker. Only ints: compared as bytes. */
struct pp_gemm_key {
    int kernel, m, n, k, times, precision, wide;
    int alignment[PP_GEMM_OPERANDS];
};

struct pp_algorithm {
    struct pp_gemm_key key;
    int sms; /* of the worker; 0: all of the device */
    cublasLtMatmulAlgo_t algorithm;
    int line; /* of the file */
};

struct pp_algorithms {
    const char *path; /* NULL: there is no file */
    char gpu[160];    /* what it must be of */
    uint64_t hash;    /* of the file's bytes */
    struct pp_algorithm *v;
    int n;
    int64_t room;
};

/* Begins with nothing, for this GPU and the cuBLAS that is loaded. */
void pp_algorithms_begin(struct pp_algorithms *a, const char *gpu);
/* PP_INPUT: not there, no such file, of another GPU or cuBLAS; one line says so. path is borrowed. */
pp_status pp_algorithms_read(struct pp_algorithms *a, const char *path) PP_MUST_CHECK;
void pp_algorithms_free(struct pp_algorithms *a);

/* NULL: it does not say. */
const struct pp_algorithm *pp_algorithms_find(const struct pp_algorithms *a, const struct pp_gemm_key *key, int sms);
/* In memory only. */
pp_status pp_algorithms_add(struct pp_algorithms *a, const struct pp_algorithm *algorithm) PP_MUST_CHECK;

/* The first lines of a file; and a line, which ends with `remark`. What fails shows when the file is closed. */
void pp_algorithms_write_head(const struct pp_algorithms *a, FILE *out);
void pp_algorithms_write(const struct pp_algorithm *algorithm, const char *remark, FILE *out);

#endif
