"""Puts items into one of kazoo's queues, or takes them.

Arguments: CONNECT SESSION_MS PATH LOCK_PATH KIND NAME STATE COUNT; see tests/interop/README.md.
"""

import os
import random
import sys
import time

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss


def say(text):
    print(text, flush=True)


def wait_for(file):
    while not os.path.exists(file):
        time.sleep(0.01)


def work_on(item, state, name):
    """Works on an item, and looks whether somebody else does so too."""
    own = f"{item}@{name}"
    os.close(os.open(os.path.join(state, own), os.O_CREAT | os.O_EXCL))
    for other in os.listdir(state):
        if other.startswith(f"{item}@") and other != own:
            say(f"VIOLATION {other}")
    time.sleep(random.random() * 0.02)
    say(f"TOOK {item}")
    os.remove(os.path.join(state, own))


def take(queue, state, name):
    """Takes until there is the file `end`."""
    while not os.path.exists("end"):
        item = queue.get()
        if item is None:
            time.sleep(0.01)
        else:
            work_on(item.decode(), state, name)


def take_locked(queue, state, name):
    while not os.path.exists("end"):
        try:
            item = queue.get(timeout=0.2)
        except ConnectionLoss:
            say("LOST")
            continue
        if item is None:
            say("NOTHING")
        else:
            work_on(item.decode(), state, name)
            queue.consume()


def take_once(queue):
    """Waits for an item for some seconds."""
    item = queue.get(timeout=6)
    say("NOTHING" if item is None else f"TOOK {item.decode()}")


def main(connect, session_ms, path, _, kind, name, state, count):
    client = KazooClient(
        hosts=connect,
        timeout=int(session_ms) / 1000,
        connection_retry={"max_tries": -1, "delay": 0.02, "max_delay": 0.1},
        command_retry={"max_tries": -1, "delay": 0.02, "max_delay": 0.1},
    )
    client.add_listener(lambda state: say(f"STATE {state}"))
    client.start(timeout=30)
    queue = client.Queue(path) if kind == "queue" else client.LockingQueue(path)
    # Makes the nodes.
    len(queue)
    say("READY")
    if int(count) > 0:
        wait_for("go")
        for number in range(int(count)):
            queue.put(f"{name}-{number}".encode())
            say(f"PUT {name}-{number}")
    elif kind == "queue":
        take(queue, state, name)
    elif kind == "once":
        take_once(queue)
    else:
        take_locked(queue, state, name)
    say("DONE")
    client.stop()


main(*sys.argv[1:])
