#!/bin/sh
# What ptxas says of the norm, 8-bit and attention kernels, for every architecture that is built: no kernel may spill, and the
# attention_..._tiles kernels must use tensor cores (in SASS where cuobjdump is there, else in PTX). Usage: registers.sh NVCC ROOT
# Prints one line for each kernel. Exit 77 where NVCC does not run.
nvcc=$1
root=$2
cd "$root" || exit 2
"$nvcc" --version >/dev/null 2>&1 || { echo "skipped: no nvcc"; exit 77; }
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
PATH=$PATH:$(dirname "$nvcc")
failed=0

# FILE ARCHITECTURE OPTION...: compiles to $work/out.cubin; ptxas' report to $work/report.
compile() {
    file=$1 arch=$2
    shift 2
    "$nvcc" -std=c++17 -O3 -Xptxas -v -arch="$arch" -cubin -I. "$@" -o "$work/out.cubin" "$file" >"$work/report" 2>&1 || {
        cat "$work/report"
        exit 1
    }
}

# "KERNEL ARCHITECTURE REGISTERS SPILLED-BYTES" for each kernel of the report.
kernels() {
    sed -nE "s/.*Compiling entry function '([^']*)' for '([^']*)'.*/\1 \2/p
        s/.* ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads.*/spill \1 \2/p
        s/.*Used ([0-9]+) registers.*/used \1/p" "$work/report" |
        awk '$1 == "spill" { spilled = $2 + $3; next } $1 == "used" { print name, $2, spilled; next } { name = $0 }'
}

# Instructions of the tensor cores in $work/out.cubin's kernels whose name contains $1: "KERNEL COUNT".
tensor_instructions() {
    cuobjdump -sass "$work/out.cubin" | awk -v want="$1" '
        /Function :/ { name = $3; if (index(name, want)) count[name] += 0 }
        / (HMMA|HGMMA|UTCHMMA)/ { if (index(name, want)) count[name]++ }
        END { for (name in count) print name, count[name] }'
}

check_tensor_cores() { # FILE ARCHITECTURE
    if command -v cuobjdump >/dev/null 2>&1; then
        tensor_instructions tiles >"$work/tensor"
        [ -s "$work/tensor" ] || { echo "$1, $2: no kernel of tiles"; failed=1; }
        awk -v arch="$2" '{ print arch ": " $1 ": " $2 " tensor-core instructions" } $2 == 0 { bad = 1 } END { exit bad }' \
            "$work/tensor" || failed=1
    else
        "$nvcc" -std=c++17 -arch="$2" -ptx -I. -o "$work/out.ptx" "$1" || exit 1
        count=$(grep -cE 'mma\.sync|wgmma\.mma_async' "$work/out.ptx")
        echo "$1, $2: $count tensor-core instructions in PTX (no cuobjdump here)"
        [ "$count" -gt 0 ] || failed=1
    fi
}

check() { # FILE ARCHITECTURE
    compile "$1" "$2"
    kernels >"$work/kernels"
    [ -s "$work/kernels" ] || { echo "$1, $2: no kernel in ptxas' report"; failed=1; }
    awk '{ print $2 ": " $1 ": " $3 " registers, " $4 " bytes spilled" } $4 > 0 { bad = 1 } END { exit bad }' \
        "$work/kernels" || failed=1
    case $1 in
        */attention_*) check_tensor_cores "$1" "$2" ;;
    esac
}

# The report must show spills where there are some: twice as many live values as a thread of 1024 has registers.
cat >"$work/spills.cu" <<END
__global__ void __launch_bounds__(1024) spills(float *x)
{
    float value[128];
#pragma unroll
    for (int i = 0; i < 128; i++)
        value[i] = x[1024 * i + threadIdx.x];
    for (int round = 0; round < 100; round++)
#pragma unroll
        for (int i = 0; i < 128; i++)
            value[i] = value[i] * value[127 - i] + value[(5 * i + 1) % 128];
#pragma unroll
    for (int i = 0; i < 128; i++)
        x[1024 * i + threadIdx.x] = value[i];
}
END
compile "$work/spills.cu" sm_90
if ! kernels | awk '$4 > 0 { found = 1 } END { exit !found }'; then
    echo "ptxas' report is not understood: a kernel that must spill does not"
    failed=1
fi

check_all() { # FOLDER FILE...: compiled there; exit code: whether all held
    work=$1
    shift
    mkdir "$work"
    failed=0
    for file; do
        [ -e "$file" ] || continue
        case $file in
            *_sm90a.cu) check "$file" sm_90a ;;
            *) for arch in sm_80 sm_90 sm_100; do check "$file" "$arch"; done ;;
        esac
    done
    exit $failed
}

# Two at a time: most of the time is one of ptxas' threads.
(check_all "$work/rows" kernels/cuda/norm*.cu kernels/cuda/fp8.cu) >"$work/rows.out" 2>&1 &
(check_all "$work/attention" kernels/cuda/attention_*.cu) || failed=1
wait $! || failed=1
cat "$work/rows.out"
exit $failed
