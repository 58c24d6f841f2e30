#!/bin/sh
# The front door: help, version, misuse, streams that are kept apart; the same of both programs.
. "$2/tests/cli/lib.sh"
name=$(basename "$plansim")

expect 0 "$plansim" --help
stdout_has "^usage: .*$name COMMAND"
stderr_is_empty
commands=$(sed -n 's/^  \([a-z][a-z]*\)   *[a-z].*/\1/p' out)
first=$(printf '%s' "$commands" | head -1)
cp out help
for word in -h help; do
    expect 0 "$plansim" $word
    cmp -s out help || fail "another text: $last"
done
expect 0 "$plansim" --version
stdout_has "^$name [0-9]*\.[0-9]*\.[0-9]*\$"
stderr_is_empty

refused 2 "no command" "$plansim"
refused 2 "^$name: unknown command '${first}e'; did you mean '$first'?" "$plansim" "${first}e"
refused 2 "^$name: unknown option '--verison'; did you mean '--version'?" "$plansim" --verison
refused 2 "^$name: unknown option '--no-such-option'; the options are --help, --version" "$plansim" --no-such-option
refused 2 "^$name: unknown option '-x'" "$plansim" -x
refused 2 "unknown command ''" "$plansim" ''
refused 2 "the commands are $first" "$plansim" frobnicate

for command in $commands; do
    expect 0 "$plansim" "$command" --help
    stdout_has "^usage: .*$name $command"
    stdout_has '^example:$'
    stderr_is_empty
    refused 2 "^$name $command: unknown option '--no-such-option'; see --help" "$plansim" "$command" --no-such-option
    refused 2 "^$name $command: unknown option '-x'; options begin with '--'" "$plansim" "$command" -x
    refused 2 "did you mean '--help'" "$plansim" "$command" --hlep
done

# An answer that cannot be written is no answer.
if [ -w /dev/full ]; then
    for option in --help --version; do
        "$plansim" $option >/dev/full 2>err
        code=$?
        last="$option >/dev/full"
        [ $code -eq 4 ] || fail "exit $code, not 4: $last"
    done
fi
finish
