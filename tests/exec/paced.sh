#!/bin/sh
# The paced device against the simulator: 8 ranks, 32 micro-batches. Usage: paced.sh PLANEXEC PLANSIM "SCHEDULE:VP ..." [MS]
# The makespan may be off by 2 %, the bubble fraction by 0.01. MS: length of an op; longer ones drown a busy machine's late wake-ups.
planexec=$1 plansim=$2 schedules=$3 ms=${4:-40}
. "$(dirname "$0")/lib.sh"
cat >"$scratch/model.json" <<END
{"model_type":"llama","hidden_size":32,"intermediate_size":64,"num_hidden_layers":16,"num_attention_heads":4,
 "num_key_value_heads":2,"vocab_size":128,"max_position_embeddings":256,"rms_norm_eps":1e-5,"hidden_act":"silu"}
END

# The best of three tries counts: on a busy machine wake-ups come late, never early.
try() {
    mpirun -np 8 "$planexec" run --model "$scratch/model.json" --plan "$scratch/plan.json" --device paced --forward-ms "$ms" \
        --backward-ms "$ms" --wgrad-ms "$ms" --steps 1 --format json >"$scratch/measured" 2>"$scratch/err" </dev/null ||
        { cat "$scratch/err"; return 1; }
    awk -v name="$schedule" -v measured="$(number median_step_time_s "$scratch/measured")" \
        -v bubble="$(number bubble_fraction "$scratch/measured")" -v ms="$(number makespan "$scratch/predicted")" \
        -v predicted_bubble="$(number bubble_fraction "$scratch/predicted")" 'BEGIN {
            time = measured * 1000 / ms - 1; wide = bubble - predicted_bubble
            printf "%-14s makespan %.1f ms, simulated %.1f (%+.2f %%); bubble %.4f, simulated %.4f (%+.4f)\n", name,
                measured * 1000, ms, 100 * time, bubble, predicted_bubble, wide
            exit !(time < 0.02 && time > -0.02 && wide < 0.01 && wide > -0.01) }'
}

failed=0
for pair in $schedules; do
    schedule=${pair%:*} vp=${pair#*:}
    echo "{\"pp\":8,\"vp\":$vp,\"micro_batch\":1,\"global_batch\":32,\"seq_len\":32,\"schedule\":\"$schedule\",\"zero\":0,
        \"precision\":\"fp32\"}" >"$scratch/plan.json"
    chunks=$vp
    [ "$vp" -gt 1 ] || chunks=
    "$plansim" schedule --schedule "$schedule" --pp 8 ${chunks:+--vp "$chunks"} --microbatches 32 \
        --cost "F=$ms,B=$ms,W=$ms" --format json >"$scratch/predicted" || exit 1
    try || try || try || failed=$((failed + 1))
done
echo "$failed failed"
[ $failed -eq 0 ]
