#!/bin/sh
# plansim search and predict: the whole way from config.json and hw.json to plan.json, pictures and back.
. "$2/tests/cli/lib.sh"
model=$source/hwprofiles/models/llama-3.1-70b.json
cluster=$source/hwprofiles/clusters/dgx-h100-x8.json

expect 0 "$plansim" search --model "$model" --cluster "$cluster" --out plan.json --top 5
stdout_has 'TP[0-9]* .*PP[0-9]* .*DP[0-9]'
written plan.json
json_ok plan.json

# The answer is the same, byte for byte: again, and with any number of threads.
expect 0 "$plansim" search --model "$model" --cluster "$cluster" --format csv
cp out once.csv
expect 0 "$plansim" search --model "$model" --cluster "$cluster" --format csv --threads 2
cmp -s out once.csv || fail "another answer with --threads 2"
expect 0 "$plansim" search --model "$model" --cluster "$cluster" --format json
json_ok out
stdout_has '"step_time_s"'
cp out search.json

# The plan that was written predicts as it was ranked.
expect 0 "$plansim" predict --model "$model" --cluster "$cluster" --plan plan.json
expect 0 "$plansim" predict --model "$model" --cluster "$cluster" --plan plan.json --format json
json_ok out
stdout_has '"fits": true'
cp out predict.json
expect 0 "$plansim" explain --model "$model" --cluster "$cluster" --plan plan.json
"$plansim" predict --model - --cluster "$cluster" --plan plan.json --format json <"$model" >piped.json 2>err || fail "standard input: exit $?"

# Nothing fits: exit 1, and says what would.
expect 1 "$plansim" search --model "$model" --cluster "$cluster" --max-memory 2GiB
expect 1 "$plansim" predict --model "$model" --cluster "$cluster" --plan plan.json --max-memory 2GiB

# A precision that the accelerator has not: named, with those that would do.
printf '{"accelerator": {"base": "t4", "name": "mine"}, "nodes": 2, "accelerators_per_node": 8}' >mine.json
expect 1 "$plansim" search --model "$source/hwprofiles/models/llama-3.1-8b.json" --cluster mine.json --gbs 64 --seq 1024
stdout_has "No plan: accelerator 'mine' of cluster '16x mine' does not support precision 'bf16'"
stdout_has 'with --precision fp16: TP'

# Misuse and bad files.
expect 2 "$plansim" search --cluster "$cluster"
stdout_is_empty
expect 2 "$plansim" search --model "$model" --cluster "$cluster" --gbs 0
stdout_is_empty
expect 2 "$plansim" search --model "$model" --cluster "$cluster" --max-memory 72
stdout_is_empty
expect 3 "$plansim" search --model none.json --cluster "$cluster"
stdout_is_empty
expect 3 "$plansim" search --model "$model" --cluster none.json
stdout_is_empty
refused 2 "only one file can be '-'" "$plansim" search --model - --cluster - </dev/null
refused 2 "only one file can be '-'" "$plansim" predict --model "$model" --cluster - --plan - </dev/null
refused 2 "only one file can be '-'" "$plansim" explain --model "$model" --cluster "$cluster" --plan - --versus - </dev/null
refused 2 'not read from standard input' "$plansim" search --model "$model" --cluster "$cluster" --profile - </dev/null
refused 2 "cannot be '-'" "$plansim" search --model "$model" --cluster "$cluster" --out -
refused 2 'name the same file' "$plansim" search --model "$model" --cluster "$cluster" --chart same.svg --memory-chart same.svg
refused 2 'name the same file' "$plansim" search --model "$model" --cluster "$cluster" --out same.svg --chart same.svg
refused 2 'tp is there twice' "$plansim" search --model "$model" --cluster "$cluster" --fix tp=8,tp=4
refused 2 'nearest: 2 or 4' "$plansim" search --model "$model" --cluster "$cluster" --seq 4096 --gbs 128 --fix tp=3
# --fix takes what plan.json takes, once, and says so where an option of its own does.
expect 0 "$plansim" search --model "$model" --cluster "$cluster" --seq 4096 --fix global_batch=128,lora_rank=16,cuda_graph=partial --top 1 --out fixed.json
grep -q '"lora_rank": 16' fixed.json && grep -q '"cuda_graph": "partial"' fixed.json || fail "not fixed: $last"
refused 2 'global_batch and an option of its own' "$plansim" search --model "$model" --cluster "$cluster" --gbs 64 --seq 4096 --fix global_batch=128
refused 2 'schedule and an option of its own' "$plansim" search --model "$model" --cluster "$cluster" --gbs 64 --seq 4096 --schedules 1f1b --fix schedule=gpipe
refused 2 'cannot pin layers_per_stage' "$plansim" search --model "$model" --cluster "$cluster" --gbs 64 --seq 4096 --fix layers_per_stage=4
printf '{"tp": 3, "dp": 64, "pp": 1, "global_batch": 1024, "seq_len": 4096}' >bad.json
expect 3 "$plansim" predict --model "$model" --cluster "$cluster" --plan bad.json
stdout_is_empty
stderr_has 'tp 3'

# Pictures: a wrong suffix is named; no gnuplot is a warning; the rest is not lost.
"$plansim" predict --model "$model" --cluster "$cluster" --plan plan.json --chart picture.jpg >out 2>err
stderr_has '.png, .svg or .pdf'
mkdir nothing
expect 0 env PATH="$work/nothing" "$plansim" predict --model "$model" --cluster "$cluster" --plan plan.json --chart none.png --memory-chart none-memory.svg
stdout_has '.'
stderr_has 'gnuplot is not installed'
written none.png.dat none.png.gp
[ ! -e none.png ] || fail "a picture without gnuplot: $last"
expect 4 env PATH="$work/nothing" "$plansim" chart breakdown --in predict.json --out none.png
if command -v gnuplot >/dev/null 2>&1; then
    expect 0 env DISPLAY=localhost:15.0 "$plansim" predict --model "$model" --cluster "$cluster" --plan plan.json --chart b.svg --memory-chart m.svg
    written b.svg m.svg
    expect 0 "$plansim" chart breakdown --in search.json --out breakdown.svg
    stdout_is_empty
    stderr_is_empty
    expect 0 "$plansim" chart memory --in predict.json --out memory.svg
    expect 0 "$plansim" chart pareto --in search.json --out pareto.svg
    written breakdown.svg memory.svg pareto.svg
fi
refused 2 'breakdown, memory, pareto' "$plansim" chart pie --in search.json --out a.png
refused 2 '.png, .svg or .pdf' "$plansim" chart pareto --in search.json --out a.gif
refused 3 'is no prediction' "$plansim" chart memory --in plan.json --out a.png
finish
