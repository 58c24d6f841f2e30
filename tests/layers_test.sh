#!/bin/sh
# layers.sh must pass a good tree and name file and line of each planted fault.
set -u
layers=$(cd "$(dirname "$0")" && pwd)/layers.sh
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

fresh() {
    rm -rf "$work/tree"
    mkdir -p "$work/tree/cost/base" "$work/tree/sim/writers" "$work/tree/kernels/ref" "$work/tree/kernels/cuda" "$work/tree/exec"
    printf '#include "config.h"\n\n#include "cost/base/err.h"\n#include <stdio.h>\n' >"$work/tree/cost/base/err.c"
    printf '#include <cjson/cJSON.h>\n' >"$work/tree/cost/base/json.c"
    printf '#include "cost/model.h"\n#include "sim/search.h"\n' >"$work/tree/sim/search.c"
    printf '#include "kernels/kernels.h"\n' >"$work/tree/kernels/ref/gemm.c"
    printf '#include "kernels/kernels.h"\n' >"$work/tree/kernels/cuda/gemm.cu"
    printf '#include "sim/program.h"\n#include "sim/writers/chart.h"\n#include "kernels/kernels.h"\n' >"$work/tree/exec/run.c"
}

refuses() { # FILE LINE-OF-TEXT EXPECTED-PREFIX
    fresh
    printf '%b' "$2" >>"$work/tree/$1"
    if found=$(sh "$layers" "$work/tree"); then
        echo "planted in $1, not found: $2"
        failed=1
    fi
    case $found in
        "$3"*) ;;
        *) echo "planted in $1: expected '$3...', got '$found'"; failed=1 ;;
    esac
}

fresh
if ! sh "$layers" "$work/tree"; then
    echo "the good tree was refused"
    failed=1
fi
refuses cost/base/err.c '#include "sim/search.h"\n' 'cost/base/err.c:5: cost/ may not include "sim/search.h"'
refuses cost/base/err.c '  #  include "exec/run.h" // why\n' 'cost/base/err.c:5: cost/ may not include "exec/run.h"'
refuses cost/base/err.c '#include <sim/search.h>\n' 'cost/base/err.c:5: cost/ may not include "sim/search.h"'
refuses cost/base/err.c '#include "../../sim/search.h"\n' 'cost/base/err.c:5: cost/ may not include "../../sim/search.h"'
refuses sim/search.c '#include "exec/run.h"\n' 'sim/search.c:3: sim/ may not include "exec/run.h"'
refuses sim/search.c '#include "kernels/kernels.h"\n' 'sim/search.c:3: sim/ may not include "kernels/kernels.h"'
refuses exec/run.c '#include "sim/search.h"\n' 'exec/run.c:4: exec/ may not include "sim/search.h"'
refuses kernels/cuda/gemm.cu '#include "cost/model.h"\n' 'kernels/cuda/gemm.cu:2: kernels/ may not include "cost/model.h"'
refuses sim/search.c '#include <cjson/cJSON.h>\n' 'sim/search.c:3: not the place for #include <cjson/cJSON.h>'
refuses sim/writers/search.c '\n' 'sim/'
exit $failed
