/* SPDX-License-Identifier: Apache-2.0
 *
 * What test_training.c shares with its other file, training_fp8.c.
 */
#ifndef PP_TESTS_TRAINING_H
#define PP_TESTS_TRAINING_H

#include "../unit/trained.h"
#include "kernels/cpu/cpu.h"

enum { OPTIONS = 700 };

#define SHORT MODEL "--rows 6 --tokens 7 --generated-tokens 1000 --max-batches 2 --epochs 1 --eval-batches 1 "
#define LLAMA "--norm pre --normalization rmsnorm --activation swiglu --bias no "

extern const struct pp_backend *cuda;

/* Trains with these options; fails the test if it cannot. */
void training_run(const struct pp_backend *backend, const char *options, struct outcome *out);
/* Fails unless each loss of b is near that of a: within tolerance times the loss. */
void training_near(const struct outcome *a, const struct outcome *b, double tolerance, const char *options);
/* The same bits where the workers of both runs have equal shares of a GPU, else losses that are near. */
void training_compare(const struct outcome *one, int workers_of_one, const struct outcome *other, int workers,
                      double tolerance, const char *options);

/* Under ThreadSanitizer: what has the same threads as another test, in the same ways. */
static inline void leave_out_where_slow(void)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
}

/* The test of CMocka in training_fp8.c. */
void training_in_fp8(void **state);

#endif
