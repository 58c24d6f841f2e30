#!/bin/sh
# The front door: help, version, misuse, streams that are kept apart.
. "$2/tests/cli/lib.sh"

expect 0 "$plansim" --help
stdout_has '^usage: plansim COMMAND'
stderr_is_empty
commands=$(sed -n 's/^  \([a-z][a-z]*\)   *[a-z].*/\1/p' out)
expect 0 "$plansim" --version
stdout_has '^plansim [0-9]*\.[0-9]*\.[0-9]*$'
stderr_is_empty

refused 2 "no command" "$plansim"
refused 2 "did you mean 'model'" "$plansim" modle
refused 2 "did you mean '--version'" "$plansim" --verison
refused 2 "unknown command ''" "$plansim" ''
refused 2 "the commands are" "$plansim" frobnicate

for command in $commands; do
    expect 0 "$plansim" "$command" --help
    stdout_has '^usage: plansim'
    stdout_has 'example'
    stderr_is_empty
    refused 2 'no-such-option' "$plansim" "$command" --no-such-option
done

# An answer that cannot be written is no answer.
if [ -w /dev/full ]; then
    "$plansim" --help >/dev/full 2>err
    code=$?
    last='--help >/dev/full'
    [ $code -eq 4 ] || fail "exit $code, not 4: $last"
fi
finish
