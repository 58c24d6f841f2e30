#!/bin/sh
# The manual page, out of the program's own help, so that it cannot fall behind. Usage: generate.sh PLANSIM VERSION
set -eu
plansim=$1 version=$2

quoted() { # text as it is: backslashes, leading dots and quotes are roff's
    sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\\([.']\\)/\\\\\\&\\1/"
}

commands() { "$plansim" --help | sed -n 's/^  \([a-z][a-z]*\)   *[a-z].*/\1/p'; }

cat <<END
.TH PLANSIM 1 "" "plansim $version" "User Commands"
.SH NAME
plansim \\- plans the training of large language models
.SH SYNOPSIS
.B plansim
.I COMMAND
.RI [ OPTION ]...
.SH DESCRIPTION
.nf
END
"$plansim" --help | sed '1,/^$/d' | quoted
echo .fi
for command in $(commands); do
    printf '.SH "PLANSIM %s"\n.nf\n' "$(printf '%s' "$command" | tr '[:lower:]' '[:upper:]')"
    "$plansim" "$command" --help | quoted
    echo .fi
done
cat <<END
.SH ENVIRONMENT
.TP
.B PLANSIM_PROFILE
The profile to read instead of the default one.
.TP
.B NO_COLOR
Titles of tables are not printed in bold.
.SH SEE ALSO
.BR gnuplot (1)
END
