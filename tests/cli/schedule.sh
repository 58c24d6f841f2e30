#!/bin/sh
# plansim schedule and compare: streams, formats, a program that goes out and comes back, misuse.
. "$2/tests/cli/lib.sh"

expect 0 "$plansim" schedule --schedule 1f1b --pp 4 --microbatches 8 --cost F=1,B=1,W=1
stdout_has 'makespan *33'
stderr_is_empty
expect 0 "$plansim" schedule --schedule 1f1b --pp 4 --microbatches 8 --cost F=1,B=1,W=1 --format json --trace trace.json
stdout_has '"makespan": 33'
json_ok out
json_ok trace.json
expect 0 "$plansim" schedule --schedule zb-h1 --pp 4 --microbatches 8 --format csv
cp out orders.csv
expect 0 "$plansim" schedule --schedule zb-h1 --pp 4 --microbatches 8 --format json
grep -o '"makespan": [0-9.]*' out >named.txt
expect 0 "$plansim" schedule --program orders.csv --format json
grep -o '"makespan": [0-9.]*' out >back.txt
cmp -s named.txt back.txt || fail "the program read from a file has another makespan"

expect 0 "$plansim" compare --pp 4 --microbatches 8 --cost F=1,B=1,W=1
stdout_has '^zb-h1 *1 *27 '
stderr_is_empty
expect 0 "$plansim" compare --pp 4 --microbatches 8 --format json
json_ok out

refused 2 "did you mean '1f1b'" "$plansim" schedule --schedule 1f1v --pp 4 --microbatches 8
expect 2 "$plansim" schedule --schedule 1f1b --pp 0 --microbatches 8
stdout_is_empty
expect 2 "$plansim" schedule --schedule 1f1b --pp 4 --microbatches 8 --cost F=x
stdout_is_empty
expect 3 "$plansim" schedule --program none.csv
stdout_is_empty
printf 'rank,index,op\n0,0,F\n' >bad.csv
expect 3 "$plansim" schedule --program bad.csv
stdout_is_empty
refused 2 '.png, .svg or .pdf' "$plansim" schedule --schedule 1f1b --pp 4 --microbatches 8 --chart gantt.jpg
mkdir nothing
expect 0 env PATH="$work/nothing" "$plansim" schedule --schedule 1f1b --pp 4 --microbatches 8 --chart none.png
stdout_has 'makespan'
stderr_has 'gnuplot is not installed'
if command -v gnuplot >/dev/null 2>&1; then
    expect 0 "$plansim" schedule --schedule zb-v --pp 4 --microbatches 8 --chart gantt.svg --memory-chart memory.svg
    expect 0 "$plansim" compare --pp 4 --microbatches 8 --chart compare.svg
    written gantt.svg memory.svg compare.svg
    expect 0 "$plansim" chart gantt --schedule zb-v --pp 4 --microbatches 8 --out again.svg
    expect 0 "$plansim" chart bubbles --pp 4 --microbatches 8 --out bubbles.svg
    written again.svg bubbles.svg
fi
finish
