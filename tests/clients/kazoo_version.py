"""The version of a server, as kazoo reads it: `kazoo_version.py CONNECT` prints `OK 3.9.4`."""

import sys

from kazoo.client import KazooClient

client = KazooClient(hosts=sys.argv[1])
client.start()
try:
    print("OK", ".".join(str(number) for number in client.server_version()))
finally:
    client.stop()
    client.close()
