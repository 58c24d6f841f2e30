# For the tests of command lines. Each test is called as: sh TEST PLANSIM SOURCE-ROOT
# $plansim, $source, $work (a fresh directory, the working directory); expect runs and checks, finish ends the test.
# shellcheck shell=sh disable=SC2034
set -u
plansim=$1
source=$(cd "$2" && pwd)
case $plansim in
    /*) ;;
    *) plansim=$PWD/$plansim ;;
esac
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset DISPLAY GNUTERM PLANSIM_PROFILE
failures=0

fail() {
    echo "FAIL: $*"
    echo "  stdout: $(head -c 400 out 2>/dev/null)"
    echo "  stderr: $(head -c 400 err 2>/dev/null)"
    failures=$((failures + 1))
}

# Runs the command with outputs in files out and err; the exit code must be the given one, and no crash.
expect() { # CODE COMMAND...
    wanted=$1
    shift
    last="$*"
    "$@" >out 2>err </dev/null
    code=$?
    [ $code -eq "$wanted" ] || fail "exit $code, not $wanted: $last"
}

stdout_has() { grep -qe "$1" out || fail "no '$1' on stdout: $last"; }
stderr_has() { grep -qe "$1" err || fail "no '$1' on stderr: $last"; }
stdout_is_empty() { [ ! -s out ] || fail "stdout is not empty: $last"; }
stderr_is_empty() { [ ! -s err ] || fail "stderr is not empty: $last"; }
stderr_lines() { # N
    [ "$(wc -l <err)" -eq "$1" ] || fail "stderr has $(wc -l <err) lines, not $1: $last"
}

written() { # FILE...
    for file; do
        [ -s "$file" ] || fail "no $file: $last"
    done
}

# A refusal: nothing on stdout, one sentence on stderr.
refused() { # CODE TEXT COMMAND...
    text=$2
    wanted=$1
    shift 2
    expect "$wanted" "$@"
    stdout_is_empty
    stderr_lines 1
    stderr_has "$text"
}

# One JSON document and nothing else (checked by the program itself is not enough: python reads it, when there).
json_ok() { # FILE
    command -v python3 >/dev/null 2>&1 || return 0
    python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$1" 2>/dev/null || fail "not one JSON document: $last"
}

finish() {
    [ $failures -eq 0 ] || echo "$failures failed"
    [ $failures -eq 0 ]
    exit
}
