"""Adds 1 to one of kazoo's counters so many times.

Arguments: CONNECT PATH KIND ADDS, where KIND is `ascii` or `curator`; see tests/interop/README.md.
"""

import sys

from kazoo.client import KazooClient


def main(connect, path, kind, adds):
    client = KazooClient(
        hosts=connect, timeout=10, connection_retry={"max_tries": -1, "delay": 0.02}
    )
    client.start(timeout=30)
    counter = client.Counter(path, support_curator=kind == "curator")
    for _ in range(int(adds)):
        counter += 1
        print(f"ADDED {counter.pre_value} {counter.post_value}", flush=True)
    print("DONE", flush=True)
    client.stop()


main(*sys.argv[1:])
