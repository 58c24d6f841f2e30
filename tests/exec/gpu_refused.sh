#!/bin/sh
# What device cuda refuses: one sentence, exit 4 (or 3), on the emulator. Usage: gpu_refused.sh PLANEXEC_EMULATED SOURCE_ROOT
planexec=$1
root=$2
. "$(dirname "$0")/lib.sh"
echo '{"micro_batch":2,"global_batch":16,"seq_len":32,"precision":"bf16","zero":0,"schedule":"1f1b"}' >"$scratch/1.json"
echo '{"micro_batch":2,"global_batch":16,"seq_len":32,"precision":"bf16","zero":0,"schedule":"1f1b","dp":2}' >"$scratch/2.json"
failed=0

refused() { # CODE RANKS SENTENCE OPTION...
    code=$1 ranks=$2 sentence=$3
    shift 3
    timeout 60 mpirun -np "$ranks" "$planexec" run --model "$root/tests/exec/golden/llama-tiny.json" \
        --plan "$scratch/$ranks.json" --steps 1 --device cuda "$@" >"$scratch/out" 2>"$scratch/errors" </dev/null
    got=$?
    said=$(grep -c '^planexec' "$scratch/errors")
    if [ $got -eq "$code" ] && [ "$said" -eq 1 ] && grep -q "^planexec.*: .*$sentence" "$scratch/errors"; then
        echo "ok: $sentence"
    else
        failed=$((failed + 1))
        echo "FAILED: exit $got instead of $code, or not the one sentence '$sentence':"
        cat "$scratch/errors"
    fi
}

export EMULATOR_DEVICES=0
refused 4 1 "device 'cuda' is not there"
refused 4 2 "device 'cuda' is not there"
export EMULATOR_DEVICES=1
refused 4 2 "2 ranks on this host for 1 GPU; --share-gpu lets ranks share one"
refused 3 1 "--bf16 emulates on fp32 what device 'cuda' stores anyway" --bf16
for other in fp16 fp8-block mxfp8 nvfp4; do
    sed -i "s/\"precision\":\"[a-z0-9-]*\"/\"precision\":\"$other\"/" "$scratch/1.json"
    refused 3 1 "device 'cuda' computes in bf16 .* the plan's precision is $other, allowed: bf16, fp8"
done
sed -i 's/"nvfp4"/"fp8"/; s/"seq_len":32/"seq_len":20/' "$scratch/1.json"
refused 3 1 "precision fp8 .* the tokens of a micro-batch 40 / cp 1 = 40 is none; the nearest is 48"
sed -i 's/"seq_len":20/"seq_len":32/' "$scratch/1.json"
EMULATOR_CAPABILITY=80 refused 4 1 "the GPU 'emulated device' (compute capability 8.0) has no 8-bit products"
sed -i 's/"fp8"/"bf16"/' "$scratch/1.json"
export EMULATOR_MEMORY_MIB=5 # room for the trial of attention, not for the model
refused 4 1 "no room for [0-9]* bytes on device cuda"
# Not even for the trial: the warning says so, and the end is that of the run.
EMULATOR_MEMORY_MIB=1 timeout 60 mpirun -np 1 "$planexec" run --model "$root/tests/exec/golden/llama-tiny.json" --plan "$scratch/1.json" \
    --steps 1 --device cuda >"$scratch/out" 2>"$scratch/errors" </dev/null
code=$?
grep -q 'warning: .*trial (there is no room for it)' "$scratch/errors" && [ $code -eq 4 ] || {
    failed=$((failed + 1))
    echo "FAILED: exit $code of a GPU without room for the trial:"
    cat "$scratch/errors"
}
[ "$failed" -eq 0 ]
