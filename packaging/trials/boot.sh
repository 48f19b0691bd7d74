#!/bin/bash
# Boots a root with systemd, without a network, and runs /packages/trial.sh in it.
#
#   boot.sh ROOT
set -euo pipefail
root=$1
log=$root.log

systemd-nspawn --quiet --register=no --keep-unit --private-network --link-journal=no \
    --machine="lockkeeper-$$" --directory="$root" --boot </dev/null >"$log" 2>&1 &
nspawn=$!
trap 'kill -TERM "$nspawn" 2>/dev/null || true; wait "$nspawn" 2>/dev/null || true' EXIT

# The first process in there, once it answers.
inside() { nsenter --target "$(pgrep --parent "$nspawn" | tail -1)" --all -- "$@"; }
for _ in $(seq 300); do
    state=$(inside systemctl is-system-running 2>/dev/null || true)
    case $state in running | degraded) break ;; esac
    sleep 0.1
done
case $state in
running | degraded) ;;
*)
    tail -20 "$log"
    echo "the root does not boot: $state" >&2
    exit 1
    ;;
esac
inside bash /packages/trial.sh
