/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of a queue backend against those of the cpu, call by call. parity_cases.c says which calls and how near they
 * must come; parity_call.c runs one on both sides.
 */
#ifndef PP_TESTS_PARITY_H
#define PP_TESTS_PARITY_H

#include <string.h>

#include "core/model/queue.h"
#include "kernels/kernels.h"

/* A device of the backend under test, with memory of its own. */
struct parity_device {
    const struct pp_backend *backend;
    struct pp_device *device;
    int precision; /* of calls */
};
/* [precision]; that of PP_FP8 has calls in PP_BF16, and has no device where the GPU has no FP8 products. */
extern struct parity_device parity_devices[PP_PRECISIONS];

/* What may be varied in a call. A bit that is not set is the plain case. */
enum parity_variant {
    PARITY_DROP = 1,   /* dropout */
    PARITY_ADD = 2,    /* gradients are added to */
    PARITY_ALIAS = 4,  /* one operand lies where another does */
    PARITY_ABSENT = 8, /* an operand has no memory */
    PARITY_SHIFT = 16, /* operands lie one element behind the alignment that programs give them */
    PARITY_VARIANTS = 32
};

/* One row of a table: a shape, run in all variants that the kernel has. */
struct parity_case {
    int kernel;
    int32_t n[PP_CALL_DIMS];
    float f;                   /* the scalar that is not dropout's probability: scale, eps */
    bool large;                /* one variant only: it takes long where the device is emulated */
    bool whole;                /* the call has the operand that only some calls of the kernel have */
    bool bare;                 /* the call has no bias */
    int tensor, tensor_rank;   /* of the frame: so many workers share what the call is a part of */
    int context, context_rank; /* ... and so many have parts of its rows */
    bool halves;               /* ... of two chunks each */
    int groups, picked;        /* of route */
    bool hopper;               /* in tf32 only, and on a GPU: its own kernels compute it, which are not emulated */
    int scaled;                /* of rope: 1 + enum pp_rope_kind: by which slow rotations are slower still; 0: none */
};

/* Kernel and dimensions of the call. */
static inline struct pp_call parity_call_of(const struct parity_case *c)
{
    struct pp_call call = {.kernel = c->kernel};
    memcpy(call.n, c->n, sizeof call.n);
    return call;
}

/* What holds for all calls of a kernel. */
struct parity_kernel {
    unsigned variants;   /* it has, besides PARITY_SHIFT: enum parity_variant */
    int partial;         /* an operand that only some calls have; 0: none */
    int alias[2][2];     /* [the call has that operand] PARITY_ALIAS: operand [0] lies where [1] does; none if equal */
    int absent;          /* PARITY_ABSENT: this operand */
    double tolerance[3]; /* [precision]: of each element, times (its magnitude + the operand's root mean square);
                          * 0: the same bits */
    double biased;       /* ... in bf16, where the sum with a bias is rounded before it is used; 0: the same */
};

extern const struct parity_kernel parity_kernels[PP_KERNELS];
/* Each ends with a row of no shape. parity_context_cases: of workers that have parts of the tokens of rows. */
extern const struct parity_case parity_cases[], parity_expert_cases[], parity_latent_cases[], parity_context_cases[],
    parity_windows[], parity_update_cases[], parity_fp8_cases[];

/* Runs the case in one variant on the device, twice, and on the cpu. Fails the test that calls it with a message.
 * False: the device does not offer a product of such operands, and nothing was compared. */
bool parity_call(const struct parity_device *d, const struct parity_case *c, unsigned variant);

/* Runs the call on the device and, where that is emulated, fails unless as much was queued as the backend says.
 * shifted: its operands are not aligned. */
pp_status parity_run(const struct parity_device *d, const struct pp_call *call, const struct pp_frame *frame,
                     bool shifted);

/* Of dropout, where it is on. */
#define PARITY_PROBABILITY 0.2f
/* Of operand i of the call: of learned positions there are those of whole rows. */
int64_t parity_elements(const struct pp_call *call, int i, const struct pp_frame *frame);
/* Does the call only write the operand, and all of it? Columns of rows may have others between them. */
bool parity_writes_all(const struct pp_call *call, int i);
/* Fills operand i of the call: floats that its precision can hold, codes of FP8, or words (int32_t) of all workers that
 * share the vocabulary. */
void parity_fill(void *out, const struct pp_call *call, int i, const struct pp_frame *frame);

/* Fails with the message of the last failure. */
#define PARITY_OK(expression) parity_status((expression), #expression)
void parity_status(pp_status status, const char *what);

double parity_root_mean_square(const float *x, int64_t n);

/* bfloat16, as its upper half of a float's bits. */
uint16_t parity_to_bf16(float x);
float parity_from_bf16(uint16_t x);

/* Steps of a model in this precision; split: B as I and W (parity_model.c). */
void parity_steps(const struct parity_device *d, int precision, const struct pp_shape *shape, bool split);
/* Those of tiny models (parity_models.c). */
void parity_model(const struct parity_device *d, int precision);

/* Tests of CMocka (parity_draw.c, parity_extremes.c). */
void parity_draw(void **state);
void parity_relu_not_a_number(void **state);
void parity_route_not_a_number(void **state);
void parity_loss_of_the_impossible(void **state);
void parity_fp8_extremes(void **state);

#endif
