# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by scripts/gpu: what a GPU host has, what it lacks and finds in the bundle. `results`, `bundle` and `emulated` are scripts/gpu's.
: "${results:?}" "${bundle:?}" "${emulated:?}"

use_bundle() {
    local archive=$bundle/bundle.tar.gz root=$results/bundle libraries includes known file name
    [ -f "$archive" ] || return 0
    libraries=$(gcc -print-multiarch 2>/dev/null)
    libraries=${libraries:-$(uname -m)-linux-gnu} # not all compilers have such a folder
    includes=$root/usr/include:$root/usr/include/$libraries
    libraries=$root/usr/lib/$libraries
    if [ "$(cat "$root/.unpacked" 2>/dev/null)" != "$(stat -c %s "$archive")" ]; then
        mkdir -p "$root/lib" && tar -xzf "$archive" -C "$root" || return 1
        name=$(printf '%s\n' "$root" | sed 's/[\\&#]/\\&/g') # as sed takes it
        find "$root/usr" -name '*.pc' -exec sed -i -E "s#(=|-L|-I)/usr#\1$name/usr#g" {} +
        # LD_LIBRARY_PATH comes before the system's folders: only what the host lacks may lie there.
        known=$(ldconfig -p | awk '{ print $1 }')
        for file in "$libraries"/*.so.*; do
            grep -qxF "${file##*/}" <<<"$known" || ln -sf "$file" "$root/lib/"
        done
        # CMake takes what mpicc says for options, complaints ("no network interfaces") too.
        if [ -e "$root/usr/bin/mpicc.openmpi" ]; then
            rm -f "$root/usr/bin/mpicc"
            printf '#!/bin/sh\nexec "%s" "$@" 2>/dev/null\n' "$root/usr/bin/mpicc.openmpi" >"$root/usr/bin/mpicc"
            chmod +x "$root/usr/bin/mpicc"
        fi
        stat -c %s "$archive" >"$root/.unpacked"
    fi
    export PKG_CONFIG_PATH=$libraries/pkgconfig:$root/usr/share/pkgconfig:${PKG_CONFIG_PATH:-}
    export CMAKE_PREFIX_PATH=$root/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
    export CMAKE_LIBRARY_PATH=$libraries CMAKE_INCLUDE_PATH=$includes
    export CPATH=$includes${CPATH:+:$CPATH} LIBRARY_PATH=$libraries${LIBRARY_PATH:+:$LIBRARY_PATH}
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$root/lib
    export PATH=$PATH:$root/usr/bin
    if [ "$(command -v mpirun)" = "$root/usr/bin/mpirun" ]; then
        export OPAL_PREFIX=$root/usr OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader
        export PMIX_MCA_pcompress_base_silence_warning=1
    fi
}

# What another host has brought back travels packed, in the results' folder or beside the bundle: some hosts take 64 MiB at most, and unpacked
# it is more, with the source. A folder that has been worked in knows as much as its archives or more. Results are of one kind of GPU; the
# build says itself what it is for.
take_archives() {
    local other=$bundle/results.tar.gz
    take_archive "$results/results.tar.gz" machine
    if [ -f "$other" ] && [ "$(tar -xzOf "$other" machine 2>/dev/null)" = "$(machine_name)" ]; then
        take_archive "$other" machine
    fi
    take_archive "$results/build.tar.gz" build
    take_archive "$bundle/build.tar.gz" build
}
# take_archive ARCHIVE FILE: unless FILE, which it has, is there.
take_archive() {
    if [ -e "$results/$2" ] || [ ! -f "$1" ]; then return 0; fi
    tar -xzf "$1" -C "$results" || echo "gpu: $1 cannot be unpacked" >&2
}

# FP8 products: from compute capability 8.9 on. What is not known is taken for new.
has_fp8() {
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -cd 0-9)
    [ "${capability:-90}" -ge 89 ]
}

# keep_open NODE: until the script ends. While nobody has a GPU's node open, its driver lets it go, and starting it again takes each program
# one to three seconds (NVIDIA, "Driver Persistence").
keep_open() { if { exec 9<"$1"; } 2>/dev/null; then return 0; fi; }

mpi_environment() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mca_base_component_show_load_errors=0
    export OMPI_MCA_btl_vader_single_copy_mechanism=none HOME=${HOME:-$results}
}

# This host, its start, and where its Python has PyTorch.
host_place() {
    echo "host: $(uname -n) $(cat /proc/sys/kernel/random/boot_id 2>/dev/null)" \
        "$(python3 -c 'import importlib.util as u; t = u.find_spec("torch"); print(t and t.origin)' 2>/dev/null)"
}

# has_library NAME: the loader knows it. Read to its end: a pipe that grep -q closes would make ldconfig fail.
has_library() { grep -qF "$1" <<<"$(ldconfig -p)"; }

# For those who compile; the other packages come with it or are missed as well.
has_sqlite() { pkg-config --exists sqlite3 2>/dev/null || echo '#include <sqlite3.h>' | "${CC:-cc}" -E -xc - >/dev/null 2>&1; }

# What there is, asked once for each host. PyTorch is not imported: that may take ten seconds or more.
show_host() {
    nvidia-smi --query-gpu=name,driver_version,memory.total,power.limit --format=csv,noheader 2>/dev/null | head -1 | sed 's/^/GPU: /'
    uname -a
    grep -m1 'model name' /proc/cpuinfo
    nproc && free -g | head -2 && df -h . /dev/shm
    ldd --version | head -1
    nvidia-smi || echo "no nvidia-smi"
    for program in nvcc cmake ninja make gcc g++ pkg-config mpirun mpicc python3 ncu compute-sanitizer gnuplot; do
        echo "$program: $(command -v "$program" || echo none) $("$program" --version 2>/dev/null </dev/null | grep -m1 -E '[0-9]+\.[0-9]+')"
    done
    for library in libcublasLt libnccl libsqlite3 libjansson libz libopenblas libcmocka libhwloc libmpi; do
        echo "$library: $(ldconfig -p | grep -m1 -F "$library." | awk '{print $NF}')"
    done
    ls -l "$(toolkit)"/include/{cuda,cublasLt,nccl}.h "$(toolkit)"/lib64/lib{cudart,cublasLt,nccl}.so*
    echo "NCCL of Python: $(pip_nccl); cuBLAS of Python: $(pip_cublas)"
    echo "PyTorch: $(python3 -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null || echo none)"
    if [ -f "$bundle/bundle.tar.gz" ]; then echo "bundle: yes"; fi
    ip -br address show lo 2>/dev/null || cat /proc/net/dev
    host_place
}

# NCCL and cuBLAS as Python's packages bring them, where the toolkit has none: folders with include and lib.
pip_nccl() { python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null; }
pip_cublas() {
    python3 -c 'import glob, nvidia, os
found = [h for p in nvidia.__path__ for h in glob.glob(p + "/*/include/cublasLt.h")]
print(os.path.dirname(os.path.dirname(found[0])))' 2>/dev/null
}
# Python's cuBLAS, where the toolkit has none. $cublas is its folder, else empty. All that compiles finds its headers, and only these: the CUDA
# headers beside them are not complete. Programs that were built elsewhere find its libraries, which are those that PyTorch uses.
cublas=
cublas_environment() {
    if [ -e "$(toolkit)/include/cublasLt.h" ]; then return 0; fi
    cublas=$(pip_cublas)
    [ -n "$cublas" ] || return 0
    mkdir -p "$results/bundle/cublas" && ln -sf "$cublas"/include/cublas*.h "$results/bundle/cublas/"
    export CPATH=$results/bundle/cublas${CPATH:+:$CPATH} LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$cublas/lib
}
toolkit() { dirname "$(dirname "$(realpath -m "$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")")")"; }

# What the first GPU is called: by its driver, which says it in two places; and by CUDA, once there are programs. Nothing where nobody says.
driver_gpu() {
    nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null
    sed -n 's/^Model:[[:space:]]*//p' "${PP_GPU_PROC:-/proc/driver/nvidia}"/gpus/*/information 2>/dev/null
}
cuda_gpu() {
    timeout 60 "${bin:-}/ppexec" --device cuda --gpus 1 --preset lab --stages 1 --epochs 1 --max-batches 1 --no-eval 2>&1 >/dev/null |
        sed -n 's/^device *//p'
}
# As ppsim calls the machine: h200 for "NVIDIA H200".
as_machine() { head -1 | sed 's/^NVIDIA //; s/[ ,-].*//' | tr '[:upper:]' '[:lower:]'; }

# profiles/MACHINE-FAMILY.tsv of the source are those of --machine MACHINE. Without a GPU, that of the results.
machine_name() {
    local name
    if [ "$emulated" = 1 ]; then echo emulated && return; fi
    name=$(driver_gpu | as_machine)
    name=${name:-$(cat "$results/machine" 2>/dev/null)}
    echo "${name:-${PP_GPU_MACHINE:-gpu}}"
}

# Times of two kinds of GPU in one folder would pass for those of one. Where the driver says nothing, nothing is known before there are
# programs to ask; so this is called again then.
claim_results() {
    local known machine
    known=$(cat "$results/machine" 2>/dev/null)
    machine=$(driver_gpu | as_machine)
    if [ "$emulated" = 1 ]; then machine=emulated; fi
    if [ -z "$machine" ] && [ -x "${bin:-}/ppexec" ]; then machine=$(cuda_gpu | as_machine) machine=${machine:-$(machine_name)}; fi
    [ -n "$machine" ] || return 0
    if [ -n "$known" ] && [ "$known" != "$machine" ]; then
        echo "gpu: $results has results of ${known^^}, and this is ${machine^^}: start again with PP_GPU_RESULTS=gpu-results/$machine" >&2
        return 1
    fi
    # Tiny models must not pass for what they stand for.
    known=$(cat "$results/kind" 2>/dev/null)
    if [ -n "$known" ] && [ "$known" != "quick ${quick:-0}" ]; then
        echo "gpu: $results is of another PP_GPU_QUICK ($known): start again with another PP_GPU_RESULTS" >&2
        return 1
    fi
    echo "quick ${quick:-0}" >"$results/kind"
    echo "$machine" >"$results/machine"
}
