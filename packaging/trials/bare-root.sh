#!/bin/bash
# An administrator's way through the packages, in a booted Debian that has nothing else: install, start, use, upgrade,
# back up, remove. /packages/old and /packages/new have the packages of two versions.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
cd /packages

step() {
    local since=$EPOCHREALTIME name=$1
    shift
    "$@" >/tmp/step 2>&1 || { cat /tmp/step; echo "FAILED: $name"; journalctl --no-pager -n 30; exit 1; }
    printf '%-66s %6.2f s\n' "$name" "$(awk "BEGIN { print $EPOCHREALTIME - $since }")"
}
expect() {
    local wanted=$1 got
    shift
    got=$("$@" 2>&1) || true
    [ "$got" = "$wanted" ] || { echo "FAILED: $* printed '$got', not '$wanted'"; exit 1; }
}
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /packages \) -prune \
        -o -print | sort
}
apt() { apt-get -qq -y -o Dpkg::Use-Pty=0 -o APT::Sandbox::User=root "$@"; }
ours=127.0.0.1:2181

files >/tmp/before
step "one command installs (the earlier version)" apt install /packages/old/*.deb
expect inactive systemctl is-active lockkeeper-server
expect disabled systemctl is-enabled lockkeeper-server
! grep -lsx lockkeeper /proc/[0-9]*/comm
man_page=$(dpkg -L lockkeeper | grep -c '/man1/lockkeeper.*\.1\.gz$')
test "$man_page" -gt 20

# As in a system where the administrator wants it.
step "one command starts the server, which says when it is ready" systemctl enable --now lockkeeper-server
expect active systemctl is-active lockkeeper-server
systemctl show -p StatusText --value lockkeeper-server
useradd --create-home alice
as_alice() { runuser -u alice -- lockkeeper --connect "$ours" "$@"; }
step "one command holds a lock as another user" as_alice run jobs -- true

# The unit as it runs.
systemd-analyze verify --man=no /lib/systemd/system/lockkeeper-*.service /lib/systemd/system/lockkeeper-*.timer
pid=$(systemctl show -p MainPID --value lockkeeper-server)
expect lockkeeper stat -c %U "/proc/$pid"
expect "Seccomp:	2" grep ^Seccomp: "/proc/$pid/status"
expect "NoNewPrivs:	1" grep ^NoNewPrivs "/proc/$pid/status"
expect "CapBnd:	0000000000000000" grep ^CapBnd "/proc/$pid/status"
expect 20000 sh -c "awk '/Max open files/ { print \$4 }' /proc/$pid/limits"
echo "memory of the server: $(awk '/VmRSS/ { print $2 }' "/proc/$pid/status") KiB"

# A lock is held over the upgrade.
setpriv --reuid alice --regid alice --clear-groups lockkeeper -q --connect "$ours" run held -- sleep infinity &
holder=$!
until as_alice show held | grep alice >/dev/null; do sleep 0.1; done
step "one command upgrades" apt install /packages/new/*.deb
expect active systemctl is-active lockkeeper-server
test "$pid" != "$(systemctl show -p MainPID --value lockkeeper-server)"
kill -0 "$holder"
expect 1 sh -c "runuser -u alice -- lockkeeper -q --connect $ours run -n held -- true; echo \$?"
kill -TERM "$holder"
wait "$holder" || true

step "one command backs up" systemctl start lockkeeper-backup
backup=$(ls -d /var/lib/lockkeeper-server/backups/2*)
step "the certificates are read again" systemctl reload lockkeeper-server
restore() {
    # No client holds a lock, so there is nothing to wait for.
    systemctl stop lockkeeper-server
    runuser -u lockkeeper -- lockkeeper engine restore --quiet-time 0s --replace "$backup" /var/lib/lockkeeper-server/data
    systemctl start lockkeeper-server
}
step "three commands restore" restore

# The journal knows what is a warning, and a backup is of the directory that the configuration names.
config=/etc/lockkeeper/zoo.cfg
cp $config /tmp/zoo.cfg
sed -i 's,^dataDir=.*,dataDir=/var/lib/lockkeeper-server/moved,' $config
echo unknownKey=1 >>$config
rm -r /var/lib/lockkeeper-server/backups/2*
# Of the administrator: it stays, however old it is.
install -d -o lockkeeper -m 0700 /var/lib/lockkeeper-server/backups/mine
touch -d '30 days ago' /var/lib/lockkeeper-server/backups/mine
moved() {
    systemctl restart lockkeeper-server
    systemctl start lockkeeper-backup
}
step "the data is moved, and backed up" moved
journalctl --quiet -p warning -u lockkeeper-server | grep unknownKey
runuser -u lockkeeper -- lockkeeper engine check /var/lib/lockkeeper-server/backups/2* >/dev/null
journalctl --quiet -u lockkeeper-backup | grep 'is a backup of /var/lib/lockkeeper-server/moved'
test -d /var/lib/lockkeeper-server/backups/mine
cp /tmp/zoo.cfg $config
systemctl restart lockkeeper-server

# A job under a lock, by the units of the command.
mkdir -p /etc/lockkeeper/run
printf 'LOCK=jobs/trial\nCOMMAND=echo "token $LOCKKEEPER_TOKEN" >/tmp/trial-job\nOPTIONS=--connect %s\n' "$ours" \
    >/etc/lockkeeper/run/trial
step "a job runs under a lock" systemctl start --wait lockkeeper-run@trial
grep -q '^token [0-9]' /tmp/trial-job
step "a timer starts" systemctl enable --now lockkeeper-run@trial.timer

# A job that is stopped gives its lock back, and has not failed.
printf 'LOCK=jobs/long\nCOMMAND=sleep infinity\nOPTIONS=--connect %s\n' "$ours" >/etc/lockkeeper/run/long
systemctl start lockkeeper-run@long
until systemctl is-active --quiet lockkeeper-run@long && as_alice show jobs/long | grep root >/dev/null; do sleep 0.1; done
step "a job is stopped" systemctl stop lockkeeper-run@long
expect inactive systemctl is-active lockkeeper-run@long
as_alice run -n jobs/long -- true
rm -r /etc/lockkeeper/run /tmp/trial-job

step "the server is killed, and comes back" sh -c 'systemctl kill -s KILL lockkeeper-server; sleep 0.2;
    until [ "$(systemctl is-active lockkeeper-server)" = active ]; do sleep 0.1; done'
userdel --remove alice 2>/dev/null
pid=$(systemctl show -p MainPID --value lockkeeper-server)
step "one command removes" apt remove lockkeeper lockkeeper-server
test ! -e "/proc/$pid" && test ! -e /usr/bin/lockkeeper
test -f /etc/lockkeeper/zoo.cfg && test -d /var/lib/lockkeeper-server/data
step "one command purges" apt purge lockkeeper lockkeeper-server
files >/tmp/after
echo "left, besides the system user and the records of the package manager:"
left=$(comm -13 /tmp/before /tmp/after | grep -vE \
    '^/(var/(lib/(dpkg|apt|systemd)|cache/(apt|ldconfig|debconf)|log)/|var/lib/(dpkg|apt)$|etc/(passwd|group|shadow|gshadow|subuid|subgid)-$)' || true)
echo "${left:-nothing}"
test -z "$left"
getent passwd lockkeeper
