/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps, by which the copy engine of compute capability 9.0 finds pieces of a matrix (wgmma.cuh: pp_fetch).
 */
#ifndef PP_KERNELS_CUDA_MAPS_H
#define PP_KERNELS_CUDA_MAPS_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PP_MAP_COLUMNS = 32 };

/* Does the driver make maps? Those of CUDA 12.0 and later do. */
bool pp_cuda_has_maps(void);

/* Of a matrix [rows, pitch] of which `columns` columns are to be seen: pieces of PP_MAP_COLUMNS columns and so many
 * rows, 256 at most, whose numbers are rounded to the nearest TF32 number. The matrix and its rows begin at multiples
 * of 16 bytes. pp_cuda_has_maps(). */
cudaError_t pp_cuda_map(CUtensorMap *map, const float *matrix, int rows, int columns, int pitch, int piece_rows);

#ifdef __cplusplus
}
#endif

#endif
