"""Prints what kazoo's DataWatch tells of a node, until it is killed: a line `VALUE VERSION DATA` for each
state, and `ABSENT` without a node.

Arguments: CONNECT PATH; see tests/interop/README.md.
"""

import sys
import threading

from kazoo.client import KazooClient


def main(connect, path):
    client = KazooClient(
        hosts=connect,
        timeout=10,
        connection_retry={"max_tries": -1, "delay": 0.02},
        command_retry={"max_tries": -1, "max_delay": 1},
    )
    client.start(timeout=30)

    @client.DataWatch(path)
    def told(data, stat):
        line = "ABSENT" if stat is None else f"VALUE {stat.version} {data.decode()}"
        print(line, flush=True)

    threading.Event().wait()


main(*sys.argv[1:])
