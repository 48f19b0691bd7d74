"""Takes a lock once with kazoo, keeps it, and prints when the library says what about it.

Arguments: CONNECT LOCK_PATH SESSION_MS; see tests/interop/README.md.
"""

import sys
import threading
import time

from kazoo.client import KazooClient


def say(what):
    # The clock of all contenders of one machine: CLOCK_MONOTONIC, in nanoseconds.
    sys.stdout.write(f"{time.monotonic_ns()} {what}\n")
    sys.stdout.flush()


def acquire(lock):
    """A waiter whose connection is lost may give up, so it tries again, as a program would."""
    while True:
        try:
            if lock.acquire():
                return
        except Exception:
            say("RETRY")
            time.sleep(0.05)


def main(connect, path, session_ms):
    client = KazooClient(hosts=connect, timeout=int(session_ms) / 1000)
    client.add_listener(lambda state: say(str(state)))
    client.start(timeout=30)
    lock = client.Lock(path, "holder")
    acquire(lock)
    say("HELD")
    while lock.is_acquired:
        time.sleep(0.001)
    say("GONE")
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
