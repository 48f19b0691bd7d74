"""Leads one of kazoo's elections so many times, one after the other.

Arguments: CONNECT PATH KIND ID TERMS SESSION_MS, where KIND is `election`; see tests/interop/README.md.
"""

import sys
import time

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError


def main(connect, path, _kind, identifier, terms, session_ms):
    client = KazooClient(
        hosts=connect,
        timeout=int(session_ms) / 1000,
        connection_retry={"max_tries": -1, "delay": 0.02},
    )
    client.start(timeout=30)

    # Whoever leads makes this node, which must not be there.
    def lead():
        try:
            client.create(path + "-mark", b"python", ephemeral=True)
            print("LEADS", flush=True)
            time.sleep(0.005)
            client.delete(path + "-mark")
        except NodeExistsError:
            print("OVERLAP", flush=True)

    for _ in range(int(terms)):
        client.Election(path, identifier).run(lead)
    print("DONE", flush=True)
    client.stop()


main(*sys.argv[1:])
