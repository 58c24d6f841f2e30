#!/bin/sh
# planexec run --cluster: every kind of op of the plan, measured and predicted, adds up to the step. The profile is the
# CPU's, whatever OPTION (--device cuda) says of the runs: it is quick, and any prediction will do.
# Usage: op_kinds.sh PLANEXEC PLANSIM_DIRECTORY [OPTION...]
planexec=$1
PATH=$2:$PATH # where planexec asks for the prediction
shift 2
. "$(dirname "$0")/lib.sh"
cat >"$scratch/model.json" <<END
{"model_type":"llama","hidden_size":64,"intermediate_size":176,"num_hidden_layers":4,"num_attention_heads":4,
 "num_key_value_heads":2,"vocab_size":256,"max_position_embeddings":1024,"rms_norm_eps":1e-5,"hidden_act":"silu"}
END
precision=fp32
case "$*" in *cuda*) precision=bf16 ;; esac
for ranks in 1 2; do
    mpirun -np $ranks "$planexec" profile --small --out "$scratch/$ranks.db" --cluster "$scratch/$ranks.json" \
        --budget-ms 1 --sustained-s 0.1 >"$scratch/out" 2>&1 </dev/null || { cat "$scratch/out"; exit 1; }
done
# Burst and sustained rate: in the profile, with where they are from.
plansim profile show planexec-cpu --profile "$scratch/1.db" | grep -q '^accelerator *sustained .*in bursts,.* without a pause' &&
    grep -q '^sustained: 0.1 of 0.1 s, ' "$scratch/out" || { echo "no sustained rate"; cat "$scratch/out"; exit 1; }

failed=0
# A plan so small that shares of rates are beyond what the cost model takes: a profile with warnings is better than none.
if [ $# -eq 0 ]; then
    echo '{"micro_batch":1,"global_batch":1,"seq_len":2,"precision":"fp32","schedule":"1f1b","zero":0}' >"$scratch/plan.json"
    "$planexec" profile --small --budget-ms 1 --out "$scratch/small.db" --model "$scratch/model.json" --plan "$scratch/plan.json" \
        >"$scratch/out" 2>&1 </dev/null && plansim profile show planexec-cpu --profile "$scratch/small.db" >/dev/null || {
        echo "no profile of a small plan:" && cat "$scratch/out"
        failed=1
    }
fi
# Without plansim the warning says so, and the run goes on.
if [ $# -eq 0 ]; then
    cp "$planexec" "$scratch/planexec" # nothing beside it
    echo '{"micro_batch":1,"global_batch":1,"seq_len":32,"precision":"fp32","schedule":"1f1b","zero":0}' >"$scratch/plan.json"
    PATH=/usr/bin:/bin "$scratch/planexec" run --model "$scratch/model.json" --plan "$scratch/plan.json" --steps 1 \
        --cluster "$scratch/1.json" >"$scratch/out" 2>&1 </dev/null && grep -q "warning: 'plansim' cannot be started" "$scratch/out" || {
        echo "without plansim:" && cat "$scratch/out"
        failed=1
    }
fi
while read -r ranks kinds plan; do
    case "$ranks $*" in *+*) ranks=${ranks%+} ;; *cuda*) continue ;; esac # + also on the emulator, which is slow
    echo "{\"micro_batch\":1,\"seq_len\":32,\"precision\":\"$precision\",\"stack\":\"planexec\",$plan}" >"$scratch/plan.json"
    EMULATOR_DEVICES=2 timeout 120 mpirun -np "$ranks" "$planexec" run --model "$scratch/model.json" --plan "$scratch/plan.json" \
        --steps 3 --cluster "$scratch/$ranks.json" --profile "$scratch/$ranks.db" --format json "$@" >"$scratch/out" \
        2>"$scratch/errors" </dev/null || cat "$scratch/errors"
    tr -d '\r' <"$scratch/out" | awk -v kinds="$kinds" -v plan="$plan" '
        /"op_kinds": \{/ { on = 1; next }
        on && /^    "[^"]*": \{/ { split($0, part, "\""); name = part[2]; there[name] = 1 }
        on && /"measured_s"/ { measured[name] = $2 + 0 }
        on && /"predicted_s"/ { predicted[name] = $2 + 0; unknown += /null/ }
        on && /"inside": false/ && name != "step" { m += measured[name]; p += predicted[name] }
        on && /^  \}/ { on = 0 }
        END {
            n = split(kinds, wanted, ",")
            for (i = 1; i <= n; i++) {
                if (!there[wanted[i]]) problem = problem " no " wanted[i] ";"
                else if (!(measured[wanted[i]] > 0)) problem = problem " " wanted[i] " took no time;"
            }
            if (!(m > 0 && (m / measured["step"] - 1) ^ 2 < 1e-12)) problem = problem " measured " m " of " measured["step"] ";"
            if (!(p > 0 && (p / predicted["step"] - 1) ^ 2 < 1e-6)) problem = problem " predicted " p " of " predicted["step"] ";"
            if (unknown) problem = problem " " unknown " kinds without a prediction;"
            if (measured["other"] < -0.02 * measured["step"]) problem = problem " other is " measured["other"] ";"
            printf "%s %s%s\n", problem ? "FAILED" : "ok", plan, problem
            exit problem != "" }' || failed=$((failed + 1))
done <<'END'
1 F,BW,optimizer "zero":0,"global_batch":2
1+ F,BW,recompute,optimizer "zero":0,"global_batch":2,"recompute":"full"
1 F,BW,recompute,optimizer "zero":0,"global_batch":2,"recompute":"selective"
2+ F,BW,tp,optimizer "zero":0,"global_batch":2,"tp":2
2+ F,BW,cp,optimizer "zero":0,"global_batch":2,"cp":2
2+ F,BW,reduction,optimizer,gather "zero":1,"global_batch":4,"dp":2
2 F,BW,reduction,optimizer "zero":0,"global_batch":4,"dp":2,"overlap":{"dp_grad":false}
2 F,BW,dp,optimizer "zero":3,"global_batch":4,"dp":2
2+ F,B,W,wait,optimizer "zero":0,"global_batch":4,"pp":2,"schedule":"zb-h1"
2 F,F&BW,wait,reduction,optimizer "zero":0,"global_batch":8,"pp":2,"schedule":"dualpipe"
END
[ "$failed" -eq 0 ]
