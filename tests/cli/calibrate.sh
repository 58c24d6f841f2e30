#!/bin/sh
# plansim calibrate on points: logs of nccl-tests and tables of kernels; where they take effect, and what is refused.
. "$2/tests/cli/lib.sh"
model=$source/hwprofiles/models/llama-3.1-8b.json

# A log of nccl-tests: alpha + bus bytes / rate at sizes 1 MiB ... 1 GiB. OPERATION NODES RANKS-PER-NODE US GB/S
log() {
    awk -v op="$1" -v nodes="$2" -v local="$3" -v alpha="$4" -v rate="$5" 'BEGIN {
        ranks = nodes * local; factor = (op == "all_reduce" ? 2 : 1) * (ranks - 1) / ranks
        printf "#  %s_perf\n# Collective test starting: %s_perf\n# Using devices\n", op, op
        for (r = 0; r < ranks; r++)
            printf "#  Rank %2d Group  0 Pid %d on node-%d device %2d [0000:%02x:00] NVIDIA H100 80GB HBM3\n", r, 100 + r, r / local, r % local, r % local
        print "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
        for (n = 1048576; n <= 1073741824; n *= 2) {
            t = alpha + n * factor / rate / 1e3; a = n / t / 1e3
            printf "%d %d float sum -1 %.2f %.2f %.2f 0 %.2f %.2f %.2f 0\n", n, n / 4, t, a, a * factor, t, a, a * factor
        }
    }'
}

# Step time of 8B on NODES nodes with PLAN and perhaps a profile.
step() { # NODES PLAN [OPTION...]
    printf '{"accelerator": "h100-sxm", "nodes": %d%s}\n' "$1" "${inter:-}" >hw.json
    printf '{%s, "global_batch": 128, "seq_len": 4096, "zero": 0, "recompute": "full", "overlap": {"dp_grad": false, "dp_param": false}}\n' "$2" >plan.json
    shift 2
    last="predict $*"
    "$plansim" predict --model "$model" --cluster hw.json --plan plan.json --format json "$@" >out 2>err # fits or not
    sed -n 's/^ *"step_time_s": *\([0-9.e+-]*\).*/\1/p' out | head -1
}
slower() { # LESS MORE: is MORE at least 1.2 times LESS?
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && b > 1.2 * a) }' || fail "$2 s is not slower than $1 s: $last"
}
same() { [ -n "$1" ] && [ "$1" = "$2" ] || fail "$1 s has become $2 s: $last"; }

# The network of the accelerator's clusters: the same cluster is priced with it, other shapes and networks are not.
log all_reduce 2 8 150 10 >two.log
expect 0 "$plansim" calibrate --nccl-tests two.log --accelerator h100-sxm --out two.db
stdout_has '^all_reduce  *16  *2 .* ib-ndr '
slower "$(step 2 '"dp": 16')" "$(step 2 '"dp": 16' --profile two.db)"
same "$(step 1 '"dp": 8')" "$(step 1 '"dp": 8' --profile two.db)"
same "$(step 2 '"tp": 8, "dp": 2')" "$(step 2 '"tp": 8, "dp": 2' --profile two.db)"
inter=', "inter_node": {"fabric": "roce"}'
same "$(step 2 '"dp": 16')" "$(step 2 '"dp": 16' --profile two.db)"
expect 0 "$plansim" calibrate --nccl-tests two.log --accelerator h100-sxm --link roce --out roce.db
stdout_has '^all_reduce  *16  *2 .* roce '
slower "$(step 2 '"dp": 16')" "$(step 2 '"dp": 16' --profile roce.db)"
inter=

# Inside a node: a slower machine's log is the price, and a faster one's after it.
log all_reduce 1 8 50 10 >slow.log
log all_reduce 1 8 10 450 >fast.log
expect 0 "$plansim" calibrate --nccl-tests slow.log --accelerator h100-sxm --profile node.db
stdout_has '^all_reduce  *8  *1 .* nvlink4 '
shipped=$(step 1 '"dp": 8') slow=$(step 1 '"dp": 8' --profile node.db)
slower "$shipped" "$slow"
expect 0 "$plansim" calibrate --nccl-tests fast.log --accelerator h100-sxm --profile node.db
slower "$(step 1 '"dp": 8' --profile node.db)" "$slow"

# Of two reductions the first.
{ cat slow.log; sed 's/ sum / max /' fast.log | grep -v '^#'; } >reductions.log
expect 0 "$plansim" calibrate --nccl-tests reductions.log --accelerator h100-sxm --format csv
[ "$(grep -c ',bytes_per_s,' out)" = 1 ] && stdout_has 'all_reduce/8/node/1,bytes_per_s,10,GB/s' || fail "curves of both reductions: $last"
stderr_has 'a curve of this shape comes before it'

# Hosts of one rack of NVLink are inside its domain, unless the network is named.
log all_reduce 4 4 20 400 >rack.log
expect 0 "$plansim" calibrate --nccl-tests rack.log --accelerator gb200
stdout_has '^all_reduce  *16  *4 .* nvlink5 '
expect 0 "$plansim" calibrate --nccl-tests rack.log --accelerator gb200 --link ib-ndr
stdout_has '^all_reduce  *16  *4 .* ib-ndr '

# What does not fit the log, or the profile.
refused 2 "nearest: 'nvlink4'; links: nvlink2, .*; networks: efa, " "$plansim" calibrate --nccl-tests slow.log --accelerator h100-sxm --link nvlnk4 --out no.db
refused 3 "its ranks are on 2 nodes, and --link 'nvlink4' is inside a node; networks: " "$plansim" calibrate --nccl-tests two.log --accelerator h100-sxm --link nvlink4 --out no.db
refused 3 'it is of all_reduce, not of all_gather as --op says' "$plansim" calibrate --nccl-tests two.log --op all_gather --accelerator h100-sxm --out no.db
refused 2 "--op 'sum' is none of all_reduce" "$plansim" calibrate --nccl-tests two.log --op sum --accelerator h100-sxm --out no.db
grep -v '^#' two.log >bare.log
refused 3 'it does not say which operation was measured' "$plansim" calibrate --nccl-tests bare.log --accelerator h100-sxm --out no.db
refused 3 'does not say over how many ranks it ran' "$plansim" calibrate --nccl-tests bare.log --op all_reduce --accelerator h100-sxm --out no.db
{ grep '^#' two.log; tail -n 1 two.log; } >one.log
refused 3 'measured at one size alone; a line needs two' "$plansim" calibrate --nccl-tests one.log --accelerator h100-sxm --out no.db
{ grep '^#' two.log; printf '%d 2 float sum -1 120.0 0.00 0.00 0 120.0 0.00 0.00 0\n' 8 16 32; } >cut.log
refused 3 'the times of its 3 sizes hardly rise with the size; was the log cut off' "$plansim" calibrate --nccl-tests cut.log --accelerator h100-sxm --out no.db
head -4 two.log >head.log
refused 3 'no row of measurements in it; it ends before its table' "$plansim" calibrate --nccl-tests head.log --accelerator h100-sxm --out no.db
printf '{"results": [{"size": 8,\n' >cut.json
refused 3 'no JSON that nccl-tests or rccl-tests write; was it cut off' "$plansim" calibrate --nccl-tests cut.json --accelerator h100-sxm --out no.db
# Tables of kernels: formats, GPUs, rows that are no measurements.
gemms() { # GPU FACTOR
    for m in 512 2048 8192; do for n in 1024 4096; do for k in 1024 4096; do
        awk -v m=$m -v n=$n -v k=$k -v gpu="$1" -v factor="$2" 'BEGIN { printf "%s,%d,%d,%d,%.3f\n", gpu, m, n, k, factor * (5 + 2 * m * n * k / 6e8) }'
    done; done; done
}
{ echo gpu,m,n,k,time_us; gemms mine 1; } >gemm.csv
expect 0 "$plansim" calibrate --gemm gemm.csv --accelerator h100-sxm
stdout_has '^12 shapes'
for dtype in int4 rubbish fp8x; do
    refused 2 "--dtype '$dtype' is none of bf16, .*nvfp4, or fp8" "$plansim" calibrate --gemm gemm.csv --accelerator h100-sxm --dtype $dtype --out no.db
    refused 2 "--dtype '$dtype' is none of" "$plansim" calibrate --attention gemm.csv --accelerator h100-sxm --dtype $dtype --out no.db
    refused 2 "--dtype '$dtype' is none of" "$plansim" calibrate --experts gemm.csv --accelerator h100-sxm --dtype $dtype --out no.db
done
refused 2 'attention is priced in 16 bit' "$plansim" calibrate --attention gemm.csv --accelerator h100-sxm --dtype fp8 --out no.db
expect 0 "$plansim" calibrate --gemm gemm.csv --accelerator h100-sxm --dtype fp8_block
stdout_has '^GEMM of h100-sxm, fp8:'
{ cat gemm.csv; gemms theirs 2; } >both.csv
for kernel in gemm attention experts; do
    refused 3 'rows of 2 GPUs; state --gpu, one of mine, theirs' "$plansim" calibrate --$kernel both.csv --accelerator h100-sxm --out no.db
done
expect 0 "$plansim" calibrate --gemm both.csv --accelerator h100-sxm --gpu mine
stdout_has '^12 shapes'
{ cat gemm.csv; printf 'mine,%s\n' 64,4096,4096,9 1024.5,4096,4096,90 -1024,4096,4096,90 nan,4096,4096,90 1024,4096,4096,-90 1024,4096,4096,nan 1024,4096,4096,; } >odd.csv
expect 0 "$plansim" calibrate --gemm odd.csv --accelerator h100-sxm
stdout_has '^12 shapes.*; rows left out: 1 with a dimension under 256, 1 whose m, n or k is no whole number, 2 whose m, n or k is no positive number, 3 whose time_us is no positive number'
[ ! -e no.db ] || fail 'a profile was written'
finish
