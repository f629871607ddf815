# SPDX-License-Identifier: Apache-2.0
# NCCL's header: the library itself is loaded at run time. Looks beside the CUDA toolkit, in the usual places, and in NCCL_ROOT.
#   NCCL_FOUND, NCCL_VERSION; target NCCL::headers (nccl.h and the CUDA headers it includes)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
mark_as_advanced(NCCL_INCLUDE_DIR)

if(NCCL_INCLUDE_DIR)
  set(NCCL_VERSION)
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h line REGEX "^#define NCCL_${part} +[0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+" number "${line}")
    list(APPEND NCCL_VERSION ${number})
  endforeach()
  list(JOIN NCCL_VERSION "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)

if(NCCL_FOUND AND NOT TARGET NCCL::headers)
  add_library(NCCL::headers INTERFACE IMPORTED)
  target_include_directories(NCCL::headers INTERFACE ${NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
endif()
