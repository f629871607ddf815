/* SPDX-License-Identifier: Apache-2.0
 *
 * Slices: where what a worker holds of a tensor (pp_tensor.local) lies in the whole one, if the workers of a rank share
 * it (pp_shape.tensor, pp_shape.expert_parallel).
 */
#ifndef PP_CORE_SLICE_H
#define PP_CORE_SLICE_H

#include "core/program.h"

/* Elements that lie one behind the other in both. */
struct pp_slice {
    int64_t whole; /* the first one's place in the whole tensor; -1: they fill up what cannot be shared evenly, zero */
    int64_t n;
};

/* So many members of a rank, the first ones, have all of the tensor together; the others have what these have. */
int pp_tensor_sharers(const struct pp_tensor *tensor, const struct pp_shape *shape);

/* The longest slice from the member's element `local` on, 0 <= local < tensor->local_elements. */
struct pp_slice pp_tensor_slice(const struct pp_tensor *tensor, const struct pp_shape *shape, int member,
                                int64_t local);

#endif
