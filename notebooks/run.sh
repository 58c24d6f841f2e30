#!/bin/sh
# Executes accuracy.ipynb without a browser and puts it, with its results, into FOLDER; --update also replaces the
# notebook's own outputs. Exit 77: nbconvert, ipykernel or matplotlib is missing.
# Usage: notebooks/run.sh PLANSIM SOURCE FOLDER [--update]
set -u
program=$(command -v "$1") || exit 4
program=$(CDPATH='' cd -P -- "$(dirname -- "$program")" && pwd)/$(basename -- "$program")
source=$(CDPATH='' cd -P -- "$2" && pwd) || exit 4
notebook=$source/notebooks/accuracy.ipynb
mkdir -p "$3" && out=$(CDPATH='' cd -P -- "$3" && pwd) || exit 4

python=
for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import ipykernel, matplotlib, nbconvert' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "python3 with nbconvert, ipykernel and matplotlib is needed (Debian: jupyter-nbconvert python3-ipykernel python3-matplotlib)"
    exit 77
fi

# The notebook runs elsewhere: what names a file must say where it is.
absolute() { # PATH
    case $1 in
        /*) printf '%s' "$1" ;;
        *) printf '%s' "$PWD/$1" ;;
    esac
}
[ -z "${PLANSIM_SHARED:-}" ] || export PLANSIM_SHARED="$(absolute "$PLANSIM_SHARED")"
[ -z "${RUNS:-}" ] || export RUNS="$(absolute "$RUNS")"
[ -z "${MODELS:-}" ] || export MODELS="$(absolute "$MODELS")"

# Nobody's settings, and nothing left in the home directory.
jupyter=$(mktemp -d) || exit 4
trap 'rm -rf "$jupyter"' EXIT
JUPYTER_CONFIG_DIR=$jupyter/config JUPYTER_DATA_DIR=$jupyter/data JUPYTER_RUNTIME_DIR=$jupyter/runtime IPYTHONDIR=$jupyter/ipython
MPLCONFIGDIR=$jupyter/matplotlib PYTHONHASHSEED=0 PYDEVD_DISABLE_FILE_VALIDATION=1
PLANSIM=$program PLANSIM_SOURCE_ROOT=$source RESULTS=$out/results
export JUPYTER_CONFIG_DIR JUPYTER_DATA_DIR JUPYTER_RUNTIME_DIR IPYTHONDIR MPLCONFIGDIR PYTHONHASHSEED PYDEVD_DISABLE_FILE_VALIDATION
export PLANSIM PLANSIM_SOURCE_ROOT RESULTS
cp "$notebook" "$jupyter/accuracy.ipynb" &&
    "$python" -m nbconvert --to notebook --execute --output-dir "$out" --output accuracy.ipynb --log-level WARN \
        --ExecutePreprocessor.kernel_name=python3 --ExecutePreprocessor.timeout=240 --ExecutePreprocessor.record_timing=False \
        "$jupyter/accuracy.ipynb" >"$jupyter/log" 2>&1 || {
    tail -n 15 "$jupyter/log"
    exit 1
}

if [ "${4:-}" = --update ]; then
    cp "$out/accuracy.ipynb" "$notebook" || exit 4
fi
# Small, complete, and the same for every reader: the one just made and the one in the source tree.
"$python" - "$out/accuracy.ipynb" "$notebook" <<'END' || exit 1
import json, os, re, sys
bad = 0
for path in sys.argv[1:]:
    text = open(path).read()
    cells = [c for c in json.loads(text)['cells'] if c['cell_type'] == 'code']
    errors = [o['output_type'] for c in cells for o in c['outputs'] if o['output_type'] == 'error' or o.get('name') == 'stderr']
    pictures = sum('image/png' in o.get('data', {}) for c in cells for o in c['outputs'])
    places = re.findall(r'(?<![\w.])/(?:home|root|tmp|usr|work|var|mnt|opt)/[\w./-]+', text)
    print(f'{path}: {os.path.getsize(path) // 1024} KiB, {len(cells)} cells, {pictures} pictures')
    if errors or pictures < 6 or places or os.path.getsize(path) > 450_000:
        print('  errors or warnings:', len(errors), ' absolute paths:', places[:3])
        bad = 1
sys.exit(bad)
END
