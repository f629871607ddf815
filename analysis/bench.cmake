# SPDX-License-Identifier: Apache-2.0
# Measurements, never part of `all` or of the tests: `cmake --build build --target bench` and `--target fidelity`.
find_package(Python3 COMPONENTS Interpreter QUIET)
set(PP_TORCH_PYTHON "" CACHE FILEPATH "A Python with PyTorch, to compare speed with; empty: ppkit alone")

if(Python3_FOUND)
  add_custom_target(bench
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/bench.py --bin ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
            "--python=${PP_TORCH_PYTHON}" --bench-step ${PROJECT_BINARY_DIR}/tests/bench/bin/bench_step
    DEPENDS ppsim ppexec USES_TERMINAL VERBATIM)
  add_custom_target(fidelity
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/fidelity.py --bin ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
            --out ${PROJECT_BINARY_DIR}/fidelity
    DEPENDS ppprof ppsim ppexec USES_TERMINAL VERBATIM)
endif()
