# SPDX-License-Identifier: Apache-2.0
# CUDA and NCCL, of the toolkit only: no driver is needed to build, and the programs link neither. Sets PP_HAVE_CUDA, PP_HAVE_NCCL.
set(PP_CUDA_OLDEST 12.5) # cudaGetDriverEntryPointByVersion

# The compiler: as CMake looks for it (CMAKE_CUDA_COMPILER, CUDACXX, PATH), else where toolkits are installed.
function(pp_find_nvcc)
  if(CMAKE_CUDA_COMPILER OR DEFINED ENV{CUDACXX})
    return()
  endif()
  find_program(PP_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(PP_NVCC)
  if(PP_NVCC)
    set(ENV{CUDACXX} ${PP_NVCC})
  endif()
endfunction()

# One that works with this host compiler, with a toolkit that is new enough.
macro(pp_enable_cuda)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    # 8.x runs what is made for 8.0; newer ones than 9.0 compile its PTX when it is loaded
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPUs to compile for")
  endif()
  pp_find_nvcc()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared) # one runtime for C and CUDA
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    enable_language(CUDA)
    find_package(CUDAToolkit ${PP_CUDA_OLDEST} QUIET)
  endif()
endmacro()

set(PP_HAVE_CUDA OFF)
set(PP_HAVE_NCCL OFF)
if(NOT PP_WITH_CUDA STREQUAL "OFF")
  pp_enable_cuda()
  if(CUDAToolkit_FOUND AND TARGET CUDA::cublasLt)
    set(PP_HAVE_CUDA ON)
  elseif(PP_WITH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PP_WITH_CUDA=ON: no CUDA toolkit of version ${PP_CUDA_OLDEST} or later with cuBLAS was found. Put nvcc on PATH, "
      "or name it: -DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc")
  endif()
endif()

if(NOT PP_WITH_NCCL STREQUAL "OFF")
  if(PP_HAVE_CUDA)
    find_package(NCCL 2.18 QUIET)
  endif()
  if(NCCL_FOUND)
    set(PP_HAVE_NCCL ON)
  elseif(PP_WITH_NCCL STREQUAL "ON")
    message(FATAL_ERROR "PP_WITH_NCCL=ON: NCCL's nccl.h (2.18 or later) was not found, or there is no CUDA (${PP_HAVE_CUDA}). "
      "Name its folder: -DNCCL_ROOT=/usr/local/cuda")
  endif()
endif()
