/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of a model whose tensors are spread over workers: setting them at the start, keeping a copy of the best
 * ones, reading them from files and writing them to files.
 */
#ifndef PP_EXEC_PARAMETERS_H
#define PP_EXEC_PARAMETERS_H

#include "exec/weights.h"
#include "exec/worker.h"

/* Makes the initial values of a worker's part of one tensor: out is [local_elements]. kernels/model.h has the
 * function. */
typedef void (*pp_init_tensor_fn)(const struct pp_model *model, int tensor, uint64_t seed, int member, float *out);

/* Each worker sets the parameters of its stages: from the file, or, where file is NULL, by `init` or on a device that
 * makes the same values itself (pp_backend.draw). Between two tensors it checks whether the run is to stop
 * (pp_world_check()). */
pp_status pp_parameters_init(struct pp_worker *worker, const char *file, uint64_t seed,
                             pp_init_tensor_fn init) PP_MUST_CHECK;

/* A copy of this worker's parameters in host memory: [pp_parameters_count] floats, tensor after tensor in model order.
 * Of a tensor it has the elements that the worker keeps: all of the worker's part, or where replicas share the weights
 * (core/model/model.h: weights are split), its share of that part. In that case all replicas that share call restore(),
 * and the first replica has all bfloat16 copies afterwards. */
int64_t pp_parameters_count(const struct pp_worker *worker);
pp_status pp_parameters_copy(struct pp_worker *worker, float *to) PP_MUST_CHECK;
pp_status pp_parameters_restore(struct pp_worker *worker, const float *from) PP_MUST_CHECK;

/* Number of tensors for each tensor of the model: 1 (part 0, the parameters), and as many as the optimizer keeps. */
int pp_parameters_parts(const struct pp_model *model);
/* Reads from an open checkpoint, whose tensors are whole, what this worker keeps: all parts of its parameters, and,
 * where `best` is not NULL, a copy of the best parameters, which follow in the file. best: as pp_parameters_copy()
 * makes it. */
pp_status pp_parameters_read(struct pp_worker *worker, struct pp_weights_reader *reader, float *best) PP_MUST_CHECK;

/* Writes the parameters to a file. All workers of the first replica call it, and where weights are split those of all
 * replicas that share them. Worker 0 receives the tensors of the others piece by piece, puts parts together that are
 * spread over workers (core/model/slice.h), and writes whole tensors, so the file does not depend on who has what. Only
 * worker 0 learns of errors of the file. */
pp_status pp_parameters_save(struct pp_worker *worker, const char *file) PP_MUST_CHECK;

/* Writes one part (0: parameters; 1, 2, ...: what the optimizer keeps) of all tensors to a file that worker 0 has
 * begun. writer: NULL in other workers. from: the values to write, as pp_parameters_copy() makes them; NULL: those that
 * the workers have now. Called by all workers of the first replica, and by those of other replicas that keep shares of
 * this part. */
pp_status pp_parameters_append(struct pp_worker *worker, struct pp_weights_writer *writer, int part,
                               const float *from) PP_MUST_CHECK;

#endif
