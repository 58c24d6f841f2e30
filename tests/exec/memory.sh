#!/bin/sh
# Predicted peak memory within 2 % of what planexec's allocator counts. Usage: memory.sh PLANEXEC
planexec=$1
. "$(dirname "$0")/lib.sh"
cat >"$scratch/dense.json" <<END
{"model_type":"llama","hidden_size":128,"intermediate_size":352,"num_hidden_layers":6,"num_attention_heads":8,
 "num_key_value_heads":4,"vocab_size":1024,"max_position_embeddings":1024,"rms_norm_eps":1e-5,"hidden_act":"silu"}
END
cat >"$scratch/moe.json" <<END
{"model_type":"mixtral","hidden_size":128,"intermediate_size":192,"num_hidden_layers":4,"num_attention_heads":8,
 "num_key_value_heads":4,"vocab_size":1024,"max_position_embeddings":1024,"rms_norm_eps":1e-5,"hidden_act":"silu",
 "num_local_experts":4,"num_experts_per_tok":2}
END
cat >"$scratch/tied.json" <<END
{"model_type":"gpt2","n_embd":96,"n_head":4,"n_layer":4,"n_positions":256,"vocab_size":4000,"activation_function":"gelu_new",
 "layer_norm_epsilon":1e-5}
END
for ranks in 1 2 4; do
    mpirun -np $ranks "$planexec" profile --out "$scratch/$ranks.db" --cluster "$scratch/$ranks.json" --budget-ms 1 \
        >"$scratch/out" 2>&1 || { cat "$scratch/out"; exit 1; }
done

failed=0
while read -r ranks model plan; do
    echo "{\"micro_batch\":2,\"seq_len\":256,\"precision\":\"fp32\",\"stack\":\"planexec\",$plan}" >"$scratch/plan.json"
    timeout 120 mpirun -np "$ranks" "$planexec" run --model "$scratch/$model.json" --plan "$scratch/plan.json" --steps 2 \
        --balanced --cluster "$scratch/$ranks.json" --profile "$scratch/$ranks.db" --format json >"$scratch/out" \
        2>"$scratch/errors" </dev/null || cat "$scratch/errors"
    out=$scratch/out
    echo "$(number peak_memory_bytes "$out") $(number predicted_peak_memory_bytes "$out") $ranks $model $plan" | awk '
        { error = $1 > 0 ? $2 / $1 - 1 : 1; size = error < 0 ? -error : error
          printf "%s: %d bytes, predicted %d (%+.2f %%)  %s %s %s\n", size <= 0.02 ? "ok" : "FAILED", $1, $2, 100 * error, $3, $4, $5
          exit size > 0.02 }' || failed=$((failed + 1))
done <<'END'
1 dense "zero":0,"global_batch":4
1 dense "zero":0,"global_batch":4,"recompute":"full"
1 dense "zero":0,"global_batch":4,"recompute":"selective"
1 moe "zero":0,"global_batch":4
2 dense "zero":0,"global_batch":4,"tp":2
2 dense "zero":0,"global_batch":4,"tp":2,"sequence_parallel":true
2 dense "zero":0,"global_batch":4,"cp":2
2 dense "zero":0,"global_batch":8,"pp":2
2 dense "zero":0,"global_batch":8,"pp":2,"schedule":"gpipe"
2 dense "zero":0,"global_batch":8,"pp":2,"schedule":"zb-h1"
2 dense "zero":0,"global_batch":8,"pp":2,"vp":3,"schedule":"interleaved"
2 dense "zero":0,"global_batch":8,"pp":2,"vp":2,"schedule":"zb-v","layers_per_stage":[1,2,2,1]
2 dense "zero":0,"global_batch":8,"pp":2,"layers_per_stage":[4,2]
2 dense "zero":0,"global_batch":8,"dp":2
2 dense "zero":1,"global_batch":8,"dp":2
2 dense "zero":2,"global_batch":8,"dp":2
2 dense "zero":3,"global_batch":8,"dp":2
2 dense "zero":3,"global_batch":8,"dp":2,"overlap":{"dp_param":false}
2 dense "zero":3,"global_batch":8,"dp":2,"recompute":"full"
2 moe "zero":3,"global_batch":8,"dp":2,"ep":2
2 moe "zero":0,"global_batch":8,"dp":2,"ep":2
2 moe "zero":2,"global_batch":8,"dp":2
2 moe "zero":3,"global_batch":8,"dp":2
2 moe "zero":0,"global_batch":8,"tp":2
2 tied "zero":0,"global_batch":8,"pp":2
2 tied "zero":0,"global_batch":8,"pp":2,"vp":2,"schedule":"zb-v"
2 tied "zero":0,"global_batch":8,"pp":2,"vp":2,"schedule":"v-min"
2 tied "zero":0,"global_batch":8,"pp":2,"vp":2,"schedule":"dualpipev"
2 tied "zero":0,"global_batch":8,"pp":2,"schedule":"dualpipe"
2 tied "zero":2,"global_batch":8,"dp":2
2 tied "zero":3,"global_batch":8,"dp":2
4 dense "zero":2,"global_batch":16,"dp":2,"pp":2,"schedule":"zb-h1"
4 dense "zero":2,"global_batch":16,"dp":2,"pp":2,"schedule":"dualpipe"
4 moe "zero":2,"global_batch":16,"dp":2,"pp":2,"schedule":"dualpipe"
4 tied "zero":2,"global_batch":16,"dp":2,"pp":2
4 tied "zero":2,"global_batch":16,"dp":2,"pp":2,"schedule":"dualpipe"
END
[ "$failed" -eq 0 ]
