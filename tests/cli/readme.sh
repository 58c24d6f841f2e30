#!/bin/sh
# Every plansim command that README.md shows in a ```sh block works as it stands, given a config.json and a hw.json.
. "$2/tests/cli/lib.sh"
cp "$source/hwprofiles/models/llama-3.1-70b.json" config.json
cp "$source/hwprofiles/clusters/dgx-h100-x8.json" hw.json
mkdir bin
ln -s "$plansim" bin/plansim

# shellcheck disable=SC2016 # back-quotes of Markdown
sed -n '/^```sh$/,/^```$/p' "$source/README.md" | sed -e ':again' -e '/\\$/N; s/\\\n//; t again' | grep '^plansim ' >commands
[ -s commands ] || fail "README.md shows no command"
while IFS= read -r command <&3; do
    expect 0 env PATH="$work/bin:$PATH" sh -c "$command"
done 3<commands
finish
