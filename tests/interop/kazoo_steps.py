"""Does with one of kazoo's read-write locks what it is told, step by step.

Arguments: CONNECT PATH SESSION_MS FOLDER; see tests/interop/README.md.
"""

import sys
import time
from pathlib import Path

from kazoo.client import KazooClient

from kazoo_locks import CuratorNamedReadLock, CuratorNamedWriteLock


def next_step(folder, number):
    """The next step, from a file that appears when it is to be taken."""
    file = Path(folder) / f"step-{number}"
    while not file.exists():
        time.sleep(0.005)
    return file.read_text()


def main(connect, path, session_ms, folder):
    client = KazooClient(hosts=connect, timeout=int(session_ms) / 1000)
    client.start(timeout=30)
    locks = {
        "read": CuratorNamedReadLock(client, path, "steps"),
        "write": CuratorNamedWriteLock(client, path, "steps"),
    }
    number = 0
    while (step := next_step(folder, number)) != "end":
        if step.startswith("release-"):
            locks[step.removeprefix("release-")].release()
        else:
            locks[step].acquire()
        print("DONE", step, flush=True)
        number += 1
    client.stop()
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
