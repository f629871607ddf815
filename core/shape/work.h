/* SPDX-License-Identifier: Apache-2.0
 *
 * The work that a call of a program is for a device: operations and bytes, from which sim/cost_machine.c computes how
 * long the call takes.
 */
#ifndef PP_CORE_SHAPE_WORK_H
#define PP_CORE_SHAPE_WORK_H

#include <stdint.h>

#include "core/shape/shape.h"

/* A number of matrix products of the same shape: C [m,n] = A [m,k] B [k,n]. */
struct pp_product {
    int64_t m, n, k;
    int64_t times;     /* number of products; 0: the call is no matrix product */
    int moved_bytes;   /* of an element of C: written, and read as well where the product is added to it */
};

struct pp_work {
    double flops[PP_PRECISIONS]; /* by precision of the arithmetic; on GPUs PP_FP32 is all but tensor cores' work */
    double bytes;                /* of operands, read and written */
    double bytes_before;         /* GPUs: moved by a launch that comes before those which do all else */
    double shared_bytes;         /* GPUs: bytes moved inside multiprocessors, if that may take longest; else 0 */
    /* GPUs, attention without stored scores that other kernels for it have on tensor cores: FLOPs of the products that
     * they make, two forward ([0]) or five backward ([1]), of what is not masked. A call has one of both. */
    double attention[2];
    double clocks; /* GPUs: of one multiprocessor, during which no products are made, nor bytes moved there */
    struct pp_product product; /* if the call is a matrix product; its FLOPs then are of one precision */
};

#endif
