# SPDX-License-Identifier: Apache-2.0
# Build type, warnings, sanitizers and the optional parts (AUTO: used if found; ON: an error if absent; OFF).
include(GNUInstallDirs)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON) # POSIX and GNU: clock_gettime, __typeof__
set(CMAKE_C_VISIBILITY_PRESET hidden)

option(PP_WERROR "Treat warnings as errors" OFF)
set(PP_SANITIZE "" CACHE STRING "address,undefined or thread")
set(PP_UNIT_TESTS "." CACHE STRING "Regular expression: the unit tests to build and run; others are disabled")
foreach(part MPI HWLOC CUDA NCCL FUZZERS)
  set(PP_WITH_${part} AUTO CACHE STRING "AUTO, ON or OFF")
  set_property(CACHE PP_WITH_${part} PROPERTY STRINGS AUTO ON OFF)
endforeach()

add_library(pp_flags INTERFACE)
target_include_directories(pp_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_compile_definitions(pp_flags INTERFACE _GNU_SOURCE PP_VERSION="${PROJECT_VERSION}")
set(PP_WARNINGS -Wall -Wextra -Wshadow -Wpointer-arith -Wno-missing-field-initializers)
if(PP_WERROR)
  list(APPEND PP_WARNINGS -Werror)
endif()
target_compile_options(pp_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C>:${PP_WARNINGS};-Wstrict-prototypes;-Wmissing-prototypes>
  $<$<COMPILE_LANGUAGE:CXX>:${PP_WARNINGS}>)
if(PP_SANITIZE)
  target_compile_options(pp_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${PP_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=undefined>)
  target_link_options(pp_flags INTERFACE -fsanitize=${PP_SANITIZE})
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(SQLite3 REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
target_link_libraries(pp_flags INTERFACE Threads::Threads m)

set(PP_HAVE_MPI OFF)
if(PP_WITH_MPI STREQUAL "ON")
  find_package(MPI REQUIRED COMPONENTS C)
elseif(PP_WITH_MPI STREQUAL "AUTO")
  find_package(MPI COMPONENTS C QUIET)
endif()
if(MPI_C_FOUND)
  set(PP_HAVE_MPI ON)
endif()

set(PP_HAVE_HWLOC OFF)
if(PP_WITH_HWLOC STREQUAL "ON")
  pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
elseif(PP_WITH_HWLOC STREQUAL "AUTO")
  pkg_check_modules(HWLOC QUIET IMPORTED_TARGET hwloc)
endif()
if(HWLOC_FOUND)
  set(PP_HAVE_HWLOC ON)
endif()

include(PpCuda)

function(pp_summary)
  set(cuda ${PP_HAVE_CUDA})
  if(PP_HAVE_CUDA)
    set(cuda "${CUDAToolkit_VERSION} (${CMAKE_CUDA_ARCHITECTURES})")
  endif()
  message(STATUS "ppkit ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, MPI ${PP_HAVE_MPI}, hwloc ${PP_HAVE_HWLOC}, CUDA ${cuda}, "
    "NCCL ${PP_HAVE_NCCL}, sanitizers '${PP_SANITIZE}'")
endfunction()
