#!/bin/sh
# planexec check over a table of plans. Usage: [PRECISION=P] [EVERY=N] plans.sh PLANEXEC SOURCE_ROOT [TABLE [WORD [OPTION...]]];
# WORD: only lines that contain it; N: of these the first of every N; options of planexec check.
planexec=$1
root=$2
table=${3:-$root/tests/exec/plans.txt}
word=${4:-}
[ $# -gt 4 ] && shift 4 || shift $#
. "$(dirname "$0")/lib.sh"
passed=0 failed=0 running= line=0
# A caller's own timeout does not reach the ranks, which are in a group of processes of their own.
trap '[ -z "$running" ] || { kill "$running" 2>/dev/null; wait "$running"; }; exit 143' TERM
while read -r ranks model plan; do
    case $ranks in '' | '#'*) continue ;; esac
    case "$ranks $model $plan" in *"$word"*) ;; *) continue ;; esac
    line=$((line + 1))
    [ $(((line - 1) % ${EVERY:-1})) -eq 0 ] || continue
    balanced=
    case $model in !*) balanced=--balanced model=${model#!} ;; ~*) balanced=--bf16 model=${model#\~} ;; esac
    model=${model%+}
    base='"micro_batch":2,"global_batch":16,"seq_len":32,"precision":"'${PRECISION:-fp32}'"'
    case $plan in *'"zero"'*) ;; *) base=$base',"zero":0' ;; esac
    case $plan in *'"schedule"'*) ;; *) base=$base',"schedule":"1f1b"' ;; esac
    echo "{$base,$plan}" >"$scratch/plan.json"
    timeout 120 mpirun -np "$ranks" "$planexec" check --model "$root/tests/exec/golden/$model-tiny.json" \
        --plan "$scratch/plan.json" $balanced "$@" >"$scratch/out" 2>&1 </dev/null &
    running=$!
    if wait $running; then
        passed=$((passed + 1))
        printf '%s' "$ranks $model: "
        grep '^passed' "$scratch/out"
    else
        failed=$((failed + 1))
        echo "FAILED: $ranks $model $plan"
        grep -v '^-*$' "$scratch/out" | tail -n 12
    fi
done <"$table"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
