#!/bin/sh
# Two hosts on one machine: network namespaces with names of their own, joined by a cable. Usage: hosts.sh PLANEXEC SOURCE_ROOT
# check and run across them; a rank that fails ends both, with one message that says which and where; a killed one too.
# Skipped (77) where this user may not make namespaces.
planexec=$1 root=$2
. "$(dirname "$0")/lib.sh"
command -v ip >/dev/null 2>&1 && command -v unshare >/dev/null 2>&1 || exit 77
[ "$(id -u)" -eq 0 ] || exit 77
model=$root/tests/exec/golden/llama-tiny.json
one=planexec-$$-a two=planexec-$$-b
failed=0

clean() {
    ip netns del "$one" 2>/dev/null
    ip netns del "$two" 2>/dev/null
    rm -rf "$scratch"
}
trap clean EXIT
ip netns add "$one" 2>/dev/null && ip netns add "$two" 2>/dev/null &&
    ip link add cable0 netns "$one" type veth peer name cable0 netns "$two" 2>/dev/null || exit 77
ip -n "$one" address add 10.99.0.1/24 dev cable0 && ip -n "$two" address add 10.99.0.2/24 dev cable0 || exit 77
for host in "$one" "$two"; do ip -n "$host" link set lo up && ip -n "$host" link set cable0 up || exit 77; done
printf '127.0.0.1 localhost\n10.99.0.1 %s\n10.99.0.2 %s\n' "$one" "$two" >"$scratch/hosts"
# enter HOST COMMAND...: as rsh would, mpirun's remote shell
cat >"$scratch/enter" <<END
#!/bin/sh
host=\$1
shift
exec ip netns exec "\$host" unshare --uts --mount sh -c 'mount --bind $scratch/hosts /etc/hosts; hostname '"\$host"'; eval "\$0"' "\$*"
END
chmod +x "$scratch/enter"

across() { # ARGUMENT...: mpirun on the first host, one rank on each
    timeout 60 "$scratch/enter" "$one" mpirun --host "$one:1,$two:1" -np 2 --mca plm_rsh_agent "$scratch/enter" \
        --mca btl self,tcp --mca btl_tcp_if_include cable0 --mca oob_tcp_if_include cable0 "$planexec" "$@" \
        >"$scratch/out" 2>"$scratch/err" </dev/null
}

plan() {
    echo "{\"micro_batch\":2,\"global_batch\":16,\"seq_len\":32,\"precision\":\"fp32\",$1}" >"$scratch/plan.json"
}

fail() {
    echo "$*"
    cat "$scratch/out" "$scratch/err"
    failed=$((failed + 1))
}

for shape in '"tp":2,"zero":0' '"pp":2,"zero":0,"schedule":"zb-h1"' '"dp":2,"zero":3'; do
    plan "$shape"
    across check --model "$model" --plan "$scratch/plan.json" || fail "check $shape: exit code $?"
done
plan '"pp":2,"zero":0'
across run --model "$model" --plan "$scratch/plan.json" --steps 3 || fail "run: exit code $?"
grep -q 'on 2 ranks' "$scratch/out" || fail "run: no summary"

# The second stage is too large for its rank, which is on the other host.
plan '"pp":2,"zero":0,"layers_per_stage":[1,3]'
across run --model "$model" --plan "$scratch/plan.json" --steps 100 --max-memory 2500KiB
code=$?
[ $code -eq 4 ] && [ "$(grep -c '^planexec' "$scratch/err")" -eq 1 ] && grep -q "^planexec: rank 1 on $two: no room" "$scratch/err" ||
    fail "too large: exit code $code"
within_60_s none_with "$scratch/plan.json" || fail "too large: ranks are left"

# Killed from outside: it can say nothing, mpirun does.
plan '"pp":2,"zero":0'
across run --model "$model" --plan "$scratch/plan.json" --steps 1000000 &
job=$!
within_60_s test -s "$scratch/out"
rank=$(ip netns pids "$two" | while read -r pid; do
    grep -q planexec "/proc/$pid/comm" 2>/dev/null && echo "$pid"
done)
kill -KILL $rank
start=$(date +%s)
wait $job
code=$?
[ $code -ne 0 ] && [ $(($(date +%s) - start)) -le 10 ] && grep -q "rank 1.*on node $two exited on signal 9" "$scratch/err" ||
    fail "killed: exit code $code after $(($(date +%s) - start)) s"
within_60_s none_with "$scratch/plan.json" || fail "killed: ranks are left"
echo "$failed failed"
[ $failed -eq 0 ]
