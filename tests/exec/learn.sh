#!/bin/sh
# A tiny Llama learns six sonnets, letter by letter, 200 steps, under three plans. Usage: learn.sh PLANEXEC SOURCE_ROOT
# The last loss is below 1.9 nats a letter (the start: ln 128 = 4.85), and the curves of all plans agree: every loss of the
# first 50 steps within 0.2 %, the means of the last 20 within 1.5 %, every loss within 5 % (rounding differences grow from
# step to step; a wrong gradient shows within ten).
planexec=$1 root=$2
. "$(dirname "$0")/lib.sh"

learn() { # NAME RANKS PLAN
    echo "{\"global_batch\":16,\"seq_len\":64,\"precision\":\"fp32\",$3}" >"$scratch/plan.json"
    mpirun -np "$2" "$planexec" run --model "$root/tests/exec/golden/bytes-tiny.json" --plan "$scratch/plan.json" --steps 200 \
        --data "$root/tests/exec/golden/sonnets.txt" --lr 0.003 --warmup 10 --decay 200 --format json \
        >"$scratch/out" 2>"$scratch/err" </dev/null || { cat "$scratch/err"; exit 1; }
    sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' "$scratch/out" >"$scratch/$1"
    grep -q '"unmatched_bytes": 0,' "$scratch/out" || { echo "$1: bytes sent and received differ"; exit 1; }
    echo "$1: $(head -n 1 "$scratch/$1") to $(tail -n 1 "$scratch/$1")"
}

learn one 1 '"micro_batch":8,"zero":0,"schedule":"1f1b"'
learn tensor-data 4 '"tp":2,"dp":2,"micro_batch":4,"sequence_parallel":true,"zero":3,"schedule":"1f1b"'
learn pipeline 4 '"pp":2,"vp":2,"dp":2,"micro_batch":2,"zero":1,"schedule":"zb-v"'
paste "$scratch/one" "$scratch/tensor-data" "$scratch/pipeline" | awk '
    function off(a, b) { return a > b ? a / b - 1 : b / a - 1 }
    {
        for (i = 2; i <= 3; i++) {
            if (NR <= 50 && off($i, $1) > early) early = off($i, $1)
            if (off($i, $1) > worst) worst = off($i, $1)
        }
        for (i = 1; i <= 3 && NR > 180; i++) mean[i] += $i / 20
        last = $1
    }
    END {
        late = off(mean[2], mean[1]) > off(mean[3], mean[1]) ? off(mean[2], mean[1]) : off(mean[3], mean[1])
        printf "%d steps, curves within %.3f %% (first 50), %.3f %% (mean of the last 20), %.3f %% (all); last loss %.3f\n", NR,
            100 * early, 100 * late, 100 * worst, last
        exit NR != 200 || early > 0.002 || late > 0.015 || worst > 0.05 || last > 1.9
    }'
