#!/bin/sh
# What meson install puts where, and that the installed program works from there. Third argument: the build directory.
. "$2/tests/cli/lib.sh"
build=$3
command -v meson >/dev/null 2>&1 || exit 77

expect 0 meson install -C "$build" --no-rebuild --destdir "$work/root"
installed=$(find root -name plansim -type f)
[ -x "$installed" ] || fail "no plansim is installed"
prefix=${installed%/bin/plansim}
written "$prefix/share/plansim/default.profile.db" "$prefix/share/man/man1/plansim.1"
examples=$prefix/share/plansim/examples
written "$examples/models/llama-3.1-70b.json" "$examples/clusters/dgx-h100-x8.json"
# It finds its profile there, without any option.
expect 0 "$installed" search --model "$examples/models/llama-3.1-8b.json" --cluster "$examples/clusters/dgx-h100-x1.json" --format csv
stdout_has ','
last='the manual page'
grep -q 'PLANSIM SEARCH' "$prefix/share/man/man1/plansim.1" || fail 'no search in it'
finish
