#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the build into an empty prefix and uses what lies there: prefix.sh CMAKE BUILD
set -euo pipefail
cmake=$1 build=$2
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
"$cmake" --install "$build" --prefix "$prefix" >/dev/null
cd "$prefix"

for program in ppsim ppexec ppprof ppreport; do
    "bin/$program" --version >said
    grep -q "^$program (ppkit) " said
    "bin/$program" --help >said
    grep -q "^Usage: $program " said
    if [ -f "$build/docs/$program.1" ]; then test -s "share/man/man1/$program.1"; fi
    test -s "share/bash-completion/completions/$program"
done

# Links in documents lead to what is installed.
grep -roE --include='*.md' '\]\([^):# ]+[)#]' share >links
while IFS=: read -r file link; do
    link=${link#](}
    test -e "${file%/*}/${link%?}" || { echo "$file: there is no ${link%?}"; exit 1; }
done <links

# What the programs load lies beside them, also when the prefix is moved.
bin/ppexec --list >said
plugin=$(find . -name ppkit-cuda.so)
if [ -n "$plugin" ]; then
    grep -q '^  cuda .*cuBLAS$' said
    mkdir moved
    mv bin lib* moved
    if CUDA_VISIBLE_DEVICES='' moved/bin/ppexec --device cuda --preset lab 2>said; then exit 1; fi
    grep -qE 'no NVIDIA driver|no GPU' said
    mv moved/* .
else
    grep -q '^  cuda .*not in this build' said
fi

# Nothing may be read from the build or the source: run from an empty folder.
mkdir empty
cd empty
../bin/ppsim --schedule 1f1b --chunks 4 --format json >../said
grep -q '"ms_per_batch"' ../said
test -z "$(ls)"

# Scripts of Python, by the names that they have beside the programs.
cat >../config.json <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 100, "hidden_size": 8, "intermediate_size": 12,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}
JSON
../bin/ppkit-model-options ../config.json >../said
# shellcheck disable=SC2046
../bin/ppsim $(cat ../said) --tokens 16 --machine cpu --stages 1 --tensor 1 --format json >../predicted
grep -q '"ms_per_batch"' ../predicted
../bin/ppkit-framework-options megatron ../predicted >../said
grep -q '^--seq-length 16 --micro-batch-size ' ../said
../bin/ppkit-convert-weights --help >../said
grep -q '^usage: ppkit-convert-weights ' ../said

# Completion knows options and choices.
# shellcheck source=/dev/null
source ../share/bash-completion/completions/ppsim
PATH=$prefix/bin:$PATH
COMP_WORDS=(ppsim --chec) COMP_CWORD=1
_ppkit
test "${COMPREPLY[*]}" = --checkpoint
COMP_WORDS=(ppsim --grad-r) COMP_CWORD=1
_ppkit
test "${COMPREPLY[*]}" = --grad-reduce-in-bf16
COMP_WORDS=(ppsim --checkpoint ex) COMP_CWORD=2
_ppkit
test "${COMPREPLY[*]}" = except_last
