#!/bin/sh
# A stranger with bad intentions: whatever comes in, an exit code of the contract, one sentence or more on standard error
# where there is no answer, nothing on standard output then, and no crash.
. "$2/tests/cli/lib.sh"
cp "$source/hwprofiles/models/llama-3.1-8b.json" config.json
cp "$source/hwprofiles/clusters/dgx-h100-x1.json" hw.json
printf '{"tp": 2, "sequence_parallel": true, "pp": 2, "dp": 2}' >plan.json
mkdir folder
: >empty.json

# An answer, or none: exit 0 or 1 with something on standard output, 2 to 4 with nothing there and a reason.
survives() { # COMMAND...
    last="$*"
    timeout 60 "$@" >out 2>err </dev/null
    code=$?
    case $code in
        0 | 1) [ -s out ] || fail "exit $code and no answer: $last" ;;
        2 | 3 | 4)
            stdout_is_empty
            [ -s err ] || fail "exit $code and no reason: $last"
            ;;
        *) fail "exit $code: $last" ;;
    esac
}
fails() { # CODE TEXT COMMAND...: no answer, with the reason among the sentences
    wanted=$1
    text=$2
    shift 2
    expect "$wanted" "$@"
    stdout_is_empty
    stderr_has "$text"
}


# Values of every kind in every field of plan.json: refused by name, or answered.
values='"x" -1 1.5 1e400 null [] {} 1e18'
for field in tp sequence_parallel cp context_parallel pp vp dp ep etp zero micro_batch global_batch seq_len schedule schedule_group recompute recompute_layers precision \
    optimizer grad_dtype attention moe_dispatcher layers_per_stage overlap rank_order stack recompute_modules cuda_graph vocab_parallel cross_entropy dropout \
    fused_grouped_mlp fp8_attention fp8_param_gather dp_shard optimizer_offload lora_rank lora_modules activation_offload_layers offload_modules optimizer_state_dtype; do
    for value in $values; do
        printf '{"%s": %s, "note": 1}' "$field" "$value" >odd.json
        survives "$plansim" predict --model config.json --cluster hw.json --plan odd.json
    done
    printf '{"%s": 1, "%s": 1}' "$field" "$field" >odd.json
    fails 3 "field '$field' is there twice" "$plansim" predict --model config.json --cluster hw.json --plan odd.json
done
# ... and in hw.json and config.json.
for field in accelerator nodes accelerators_per_node intra_node inter_node groups name price_per_accelerator_hour usable_memory; do
    for value in $values; do
        printf '{"accelerator": "h100-sxm", "nodes": 1, "%s": %s}' "$field" "$value" | sed -e "/\"$field\".*\"$field\"/s/\"$field\": [^,]*, //" >odd.json
        survives "$plansim" predict --model config.json --cluster odd.json --plan plan.json
    done
done
for field in hidden_size num_hidden_layers num_attention_heads num_key_value_heads vocab_size intermediate_size max_position_embeddings head_dim tie_word_embeddings; do
    for value in $values; do
        sed -e "s/\"$field\": *[^,}]*/\"$field\": $value/" config.json >odd.json
        survives "$plansim" predict --model odd.json --cluster hw.json --plan plan.json
    done
done

# Files that are none.
for option in --model --cluster --plan; do
    for path in folder empty.json none.json /dev/null ''; do
        set -- --model config.json --cluster hw.json --plan plan.json
        case $option in
            --model) set -- --model "$path" --cluster hw.json --plan plan.json ;;
            --cluster) set -- --model config.json --cluster "$path" --plan plan.json ;;
            --plan) set -- --model config.json --cluster hw.json --plan "$path" ;;
        esac
        survives "$plansim" predict "$@"
        [ $code -ge 2 ] || fail "an answer out of nothing: $last"
    done
done
fails 3 'is a directory' "$plansim" predict --model config.json --cluster hw.json --plan plan.json --profile folder

# Outputs that cannot be: said before any work, and an answer whose file is lost is not printed.
fails 2 'it is a directory' "$plansim" search --model config.json --cluster hw.json --gbs 64 --seq 4096 --out folder
fails 2 "there is no folder 'none'" "$plansim" search --model config.json --cluster hw.json --gbs 64 --seq 4096 --out none/plan.json
fails 2 'it is a directory' "$plansim" predict --model config.json --cluster hw.json --plan plan.json --trace folder
fails 2 "there is no folder 'none'" "$plansim" predict --model config.json --cluster hw.json --plan plan.json --trace none/t.json
fails 2 "cannot be '-'" "$plansim" predict --model config.json --cluster hw.json --plan plan.json --trace -
fails 2 'it is a directory' "$plansim" schedule --schedule 1f1b --pp 2 --microbatches 4 --trace folder
fails 2 "cannot be '-'" "$plansim" schedule --schedule 1f1b --pp 2 --microbatches 4 --trace -
fails 2 'it is a directory' "$plansim" export --plan plan.json --to megatron --out folder
if [ -w /dev/full ]; then
    fails 4 'No space' "$plansim" search --model config.json --cluster hw.json --gbs 64 --seq 4096 --out /dev/full
    fails 4 'No space' "$plansim" predict --model config.json --cluster hw.json --plan plan.json --trace /dev/full
    fails 4 'No space' "$plansim" schedule --schedule 1f1b --pp 2 --microbatches 4 --trace /dev/full
    fails 4 'No space' "$plansim" export --plan plan.json --to megatron --out /dev/full
fi

# Sizes that do not go together, each named with what would do.
s="$plansim search --model config.json --cluster hw.json --gbs 64 --seq 4096"
fails 2 "ep=2 on model 'config', which has no experts" $s --fix ep=2
fails 2 'micro_batch=3 does not divide the 64 sequences of a replica; nearest: 2 or 4' $s --fix micro_batch=3
fails 2 'nearest: 4 or 8' $s --fix tp=5
m="$plansim search --model $source/hwprofiles/models/qwen3-30b-a3b.json --cluster hw.json --gbs 64 --seq 4096"
fails 2 'ep=3 does not divide the 128 experts; nearest: 2 or 4' $m --fix ep=3
printf '{"cp": 8, "seq_len": 4100, "global_batch": 8}' >odd.json
fails 3 'nearest valid: 4096 or 4112' "$plansim" predict --model config.json --cluster hw.json --plan odd.json
printf '{"dp": 8, "seq_len": 1099511627776, "global_batch": 8}' >odd.json
fails 3 'days, but nothing in a step may take more than 13.34 days' "$plansim" predict --model config.json --cluster hw.json --plan odd.json

# A locale with a decimal comma changes nothing.
expect 0 "$plansim" predict --model config.json --cluster hw.json --plan plan.json --format json
cp out plain.json
for locale in de_DE.UTF-8 fr_FR.UTF-8 tr_TR.UTF-8; do
    expect 0 env LC_ALL=$locale LANG=$locale "$plansim" predict --model config.json --cluster hw.json --plan plan.json --format json
    cmp -s out plain.json || fail "another answer in $locale"
done

# A reader that goes away ends the program, in silence.
"$plansim" profile export all 2>err | head -1 >/dev/null
[ ! -s err ] || fail "a closed pipe is talked about: $(head -c 200 err)"
finish
