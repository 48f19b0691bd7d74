"""Measures kazoo's Lock and SetPartitioner. Argument: where to connect.

Reads orders, `cycles TASKS WARM_UP_MS MEASURE_MS`, `handoffs CLIENTS WARM_UP_MS MEASURE_MS` or
`partitions MEMBERS ITEMS 0`, and answers each with a line of JSON. Ends with its input.
"""

import json
import math
import sys
import threading
import time

from kazoo.client import KazooClient


class Window:
    """Warm-up, then the time that counts."""

    def __init__(self, warm_up_ms, measure_ms):
        self.opens = time.perf_counter() + warm_up_ms / 1e3
        self.seconds = measure_ms / 1e3

    def counts(self, end):
        return self.opens <= end < self.opens + self.seconds

    def is_over(self, now):
        return now >= self.opens + self.seconds


class Baton:
    """What one holder leaves for the next; only ever used by who holds the lock."""

    holder = None
    released = 0.0
    grants = 0


def connect(servers):
    client = KazooClient(hosts=servers, timeout=10.0)
    client.start()
    return client


def percentiles(seconds):
    seconds = sorted(seconds)

    def at(quantile):
        rank = max(math.ceil(quantile * len(seconds)), 1)
        return int(seconds[rank - 1] * 1e9) if seconds else 0

    return {"count": len(seconds), "p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": at(1)}


def run_all(targets):
    errors = []

    def guarded(target):
        try:
            target()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def cycles(client, tasks, window):
    """Each thread has a lock of its own, which nobody else wants."""
    acquires, times = [], []

    def cycle(lock):
        start = time.perf_counter()
        while not window.is_over(start):
            lock.acquire()
            acquired = time.perf_counter()
            lock.release()
            end = time.perf_counter()
            if window.counts(end):
                acquires.append(acquired - start)
                times.append(end - start)
            start = end

    locks = [client.Lock(f"/kazoo/cycles-{task}") for task in range(tasks)]
    run_all([lambda lock=lock: cycle(lock) for lock in locks])
    return {
        "per_second": len(times) / window.seconds,
        "acquire": percentiles(acquires),
        "latency": percentiles(times),
    }


def hand_offs(clients, window):
    """All threads want one lock, each through a connection of its own."""
    baton, waits = Baton(), []

    def contend(me, lock):
        while not window.is_over(time.perf_counter()):
            lock.acquire()
            now = time.perf_counter()
            if window.counts(now):
                baton.grants += 1
                if baton.holder is not None and baton.holder != me:
                    waits.append(now - baton.released)
            baton.holder = me
            baton.released = time.perf_counter()
            lock.release()

    locks = [client.Lock("/kazoo/hand-offs") for client in clients]
    run_all([lambda me=me, lock=lock: contend(me, lock) for me, lock in enumerate(locks)])
    return {
        "per_second": len(waits) / window.seconds,
        "grants_per_second": baton.grants / window.seconds,
        "latency": percentiles(waits),
    }


class Member:
    """Shares items with others, until it is told to leave."""

    def __init__(self, client, path, items, number):
        self.number = number
        self.left = threading.Event()
        self.shares = client.SetPartitioner(path, items, identifier=f"member-{number}")

    def owned(self):
        return list(self.shares) if self.shares.acquired else []

    def run(self):
        while not self.left.is_set():
            if self.shares.failed:
                raise RuntimeError("the partitioner has failed")
            if self.shares.release:
                self.shares.release_set()
            elif self.shares.acquired:
                time.sleep(0.001)
            else:
                self.shares.wait_for_acquire(timeout=1)
        self.shares.finish()


def owners_of(members, items):
    """Waits until each item has an owner; which one each has."""
    while True:
        owners = {item: member.number for member in members for item in member.owned()}
        if len(owners) == len(items):
            return owners
        time.sleep(0.001)


def one_leaves(clients, count):
    """The share of moved items is in the place of a rate."""
    path, items = f"/kazoo/partitions-{time.time_ns()}", tuple(f"item-{n}" for n in range(count))
    members = [Member(client, path, items, n) for n, client in enumerate(clients)]
    threads = [threading.Thread(target=member.run, daemon=True) for member in members]
    for thread in threads:
        thread.start()
    before = owners_of(members, items)
    leaver = members.pop()
    start = time.perf_counter()
    leaver.left.set()
    threads.pop().join()
    after = owners_of(members, items)
    took = time.perf_counter() - start
    for member in members:
        member.left.set()
    for thread in threads:
        thread.join()
    moved = sum(before[item] != after[item] for item in items)
    had = sum(owner == leaver.number for owner in before.values())
    return {"per_second": moved / had, "latency": percentiles([took])}


def perform(servers, shared, order):
    what, tasks, warm_up, measure = order.split()
    tasks, warm_up, measure = int(tasks), int(warm_up), int(measure)
    if what == "cycles":
        return cycles(shared, tasks, Window(warm_up, measure))
    clients = [connect(servers) for _ in range(tasks)]
    try:
        if what == "partitions":
            return one_leaves(clients, warm_up)
        return hand_offs(clients, Window(warm_up, measure))
    finally:
        for client in clients:
            client.stop()
            client.close()


def main():
    servers = sys.argv[1]
    shared = connect(servers)
    for order in sys.stdin:
        try:
            answer = perform(servers, shared, order)
        except Exception as error:
            answer = {"error": repr(error)}
        print(json.dumps(answer), flush=True)


main()
