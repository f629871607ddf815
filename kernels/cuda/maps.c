/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/maps.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

/* The driver's function, without linking the driver; NULL: it has none. */
static CUresult (*encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                          const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                          CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static void find_encode(void)
{
    enum { SINCE = 12000 };
    enum cudaDriverEntryPointQueryResult found;
    void *entry = NULL;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, SINCE, cudaEnableDefault, &found);
    if (error == cudaSuccess && found == cudaDriverEntryPointSuccess) memcpy(&encode, &entry, sizeof entry);
}

bool pp_cuda_has_maps(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_encode);
    return encode != NULL;
}

cudaError_t pp_cuda_map(CUtensorMap *map, const float *matrix, int rows, int columns, int pitch, int piece_rows)
{
    const cuuint64_t size[] = {(cuuint64_t)columns, (cuuint64_t)rows}, bytes[] = {(cuuint64_t)pitch * sizeof(float)};
    const cuuint32_t piece[] = {PP_MAP_COLUMNS, (cuuint32_t)piece_rows}, each[] = {1, 1};
    const CUresult result = encode(map, CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, 2, (void *)(uintptr_t)matrix, size, bytes,
                                   piece, each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
