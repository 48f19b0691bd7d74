#!/bin/bash
# Leads the attacks of the engine's suite against an engine with the limits of the unit, in a booted Debian.
#
# The engine runs as root without capabilities, since the suite plays other users at its Unix socket, and without
# PrivateUsers=, under which all other users are one. /packages/attacked is where both meet. The attacks judge how
# late answers are, so that they need a machine that is not too busy.
set -euo pipefail
mkdir -p /packages/attacked
limits=$(sed -n '/^\[Service\]/,/^\[Install\]/p' /packages/unit |
    grep -E '^[A-Z]' | grep -vE '^(Type|Notify|Exec|Timeout|Restart|User|Group|StateDirectory|WorkingDirectory|PrivateUsers)[A-Za-z]*=' | tr ' ' '\034' | sed 's/^/-p\n/')
words=()
while IFS= read -r word; do words+=("${word//$'\034'/ }"); done <<<"$limits"
cat >/packages/under <<UNDER
#!/bin/bash
exec systemd-run --quiet --pipe --wait --collect --setenv=LOCKKEEPER_TEST_ATTACKED --setenv=TMPDIR \
    -p ReadWritePaths=/packages/attacked $(printf '%q ' "${words[@]}") "\$@"
UNDER
chmod +x /packages/under
grep -c . <<<"$limits" | awk '{ print $1 / 2 " settings of the unit" }'
TMPDIR=/packages/attacked LOCKKEEPER_TEST_UNDER=/packages/under \
    /packages/engine attacks::no_attack_costs_a_holder_its_lock --exact --nocapture
