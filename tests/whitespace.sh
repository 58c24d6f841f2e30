#!/bin/sh
# No tabs in sources, no blanks at the end of a line, no carriage returns, a newline at the end of each file.
# Usage: whitespace.sh [ROOT]
root=${1:-$(dirname "$0")/..}
cd "$root" || exit 2
tab=$(printf '\t')
cr=$(printf '\r')

texts() {
    for place in meson.build meson_options.txt README.md bootstrap .ci cost sim kernels exec hwprofiles tests man; do
        [ ! -e "$place" ] || find "$place" \( -path tests/fuzz/corpus -o -path tests/data \) -prune -o -type f \
            \( -name '*.[ch]' -o -name '*.cu' -o -name '*.sh' -o -name 'meson*' -o -name '*.md' -o -name '*.json' \
            -o -name bootstrap -o -path .ci/run \) -print
    done | LC_ALL=C sort
}

found=$(
    texts | while IFS= read -r file; do
        case $file in
            *.[ch] | *.cu | *.sh | *meson*) grep -n "$tab" "$file" | sed "s|^\([0-9]*\):.*|$file:\1: tab|" ;;
        esac
        grep -nE "[ $tab]\$" "$file" | sed "s|^\([0-9]*\):.*|$file:\1: blank at the end of the line|"
        grep -n "$cr" "$file" | sed "s|^\([0-9]*\):.*|$file:\1: carriage return|"
        [ -s "$file" ] && [ -n "$(tail -c 1 "$file")" ] && echo "$file: no newline at the end"
    done
)
if [ -n "$found" ]; then
    printf '%s\n' "$found"
    exit 1
fi
