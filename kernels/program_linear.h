/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the model: products of linears, which are FP8 in models of that precision. How factors are rounded is said in
 * program_linear.c.
 */
#ifndef PP_KERNELS_PROGRAM_LINEAR_H
#define PP_KERNELS_PROGRAM_LINEAR_H

#include "kernels/kernels.h"

struct pp_tensor;
struct pp_writer;

/* A product of a linear. */
struct pp_linear {
    enum pp_kernel kernel;
    enum pp_gemm_mode mode;
    int mnk[3], times; /* times: number of products, 0: one */
    int skips;         /* of as many more weights in b the first ones, which are not multiplied */
    struct pp_ref c, a, b;
    bool plain; /* never in FP8: of the decoder, of routers and gates */
};
/* Writes it, in FP8 where the model has that precision and the sizes allow it; returns the call, as pp_writer_gemm()
 * does. Of GEMM_NT, a and b are activations and weights; of the others a is a gradient. */
struct pp_call *pp_writer_linear(struct pp_writer *w, const struct pp_linear *p);

/* Gradients of a linear's weight [m, n] and bias [m], if it has one, from dy [T, m], the gradient at its output, and
 * its input [T, n]. */
struct pp_weight_grads {
    struct pp_ref weight, bias, dy, input;
    int m, n;
    bool plain; /* as in struct pp_linear */
};
void pp_write_weight_grads(struct pp_writer *w, const struct pp_weight_grads *g);

/* Scratch of FP8 products: what factors are rounded to. Each product writes its factors to the buffers A and B, but for
 * weights of which there are copies, or which B holds already. The other buffers hold gradients that have been rounded
 * both ways, each until the gradient of a weight has read it. */
enum { PP_FP8_NOWHERE = -1, PP_FP8_A, PP_FP8_B, PP_FP8_GRADIENTS, PP_FP8_BUFFERS = PP_FP8_GRADIENTS + 8 };
/* A factor in memory: `times` matrices [rows, width]. */
struct pp_fp8_factor {
    struct pp_ref ref;
    int rows, width, times;
    bool turned;   /* the product reads it transposed */
    bool gradient; /* E5M2 */
};
struct pp_fp8_buffer {
    struct pp_ref numbers;
    int64_t bytes;           /* that programs have needed until now */
    struct pp_fp8_factor of; /* what it holds, rounded; of.ref: or no memory */
};
struct pp_fp8_scratch {
    struct pp_fp8_buffer buffers[PP_FP8_BUFFERS];
    struct pp_ref scales;           /* [PP_FP8_BUFFERS, 4] float: scale, amax, two that nobody reads */
    bool both;                      /* the program has gradients of inputs and of weights, and both read the same */
    const struct pp_tensor *copied; /* the weight whose copies the program has written last */
};

/* w has written the whole program once. Takes scratch, as large as that needed, for the writer that writes it again. */
void pp_writer_take_fp8(struct pp_writer *w, struct pp_fp8_scratch *out);

#endif
