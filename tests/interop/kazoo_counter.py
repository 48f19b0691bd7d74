"""Adds 1 to one of kazoo's counters so many times.

Arguments: CONNECT PATH KIND ADDS [SECONDS], where KIND is `ascii` or `curator`; see tests/interop/README.md.
"""

import sys
import time

from kazoo.client import KazooClient


def main(connect, path, kind, adds, seconds="3600"):
    # By default the pause after a conflict doubles up to an hour.
    client = KazooClient(
        hosts=connect,
        timeout=10,
        connection_retry={"max_tries": -1, "delay": 0.02},
        command_retry={"max_tries": -1, "max_delay": 1},
    )
    client.start(timeout=30)
    counter = client.Counter(path, support_curator=kind == "curator")
    end = time.monotonic() + float(seconds)
    for _ in range(int(adds)):
        if time.monotonic() > end:
            break
        counter += 1
        print(f"ADDED {counter.pre_value} {counter.post_value}", flush=True)
    print("DONE", flush=True)
    client.stop()


main(*sys.argv[1:])
