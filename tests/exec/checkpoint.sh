#!/bin/sh
# A run that is stopped and goes on under another plan has the losses of one that was not. Usage: checkpoint.sh PLANEXEC SOURCE_ROOT
planexec=$1 root=$2
. "$(dirname "$0")/lib.sh"
failed=0

run() { # RANKS MODEL PLAN OPTION...: losses, one a line
    ranks=$1 model=$root/tests/exec/golden/$2-tiny.json
    echo "{\"micro_batch\":2,\"global_batch\":16,\"seq_len\":32,\"precision\":\"fp32\",$3}" >"$scratch/plan.json"
    shift 3
    mpirun -np "$ranks" "$planexec" run --model "$model" --plan "$scratch/plan.json" --format json "$@" 2>"$scratch/err" </dev/null |
        sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p'
}

fail() {
    echo "$*"
    cat "$scratch/err"
    failed=$((failed + 1))
}

same() { # WHAT TOLERANCE: the second half of `whole` against `resumed`
    tail -n 3 "$scratch/whole" | paste - "$scratch/resumed" | awk -v tolerance="$2" '
        NF != 2 || $1 - $2 > tolerance * $1 || $2 - $1 > tolerance * $1 { bad = 1 }
        END { exit NR != 3 || bad }' || fail "$1: $(tr '\n' ' ' <"$scratch/whole") / $(tr '\n' ' ' <"$scratch/resumed")"
}

resume() { # MODEL TOLERANCE RANKS PLAN
    run "$3" "$1" "$4" --steps 3 --resume "$scratch/checkpoint" >"$scratch/resumed"
    same "$1 $3 $4" "$2"
}

# Losses near 5 in fp32: 16 x 2^-24 x sqrt(1024) x 6 layers x 6 steps, relative (exec/check.h).
tolerance=1e-3
first='"tp":2,"dp":2,"sequence_parallel":true,"zero":1,"schedule":"1f1b"'
run 4 llama "$first" --steps 6 >"$scratch/whole"
run 4 llama "$first" --steps 3 --checkpoint "$scratch/checkpoint" >/dev/null
resume llama 0 4 "$first"
resume llama $tolerance 1 '"zero":0,"schedule":"1f1b"'
resume llama $tolerance 2 '"dp":2,"zero":3,"schedule":"1f1b"'
resume llama $tolerance 4 '"pp":4,"zero":0,"schedule":"zb-h1"'
resume llama $tolerance 8 '"tp":2,"pp":2,"dp":2,"zero":2,"schedule":"dualpipe"'

# What is damaged is refused with exit code 3 and a sentence.
refused() { # WHAT WORDS
    echo '{"micro_batch":2,"global_batch":16,"seq_len":32,"precision":"fp32","zero":0}' >"$scratch/plan.json"
    "$planexec" run --model "$root/tests/exec/golden/${3:-llama}-tiny.json" --plan "$scratch/plan.json" --steps 1 \
        --resume "$scratch/checkpoint" >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    { [ $code -eq 3 ] && grep -q "$2" "$scratch/err"; } || fail "$1: exit code $code"
}
refused 'another model' 'of another model' gpt2
file=$scratch/checkpoint/step-3/rank-00001.bin
cp "$file" "$scratch/good"
head -c 5000 "$scratch/good" >"$file"
refused 'cut short' 'has 5000 bytes instead of'
{ head -c 5000 "$scratch/good"; printf 'xxxx'; tail -c +5005 "$scratch/good"; } >"$file"
refused 'changed' 'was changed'
rm "$file"
refused 'missing' 'is missing'

rm -rf "$scratch/checkpoint"
run 4 mixtral '"dp":4,"ep":2,"zero":2,"schedule":"1f1b"' --steps 6 >"$scratch/whole"
run 4 mixtral '"dp":4,"ep":2,"zero":2,"schedule":"1f1b"' --steps 3 --checkpoint "$scratch/checkpoint" >/dev/null
resume mixtral $tolerance 4 '"pp":2,"dp":2,"ep":2,"etp":1,"zero":0,"schedule":"zb-h1"'
resume mixtral $tolerance 2 '"tp":2,"etp":2,"sequence_parallel":true,"zero":0,"schedule":"1f1b"'
rm -rf "$scratch/checkpoint"
run 2 gpt2 '"pp":2,"layers_per_stage":[2,1],"zero":0,"schedule":"1f1b"' --steps 6 >"$scratch/whole"
run 2 gpt2 '"pp":2,"layers_per_stage":[2,1],"zero":0,"schedule":"1f1b"' --steps 3 --checkpoint "$scratch/checkpoint" >/dev/null
resume gpt2 $tolerance 3 '"pp":3,"zero":0,"schedule":"1f1b"'
resume gpt2 $tolerance 2 '"tp":2,"zero":0,"schedule":"1f1b"'

# The same folder again: the newer run takes the place of the older one, and nothing else is left there.
run 1 gpt2 '"zero":0' --steps 2 --seed 5 --checkpoint "$scratch/again" >/dev/null
cp -r "$scratch/again/step-2" "$scratch/older"
run 1 gpt2 '"zero":0' --steps 2 --seed 6 --checkpoint "$scratch/again" >/dev/null
[ "$(ls "$scratch/again" | tr '\n' ' ')" = 'latest step-2 ' ] || fail "left in the folder: $(ls "$scratch/again")"
cmp -s "$scratch/older/meta.json" "$scratch/again/step-2/meta.json" && fail 'the older checkpoint is still there'
run 1 gpt2 '"zero":0' --steps 1 --resume "$scratch/again" | grep -q . || fail 'the newer checkpoint is not read'

# Another model whose hidden size, layers and vocabulary are the same.
for field in '"n_head":2' '"tie_word_embeddings":false' '"n_inner":64'; do
    name=${field%%:*}
    sed "s/$name *: *[a-z0-9]*,\\{0,1\\}//; s/}\$/,$field}/; s/, *,/,/; s/, *}/}/" "$root/tests/exec/golden/gpt2-tiny.json" | tr '\n' ' ' |
        sed "s/, *, */,/g; s/{ *,/{/" >"$scratch/model.json"
    echo '{"micro_batch":2,"global_batch":16,"seq_len":32,"precision":"fp32","zero":0}' >"$scratch/one.json"
    "$planexec" run --model "$scratch/model.json" --plan "$scratch/one.json" --steps 1 --resume "$scratch/again" >"$scratch/out" 2>&1
    code=$?
    [ $code -eq 3 ] && grep -q 'of another model' "$scratch/out" || fail "$field: exit code $code: $(cat "$scratch/out")"
done

# Weights that are gathered ahead are the same weights: not a bit of the losses differs.
run 2 llama '"dp":2,"zero":3,"schedule":"1f1b","recompute":"full"' --steps 3 >"$scratch/ahead"
run 2 llama '"dp":2,"zero":3,"schedule":"1f1b","recompute":"full","overlap":{"dp_param":false}' --steps 3 >"$scratch/in-time"
[ "$(wc -l <"$scratch/ahead")" -eq 3 ] && cmp -s "$scratch/ahead" "$scratch/in-time" || fail "gathered ahead: $(cat "$scratch/ahead" "$scratch/in-time")"
echo "$failed failed"
[ $failed -eq 0 ]
