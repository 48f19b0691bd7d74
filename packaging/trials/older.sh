#!/bin/bash
# Runs the binary of the tar in the root of an older system: a lock, and names that the system resolves.
#
#   older.sh ROOT TAR
set -euo pipefail
root=$1 archive=$2

tar --extract --file "$archive" --directory "$root/opt"
program=$(cd "$root" && ls -d opt/lockkeeper-*/lockkeeper)
printf '127.0.0.1 localhost\n127.0.0.1 locks.example\n' >"$root/etc/hosts"
export root program
unshare --mount --net --pid --fork --kill-child bash -euo pipefail <<'INSIDE'
ip link set lo up
mkdir -p "$root/proc" "$root/dev"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
way=(env -i PATH=/usr/bin:/bin HOME=/root "$(command -v chroot)" "$root")
within() { "${way[@]}" "$@"; }
# Not head: it would end the pipe before all is written, and the trial with it.
within ldd --version | sed -n 1p
within "/$program" --version
# Not a function: the signal is for the server.
"${way[@]}" "/$program" serve --data-dir /root/data 2>"$root/log" &
server=$!
until within "/$program" -q --connect locks.example:2181 ls >/dev/null 2>&1; do
    kill -0 "$server" || { cat "$root/log"; exit 1; }
    sleep 0.05
done
within "/$program" -q --connect locks.example:2181 run jobs -- echo "a lock of locks.example is held"
if within "/$program" -q --connect no.such.name:2181 ls 2>"$root/log"; then exit 1; fi
grep -q 'no.such.name' "$root/log"
within "/$program" -q run jobs -- echo "a lock of the engine of this machine is held"
within "/$program" local stop >/dev/null
kill -TERM "$server"
wait "$server"
INSIDE
