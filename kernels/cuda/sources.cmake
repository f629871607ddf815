# SPDX-License-Identifier: Apache-2.0
# PP_CUDA_SOURCES: what the backend `cuda` is made of. tests/cuda/emulator makes it a second time, for the processor.
set(PP_CUDA_SOURCES
  plugin.c
  error.c
  host.c
  share.c
  device.c
  queue.c
  run.c
  launches.c
  measure.c
  probe.c
  algorithms.c
  gemm.c
  gemm_plan.c
  tune.c
  tf32.c
  maps.c
  attention_long.cu
  attention_short.cu
  attention_short_mma.cu
  attention_short_tf32.cu
  prepare.cu
)
pp_rows(lines ${CMAKE_CURRENT_LIST_DIR}/kernels.def "PP_CUDA_KERNELS\\([a-z0-9_]+\\)")
list(TRANSFORM lines REPLACE "PP_CUDA_KERNELS\\((.*)\\)" "\\1.cu")
list(APPEND PP_CUDA_SOURCES ${lines})
list(TRANSFORM PP_CUDA_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(APPEND PP_CUDA_SOURCES ${PROJECT_SOURCE_DIR}/kernels/kernels.c ${PROJECT_SOURCE_DIR}/kernels/operands.c ${PROJECT_SOURCE_DIR}/kernels/call_text.c ${PROJECT_SOURCE_DIR}/core/base/text.c ${PROJECT_SOURCE_DIR}/core/base/affinity.c ${PROJECT_SOURCE_DIR}/core/shape/shape.c)
