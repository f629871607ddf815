/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions for processors and for GPUs: in CUDA C++ both call them.
 */
#ifndef PP_KERNELS_HOST_DEVICE_H
#define PP_KERNELS_HOST_DEVICE_H

#ifdef __device__ /* CUDA C++ */
#define PP_HOST_DEVICE __host__ __device__
#else
#define PP_HOST_DEVICE
#endif

#endif
