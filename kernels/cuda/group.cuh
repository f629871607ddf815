/* SPDX-License-Identifier: Apache-2.0
 *
 * One launch for the calls of many tensors (kernels/cuda/launch.h), which its parameters describe.
 */
#ifndef PP_KERNELS_CUDA_GROUP_CUH
#define PP_KERNELS_CUDA_GROUP_CUH

enum { PP_PARAMETER_BYTES = 4096 }; /* of a launch, on every device */

/* The tensors of a launch: its blocks are dealt out in their order. */
template <typename tensor, typename common, int most> struct pp_group {
    common all;
    int n;
    tensor of[most];
};

/* The tensor of a block: the last one whose first block is not behind it. */
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
