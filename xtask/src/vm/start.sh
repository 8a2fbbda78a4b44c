# Continues after init.sh in the root file system: loads modules, runs the command, and reports its exit status.
#
# Messages on descriptor 9: `start` when the command begins, `error` with a text, and `exit STATUS OUT ERR` with the bytes that the
# command wrote to stdout and stderr. `cargo xtask vm` reads that many bytes before it ends the machine.
. /run/siga/config
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 OUT=$out
# Tests change the host only where they find this variable.
export SIGA_VM=1

fail() {
    echo "error $*" >&9
    exec sleep infinity
}

# Ends every process except this one and the two that copy output. Kernel threads ignore the signal.
end_processes() {
    local directory pid
    for directory in /proc/[0-9]*; do
        pid=${directory#/proc/}
        case " 1 $copies " in
        *" $pid "*) ;;
        *) kill -KILL "$pid" 2>/dev/null ;;
        esac
    done
}

# Sets $1_bytes to the number of bytes that dd copied: the first word of its last line.
count() {
    local bytes
    read -r bytes _ < <(tail -n 1 "/run/siga/$1.count")
    [ -n "$bytes" ] || fail "the process that copies the command's $1 was killed"
    printf -v "$1_bytes" %s "$bytes"
}

# Mounts a file system of type $1 at $2, with more options.
mount_at() {
    mkdir -p "$2"
    mount -t "$1" "${@:3}" "$1" "$2" || fail "cannot mount $2"
}

mount_at devpts /dev/pts
mount_at tmpfs /dev/shm -o mode=1777,size=20%
mount_at cgroup2 /sys/fs/cgroup
ln -sfn /proc/self/fd /dev/fd
ln -sfn /proc/self/fd/0 /dev/stdin
ln -sfn /proc/self/fd/1 /dev/stdout
ln -sfn /proc/self/fd/2 /dev/stderr
hostname vm
ip link set lo up || fail "cannot bring up lo"
for module in $modules; do
    message=$(modprobe -- "$module" 2>&1) || fail "cannot load the module $module: $message"
done

mkfifo -m 666 /run/siga/stdout /run/siga/stderr
# The two that copy output are not killed if memory runs out, as this process is not.
echo -1000 >/proc/self/oom_score_adj
LC_ALL=C dd bs=32k </run/siga/stdout >"$stdout_port" 2>/run/siga/stdout.count 9>&- &
copies=$!
LC_ALL=C dd bs=32k </run/siga/stderr >"$stderr_port" 2>/run/siga/stderr.count 9>&- &
copies="$copies $!"
echo 0 >/proc/self/oom_score_adj
echo start >&9
bash /run/siga/command </dev/null >/run/siga/stdout 2>/run/siga/stderr 9>&-
status=$?
# A process may start another one while this loop runs.
for _ in 1 2 3; do
    end_processes
done
wait $copies
count stdout
count stderr
echo "exit $status $stdout_bytes $stderr_bytes" >&9
exec sleep infinity
