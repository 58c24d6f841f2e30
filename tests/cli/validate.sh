#!/bin/sh
# plansim validate and calibrate from the outside: answers, exit codes, sentences.
set -u
program=$(CDPATH="" cd "$(dirname "$1")" && pwd)/$(basename "$1")
work=$(mktemp -d) || exit 4
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 4
failed=0
expect() { # name, exit code, command...
    name=$1 code=$2
    shift 2
    "$@" > out 2> err
    got=$?
    [ "$got" = "$code" ] || { echo "$name: exit $got, expected $code"; cat out err; failed=1; }
}
says() { grep -q -- "$2" "$1" || { echo "$1 does not say: $2"; cat "$1"; failed=1; }; }
cat > models.json <<END
{"m": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
 "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 8192}}
END
cat > runs.csv <<END
id,group,stack,accelerator,gpus,model,tp,pp,mbs,gbs,seq_len,recompute,step_time_s,mem_gib,mem_kind,result
a,mine,megatron,h100-sxm,8,m,2,1,1,64,4096,none,3.1,40,torch max allocated,ok
b,mine,megatron,h100-sxm,8,m,1,2,,64,4096,,3.4,,,ok
c,mine,megatron,h100-sxm,8,m,1,1,64,512,8192,none,,,,oom
d,mine,megatron,h100-sxm,8,other,1,1,1,64,4096,none,3,,,ok
e,mine,megatron,h100-sxm,,m,1,1,1,64,4096,none,3,,,ok
END
expect help 0 "$program" validate --help
expect no-arguments 2 "$program" validate
says err 'a table of runs is needed'
expect table 0 "$program" validate runs.csv --models models.json
says out 'balanced accuracy'
says out "model 'other' is not among the models"
says out 'number of accelerators not stated'
expect csv 0 "$program" validate runs.csv --models models.json --format csv
says out '^id,predicted_step_time_s,low_s,high_s,measured_step_time_s,error,predicted_memory_gib,measured_memory_gib,fits,assumed,reason$'
says out '^b,.*yes,micro-batch 1; .*recompute none'
says out '^c,.*,no,'
expect json 0 "$program" validate runs.csv --models models.json --format json --group-by accelerator
says out '"interval_coverage"'
expect missing 3 "$program" validate none.csv --models models.json
printf 'id,accelerator,gpus,model,tp,pp,gbs,seq_len\na,h100-sxm,eight,m,1,1,8,4096\n' > bad.csv
expect bad-number 3 "$program" validate bad.csv --models models.json
says err "line 2: column 'gpus': 'eight' is not a whole number"
printf 'id,gpus\n' > columns.csv
expect columns 3 "$program" validate columns.csv --models models.json
says err "no column 'accelerator'"
expect calibrate-usage 2 "$program" calibrate
expect calibrate 0 "$program" calibrate --measured runs.csv --models models.json --profile my.db
says out 'on runs that the fit did not see'
expect layered 0 "$program" validate runs.csv --models models.json --profile my.db
says out 'default + my.db'
"$program" calibrate --measured runs.csv --models models.json --threads 1 > one.txt 2>&1
"$program" calibrate --measured runs.csv --models models.json --threads 3 > three.txt 2>&1
cmp one.txt three.txt || { echo "calibrate: the number of threads changes the answer"; failed=1; }
sed 's/^b,mine/b,theirs/' runs.csv > groups.csv
expect left-out 0 "$program" calibrate --measured groups.csv --models models.json --folds 0 --leave-groups-out
says err '^1 of 2: mine, 1 runs'
says out '^theirs  *1 .*%'
expect left-out-csv 0 "$program" calibrate --measured groups.csv --models models.json --folds 0 --leave-groups-out --format csv
says out '^group,runs,fitted_median,fitted_p90,unseen_median,unseen_p90,unseen_signed,ratio,lost,moves$'
says out '^all,2,0'
expect left-out-json 0 "$program" calibrate --measured groups.csv --models models.json --folds 0 --leave-groups-out --format json
says out '"groups_left_out"'
expect accelerator-left-out 0 "$program" calibrate --measured groups.csv --models models.json --folds 0 --leave-groups-out --group-by accelerator
says out '^accelerator left out '
says err '^1 of 1: h100-sxm, 2 runs'
expect by-nothing 2 "$program" calibrate --measured groups.csv --models models.json --group-by stack
says err '--group-by stack goes with --leave-groups-out'
sed 's/^b,mine/b,"theirs, ""or ours"""/' runs.csv > quoted.csv
expect left-out-quoted 0 "$program" calibrate --measured quoted.csv --models models.json --folds 0 --leave-groups-out --format csv
says out '^"theirs, ""or ours""",1,0'
cat > versions.csv <<END
id,date,stack,accelerator,gpus,model,tp,pp,mbs,gbs,seq_len,kernels
undated,,fsdp1,h100-sxm,8,m,1,1,1,64,4096,
early,2023-11,fsdp1,h100-sxm,8,m,1,1,1,64,4096,
second,2023-11,fsdp1,h100-sxm,8,m,1,1,1,64,4096,flash attention 2
END
expect attention-version 0 "$program" validate versions.csv --models models.json --format csv
says out '^early,.*attention flash1'
grep -q '^undated,.*flash1\|^second,.*flash1' out && { echo 'flash1 where it is not'; failed=1; }
[ "$(sed -n 's/^undated,\([^,]*\),.*/\1/p' out)" = "$(sed -n 's/^second,\([^,]*\),.*/\1/p' out)" ] || { echo 'a version that nobody stated'; cat out; failed=1; }
expect two-questions 2 "$program" calibrate --measured groups.csv --models models.json --intervals --leave-groups-out
says err 'one at a time'
expect both-piped 2 "$program" calibrate --measured - --models - < runs.csv
says err "only one file can be '-'"
sed 's/,m,/,unknown,/' runs.csv > strangers.csv
expect no-intervals 3 "$program" calibrate --measured strangers.csv --models models.json --intervals
says err 'no run of the table'
printf 'Bus error (core dumped)\n' > crashed.txt
expect crashed 3 "$program" calibrate --nccl-tests crashed.txt
says err 'Bus error'
printf 'm,n,k,time_us\n512,512,512,9\n' > few.csv
expect few 3 "$program" calibrate --gemm few.csv --accelerator h100-sxm
says err 'at least 3'
printf 'm,n,k,time_us\n512,512,512,nan\n512,512,512,-1\n512,512,8,1\n' > broken.csv
expect broken 3 "$program" calibrate --gemm broken.csv --accelerator h100-sxm
says err "0 burst GEMMs of dtype bf16 (3 more have a dimension under 256, or no positive time_us)"
expect whose 2 "$program" calibrate --gemm few.csv
says err '--accelerator NAME is needed'
expect no-groups 2 "$program" calibrate --gemm few.csv --accelerator h100-sxm --leave-groups-out
says err '--leave-groups-out is a question about measured runs'
{
    echo 'batch,seq,heads,head_dim,direction,time_us'
    for seq in 1024 2048 4096 8192; do
        echo "1,$seq,32,128,fwd,$((seq * seq / 3000)).5"
        echo "2,$seq,32,128,fwd,$((seq * seq / 1500)).5"
        echo "1,$seq,32,128,bwd,$((seq * seq / 1000)).5"
    done
} > attention.csv
expect attention 0 "$program" calibrate --attention attention.csv --accelerator h100-sxm --out mine.db
says out 'Causal attention'
says out '^ *128 *8 .* of 4$'
expect shown 0 "$program" profile show h100-sxm --profile mine.db
says out 'attention.csv'
printf 'ng,m,n,k,stage,time_us\n8,512,4096,4096,fwd,300\n8,1024,4096,4096,fwd,520\n8,2048,4096,4096,fwd,960\n8,2048,4096,4096,wgrad,1200\n' > experts.csv
expect experts 0 "$program" calibrate --experts experts.csv --accelerator h100-sxm --format json
says out '"wgrad_points": *1'
exit $failed
