#!/bin/sh
# plansim profile: formats, every value with where it is from, rows out and in again, what import refuses.
. "$2/tests/cli/lib.sh"
header=table,name,key,field,value,unit,low,high,provenance,date,source

expect 0 "$plansim" profile --help
stdout_has 'plansim profile list|show NAME|import FILE|export NAME'
expect 0 "$plansim" profile list
stdout_has '^h100-sxm  *989 '
stdout_has '^ib-ndr '
stdout_has '^torchtitan '
stderr_is_empty
expect 0 "$plansim" profile list --format csv
stdout_has '^accelerator,h100-sxm,measured,peak_16bit_flop_per_s,989000000000000,FLOP/s$'
expect 0 "$plansim" profile show h800-sxm
stdout_has '(h100-sxm) '
expect 0 "$plansim" profile show megatron --format json
stdout_has '"meaning"'
json_ok out
expect 2 "$plansim" profile show h100
stderr_has "unknown name 'h100'; did you mean 'h100-sxm'?"
stderr_lines 1
stdout_is_empty
expect 2 "$plansim" profile lst
stderr_has "did you mean 'list'?"
expect 2 "$plansim" profile list h100-sxm
expect 2 "$plansim" profile show
expect 2 "$plansim" profile import rows.csv
stderr_has 'import needs --profile FILE'

# import(export(x)) is the identity, for one of each kind and for everything.
for name in b200-sxm nvlink4 roce megatron all; do
    rm -f my.db
    expect 0 "$plansim" profile export "$name"
    cp out rows.csv
    expect 0 "$plansim" profile import rows.csv --profile my.db
    expect 0 env PLANSIM_PROFILE=my.db "$plansim" profile export all
    [ "$(sort rows.csv | cksum)" = "$(sort out | cksum)" ] || fail "export of $name changed by import"
done
expect 0 env PLANSIM_PROFILE=my.db "$plansim" profile list
stdout_has "profile 'my.db'"

# A layer replaces single rows; a bad import changes nothing.
rm -f my.db
printf '%s\n' $header 'stack,megatron,,gemm_speed,0.5,1,,,measured,2026-01-02,our runs' >mine.csv
expect 0 "$plansim" profile import mine.csv --profile my.db
stdout_has "1 rows into 'my.db'"
expect 0 "$plansim" profile show megatron --profile my.db
stdout_has 'gemm_speed  *0.5 .*our runs'
stdout_has 'host_launch_s'
cp my.db before.db
sed 's/,0.5,/,-1,/' mine.csv >bad.csv
expect 3 "$plansim" profile import bad.csv --profile my.db
stderr_has "'bad.csv' line 2: stack 'megatron' gemm_speed is -1"
cmp -s my.db before.db || fail 'a bad import changed the file'
expect 3 "$plansim" profile import missing.csv --profile my.db
expect 3 "$plansim" profile import mine.csv --profile mine.csv
stderr_has 'is not an SQLite file'
expect 3 "$plansim" profile list --profile .
stderr_has 'is a directory'
expect 4 "$plansim" profile import mine.csv --profile /nonexistent/my.db
stderr_lines 1
printf '%s\n' $header 'accelerator,half-known,,memory_bytes,40,GiB,,,measured,2026-01-02,us' >part.csv
expect 0 "$plansim" profile import part.csv --profile my.db
stderr_has "warning: accelerator 'half-known' has no peak_16bit_flop_per_s"
finish
