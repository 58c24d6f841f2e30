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
