#!/bin/busybox sh
# The first program of the machine, in the initramfs. It mounts the root file system and the source tree, and hands over to
# start.sh. The port `control` carries its messages to `cargo xtask vm`: `up`, and `error` with a text.
export PATH=/bin

fail() {
    echo "error $*" >&9
    while :; do busybox sleep 1000; done
}

# Prints the device file of a virtio-serial port. The ports appear shortly after their module.
port() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        for directory in /sys/class/virtio-ports/*; do
            if [ "$(busybox cat "$directory/name" 2>/dev/null)" = "$1" ]; then
                echo "/dev/${directory##*/}"
                return
            fi
        done
        busybox sleep 0.1
    done
}

share() {
    busybox mount -t 9p -o "trans=virtio,version=9p2000.L,msize=524288,$3" "$1" "$2" || fail "cannot mount the share $1"
}

# Mounts the share $1 at $2. What the machine writes there stays in memory.
overlay() {
    busybox mkdir -p "/layers/$1" "/upper/$1/data" "/upper/$1/work"
    share "$1" "/layers/$1" ro,cache=loose
    busybox mount -t overlay -o "lowerdir=/layers/$1,upperdir=/upper/$1/data,workdir=/upper/$1/work" "$1" "$2" ||
        fail "cannot mount an overlay over the share $1"
}

busybox mkdir -p /proc /sys /dev /run /upper /new
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs devtmpfs /dev
. /siga/config
for module in $boot_modules; do
    busybox insmod "/siga/modules/$module" || echo "insmod $module failed"
done
control=$(port control)
[ -n "$control" ] || echo "there is no port for messages"
exec 9>"$control"
echo up >&9
if [ "$probe" = 1 ]; then
    while :; do busybox sleep 1000; done
fi

# All file systems in memory together leave a third of the memory, so that a full one does not stop the machine.
# The files of start.sh have one of their own, so that a command that fills the others can still end.
busybox mount -t tmpfs -o mode=755,size=5% run /run
busybox mkdir /run/siga
busybox mount -t tmpfs -o mode=755,size=5% siga /run/siga
busybox cp -r /siga/. /run/siga
{
    echo "stdout_port=$(port stdout)"
    echo "stderr_port=$(port stderr)"
} >>/run/siga/config
busybox mount -t tmpfs -o size=40% upper /upper
overlay root /new
busybox mkdir -p "/new$tree" || fail "cannot make the directory $tree"
overlay tree "/new$tree"
busybox mkdir -p "/new$out" || fail "cannot make the directory $out"
share out "/new$out" rw,cache=none
for directory in /proc /sys /dev /run; do
    busybox mkdir -p "/new$directory"
    busybox mount --move "$directory" "/new$directory" || fail "cannot move $directory"
done
exec busybox switch_root /new /bin/bash /run/siga/start
