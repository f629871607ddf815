/* SPDX-License-Identifier: Apache-2.0
 *
 * One launch for calls of many tensors (pp_cuda_sgd_group and others in kernels/cuda/launch.h). The tensors are
 * described by the launch's parameters, passed by value.
 */
#ifndef PP_KERNELS_CUDA_GROUP_CUH
#define PP_KERNELS_CUDA_GROUP_CUH

enum { PP_PARAMETER_BYTES = 4096 }; /* a launch may have so many bytes of parameters on every GPU */

/* What a launch is passed: `all` holds for all tensors, of[0 .. n-1] for one each. tensor: a struct with a member
 * first_block, the first of the launch's blocks that work on this tensor; these numbers grow. */
template <typename tensor, typename common, int most> struct pp_group {
    common all;
    int n;
    tensor of[most];
};

/* The number of the tensor on which a block works: the last one whose first_block is not greater than `block`. */
template <typename group> static __device__ inline int pp_tensor_of(const group &g, int block)
{
    int low = 0, high = g.n - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (g.of[middle].first_block <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

#endif
