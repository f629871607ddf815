/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device does for a call of a program, for those who reckon how long it takes (sim/cost_machine.c).
 */
#ifndef PP_CORE_WORK_H
#define PP_CORE_WORK_H

#include <stdint.h>

#include "core/shape.h"

/* So many times C [m,n] = A [m,k] B [k,n]. */
struct pp_product {
    int64_t m, n, k, times; /* times = 0: it is none */
    int element_bytes;      /* of C */
};

/* What a device does for a call. */
struct pp_work {
    double flops[PP_PRECISIONS]; /* by the arithmetic that does them: of GPUs fp32 is all that no tensor core does */
    double bytes;                /* of operands read and written */
    double again_bytes;          /* added to bytes where the frame accumulates gradients; may be negative */
    double shared_bytes;         /* of a GPU: moved inside its multiprocessors, where that may take longest */
    struct pp_product product;   /* of a matrix product: its shape. Its FLOPs are those of one precision */
};

#endif
