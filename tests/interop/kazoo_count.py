"""Prints how many children a node has; 0 if there is no such node. Arguments: CONNECT PATH"""

import sys

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError


def children(client, path):
    try:
        return client.get_children(path)
    except NoNodeError:
        return []


def main(connect, path):
    client = KazooClient(hosts=connect)
    client.start()
    try:
        print(len(children(client, path)))
    finally:
        client.stop()
        client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
