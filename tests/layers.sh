#!/bin/sh
# Includes go down only (README "Layout"). Prints file:line of every include that does not, of every third-party
# header outside its one place, and every file name that is used twice. Usage: layers.sh [ROOT]
root=${1:-$(dirname "$0")/..}
cd "$root" || exit 2
problems=$(mktemp) || exit 2
trap 'rm -f "$problems"' EXIT

sources() { # DIRECTORY...
    for directory; do
        [ -d "$directory" ] && find "$directory" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh'
    done | LC_ALL=C sort
}

# file:line:header of every quoted include, and of every <...> that names one of our floors.
includes() {
    sources "$1" | while IFS= read -r file; do
        sed -nE '/^[[:space:]]*#[[:space:]]*include[[:space:]]*("|<(cost|sim|kernels|exec|tests|hwprofiles|notebooks)\/)/{
            =
            s/^[^"<]*["<]([^">]*)[">].*/\1/p
        }' "$file" | while IFS= read -r line && IFS= read -r header; do
            printf '%s:%s:%s\n' "$file" "$line" "$header"
        done
    done
}

may() { # FLOOR PATTERN: all that FLOOR may include of ours
    includes "$1" | grep -vE ":[0-9]+:(config\.h|version\.h|$2)\$" |
        sed -E "s|^(.*:[0-9]+):(.*)\$|\1: $1/ may not include \"\2\"|" >>"$problems"
}

only() { # HEADER PATTERN: the files that may include <HEADER>
    sources cost sim kernels exec hwprofiles tests | grep -vE "^($2)\$" | while IFS= read -r file; do
        grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]$1[>\"]" "$file" | while IFS=: read -r line include; do
            echo "$file:$line: not the place for $include"
        done
    done >>"$problems"
}

may kernels 'kernels/.*\.(h|cuh)'
may cost 'cost/.*\.h'
may sim '(sim|cost)/.*\.h'
may exec '(exec|cost|kernels)/.*\.h|sim/(program|schedule|timeline)\.h|sim/writers/.*\.h'
may hwprofiles '(hwprofiles|cost)/.*\.h'

only 'cjson/cJSON\.h' 'cost/base/json\.c'
only 'sqlite3\.h' 'cost/profile.*\.c|tests/.*'
only 'mpi\.h' 'exec/(world|comm_mpi)\.c|tests/cuda/nccl_emulated\.c'
only 'nccl\.h' 'exec/comm_nccl\.c|tests/cuda/nccl_emulated\.c'
only 'cublas[A-Za-z_]*\.h' 'kernels/cuda/gemm\.c|tests/cuda/cublaslt_emulated\.c'
only 'cuda[a-z_]*\.h' 'exec/device_cuda\.c|kernels/cuda/.*|tests/cuda/.*|tests/kernels/place_cuda\.c'

# One name, one file; main.c and the ref/cpu/cuda versions of a kernel are the exceptions.
sources cost sim kernels exec hwprofiles | grep -vE '(^|/)main\.c$|^kernels/(ref|cpu|cuda)/' | sed 's|.*/||' | LC_ALL=C sort | uniq -d |
    while IFS= read -r name; do
        find cost sim kernels exec hwprofiles -name "$name" 2>/dev/null | sed "s|\$|:1: the name $name is used twice|"
    done >>"$problems"

if [ -s "$problems" ]; then
    cat "$problems"
    exit 1
fi
