/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator's own test: kernels, and the processes that its cases run in.
 */
#ifndef PP_TESTS_TEST_EMULATOR_H
#define PP_TESTS_TEST_EMULATOR_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t test_sum(const float *in, float *out, int n, int blocks, int threads, cudaStream_t stream);
cudaError_t test_add(float *to, float what, int n, cudaStream_t stream);
/* Blocks of one thread that watch the clock for so long. */
cudaError_t test_spin(int blocks, int64_t ns, cudaStream_t stream);
/* out: 64 numbers of the device. name: see test_emulator_kernels.cu. */
cudaError_t test_kernel(const char *name, double *out, int threads, int shared_bytes, cudaStream_t stream);

/* In a case's process: says why and ends it. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The emulator reads its environment once, and failed devices stay so: runs `body` in `processes` new ones, with up to
 * four settings NAME=VALUE. Fails the test unless all end with 0. */
void in_processes(int processes, void (*body)(int process), const char *const *settings);

#ifdef __cplusplus
}
#endif

#endif
