#!/bin/bash
# Runs the image without a container engine: as its user, with a root that cannot be written to, without a network.
#
#   image.sh IMAGE FOLDER
set -euo pipefail
image=$1 work=$2

skopeo inspect --raw --config "oci-archive:$image" >"$work/config.json"
ask() { python3 -c "import json, sys; c = json.load(open('$work/config.json'))['config']; print($1)"; }
test "$(ask 'c["User"].split(":")[0] not in ("", "0", "root")')" = True

tar --extract --to-stdout --file "$image" ./index.json | grep '"lockkeeper:[0-9]' >/dev/null

skopeo copy --quiet "oci-archive:$image" "oci:$work/layout:trial"
umoci unpack --image "$work/layout:trial" "$work/bundle" >/dev/null 2>&1
test "$(python3 -c "import json; print(json.load(open('$work/bundle/config.json'))['process']['user']['uid'])")" != 0
test -s "$work/bundle/rootfs/usr/share/doc/lockkeeper/THIRD-PARTY-LICENSES.txt"
du -sh "$work/bundle/rootfs" | sed 's/\t.*/ unpacked/'
ls -l "$image" | awk '{ print $5 " bytes packed" }'

start=$(ask '" ".join(c["Entrypoint"] + c["Cmd"])')
health=$(ask '" ".join(c["Healthcheck"]["Test"][1:])')
user=$(ask 'c["User"]')
export start health user work
unshare --mount --net --pid --fork --kill-child --mount-proc bash -euo pipefail <<'INSIDE'
ip link set lo up
root=$work/bundle/rootfs
mount --bind "$root" "$root"
mkdir -p "$root/proc" "$root/dev"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o "mode=0700,uid=${user%:*},gid=${user#*:}" data "$root/data"
mount -o remount,ro,bind "$root"
way=(env -i PATH=/usr/bin "$(command -v chroot)" --userspec="$user" "$root")
within() { "${way[@]}" "$@"; }
if touch "$root/file" 2>/dev/null; then echo "the root can be written to"; exit 1; fi

if within $health 2>/dev/null; then echo "FAILED: healthy before it runs"; exit 1; fi
# Not a function: the signal is for the server.
"${way[@]}" $start 2>"$work/log" &
server=$!
since=$EPOCHREALTIME
until within $health >/dev/null 2>&1; do
    kill -0 "$server" || { cat "$work/log"; exit 1; }
    sleep 0.05
done
awk "BEGIN { printf \"healthy after %.2f s\\n\", $EPOCHREALTIME - $since }"
within /usr/bin/lockkeeper -q --connect 127.0.0.1:2181 run jobs -- /usr/bin/lockkeeper --version
kill -TERM "$server"
wait "$server"
INSIDE
