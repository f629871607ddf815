/* SPDX-License-Identifier: Apache-2.0
 *
 * Slices: which elements of a whole tensor a worker holds (pp_tensor.local), if the members of a rank share the tensor
 * (pp_shape.tensor, pp_shape.expert_parallel).
 */
#ifndef PP_CORE_MODEL_SLICE_H
#define PP_CORE_MODEL_SLICE_H

#include "core/model/model.h"

/* Elements that are contiguous both in the worker's memory and in the whole tensor. */
struct pp_slice {
    int64_t whole; /* index of the first one in the whole tensor; -1: zeros, which pad what cannot be shared evenly */
    int64_t n;
};

/* Number of members of a rank that share the tensor: the first n members have all of it together, and the others have
 * copies. */
int pp_tensor_sharers(const struct pp_tensor *tensor, const struct pp_shape *shape);

/* The longest slice that begins with element number `local` of the member, 0 <= local < tensor->local_elements. */
struct pp_slice pp_tensor_slice(const struct pp_tensor *tensor, const struct pp_shape *shape, int member,
                                int64_t local);

#endif
