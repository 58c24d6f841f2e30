#!/bin/sh
# What goes wrong ends all ranks, with one sentence and the right exit code. Usage: failures.sh PLANEXEC SOURCE_ROOT
planexec=$1 root=$2
. "$(dirname "$0")/lib.sh"
model=$root/tests/exec/golden/llama-tiny.json
failed=0

plan() {
    echo "{\"micro_batch\":2,\"global_batch\":16,\"seq_len\":32,\"precision\":\"fp32\",\"zero\":0,$1}" >"$scratch/plan.json"
}

expect() { # CODE SENTENCE RANKS ARGUMENT...
    want=$1 sentence=$2 ranks=$3
    shift 3
    timeout 60 mpirun -np "$ranks" "$planexec" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    lines=$(grep '^planexec' "$scratch/err" | grep -vc ' warning: ')
    if [ $code -ne "$want" ] || ! grep -q "$sentence" "$scratch/err" || [ "$lines" -ne 1 ]; then
        echo "$*: exit code $code instead of $want, $lines lines; expected '$sentence'"
        cat "$scratch/err"
        failed=$((failed + 1))
    fi
}

plan '"pp":2'
expect 3 'mpirun -np 2 planexec' 4 run --model "$model" --plan "$scratch/plan.json"
expect 2 "unknown option '--stepz'; did you mean '--steps'" 2 run --model "$model" --plan "$scratch/plan.json" --stepz 3
expect 2 "unknown option '--versoin'; did you mean '--version'" 2 --versoin
expect 2 "unknown command 'runn'; did you mean 'run'" 2 runn
expect 3 'nothing.json' 2 run --model "$scratch/nothing.json" --plan "$scratch/plan.json"
expect 4 "device 'cuda'" 2 run --model "$model" --plan "$scratch/plan.json" --device cuda
expect 4 'cannot be made' 2 run --model "$model" --plan "$scratch/plan.json" --steps 1 --checkpoint /proc/none
plan '"cp":3'
expect 3 'seq_len' 3 run --model "$model" --plan "$scratch/plan.json"
# What the plan says and planexec would not do.
for option in '"dropout":true' '"activation_offload_layers":2' '"optimizer_offload":0.5' '"optimizer_state_dtype":"bf16"' '"grad_dtype":"bf16"' \
    '"recompute":"selective","recompute_modules":["core_attn"]' '"dp":2,"dp_shard":1' '"pp":2,"vocab_parallel":"pipeline"'; do
    plan "$option"
    case $option in *dp*) ranks=2 ;; *pp*) ranks=2 ;; *) ranks=1 ;; esac
    expect 3 'the plan' $ranks run --model "$model" --plan "$scratch/plan.json"
done
plan '"pp":2'
SLURM_STEP_ID=0 "$planexec" run --model "$model" --plan "$scratch/plan.json" >"$scratch/out" 2>"$scratch/err" </dev/null
code=$?
[ $code -eq 3 ] && grep -q 'start it with: srun -n 2 planexec' "$scratch/err" || {
    echo "another world size under srun: exit code $code"
    cat "$scratch/err"
    failed=$((failed + 1))
}
# A model of 405 G parameters is refused before memory is filled, by one of the ranks.
cat >"$scratch/large.json" <<END
{"model_type":"llama","hidden_size":16384,"intermediate_size":53248,"num_hidden_layers":126,"num_attention_heads":128,
 "num_key_value_heads":8,"vocab_size":128256,"max_position_embeddings":8192,"rms_norm_eps":1e-5,"hidden_act":"silu"}
END
plan '"tp":2'
start=$(date +%s)
expect 4 'weights, gradients and optimizer take 2.9[0-9] TiB on this rank' 2 run --model "$scratch/large.json" --plan "$scratch/plan.json"
[ $(($(date +%s) - start)) -le 20 ] || {
    echo "the large model took $(($(date +%s) - start)) s to be refused"
    failed=$((failed + 1))
}
plan '"tp":1'
expect 4 'weights, gradients and optimizer take [0-9.]* MiB on this rank, which may use 1 MiB' 1 run --model "$model" \
    --plan "$scratch/plan.json" --max-memory 1MiB
"$planexec" run --model "$model" --plan "$scratch/plan.json" --steps 1 --max-memory 100000000TiB >"$scratch/out" 2>&1 </dev/null || {
    echo "more memory than can be counted: $(cat "$scratch/out")"
    failed=$((failed + 1))
}
# A profile that cannot be written is refused before the machine is measured for minutes.
echo garbage >"$scratch/no.db"
for out in "$scratch/no.db" "$scratch/none/a.db"; do
    expect 4 "profile '$out' " 2 profile --out "$out"
    ! grep -q '^products' "$scratch/err" || { echo "measured before '$out' was refused"; failed=$((failed + 1)); }
done
expect 4 "'$scratch/none/hw.json' cannot be written" 1 profile --out "$scratch/a.db" --cluster "$scratch/none/hw.json"
plan '"pp":2'
# Only the second stage is too large: one rank fails in the middle of a step, while the other one waits for it.
plan '"pp":2,"layers_per_stage":[1,3]'
expect 4 'rank 1 on .*no room for' 2 run --model "$model" --plan "$scratch/plan.json" --steps 100 --max-memory 2500KiB

# Ranks that are given different things: one host lacks a file, or has another one; nobody waits for them.
differ() { # CODE SENTENCE ARGUMENT... of the second of two ranks
    want=$1 sentence=$2
    shift 2
    timeout 60 mpirun -np 1 "$planexec" run --model "$model" --plan "$scratch/plan.json" --steps 1 : -np 1 "$planexec" run "$@" \
        >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    [ $code -eq "$want" ] && [ "$(grep -c '^planexec' "$scratch/err")" -eq 1 ] && grep -q "$sentence" "$scratch/err" && return
    echo "$*: exit code $code instead of $want; expected '$sentence'"
    cat "$scratch/err"
    failed=$((failed + 1))
}

plan '"pp":2,"schedule":"gpipe"'
cp "$scratch/plan.json" "$scratch/other.json"
plan '"pp":2'
differ 3 "rank 1 on .*: .*nothing.json" --model "$scratch/nothing.json" --plan "$scratch/plan.json" --steps 1
differ 3 "rank 1 on .*: data .*nothing.bin" --model "$model" --plan "$scratch/plan.json" --steps 1 --data "$scratch/nothing.bin"
sed "s/1e-0*5/1e-6/" "$model" >"$scratch/model.json"
differ 3 "models, plans or options of the ranks differ" --model "$scratch/model.json" --plan "$scratch/plan.json" --steps 1
differ 3 "models, plans or options of the ranks differ" --model "$model" --plan "$scratch/other.json" --steps 1
differ 2 "options of the ranks differ" --model "$model" --plan "$scratch/plan.json" --steps 2
expect 2 "'foo' is not one of cpu, reference" 1 run --model "$model" --plan "$scratch/plan.json" --kernels foo
echo '{"micro_batch":1,"global_batch":1,"seq_len":4294967308,"precision":"fp32","zero":0}' >"$scratch/plan.json"
expect 3 'more than the 2147483647 that planexec counts to' 1 run --model "$model" --plan "$scratch/plan.json"

# An interrupt ends mpirun and all ranks.
plan '"pp":2'
mpirun -np 2 "$planexec" run --model "$model" --plan "$scratch/plan.json" --steps 1000000 >"$scratch/out" 2>&1 </dev/null &
job=$!
within_60_s test -s "$scratch/out"
kill -INT $job
wait $job
code=$?
within_60_s none_with "$scratch/plan.json" && [ $code -ne 0 ] || {
    echo "interrupted: exit code $code, ranks left: $(running_with "$scratch/plan.json")"
    failed=$((failed + 1))
}
echo "$failed failed"
[ $failed -eq 0 ]
