"""Takes a lock again and again with kazoo, and checks each time, through the file system alone,
that nobody else is inside.

Arguments: CONNECT LOCK_PATH ROUNDS|SECONDSs STATE_DIR SESSION_MS NAME SEED HOLD_MS
The state directory is shared with all other contenders of the lock; see tests/interop/README.md.

Exit code: 0 done, 2 an error, 3 two at once, 4 the own node was still there after a release.
"""

import random
import sys
import time
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock


class CuratorNamedLock(Lock):
    """kazoo's lock with contenders that Curator can put in order.

    extra_lock_patterns makes kazoo see Curator's nodes, but not Curator see kazoo's: Curator
    sorts by what follows "lock-" in a name, finds no such thing in "<hex>__lock__0000000007",
    compares the whole name instead, and so believes that nearly every kazoo node is behind its
    own. Two are then inside at once. The name of our own node must carry the pattern too.
    """

    _NODE_NAME = "-lock-"

    def __init__(self, client, path, identifier):
        super().__init__(client, path, identifier, extra_lock_patterns=["-lock-"])


class Failure(Exception):
    """Something that must never happen did."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def critical_section(state, name, czxid, hold_seconds):
    marker = state / "marker"
    try:
        with marker.open("x") as file:
            file.write(name)
    except FileExistsError:
        raise Failure(3, f"VIOLATION {name} entered while {inside(marker)} was inside")
    counter = state / "counter"
    count = (int(counter.read_text()) if counter.exists() else 0) + 1
    time.sleep(hold_seconds)
    counter.write_text(str(count))
    with (state / "log").open("a") as log:
        log.write(f"{name} {count} {czxid}\n")
    marker.unlink()


def inside(marker):
    try:
        return marker.read_text()
    except OSError:
        return "another"


def limit(text):
    """A function that tells, from the number of rounds done, whether it is time to stop."""
    if text.endswith("s"):
        end = time.monotonic() + int(text[:-1])
        return lambda done: time.monotonic() >= end
    return lambda done: done >= int(text)


def contend(client, path, reached, state, name, randomness, hold_ms):
    done = 0
    while not reached(done):
        # A new object for each round: an old one believes that it has created the parents, and
        # the server may have removed them since (those that Curator made are containers).
        lock = CuratorNamedLock(client, path, name)
        lock.acquire()
        node = f"{path}/{lock.node}"
        try:
            czxid = client.retry(client.exists, node).czxid
            critical_section(state, name, czxid, randomness.uniform(0, hold_ms) / 1000)
        finally:
            lock.release()
        if client.retry(client.exists, node):
            raise Failure(4, f"LEFTOVER {node}")
        done += 1
        print(f"ROUND {done}", flush=True)
    print(f"DONE {done}", flush=True)


def main(arguments):
    if len(arguments) != 8:
        print(__doc__, file=sys.stderr)
        return 2
    connect, path, rounds, state, session_ms, name, seed, hold_ms = arguments
    client = KazooClient(hosts=connect, timeout=int(session_ms) / 1000)
    client.start()
    try:
        randomness = random.Random(int(seed))
        contend(client, path, limit(rounds), Path(state), name, randomness, int(hold_ms))
    except Failure as failure:
        print(failure, flush=True)
        return failure.code
    finally:
        client.stop()
        client.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
