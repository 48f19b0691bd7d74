"""Every recipe of kazoo, one after the other: `kazoo_recipes.py CONNECT`.

Prints a line `OK <recipe>` for each that does what kazoo's documentation says, else `FAILED
<recipe>` with the reason; the exit code tells whether all are fine.
"""

import logging
import sys
import threading
import time
import traceback

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, LockTimeout, NoNodeError, RolledBackError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.recipe.cache import TreeCache, TreeEvent
from kazoo.recipe.lease import MultiNonBlockingLease, NonBlockingLease
from kazoo.recipe.partitioner import SetPartitioner
from kazoo.recipe.party import ShallowParty
from kazoo.security import make_digest_acl

LIMIT = 20
RECIPES = []


def recipe(function):
    RECIPES.append(function)
    return function


def wait_until(what, holds):
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline, "never: " + what
        time.sleep(0.01)


class Background(threading.Thread):
    """Runs a function and keeps what it returned or raised."""

    def __init__(self, function):
        super().__init__(daemon=True)
        self.function = function
        self.result = self.error = None
        self.start()

    def run(self):
        try:
            self.result = self.function()
        except BaseException as error:
            self.error = error

    def finish(self):
        self.join(LIMIT)
        assert not self.is_alive(), "it did not end"
        if self.error is not None:
            raise self.error
        return self.result


def contended(one, other):
    """Whether the second holder waits for the first."""
    assert one.acquire(timeout=LIMIT)
    assert not other.acquire(blocking=False)
    waiting = Background(lambda: other.acquire(timeout=LIMIT))
    time.sleep(0.1)
    assert waiting.is_alive(), "it did not wait"
    one.release()
    assert waiting.finish()
    other.release()


@recipe
def lock(a, b):
    contended(a.Lock("/lock", "a"), b.Lock("/lock", "b"))
    one, other = a.Lock("/lock", "a"), b.Lock("/lock", "b")
    with one:
        assert other.contenders() == ["a"]
        try:
            other.acquire(timeout=0.2)
            raise AssertionError("acquired in spite of its holder")
        except LockTimeout:
            pass
    with other:
        pass
    assert a.get_children("/lock") == []


@recipe
def read_and_write_lock(a, b):
    readers = [a.ReadLock("/rwlock", "a"), b.ReadLock("/rwlock", "b")]
    for reader in readers:
        assert reader.acquire(timeout=LIMIT)
    writer = a.WriteLock("/rwlock", "w")
    assert not writer.acquire(blocking=False)
    for reader in readers:
        reader.release()
    contended(writer, b.ReadLock("/rwlock", "b"))
    contended(b.WriteLock("/rwlock", "b"), a.WriteLock("/rwlock", "a"))


@recipe
def semaphore(a, b):
    holders = [a.Semaphore("/semaphore", "a", 2), b.Semaphore("/semaphore", "b", 2)]
    for holder in holders:
        assert holder.acquire(timeout=LIMIT)
    assert sorted(holders[0].lease_holders()) == ["a", "b"]
    late = b.Semaphore("/semaphore", "c", 2)
    waiting = Background(lambda: late.acquire(timeout=LIMIT))
    time.sleep(0.1)
    assert waiting.is_alive()
    holders[0].release()
    assert waiting.finish()
    late.release()
    holders[1].release()


@recipe
def counter(a, b):
    counters = [a.Counter("/counter"), b.Counter("/counter")]
    threads = []
    for each in counters:
        def count(each=each):
            for _ in range(20):
                each += 1
        threads.append(Background(count))
    for thread in threads:
        thread.finish()
    assert counters[0].value == 40
    counters[1] -= 5
    assert counters[0].value == 35
    real = a.Counter("/counter-real", default=1.5)
    real += 1.0
    assert b.Counter("/counter-real", default=1.5).value == 2.5


@recipe
def queue(a, b):
    one, other = a.Queue("/queue"), b.Queue("/queue")
    for item, priority in [(b"low", 200), (b"first", 100), (b"second", 100), (b"high", 1)]:
        one.put(item, priority)
    assert len(other) == 4
    assert [other.get() for _ in range(5)] == [b"high", b"first", b"second", b"low", None]


@recipe
def locking_queue(a, b):
    one, other = a.LockingQueue("/locking-queue"), b.LockingQueue("/locking-queue")
    one.put_all([b"x", b"y"])
    assert other.get(LIMIT) == b"x"
    assert other.holds_lock()
    assert one.get(LIMIT) == b"y", "a taken item is not given twice"
    assert other.consume() and one.release()
    assert other.get(LIMIT) == b"y", "a released item comes back"
    assert other.consume()
    assert one.get(0.2) is None
    waiting = Background(lambda: one.get(LIMIT))
    other.put(b"z", 50)
    assert waiting.finish() == b"z"
    assert one.consume()


@recipe
def party(a, b):
    one, other = a.Party("/party", "a"), b.Party("/party", "b")
    one.join()
    other.join()
    assert sorted(one) == ["a", "b"] and len(other) == 2
    one.leave()
    wait_until("one member is left", lambda: list(other) == ["b"])
    other.leave()


@recipe
def shallow_party(a, b):
    one, other = ShallowParty(a, "/shallow", "a"), ShallowParty(b, "/shallow", "b")
    one.join()
    other.join()
    assert sorted(one) == ["a", "b"]
    one.leave()
    assert list(other) == ["b"]
    other.leave()


@recipe
def barrier(a, b):
    one, other = a.Barrier("/barrier"), b.Barrier("/barrier")
    one.create()
    assert not other.wait(0.1)
    waiting = Background(lambda: other.wait(LIMIT))
    time.sleep(0.1)
    assert one.remove()
    assert waiting.finish()
    assert not one.remove() and other.wait(LIMIT)


@recipe
def double_barrier(a, b):
    inside = []

    def visit(client, name):
        gate = client.DoubleBarrier("/double-barrier", 2, name)
        gate.enter()
        inside.append(name)
        wait_until("both are inside", lambda: len(inside) == 2)
        gate.leave()

    visits = [Background(lambda: visit(a, "a")), Background(lambda: visit(b, "b"))]
    for each in visits:
        each.finish()
    assert a.get_children("/double-barrier") == []


@recipe
def election(a, b):
    leading, done = [], threading.Event()

    def lead(name):
        leading.append(name)
        done.wait(LIMIT)

    elections = [a.Election("/election", "a"), b.Election("/election", "b")]
    runs = [Background(lambda: elections[0].run(lead, "a"))]
    wait_until("a leads", lambda: leading == ["a"])
    runs.append(Background(lambda: elections[1].run(lead, "b")))
    wait_until("both contend", lambda: elections[1].contenders() == ["a", "b"])
    assert leading == ["a"]
    done.set()
    for run in runs:
        run.finish()
    assert leading == ["a", "b"]


@recipe
def data_watch(a, b):
    seen = []
    a.DataWatch("/data-watch", lambda data, stat: seen.append(data))
    for data in [b"one", b"two"]:
        if data == b"one":
            b.create("/data-watch", data)
        else:
            b.set("/data-watch", data)
        wait_until("it sees the change", lambda: seen[-1] == data)
    b.delete("/data-watch")
    wait_until("it sees the end", lambda: seen[-1] is None)
    assert seen == [None, b"one", b"two", None]


@recipe
def children_watch(a, b):
    seen = []
    b.ensure_path("/children-watch")
    a.ChildrenWatch("/children-watch", lambda children: seen.append(sorted(children)))
    b.create("/children-watch/x")
    wait_until("it sees x", lambda: seen[-1] == ["x"])
    b.create("/children-watch/y", ephemeral=True)
    wait_until("it sees y", lambda: seen[-1] == ["x", "y"])
    b.delete("/children-watch/x")
    wait_until("it sees the end of x", lambda: seen[-1] == ["y"])


@recipe
def transactions(a, b):
    transaction = a.transaction()
    transaction.create("/transaction", b"1")
    transaction.create("/transaction/n-", sequence=True)
    transaction.set_data("/transaction", b"2")
    transaction.check("/transaction", 1)
    results = transaction.commit()
    assert results[:2] == ["/transaction", "/transaction/n-0000000000"], results
    assert results[2].version == 1 and results[3] is True
    failing = b.transaction()
    failing.set_data("/transaction", b"3")
    failing.check("/transaction", 7)
    failing.delete("/transaction")
    kinds = [type(result) for result in failing.commit()]
    assert kinds[:2] == [RolledBackError, BadVersionError], kinds
    assert a.get("/transaction")[0] == b"2"


@recipe
def tree_cache(a, b):
    cache, events = TreeCache(a, "/tree-cache"), []
    b.ensure_path("/tree-cache/x")
    cache.listen(lambda event: events.append(event.event_type))
    cache.start()
    wait_until("it is filled", lambda: TreeEvent.INITIALIZED in events)
    b.create("/tree-cache/x/y", b"1")
    wait_until("it knows y", lambda: cache.get_data("/tree-cache/x/y") is not None)
    b.set("/tree-cache/x/y", b"2")
    wait_until("it knows the change", lambda: cache.get_data("/tree-cache/x/y").data == b"2")
    b.delete("/tree-cache/x", recursive=True)
    wait_until("it knows the end", lambda: cache.get_data("/tree-cache/x/y") is None)
    cache.close()


@recipe
def set_partitioner(a, b):
    both = [SetPartitioner(client, "/partition", ("1", "2", "3"), identifier=name,
                           time_boundary=0.2)
            for client, name in ((a, "a"), (b, "b"))]
    deadline = time.monotonic() + LIMIT
    while not all(each.acquired for each in both):
        assert time.monotonic() < deadline, [each.state for each in both]
        for each in both:
            if each.release:
                each.release_set()
            elif each.allocating:
                each.wait_for_acquire(0.1)
    assert sorted([*both[0], *both[1]]) == ["1", "2", "3"]
    for each in both:
        each.finish()


@recipe
def leases(a, b):
    from datetime import timedelta
    hour = timedelta(hours=1)
    assert NonBlockingLease(a, "/lease", hour, identifier="a")
    assert not NonBlockingLease(b, "/lease", hour, identifier="b")
    assert NonBlockingLease(a, "/lease", hour, identifier="a"), "it may renew"
    multi = [bool(MultiNonBlockingLease(a, 2, "/leases", hour, identifier=name))
             for name in ("a", "b", "c")]
    assert multi == [True, True, False], multi


@recipe
def access_control(a, b):
    a.add_auth("digest", "user:secret")
    a.create("/private", b"x", acl=[make_digest_acl("user", "secret", all=True)])
    try:
        b.get("/private")
        raise AssertionError("anyone can read it")
    except Exception as error:
        assert type(error).__name__ == "NoAuthError", error
    b.add_auth("digest", "user:secret")
    assert b.get("/private")[0] == b"x"


@recipe
def session_end(a, b):
    other = connect(sys.argv[1])
    other.create("/session-end", ephemeral=True)
    gone = threading.Event()
    assert a.exists("/session-end", watch=lambda event: gone.set())
    other.stop()
    assert gone.wait(LIMIT)
    assert a.exists("/session-end") is None
    try:
        a.get("/session-end")
        raise AssertionError("still there")
    except NoNodeError:
        pass


def connect(address):
    client = KazooClient(hosts=address, timeout=10.0)
    client.start(timeout=LIMIT)
    return client


def main():
    logging.basicConfig(level=logging.ERROR)
    failed = False
    clients = [connect(sys.argv[1]) for _ in range(2)]
    for function in RECIPES:
        try:
            function(*clients)
            print("OK", function.__name__, flush=True)
        except (Exception, KazooTimeoutError):
            failed = True
            print("FAILED", function.__name__, flush=True)
            traceback.print_exc()
    for client in clients:
        client.stop()
        client.close()
    sys.exit(1 if failed else 0)


main()
