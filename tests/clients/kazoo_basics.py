"""What a server must get right below the recipes, as kazoo sees it:
`kazoo_basics.py CONNECT [CA CERTIFICATE KEY]`, the latter three with TLS.

Prints a line `OK <what>` for each that is as on Apache ZooKeeper, else `FAILED <what>` with the reason;
the exit code tells whether all are fine.
"""

import logging
import sys
import traceback

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

LIMIT = 20
# Fewer than fill a request; their reply is a third of the longest.
CREATES = 13_000
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def fresh(client, path):
    if client.exists(path):
        client.delete(path, recursive=True)
    client.ensure_path(path)


@check
def null_data(client):
    fresh(client, "/null")
    client.create("/null/none", None)
    client.create("/null/ephemeral", None, ephemeral=True)
    client.create("/null/empty", b"")
    client.create("/null/some", b"x")
    read = {name: client.get("/null/" + name)[0] for name in ("none", "ephemeral", "empty", "some")}
    assert read == {"none": None, "ephemeral": None, "empty": b"", "some": b"x"}, read
    client.set("/null/some", None)
    client.set("/null/none", b"")
    client.set("/null/empty", None)
    read = {name: client.get("/null/" + name)[0] for name in ("some", "none", "empty")}
    assert read == {"some": None, "none": b"", "empty": None}, read
    assert client.get("/null/some")[1].data_length == 0


@check
def many_creates_in_one(client):
    fresh(client, "/many")
    paths = ["/many/%d" % i for i in range(CREATES)]
    creates = client.transaction()
    for path in paths:
        creates.create(path)
    results = creates.commit()
    assert results == paths, [result for result in results if result not in paths][:3]
    assert len(client.get_children("/many")) == CREATES
    deletes = client.transaction()
    for path in paths:
        deletes.delete(path)
    deletes.delete("/many")
    assert deletes.commit() == [True] * (CREATES + 1)
    try:
        client.get("/many")
        raise AssertionError("still there")
    except NoNodeError:
        pass


def version(client):
    numbers = client.server_version()
    assert len(numbers) == 3 and numbers[0] == 3 and numbers[1] >= 8, numbers


def connect(address, ca=None, certificate=None, key=None):
    tls = {} if ca is None else {
        "use_ssl": True, "ca": ca, "certfile": certificate, "keyfile": key,
    }
    client = KazooClient(hosts=address, timeout=20.0, **tls)
    client.start(timeout=LIMIT)
    return client


def main():
    logging.basicConfig(level=logging.ERROR)
    failed = False
    client = connect(*sys.argv[1:])
    # It asks for words in the clear.
    checks = CHECKS if len(sys.argv) > 2 else CHECKS + [version]
    for function in checks:
        try:
            function(client)
            print("OK", function.__name__, flush=True)
        except Exception:
            failed = True
            print("FAILED", function.__name__, flush=True)
            traceback.print_exc()
    client.stop()
    client.close()
    sys.exit(1 if failed else 0)


main()
