# Sourced by the scripts beside it: a scratch folder, the environment of ranks on one small machine, a reader of JSON.
# shellcheck shell=sh
command -v mpirun >/dev/null 2>&1 || exit 77
scratch=$(mktemp -d) || exit 4
trap 'rm -rf "$scratch"' EXIT
export OPENBLAS_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl=self,vader
export ASAN_OPTIONS=detect_leaks=0 # MPI's own; test_autograd.c counts ours

number() { # KEY FILE: the first number after "KEY":
    sed -n "s/.*\"$1\": *\([-0-9.e+]*\).*/\1/p" "$2" | head -n 1
}

# Pids of processes with WORD in their arguments. One that has ended has none, though whoever is process 1 may never reap it.
running_with() { # WORD
    printf '%s\n' "$1" | grep -laFf - /proc/[0-9]*/cmdline 2>/dev/null | tr -dc '0-9\n'
}

within_60_s() { # COMMAND...: until it succeeds
    tenths=0
    until "$@"; do
        [ $((tenths += 1)) -le 600 ] && sleep 0.1 || return 1
    done
}

none_with() { # WORD
    ! running_with "$1" | grep -q .
}
