# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by scripts/gpu: the programs, as an archive has brought them or built here. `results`, `bundle`, `build`, `bin`, `backend`, `emulated`,
# `quick` and `cublas` are scripts/gpu's.
: "${results:?}" "${bundle:?}" "${build:?}" "${bin:?}" "${backend:?}" "${emulated:?}" "${all_folders:?}"

# loads FILE: it is there, and so are the libraries that it is linked with.
loads() { [ -e "$1" ] && ! grep -qF 'not found' <<<"$(ldd "$1" 2>&1)"; }

# Do programs that are there run here? The backend is loaded later than they start.
built() { "$bin/ppexec" --version >/dev/null 2>&1 && [ -x "$bin/ppprof" ] && { [ "$emulated" = 1 ] || loads "${backend#*=}"; }; }

# The GPU's compute capability, as CMake writes it; that of an H100 or H200 where there is no GPU.
capability() {
    local known
    known=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -cd 0-9)
    echo "${known:-90}"
}

# What programs are compiled from, and for: file `sources` of a build says it, and others are built again.
compiled=$(sum_of "${all_folders[@]:0:9}" tests/cuda -not -name '*.py*' -not -name '*.md')
wanted() { echo "$compiled sm_$(capability)"; }
is_wanted() { built && [ "$(cat "$build/sources" 2>/dev/null)" = "$(wanted)" ]; }
is_whole() { [ -x "$build/tests/cuda/bin/test_parity" ] && [ -x "$build/tests/cuda/bin/test_share_queues" ]; }

configured() { [ -e "$results/done/build.configure" ] || [ -e "$results/done/build.without-mpi" ]; }

# Programs that were brought along have nothing that CMake could go on with.
configure() {
    local nccl linked include=() cuda=ON options=(-DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=ON)
    if [ ! -f "$build/CMakeCache.txt" ]; then rm -f "$results"/{done,failed}/build.{configure,without-mpi}; fi
    unset NVCC_APPEND_FLAGS # of someone who builds without optimising, to test
    configured && return 0
    find "${all_folders[@]}" -newermt now -exec touch {} + # ninja gives up where the clock is behind the sources
    if command -v ninja >/dev/null; then options+=(-G Ninja); fi
    if [ "$emulated" = 1 ]; then cuda=AUTO; fi
    nccl=$(pip_nccl)
    if [ -n "$nccl" ]; then options+=("-DNCCL_ROOT=$nccl") include+=("$nccl/include"); fi
    if [ -n "$cublas" ]; then
        options+=("-DCUDA_cublasLt_LIBRARY=$(find "$cublas/lib" -name 'libcublasLt.so*' | head -1)")
        include+=("$results/bundle/cublas")
    fi
    if [ -n "${include[*]}" ]; then options+=("-DCMAKE_INCLUDE_PATH=$(IFS=';' && echo "${include[*]}")"); fi
    options+=("-DCMAKE_CUDA_ARCHITECTURES=$(capability)" "-DPP_WITH_CUDA=$cuda")
    # Another host's toolkit may have its libraries in the other of these.
    for linked in MODULE EXE; do options+=("-DCMAKE_${linked}_LINKER_FLAGS=-Wl,-rpath,/usr/local/cuda/lib64:/usr/local/cuda/lib"); done
    step build.configure 120 cmake -S . -B "$build" "${options[@]}"
    configured || step build.without-mpi 120 cmake -S . -B "$build" "${options[@]}" -DPP_WITH_MPI=OFF
    configured
}

part_build() {
    local targets=(ppsim ppexec ppprof ppreport kernel_times)
    if is_wanted && is_whole; then left_out build "the programs are there, of these sources" && return; fi
    # Of another host, whose programs do not run here, or of other sources.
    if ! is_wanted; then rm -f "$results"/{done,failed}/build.* "$build/CMakeCache.txt"; fi
    if [ ! -e "$results/done/build.compile" ] && [ ! -f "$bundle/bundle.tar.gz" ] && ! has_sqlite; then
        echo "gpu: this host has no sqlite3.h, and there is no $bundle/bundle.tar.gz with it: scripts/gpu-bundle makes it elsewhere;" \
            "git ignores it, so whatever copies the source here may have to be told to take it along" >&2
        exit 2
    fi
    configure || return 0
    if [ "$emulated" = 1 ]; then targets+=(ppkit-cuda-emulated); else targets+=(ppkit-cuda tf32_times); fi
    step build.compile 7200 cmake --build "$build" -j "$(nproc)" --target "${targets[@]}"
    if [ -e "$results/done/build.compile" ]; then wanted >"$build/sources"; fi
    step build.parity 300 cmake --build "$build" -j "$(nproc)" --target test_parity test_share_queues # its libraries may be missing
    if built; then pack_build; fi
}

# So that another host need not build; without it, it does. Programs of tests may be missing.
pack_build() {
    local path there=()
    for path in "$results"/build/{sources,bin,lib,tests/bench/bin,tests/cuda/bin} "$results"/build/tests/cuda/*.so; do
        if [ -e "$path" ]; then there+=("${path#"$results/"}"); fi
    done
    if ! (cd "$results" && tar -czf build.tar.gz.new "${there[@]}" && mv build.tar.gz.new build.tar.gz); then
        rm -f "$results/build.tar.gz.new"
        echo "gpu: no archive of the programs could be made; the one before stays (is the disk full?)" >&2
    fi
}
