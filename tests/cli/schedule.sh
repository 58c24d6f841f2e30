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
printf 'stage,F,B,W\n0,1,1,1\n1,1,1,1\n2,1,1,1\n3,1,1,1\n' >stages.csv
expect 0 "$plansim" compare --pp 4 --microbatches 8 --stage-cost stages.csv
stdout_has '^not possible: zb-v: .*4 stages'

# A terminal: no line is wider, colour, plain characters where the locale has no others. A pipe gets UTF-8 without colour.
draw="$plansim schedule --schedule zb-h1 --pp 2 --microbatches 6"
if command -v script >/dev/null 2>&1; then
    script -qec "stty cols 30; LC_ALL=C TERM=xterm $draw" /dev/null </dev/null >tty.txt 2>&1
    grep -q "$(printf '\033')\[97;48" tty.txt || fail "no colour on a terminal"
    sed -n '/^rank/p' tty.txt | sed "s/$(printf '\033')\[[0-9;]*m//g" | tr -d '\r' >plain.txt
    [ -s plain.txt ] && ! grep -q '.\{31\}' plain.txt || fail "wider than the terminal"
    LC_ALL=C grep -q '[^ -~]' plain.txt && fail "not plain characters in the C locale"
    script -qec "LC_ALL=C.UTF-8 TERM=xterm NO_COLOR=1 $draw" /dev/null </dev/null >tty.txt 2>&1
    grep -q "$(printf '\033')" tty.txt && fail "colour in spite of NO_COLOR"
    grep -q '░' tty.txt || fail "no blocks on a UTF-8 terminal"
fi
expect 0 env LC_ALL=C $draw
stdout_has '░'

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
refused 2 'goes with interleaved' "$plansim" schedule --schedule 1f1b --pp 4 --microbatches 8 --group 4
refused 2 'goes with zb-auto' "$plansim" schedule --schedule 1f1b --pp 4 --microbatches 8 --memory-limit 3
refused 2 'goes with zb-auto' "$plansim" schedule --schedule zb-h1 --pp 4 --microbatches 8 --freed-by-b 0.5
refused 2 'nearest valid: 4' "$plansim" schedule --schedule zb-v-auto --pp 8 --microbatches 24 --memory-limit 1
expect 0 "$plansim" schedule --schedule zb-v-auto --pp 8 --microbatches 24 --memory-limit 4
refused 2 "'F' is given twice" "$plansim" schedule --schedule 1f1b --pp 4 --microbatches 8 --cost F=1,F=2
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
    for pp in 1 4; do # the smallest sizes have pictures too
        rm -f one.svg few.svg
        expect 0 "$plansim" chart bubbles --pp $pp --microbatches 1 --out one.svg
        expect 0 "$plansim" compare --pp $pp --microbatches 1 --chart few.svg
        stderr_is_empty
        written one.svg few.svg
    done
fi
finish
