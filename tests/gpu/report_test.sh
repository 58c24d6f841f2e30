#!/bin/sh
# tests/gpu/run from end to end on stand-ins: programs of the emulator at sizes that take seconds (the comparer and the
# check of attention are tests of their own), a driver that names a known GPU. The emulator is slow, so targets are
# missed: what counts is that every one is in the report with a number, that parts are timed, and that the verdict says so.
# Usage: report_test.sh SOURCE_ROOT BUILD_ROOT
root=$1 built=$2
. "$(dirname "$0")/../exec/lib.sh"
PATH=$scratch/bin:$built/sim:$PATH # where planexec finds plansim
stand=$scratch/build
mkdir -p "$scratch/bin" "$stand/exec" "$stand/sim" "$stand/tests/kernels" "$stand/tests/cuda" "$stand/tests/gpu"

stand_in() { # FILE COMMAND...: a program that runs it
    file=$1
    shift
    printf '#!/bin/sh\n%s\n' "$*" >"$file"
    chmod +x "$file"
}

stand_in "$scratch/bin/nvidia-smi" 'case $* in *name*) echo "NVIDIA H200" ;; *cap*) echo 9.0 ;; *) echo 1.2 ;; esac'
stand_in "$stand/exec/planexec" 'command=$1; [ $# -gt 0 ] && shift
    case $command in profile) set -- --small --sustained-s 0.1 "$@" ;; esac
    exec "'"$built"'/tests/exec/planexec_emulated" "$command" "$@"'
stand_in "$stand/tests/kernels/check_kernels_gpu" 'echo "1 passed, 0 failed"'
stand_in "$stand/tests/kernels/bench_kernels_gpu" "exec '$built/tests/kernels/bench_kernels_emulated' 16 128 0"
stand_in "$stand/tests/kernels/bench_gemm_gpu" "exec '$built/tests/kernels/bench_gemm_emulated' 256 0"
stand_in "$stand/tests/cuda/check_attention_gpu" '[ "$1" = --bench ] || exit 3 # a part that fails
    exec "'"$built"'/tests/cuda/check_attention" --bench 70 2'
ln -s "$built/sim/plansim" "$stand/sim/plansim"
ln -s "$built/tests/gpu/gpu_report" "$stand/tests/gpu/gpu_report"
cat >"$scratch/models" <<'END'
# one
llama-1b | {"model_type":"llama","hidden_size":64,"intermediate_size":176,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":256,"max_position_embeddings":64,"rms_norm_eps":1e-5,"hidden_act":"silu"} | "micro_batch":1,"global_batch":2,"seq_len":32
END
echo '1 llama "zero":1' >"$scratch/plans"

bash "$root/tests/gpu/run" "$stand" "$scratch/report.json" "$scratch/models" "$scratch/plans" >"$scratch/out" 2>"$scratch/errors" </dev/null
code=$?
failed=0
expect() { # WHAT HOLDS(0)
    [ "$2" -eq 0 ] && return
    failed=$((failed + 1))
    echo "FAILED: $1"
}
expect "exit code $code instead of 1 (targets are missed)" $((code != 1))
cat "$scratch/out"
for line in 'gemm forward 32x32x32' 'gemm wgrad 32x112x16' 'fastest product' 'attention forward, 70' 'attention backward, 70' 'copy ' \
    'rms_norm ' 'layer_norm_backward ' 'swiglu ' 'adamw ' 'llama-1b: step predicted' 'llama-1b: memory predicted' 'llama-1b: MFU'; do
    grep -q "^$line" "$scratch/out"
    expect "no target '$line'" $?
done
# Numbers: all but those beside cuBLAS, which is not here.
grep '^[a-z].* \(holds\|MISSED\)' "$scratch/out" | grep -v 'of cuBLAS' | grep -q 'not measured'
expect "a target without a number" $((! $?))
grep -q '^llama-1b: memory predicted.* holds' "$scratch/out"
expect "the memory of the run is not as predicted" $?
grep -q '^llama-1b: MFU.* MISSED' "$scratch/out"
expect "the emulator reaches the MFU of a GPU" $?
grep -q '^failed: attention (exit 3' "$scratch/out"
expect "the part that fails is not named" $?
grep -q '1 parts failed' "$scratch/out"
expect "another part failed" $?
for key in '"gpu": "NVIDIA H200"' '"op_kinds"' '"BW"' '"limit_s"' '"name": "plans"' '"name": "plans in 8 bits"' '"name": "llama-1b: profile"' '"share_of_copy"'; do
    grep -q "$key" "$scratch/report.json"
    expect "the report has no $key" $?
done
# The long product heats the GPU: all kernels have been measured before it, those of 8 bits too.
[ "$(grep -o 'products of 8 bits\|sustained: ' "$scratch/report.json" | head -n 1)" = 'products of 8 bits' ]
expect "products of 8 bits are measured after the sustained rate, or not at all" $?
# A report is read again, and a broken one is refused.
"$stand/tests/gpu/gpu_report" "$scratch/report.json" >"$scratch/again"
code=$?
expect "a report with missed targets is read again with exit code $code" $((code != 1))
cmp -s "$scratch/out" "$scratch/again"
expect "the same report gives another verdict" $?
head -c 500 "$scratch/report.json" >"$scratch/broken.json"
"$stand/tests/gpu/gpu_report" "$scratch/broken.json" >/dev/null 2>&1
expect "a broken report is not refused" $(($? != 3))
# What was measured well holds: cuBLAS, memory, attention, training of a made-up folder.
mkdir "$scratch/made"
cd "$scratch/made" || exit 1
printf 'gpu=NVIDIA H200\n' >facts
printf 'comparer|0|3|50\n' >parts
printf 'forward 8192 8192 8192 1.4e-3 780.0 785.0\n' >gemm
echo 'wgmma head_dim 128, 32 heads, 4096 queries: forward 0.000286 s 0 TFLOP/s, backward 0.000929 s 0 TFLOP/s' >attention
printf 'copy 268435456 6.2e-05 4300.0 1.000\nadamw 1 1 3600.0 0.837\nrms_norm 1 1 3500.0 0.814\n' >bench
echo llama-1b >names
echo '{"steps":[{"loss":9}],"error":-0.03,"peak_memory_bytes":1000,"predicted_peak_memory_bytes":1010,"model_tflops_per_gpu":460,
  "op_kinds":{"F":{"measured_s":1,"predicted_s":1.1,"error":0.1,"inside":false}}}' >llama-1b.run
"$stand/tests/gpu/gpu_report" "$scratch/made" "$scratch/made.json" >"$scratch/out"
code=$?
expect "what holds is missed: $(grep MISSED "$scratch/out")" $code
sed -i 's/0.000929/0.000995/' attention
sed -i 's/0.814/0.79/' bench
"$stand/tests/gpu/gpu_report" "$scratch/made" "$scratch/made.json" >"$scratch/out"
[ "$(grep -c MISSED "$scratch/out")" -eq 2 ] && grep -q 'attention backward.*MISSED' "$scratch/out" && grep -q 'rms_norm.*MISSED' "$scratch/out"
code=$?
expect "not these two are missed: $(grep MISSED "$scratch/out")" $code
# A part that is ended leaves no ranks behind, which would disturb what is measured next. However slow the machine: waits.
stand_in "$scratch/slow" 'echo >"'"$scratch"'/rank"; exec tail -f "'"$scratch"'/rank"'
timeout 900 sh "$root/tests/exec/plans.sh" "$scratch/slow" "$root" "$scratch/plans" >/dev/null 2>&1 </dev/null &
part=$!
within_60_s test -s "$scratch/rank"
expect "no rank started" $?
kill "$part"
within_60_s none_with "$scratch/rank"
code=$?
[ $code -eq 0 ] || kill $(running_with "$scratch/rank")
expect "ranks of a part that was ended run on" $code
[ "$failed" -eq 0 ] || cat "$scratch/errors"
[ "$failed" -eq 0 ]
