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
says err "0 burst GEMMs of dtype bf16 (left out: 1 with a dimension under 256, 2 whose time_us is no positive number)"
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
# A table as people write it: what is close to a column, a word that nobody knows, dates and counts that are none.
cat > odd.csv <<END
id,date,stack,accelerator,gpus,model,tp,pp,mbs,gbs,seq_len,precison,schedule,recompute,step_time,step_time_from
a,2024-05,their-stack,h100-sxm,8,m,1,1,1,64,4096,fp8,sideways,perhaps,3,log
b,,,h100-sxm,8,m,1,2,1,64,4096,fp8,zb-h1,none,3,log
END
expect odd 0 "$program" validate odd.csv --models models.json --format csv
says err "column 'precison' is not known and ignored; did you mean 'precision'?"
says err "column 'step_time' is not known and ignored; did you mean 'step_time_s'?"
grep -q step_time_from err && { echo 'a column of another table is nobody s mistake'; failed=1; }
says out "^a,.*stack 'their-stack' is not known: megatron"
says out "^a,.*schedule 'sideways' is not known: 1f1b"
says out "^a,.*recompute 'perhaps' is not known: none"
says out '^b,.*stack megatron'
grep -q "^b,.*schedule" out && { echo 'zb-h1 is a schedule'; failed=1; }
for date in unknown n/a 01.06.2025 'May 2025' 06/2025 2025-5 Ä 202; do
    sed "s|2024-05|$date|" odd.csv > dated.csv
    expect "date $date" 3 "$program" validate dated.csv --models models.json
    says err "line 2: column 'date': '$date' does not begin with YYYY"
done
for count in tp pp cp ep vp gbs; do
    printf "id,accelerator,gpus,model,tp,pp,gbs,seq_len,$count\na,h100-sxm,8,m,1,1,64,4096,9e15\n" | sed 's/^\(id.*\),\(tp\|pp\|gbs\),\(.*\),\2$/\1,\2_,\3,\2/; s/tp_/t/; s/pp_/p/; s/gbs_/g/' > huge.csv
    "$program" validate huge.csv --models models.json > out 2> err
    [ $? -le 3 ] || { echo "$count 9e15: a crash"; cat err; failed=1; }
done
printf 'id,accelerator,gpus,model,tp,pp,gbs,seq_len,vp\na,h100-sxm,8,m,4294967296,1,64,4096,2147483648\n' > huge.csv
expect huge 3 "$program" validate huge.csv --models models.json
says err "column 'tp': '4294967296' is not at most 16777216"
says err "column 'vp': '2147483648' is not at most 16777216"
expect no-trust 3 "$program" validate runs.csv --models models.json --trust Z
says err "no run has trust 'Z'"

# A stack of the profile by its own name; an accelerator of one's own keeps its numbers from those of its base.
cat > own.csv <<END
table,name,key,field,value,unit,low,high,provenance,date,source
stack,mystack,,base,megatron,name,,,measured,2026-01-01,ours
stack,mystack,,gemm_speed,0.5,1,0.4,0.6,measured,2026-01-01,ours
accelerator,x1,,base,h100-sxm,name,,,measured,2026-01-01,ours
END
expect import 0 "$program" profile import own.csv --profile own.db
cat > own_runs.csv <<END
id,stack,accelerator,gpus,model,tp,pp,mbs,gbs,seq_len,recompute,step_time_s
a,megatron,h100-sxm,8,m,1,1,1,64,4096,none,
b,mystack,h100-sxm,8,m,1,1,1,64,4096,none,
c,mystack,x1,8,m,1,1,1,64,4096,none,9
END
expect own-stack 0 "$program" validate own_runs.csv --models models.json --profile own.db --format csv
slower=$(awk -F, '/^a,/ { a = $2 } /^b,/ { b = $2 } END { print (b > 1.3 * a) }' out)
[ "$slower" = 1 ] || { echo 'a stack of the profile is not taken'; cat out; failed=1; }
wider=$(awk -F, '/^b,/ { b = $4 / $3 } /^c,/ { c = $4 / $3 } END { print (c > 1.02 * b) }' out)
[ "$wider" = 1 ] || { echo 'what the base was fitted to narrows the interval'; cat out; failed=1; }
expect own-numbers 0 "$program" calibrate --measured own_runs.csv --models models.json --profile own.db --out own2.db
says out '^x1 sustained '
says out '^mystack gemm_speed '
grep -q '^h100-sxm\|^megatron ' out && { echo 'numbers of others are moved'; cat out; failed=1; }
sed 's/,x1,/,x9,/' own_runs.csv > stranger.csv
expect stranger 3 "$program" calibrate --measured stranger.csv --models models.json
says err "1 of 1 measured runs cannot be predicted and are not fitted; the first, line 4: .*'x9'"
for pair in '--leave-groups-out --out o.db' '--intervals --trust A' '--intervals --only stack'; do
    expect "ignored $pair" 2 "$program" calibrate --measured runs.csv --models models.json $pair
done
expect no-file 3 "$program" calibrate --measured runs.csv --models models.json --profile typo.db --out o.db
exit $failed
