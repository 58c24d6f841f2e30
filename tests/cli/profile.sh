#!/bin/sh
# plansim profile: the default one, the user's own over it, files that are none.
. "$2/tests/cli/lib.sh"
model=$source/hwprofiles/models/llama-3.1-8b.json
cluster=$source/hwprofiles/clusters/dgx-h100-x1.json

expect 0 "$plansim" profile list
stdout_has '^h100-sxm '
stdout_has '^nvlink4 '
stderr_is_empty
expect 0 "$plansim" profile show h100-sxm
stdout_has 'datasheet'
expect 0 "$plansim" profile list --format json
json_ok out

# Out, into one's own, and priced with it.
expect 0 "$plansim" profile export h100-sxm
cp out rows.csv
expect 0 "$plansim" profile import rows.csv --profile mine.db
written mine.db
expect 0 "$plansim" search --model "$model" --cluster "$cluster" --format csv
cp out default.csv
expect 0 "$plansim" search --model "$model" --cluster "$cluster" --format csv --profile mine.db
cmp -s out default.csv || fail "the same rows laid over the default change the answer"

# Files that are no profile are refused, and left as they are.
printf 'not a database, but long enough to be read as one by mistake\n' >foreign.db
cp foreign.db before.db
expect 3 "$plansim" search --model "$model" --cluster "$cluster" --profile foreign.db
stdout_is_empty
cmp -s foreign.db before.db || fail "a foreign file was changed"
expect 3 "$plansim" search --model "$model" --cluster "$cluster" --profile none.db
stdout_is_empty
[ ! -e none.db ] || fail "a missing profile was made"
head -c 5000 mine.db >damaged.db
expect 3 "$plansim" search --model "$model" --cluster "$cluster" --profile damaged.db
stdout_is_empty
expect 3 env PLANSIM_PROFILE="$work/none.db" "$plansim" profile list
stdout_is_empty
expect 2 "$plansim" profile
expect 2 "$plansim" profile shov h100-sxm
refused 2 "did you mean 'h100-sxm'" "$plansim" profile show h100-sxn
finish
