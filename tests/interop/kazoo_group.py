"""A member of one of kazoo's parties, until it is killed.

Arguments: CONNECT PATH KIND ID SESSION_MS; see tests/interop/README.md.
"""

import sys
import time

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException


def main(connect, path, kind, identifier, session):
    client = KazooClient(
        hosts=connect,
        timeout=int(session) / 1000,
        connection_retry={"max_tries": -1, "delay": 0.02},
    )
    client.add_listener(lambda state: print("STATE", state, flush=True))
    client.start(timeout=30)
    party = {"party": client.Party, "shallow": client.ShallowParty}[kind](path, identifier)
    party.join()
    while True:
        try:
            print("LOOK", ",".join(sorted(party)), flush=True)
        except KazooException:
            pass
        time.sleep(0.05)


main(*sys.argv[1:])
