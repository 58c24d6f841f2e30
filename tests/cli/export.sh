#!/bin/sh
# plansim export: plans as launches, against flags and keys as the frameworks' own recipes write them.
. "$2/tests/cli/lib.sh"
models=$source/hwprofiles/models
cluster=$source/hwprofiles/clusters/dgx-h100-x8.json

plan() { printf '%s\n' "$1" >plan.json; }
has() { # LINE...: whole lines of standard output
    for line; do
        grep -qxF -e "$line" out || fail "no line '$line': $last"
    done
}
has_not() {
    for word; do
        grep -qF -e "$word" out && fail "'$word' is there: $last"
    done
}

# Mixtral 8x7B as in Megatron-LM's examples/mixtral/train_mixtral_8x7b_distributed.sh (TP1 PP4 EP8).
plan '{"pp": 4, "dp": 16, "ep": 8, "global_batch": 256, "moe_dispatcher": "alltoall"}'
expect 0 "$plansim" export --plan plan.json --model "$models/mixtral-8x7b.json" --to megatron
has '--tensor-model-parallel-size 1' '--pipeline-model-parallel-size 4' '--expert-model-parallel-size 8' '--num-layers 32' '--hidden-size 4096' \
    '--ffn-hidden-size 14336' '--num-attention-heads 32' '--group-query-attention' '--num-query-groups 8' '--disable-bias-linear' '--normalization RMSNorm' \
    '--swiglu' '--untie-embeddings-and-output-weights' '--position-embedding-type rope' '--num-experts 8' '--moe-router-topk 2' '--moe-grouped-gemm' \
    '--moe-token-dispatcher-type alltoall' '--use-distributed-optimizer' '--overlap-grad-reduce' '--overlap-param-gather' '--micro-batch-size 1' \
    '--global-batch-size 256' '--bf16'
has_not --sequence-parallel --moe-flex-dispatcher-backend --moe-layer-freq --fp8
grep -v '^--' out && fail "a line that is no flag: $last"

# DeepSeek-V3 as in Megatron-LM's recipe for H100: layout, latent attention, node-limited sigmoid routing, MTP behind the last layer.
plan '{"tp": 2, "sequence_parallel": true, "pp": 8, "vp": 4, "dp": 64, "ep": 64, "schedule": "interleaved", "global_batch": 8192, "moe_dispatcher": "flex",
 "recompute": "selective", "recompute_modules": ["mla_up_proj", "moe", "mlp", "layernorm"], "precision": "fp8-block", "optimizer_state_dtype": "bf16",
 "layers_per_stage": [2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,1,0]}'
expect 0 "$plansim" export --plan plan.json --model "$models/deepseek-v3.json" --to megatron
has "--pipeline-model-parallel-layout 'Et*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t*2|t|mL'" \
    '--multi-latent-attention' '--q-lora-rank 1536' '--kv-lora-rank 512' '--qk-head-dim 128' '--qk-pos-emb-head-dim 64' '--v-head-dim 128' '--qk-layernorm' \
    '--num-experts 256' '--moe-router-topk 8' '--moe-ffn-hidden-size 2048' '--moe-shared-expert-intermediate-size 2048' "--moe-layer-freq '([0]*3+[1]*58)'" \
    '--moe-router-num-groups 8' '--moe-router-group-topk 4' '--moe-router-score-function sigmoid' '--moe-router-enable-expert-bias' '--mtp-num-layers 1' \
    '--moe-token-dispatcher-type flex' '--moe-flex-dispatcher-backend deepep' '--recompute-granularity selective' \
    '--recompute-modules layernorm mlp moe mla_up_proj' '--fp8-format e4m3' '--fp8-recipe blockwise' '--use-precision-aware-optimizer' '--exp-avg-dtype bf16' \
    '--exp-avg-sq-dtype bf16' '--fp8-param-gather' '--moe-router-dtype fp32' '--moe-permute-fusion' '--cross-entropy-fusion-impl te'
has_not --num-virtual-stages --kv-channels --group-query-attention --reuse-grad-buf

# What is priced is asked for: nothing in Megatron-LM is fused, or gathered in 8 bit, by itself.
plan '{"dp": 8, "global_batch": 64, "precision": "mxfp8", "cross_entropy": "unfused"}'
expect 0 "$plansim" export --plan plan.json --model "$models/llama-3.1-8b.json" --to megatron
has '--fp8-param-gather' '--reuse-grad-buf-for-mxfp8-param-ag'
has_not --cross-entropy
plan '{"dp": 8, "global_batch": 64, "precision": "mxfp8", "fp8_param_gather": false, "stack": "megatron-2024"}'
expect 0 "$plansim" export --plan plan.json --model "$models/llama-3.1-8b.json" --to megatron
has '--cross-entropy-fusion-impl native'
has_not --fp8-param-gather --reuse-grad-buf

# What arguments.py, transformer_config.py and MoELayer stop at.
experts='"dp": 4, "global_batch": 64'
plan "{\"precision\": \"fp16\", $experts}"
refused 1 "field 'precision' is fp16 on a model with experts, but Megatron-LM takes grouped GEMMs" "$plansim" export --plan plan.json --model "$models/mixtral-8x7b.json" --to megatron
plan "{\"precision\": \"fp32\", $experts}"
refused 1 "field 'precision' is fp32 on a model with experts" "$plansim" export --plan plan.json --model "$models/mixtral-8x7b.json" --to megatron
plan "{\"tp\": 2, $experts}"
refused 1 "field 'sequence_parallel' is false with experts and tp > 1" "$plansim" export --plan plan.json --model "$models/mixtral-8x7b.json" --to megatron
plan '{"cp": 2, "context_parallel": "ulysses", "dp": 4, "global_batch": 64, "seq_len": 4098}'
refused 1 "field 'seq_len' is 4098, but Megatron-LM takes multiples of 2 x cp = 4; nearest valid: 4096" "$plansim" export --plan plan.json --model "$models/llama-3.1-8b.json" --to megatron
plan '{"dp": 8, "global_batch": 64, "recompute": "selective", "recompute_modules": ["core_attn", "moe_act"]}'
refused 1 "field 'recompute_modules' is moe_act on a model without experts" "$plansim" export --plan plan.json --model "$models/llama-3.1-8b.json" --to megatron

# Selective without a list is what was priced: with flash attention the core keeps nothing, what is cheap is repeated.
plan '{"dp": 8, "global_batch": 64, "recompute": "selective"}'
expect 0 "$plansim" export --plan plan.json --model "$models/llama-3.1-8b.json" --to megatron
has '--recompute-modules layernorm'
expect 0 "$plansim" export --plan plan.json --model "$models/qwen3-30b-a3b.json" --to megatron
has '--recompute-modules layernorm moe_act'
expect 0 "$plansim" export --plan plan.json --model "$models/deepseek-v3.json" --to megatron
has '--recompute-modules layernorm moe_act mla_up_proj'
plan '{"dp": 8, "global_batch": 64, "recompute": "selective", "precision": "fp8"}'
refused 1 "field 'recompute_modules' is moe_act or layernorm with precision fp8" "$plansim" export --plan plan.json --model "$models/llama-3.1-8b.json" --to megatron
plan '{"dp": 8, "global_batch": 64, "recompute": "selective", "attention": "unfused"}'
expect 0 "$plansim" export --plan plan.json --model "$models/llama-3.1-8b.json" --to megatron
has '--recompute-modules core_attn'

# How the weights of the chosen experts are made, and where latent attention turns: Megatron-LM's defaults are others.
plan "{$experts}"
sed 's/"norm_topk_prob": true/"norm_topk_prob": false, "routed_scaling_factor": 2.5/' "$models/qwen3-30b-a3b.json" >raw.json
expect 0 "$plansim" export --plan plan.json --model raw.json --to megatron
has '--moe-router-pre-softmax' '--moe-router-topk-scaling-factor 2.5'
expect 0 "$plansim" export --plan plan.json --model "$models/qwen3-30b-a3b.json" --to megatron
has_not --moe-router-pre-softmax --moe-router-topk-scaling-factor
expect 0 "$plansim" export --plan plan.json --model "$models/deepseek-v3.json" --to megatron
has '--rope-type rope'
sed 's/"norm_topk_prob": true/"routed_scaling_factor": 2.5, "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 0.707}/' \
    "$models/deepseek-v3.json" >yarn.json
expect 0 "$plansim" export --plan plan.json --model yarn.json --to megatron
has '--rope-type yarn' '--rotary-scaling-factor 40' '--mscale 1' '--mscale-all-dim 0.707' '--moe-router-topk-scaling-factor 2.5'
has_not '--rope-type rope'

# First and last stage; full recompute of some layers; GPT-3 has biases, learned positions and a tied head.
plan '{"tp": 8, "sequence_parallel": true, "pp": 4, "dp": 2, "layers_per_stage": [23, 25, 25, 23], "recompute": "full", "recompute_layers": 4, "seq_len": 2048}'
expect 0 "$plansim" export --plan plan.json --model "$models/gpt3-175b.json" --to megatron
has '--decoder-first-pipeline-num-layers 23' '--decoder-last-pipeline-num-layers 23' '--recompute-granularity full' '--recompute-method block' \
    '--recompute-num-layers 4' '--position-embedding-type learned_absolute' '--max-position-embeddings 2048' '--normalization LayerNorm'
has_not --disable-bias-linear --swiglu --untie-embeddings --rotary
stderr_has 'start 64 ranks: tp 8 x cp 1 x pp 4 x dp 2'
stderr_has 'CUDA_DEVICE_MAX_CONNECTIONS=1'

# With a cluster the whole command, which a shell reads; the arguments are those of the list.
plan '{"tp": 8, "sequence_parallel": true, "pp": 4, "vp": 2, "schedule": "interleaved", "dp": 2, "layers_per_stage": [9, 10, 10, 10, 10, 10, 10, 11]}'
expect 0 "$plansim" export --plan plan.json --model "$models/llama-3.1-70b.json" --cluster "$cluster" --to megatron --out launch.sh
stdout_is_empty
mkdir bin
printf '#!/bin/sh\nprintf "%%s\\n" "$CUDA_DEVICE_MAX_CONNECTIONS" "$@" >command\n' >bin/torchrun
chmod +x bin/torchrun
expect 0 env PATH="$work/bin:$PATH" NODE_RANK=0 MASTER_ADDR=host MASTER_PORT=1 sh launch.sh --train-iters 5
sed '1,/^pretrain_gpt.py$/d' command >arguments
head -1 command | grep -qx 1 || fail "no CUDA_DEVICE_MAX_CONNECTIONS: $last"
sed -n 2,5p command | tr '\n' ' ' | grep -q '^--nnodes 8 --nproc-per-node 8 $' || fail "another launcher: $last"
tail -2 arguments | tr '\n' ' ' | grep -q '^--train-iters 5 $' || fail "arguments are lost: $last"
expect 0 "$plansim" export --plan plan.json --model "$models/llama-3.1-70b.json" --cluster "$cluster" --to megatron --format json
json_ok out
stdout_has '"nnodes": 8'
if command -v python3 >/dev/null 2>&1; then
    python3 -c 'import json; print("\n".join(json.load(open("out"))["arguments"]))' >list
    sed '$d' arguments | sed '$d' | cmp -s - list || fail "the list is not what the shell passes: $last"
fi
# Without one, lines for a list.
if command -v bash >/dev/null 2>&1; then
    expect 0 "$plansim" export --plan plan.json --model "$models/llama-3.1-70b.json" --to megatron --out flags
    # shellcheck disable=SC2016
    bash -c 'eval "flags=($(cat flags))"; printf "%s\n" "${flags[@]}"' | sed 's/^/ /' >words
    sed '$d' arguments | sed '$d' | sed 's/^/ /' | cmp -s - words || fail "the lines are not what the shell passes: $last"
fi

# DeepSpeed: the batch is micro-batch x steps x dp (deepspeed.ai/docs/config-json), MiCS is a shard of ZeRO-3.
plan '{"dp": 16, "zero": 3, "micro_batch": 2, "global_batch": 128, "dp_shard": 8, "optimizer_offload": 0.5, "stack": "deepspeed", "grad_dtype": "fp32"}'
expect 0 "$plansim" export --plan plan.json --to deepspeed
json_ok out
for text in '"train_batch_size": 128' '"train_micro_batch_size_per_gpu": 2' '"gradient_accumulation_steps": 4' '"stage": 3' '"overlap_comm": true' \
    '"mics_shard_size": 8' '"device": "cpu"' '"ratio": 0.5' '"type": "AdamW"' '"grad_accum_dtype": "fp32"'; do
    stdout_has "$text"
done
plan '{"tp": 4, "dp": 4, "zero": 2, "stack": "deepspeed"}'
expect 0 "$plansim" export --plan plan.json --to deepspeed
stdout_has '"autotp_size": 4'
plan '{"cp": 4, "context_parallel": "ulysses", "dp": 4, "zero": 3, "stack": "deepspeed"}'
expect 0 "$plansim" export --plan plan.json --to deepspeed
stdout_has '"sequence_parallel_size": 4'

# torchtitan: HSDP, a pipeline whose local batch is all its micro-batches, modules of an uneven split.
plan '{"tp": 8, "sequence_parallel": true, "pp": 2, "vp": 2, "schedule": "interleaved", "dp": 4, "dp_shard": 2, "zero": 2, "micro_batch": 2, "global_batch": 64,
 "layers_per_stage": [7, 8, 9, 8], "recompute": "selective", "precision": "fp8", "stack": "torchtitan"}'
expect 0 "$plansim" export --plan plan.json --model "$models/llama-3.1-8b.json" --cluster "$cluster" --to torchtitan
has 'data_parallel_replicate_degree = 2' 'data_parallel_shard_degree = 2' 'fsdp_reshard_after_forward = "never"' 'tensor_parallel_degree = 8' \
    'pipeline_parallel_degree = 2' 'pipeline_parallel_schedule = "Interleaved1F1B"' 'pipeline_parallel_microbatch_size = 2' 'local_batch_size = 16' \
    'global_batch_size = 64' 'mode = "selective"' 'converters = ["quantize.linear.float8"]' '[quantize.linear.float8]' 'context_parallel_degree = 1' \
    '  ["tok_embeddings", "layers.0", "layers.1", "layers.2", "layers.3", "layers.4", "layers.5", "layers.6"],' \
    '  ["layers.24", "layers.25", "layers.26", "layers.27", "layers.28", "layers.29", "layers.30", "layers.31", "norm", "output"],'
stdout_has '^# torchrun --nnodes 8 --nproc-per-node 8'
stderr_has "\[model\] names no flavor"
if python3 -c 'import tomllib' 2>/dev/null; then
    python3 -c 'import tomllib; tomllib.load(open("out", "rb"))' || fail "no TOML: $last"
fi

# What a framework cannot run: every problem at once, exit 1, nothing on standard output, nothing written.
plan '{"tp": 2, "sequence_parallel": true, "pp": 2, "vp": 2, "schedule": "v-half", "dp": 16, "vocab_parallel": "pipeline", "lora_rank": 8, "attention": "eager"}'
expect 1 "$plansim" export --plan plan.json --to megatron --out refused.txt
stdout_is_empty
stderr_lines 4
stderr_has "field 'schedule' is v-half, but Megatron-LM takes 1f1b (vp 1) and interleaved (vp 2 or more); nearest valid: interleaved"
stderr_has "field 'vocab_parallel' is pipeline"
stderr_has "field 'lora_rank' is 8"
stderr_has "field 'attention' is eager"
[ ! -e refused.txt ] || fail "a refused plan is written: $last"
expect 1 "$plansim" export --plan plan.json --to deepspeed
stderr_has "field 'pp' is 2, but DeepSpeed takes pipelines from code"
expect 1 "$plansim" export --plan plan.json --to torchtitan
stderr_has "field 'schedule' is v-half, but torchtitan takes gpipe"
stderr_has 'nearest valid: zb-v'
# Gemma's gated GELU and norms behind the blocks have no flag.
printf '%s' '{"model_type":"gemma2","hidden_size":2304,"num_hidden_layers":26,"num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,
 "intermediate_size":9216,"vocab_size":256000,"max_position_embeddings":8192,"sliding_window":4096,"hidden_activation":"gelu_pytorch_tanh"}' >gemma.json
plan '{}'
refused 1 "model 'gemma' has norms behind attention and MLP too" "$plansim" export --plan plan.json --model gemma.json --to megatron

# What a search for a framework finds, the framework takes; a model that it cannot build is said once.
for framework in megatron deepspeed torchtitan; do
    expect 0 "$plansim" search --model "$models/llama-3.1-8b.json" --cluster "$cluster" --gbs 256 --seq 4096 --launch $framework --out found.json
    grep -q "\"stack\": \"$framework\"" found.json || fail "another stack: $last"
    expect 0 "$plansim" export --plan found.json --model "$models/llama-3.1-8b.json" --cluster "$cluster" --to $framework
done
refused 1 "model 'gemma' has norms behind" "$plansim" search --model gemma.json --cluster "$cluster" --gbs 256 --seq 4096 --launch megatron

# An activation is no shape, but no launch either; what a search refuses all plans for is said.
sed 's/gemma2/gemma/; s/"sliding_window":4096,//; s/hidden_activation/hidden_act/' gemma.json >gelu.json
refused 1 "has the activation 'gelu_pytorch_tanh' in a gated MLP" "$plansim" search --model gelu.json --cluster "$cluster" --gbs 256 --seq 4096 --launch megatron
refused 1 "field 'lora_rank' is 16, but Megatron-LM takes all weights" \
    "$plansim" search --model "$models/llama-3.1-8b.json" --cluster "$cluster" --gbs 256 --seq 4096 --launch megatron --fix lora_rank=16
one=$source/hwprofiles/clusters/dgx-h100-x1.json
refused 1 "field 'precision' is fp16 on a model with experts" \
    "$plansim" search --model "$models/mixtral-8x7b.json" --cluster "$one" --gbs 256 --seq 4096 --launch megatron --precision fp16
expect 1 "$plansim" search --model "$models/llama-3.1-8b.json" --cluster "$cluster" --gbs 256 --seq 4096 --launch megatron --fix pp=2,schedule=zb-v
stdout_has 'No plan that fits is a launch of megatron. It refuses, for example, TP'
stdout_has "  field 'schedule' is zb-v, but Megatron-LM takes 1f1b"
# A number format that the machine lacks is said first; what no file of DeepSpeed says is not looked at on ever larger clusters.
expect 1 "$plansim" search --model "$models/qwen3-8b.json" --cluster "$source/hwprofiles/clusters/dgx-v100-x16.json" --gbs 256 --seq 4096 --launch deepspeed
stdout_has "does not support precision 'bf16'"
expect 1 timeout 120 "$plansim" search --model "$models/deepseek-v3.json" --cluster "$cluster" --gbs 1024 --seq 4096 --launch deepspeed
stdout_has 'Nothing fits. Nearest: .* PP1 '
# Nothing fits, and nothing would be taken: no larger cluster is tried.
expect 1 "$plansim" search --model "$models/mixtral-8x7b.json" --cluster "$one" --gbs 256 --seq 4096 --launch megatron --fix pp=2,schedule=zb-v,zero=0,recompute=none
stdout_has 'is a launch of megatron'

# A plan that is none, or not for this model or cluster, is bad input.
plan '{"tp": 3, "dp": 5}'
refused 3 'global_batch 128 is not a multiple of dp 5' "$plansim" export --plan plan.json --to megatron
expect 3 "$plansim" export --plan plan.json --model "$models/llama-3.1-8b.json" --to megatron
stderr_has 'tp 3 does not divide'
plan '{"dp": 8}'
refused 3 "cluster 'dgx-h100-x8' has 64" "$plansim" export --plan plan.json --cluster "$cluster" --to megatron
refused 3 'none.json' "$plansim" export --plan none.json --to megatron
refused 2 "--plan FILE is needed" "$plansim" export --to megatron
refused 2 '--to NAME is needed' "$plansim" export --plan plan.json
refused 2 'is not one of megatron, deepspeed, torchtitan' "$plansim" export --plan plan.json --to nemo
refused 2 '--format json is not one of --to torchtitan' "$plansim" export --plan plan.json --to torchtitan --format json
refused 2 'no-such-folder' "$plansim" export --plan plan.json --to megatron --out no-such-folder/x
refused 2 "only one file can be '-'" "$plansim" export --plan - --model - --to megatron
# The plan, or the model, may come through a pipe.
"$plansim" export --plan - --to deepspeed <plan.json >out 2>err || fail "standard input: $(cat err)"
"$plansim" export --plan plan.json --model - --to megatron <"$models/llama-3.1-8b.json" >out 2>err || fail "model from standard input: $(cat err)"
grep -q -e '--num-layers 32' out || fail "no architecture from standard input"
finish
