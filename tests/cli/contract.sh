#!/bin/sh
# What scripts of others rely on: examples of every --help, keys of JSON, columns of CSV, exit codes.
. "$2/tests/cli/lib.sh"
cp "$source/hwprofiles/models/llama-3.1-8b.json" config.json
cp "$source/hwprofiles/clusters/dgx-h100-x1.json" hw.json
printf '{"tp": 2, "sequence_parallel": true, "pp": 2, "dp": 2}' >plan.json
printf '{"tp": 4, "sequence_parallel": true, "dp": 2}' >b.json
cp plan.json a.json
printf '{"llama": %s}' "$(cat config.json)" >models.json
{
    echo 'id,accelerator,gpus,model,tp,pp,gbs,seq_len,mbs,step_time_s,mem_gib'
    echo '"a, quoted",h100-sxm,8,llama,2,1,64,4096,1,5.5,60'
    echo 'b,h100-sxm,8,llama,3,1,64,4096,1,5.5,'
} >runs.csv
cp runs.csv mine.csv
mkdir bin
ln -s "$plansim" bin/plansim

# Every example works as it stands.
for command in $("$plansim" --help | sed -n 's/^  \([a-z][a-z]*\)   *[a-z].*/\1/p'); do
    example=$("$plansim" "$command" --help | sed -n '/^example:$/,$p' | sed -e 1d -e 's/^ *//')
    [ -n "$example" ] || fail "no example: $command"
    expect 0 env PATH="$work/bin:$PATH" sh -c "$example"
done

if command -v python3 >/dev/null 2>&1; then
    cat >keys.py <<'END'
import json, sys
def keys(node, path):
    for part in path.split(".") if path else []:
        node = node[int(part)] if isinstance(node, list) else node[part]
    return node
root = json.load(open(sys.argv[1]))
for claim in sys.argv[2:]:
    path, names = claim.split(":")
    node = keys(root, path)
    for name in names.split(","):
        if name not in node:
            print(f"no key '{name}' in '{path}'")
            sys.exit(1)
END
    keys() { python3 keys.py out "$@" >err || fail "$(cat err): $last"; }
else
    keys() { :; }
fi
prediction=plan,fits,step_time_s,step_time_low_s,step_time_high_s,tokens_per_s_per_gpu,model_tflops_per_gpu,mfu,bubble_fraction,cost_per_step,time_s,memory_bytes,profile,warnings
times=compute,recompute,tp_exposed,cp_exposed,ep_exposed,pp_exposed,dp_exposed,bubble,optimizer,other
stage=weights,gradients,optimizer,activations,logits,temporary,communication,context,total
expect 0 "$plansim" predict --model config.json --cluster hw.json --plan plan.json --format json
keys ":$prediction" "time_s:$times" memory_bytes:peak,limit,worst_rank,stages "memory_bytes.stages.0:$stage" profile:name,sha256,provenance
expect 0 "$plansim" search --model config.json --cluster hw.json --gbs 64 --seq 4096 --format json
keys :candidates,feasible,rejected,evaluated,elapsed_s,plans "plans.0:$prediction" "plans.0.time_s:$times"
program=schedule,pp,vp,microbatches,makespan,ideal,bubble_fraction,span,bubble_per_rank,peak_activations_per_rank
expect 0 "$plansim" schedule --schedule zb-h1 --pp 4 --microbatches 8 --cost F=1,B=1,W=1 --format json
keys ":$program,program" program.0.0:op,mb,chunk,stage,start,end
expect 0 "$plansim" compare --pp 4 --microbatches 8 --cost F=1,B=1,W=1 --format json
keys "schedules.0:$program"
expect 0 "$plansim" model config.json --format json
keys :parameters,flops_per_token,family parameters:total,active,embedding,head,attention,mlp,experts,norm flops_per_token:seq_len,forward,training

# CSV: the columns of the contract, and as many cells in every record as there are columns.
columns() { # HEADER-BEGINS
    head -1 out | tr -d '\r' | grep -q "^$1" || fail "other columns: $last"
    if command -v python3 >/dev/null 2>&1; then
        python3 -c 'import csv; rows = list(csv.reader(open("out"))); assert len(rows) > 1 and all(len(r) == len(rows[0]) for r in rows)' 2>err ||
            fail "records of another length than the header: $last"
    fi
}
expect 0 "$plansim" schedule --schedule 1f1b --pp 2 --microbatches 4 --format csv
columns 'rank,index,op,mb,chunk,stage,dir,mb2,chunk2,stage2,dir2$'
expect 0 "$plansim" validate runs.csv --models models.json --format csv
columns 'id,predicted_step_time_s,low_s,high_s,measured_step_time_s,error,predicted_memory_gib,measured_memory_gib,fits,assumed,reason$'
[ "$(wc -l <out)" -eq 3 ] || fail "not one line per run: $last"
expect 0 "$plansim" search --model config.json --cluster hw.json --gbs 56 --seq 4096 --fix pp=4 --format csv
columns 'rank,plan,'
grep -q 'layers [0-9]*,' out || fail "no plan with a list of layers, whose commas are the trouble: $last"

# Exit codes.
expect 1 "$plansim" predict --model config.json --cluster hw.json --plan plan.json --max-memory 1GiB
expect 1 "$plansim" search --model config.json --cluster hw.json --gbs 64 --seq 4096 --max-memory 1GiB
refused 2 'tp' "$plansim" search --model config.json --cluster hw.json --gbs 64 --seq 4096 --fix tp=x
printf '{"tp": "two"}' >bad.json
refused 3 'tp' "$plansim" predict --model config.json --cluster hw.json --plan bad.json
if [ -w /dev/full ]; then
    "$plansim" predict --model config.json --cluster hw.json --plan plan.json >/dev/full 2>err
    code=$?
    last='predict >/dev/full'
    [ $code -eq 4 ] || fail "exit $code, not 4: $last"
fi
finish
