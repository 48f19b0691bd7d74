# What tests/interop/README.md asks of every contender, for `lockkeeper run`: $1 is the state folder.
set -e
cd "$1"
set -C
if ! echo "lockkeeper" > marker; then
    echo "VIOLATION lockkeeper entered while $(cat marker) was inside"
    exit 3
fi
set +C
count=$(( $(cat counter 2>/dev/null || echo 0) + 1 ))
sleep "0.00$(( $$ % 10 ))"
printf %s "$count" > counter
echo "lockkeeper $count $LOCKKEEPER_TOKEN" >> log
rm marker
