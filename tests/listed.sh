#!/bin/sh
# Every test file is one that meson runs: named in tests/meson.build.
# Usage: listed.sh [ROOT]
root=${1:-$(dirname "$0")/..}
cd "$root/tests" || exit 2
missing=0
for file in unit/test_*.c golden/test_*.c props/test_*.c fuzz/fuzz_*.c cli/*.sh *.sh; do
    [ -e "$file" ] || continue
    name=$(basename "$file")
    name=${name%.*}
    case $file in
        cli/lib.sh) continue ;;
        */test_*) name=${name#test_} ;;
        fuzz/*) name=${name#fuzz_} ;;
    esac
    suite=$(dirname "$file")
    case $suite in
        unit | golden | props) in_list=$(sed -n "/^  '$suite': \[/,/^  \]/p" meson.build | grep -c "^    '$name',\$") ;;
        fuzz) in_list=$(sed -n "/^fuzz_targets = \[/,/^\]/p" meson.build | grep -c "^  '$name',\$") ;;
        *) in_list=$(grep -cE "^  '$name',\$|'$name'[],]|'cli/$name\.sh'" meson.build) ;;
    esac
    if [ "$in_list" -eq 0 ]; then
        echo "tests/$file is not in tests/meson.build: nothing runs it"
        missing=1
    fi
done
exit $missing
