#!/bin/sh
# plansim model: the shipped examples, and every kind of file that is not a config.json.
. "$2/tests/cli/lib.sh"
models=$source/hwprofiles/models

total() { # MODEL PARAMETERS
    expect 0 "$plansim" model "$models/$1.json" --format json
    stdout_has "\"total\": *$2,"
    stderr_is_empty
    json_ok out
}
total llama-3.1-8b 8030261248
total llama-3.1-70b 70553706496
total llama-3.1-405b 405853388800
total mixtral-8x7b 46702792704
total qwen3-8b 8190735360
total qwen3-30b-a3b 30532122624
total qwen3-235b-a22b 235093634560
total deepseek-v3 671026419200
total gpt3-175b 174615846912

expect 0 "$plansim" model "$models/llama-3.1-8b.json"
stdout_has '8,030,261,248'
stderr_is_empty
"$plansim" model - <"$models/llama-3.1-8b.json" >piped 2>err || fail "standard input: exit $?"
"$plansim" model --model "$models/llama-3.1-8b.json" >named 2>err || fail "--model: exit $?"
cmp -s out named || fail "--model FILE and FILE differ"

refused 2 'no model' "$plansim" model
refused 2 'sequence\|seq' "$plansim" model "$models/llama-3.1-8b.json" --seq 0
refused 3 'none.json' "$plansim" model none.json
mkdir directory
refused 3 'directory' "$plansim" model directory
: >empty.json
refused 3 'empty' "$plansim" model empty.json
head -c 200 "$models/llama-3.1-8b.json" >truncated.json
refused 3 'truncated.json' "$plansim" model truncated.json
head -c 100000 /dev/zero >zeros.json
refused 3 'zeros.json' "$plansim" model zeros.json
printf '[1, 2]' >list.json
refused 3 'list.json' "$plansim" model list.json
printf '{"model_type": "llama"}' >facts.json
expect 3 "$plansim" model facts.json
stdout_is_empty
stderr_has 'hidden_size'
sed 's/"num_hidden_layers": 32/"num_hidden_layers": -1/' "$models/llama-3.1-8b.json" >negative.json
refused 3 'num_hidden_layers' "$plansim" model negative.json
sed 's/"hidden_size"/"hiden_size"/' "$models/llama-3.1-8b.json" >misspelled.json
expect 3 "$plansim" model misspelled.json
stderr_has 'hidden_size'
if [ "$(id -u)" -ne 0 ]; then
    cp "$models/llama-3.1-8b.json" secret.json
    chmod 0 secret.json
    refused 3 'secret.json' "$plansim" model secret.json
fi
finish
