/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of a distributed model: initial values, the best so far, and to a file.
 */
#ifndef PP_EXEC_PARAMETERS_H
#define PP_EXEC_PARAMETERS_H

#include "exec/weights.h"
#include "exec/worker.h"

/* Initial values of what a worker has of one tensor, [local_elements]: kernels/model.h has it. */
typedef void (*pp_init_tensor_fn)(const struct pp_model *model, int tensor, uint64_t seed, int member, float *out);

/* Each worker fills in its stages: from the file, or by `init` where file is NULL. Between two tensors it sees that the
 * run is to stop (pp_world_check()). */
pp_status pp_parameters_init(struct pp_worker *worker, const char *file, uint64_t seed,
                             pp_init_tensor_fn init) PP_MUST_CHECK;

/* A copy of this worker's parameters in host memory: [pp_parameters_count] floats, its elements of tensor after tensor
 * in model order; of weights that are split (core/program.h), its share. Then restore() is called by all replicas, and
 * the first has all bfloat16 copies afterwards. */
int64_t pp_parameters_count(const struct pp_worker *worker);
pp_status pp_parameters_copy(struct pp_worker *worker, float *to) PP_MUST_CHECK;
pp_status pp_parameters_restore(struct pp_worker *worker, const float *from) PP_MUST_CHECK;

/* The parameters themselves, and each tensor that the optimizer keeps of them. */
int pp_parameters_parts(const struct pp_model *model);
/* From an open file, which has whole tensors: all parts of this worker's parameters, and into `best` where that is not
 * NULL what it keeps of the tensors that follow these in the file. */
pp_status pp_parameters_read(struct pp_worker *worker, struct pp_weights_reader *reader, float *best) PP_MUST_CHECK;

/* All workers of the first replica call it, and of all replicas where weights are split; worker 0 receives the tensors
 * of the others piece by piece, puts together what workers share of them (core/slice.h) and writes the file, which does
 * not depend on how the model is shared out. Errors of the file are known to worker 0 only. */
pp_status pp_parameters_save(struct pp_worker *worker, const char *file) PP_MUST_CHECK;

/* One part into a file that worker 0 has begun (writer: NULL elsewhere); from: a copy of the parameters, or NULL for
 * what the workers have. By the workers of the first replica, and of the others too where these keep shares of the
 * part. */
pp_status pp_parameters_append(struct pp_worker *worker, struct pp_weights_writer *writer, int part,
                               const float *from) PP_MUST_CHECK;

#endif
