# One update of $1/log, which holds one line for each update: RUN NUMBER TOKEN.
# Reads the last number, takes its time, and appends the next one: two at once would make the same.
set -e
log="$1/log"
echo "$PPID" > "$1/holder"
last=$(tail -n 1 "$log" | cut -d ' ' -f 2)
sleep "0.00$(( $$ % 10 ))"
echo "$2 $(( ${last:-0} + 1 )) $LOCKKEEPER_TOKEN" >> "$log"
