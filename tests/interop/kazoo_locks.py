"""Takes turns with one of kazoo's locks for some seconds, and checks each time, through the file
system alone, that nobody is inside who must not be.

Arguments: CONNECT KIND PATH SECONDS STATE_DIR SESSION_MS NAME SEED
See tests/interop/README.md.

Exit code: 0 done, 2 an error, 3 somebody was inside who must not be.
"""

import os
import random
import sys
import time
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock, ReadLock, Semaphore, WriteLock
from kazoo.retry import ForceRetryError
from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE


# The names of several locks below the path, and of their folders.
ROOMS = "abc"


class CuratorNamedLock(Lock):
    """Where Curator's programs take part too, its names must be used; kazoo_contender.py says
    why."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


class PatientReadLock(ReadLock):
    """kazoo's reader waits for the last writer of all, also for one that is behind it and waits for
    it (kazoo issue 649). This one looks only at those ahead."""

    def _get_predecessor(self, node):
        children = self.client.get_children(self.path)
        if node not in children:
            raise ForceRetryError()
        writers = [child for child in children if self._contenders_re.search(child)]
        ahead = [writer for writer in writers if writer[-10:] < node[-10:]]
        return max(ahead, key=lambda writer: writer[-10:], default=None)


class CuratorNamedReadLock(PatientReadLock):
    _NODE_NAME = "-__READ__"
    _EXCLUDE_NAMES = ["__WRIT__"]


class CuratorNamedWriteLock(WriteLock):
    _NODE_NAME = "-__WRIT__"
    _EXCLUDE_NAMES = ["__WRIT__", "__READ__"]


class Violation(Exception):
    """Somebody was inside who must not be."""


class Room:
    """The folder in which those show themselves who hold one lock."""

    def __init__(self, folder, name, permits):
        self.folder = folder
        self.name = name
        self.permits = permits

    def enter(self, tag):
        """Shows that one is inside; then looks who else is. Of two, the later one sees the
        other."""
        self.inside(tag).open("x").close()
        others = [other for other in os.listdir(self.folder / "inside")
                  if other != self.inside(tag).name]
        fine = {
            "x": not others,
            "r": not any(other.startswith("x-") for other in others),
            "p": len(others) < self.permits,
        }
        if not fine[tag]:
            raise Violation(f"VIOLATION {tag}-{self.name} with {others}")

    def leave(self, tag):
        self.inside(tag).unlink()

    def inside(self, tag):
        return self.folder / "inside" / f"{tag}-{self.name}"

    def log_token(self, client, node):
        czxid = client.retry(client.exists, node).czxid
        with (self.folder / "log").open("a") as log:
            log.write(f"{czxid}\n")

    def count(self, pause):
        counter = self.folder / "counter"
        count = int(counter.read_text()) if counter.exists() else 0
        pause(20)
        following = self.folder / f"counter-{self.name}"
        following.write_text(str(count + 1))
        following.replace(counter)


class Contender:
    def __init__(self, client, kind, path, state, name, seed):
        self.client = client
        self.kind, _, self.permits = kind.partition(":")
        self.path = path
        self.state = state
        self.room = Room(state, name, int(self.permits or 1))
        self.name = name
        self.random = random.Random(seed)

    def turn(self):
        """Takes a turn, and returns what kind of turn it was.

        Each has a lock object of its own: an old one believes that the parents which it has
        created are still there.
        """
        if self.kind.endswith("multi"):
            return self.hold_several()
        if self.kind == "semaphore":
            return self.hold(Semaphore(self.client, self.path, self.name, int(self.permits)), "p")
        curator = {
            "mutex": CuratorNamedLock,
            "read": CuratorNamedReadLock,
            "write": CuratorNamedWriteLock,
        }
        kazoo = {"mutex": Lock, "read": PatientReadLock, "write": WriteLock}
        names = kazoo if self.kind.startswith("kazoo-") else curator
        if self.kind.endswith("mutex"):
            return self.hold(names["mutex"](self.client, self.path, self.name), "x")
        if self.random.random() < 0.5:
            return self.hold(names["read"](self.client, self.path, self.name), "r")
        return self.hold(names["write"](self.client, self.path, self.name), "x")

    def hold(self, lock, tag):
        lock.acquire()
        try:
            self.room.enter(tag)
            if self.kind.endswith("mutex"):
                self.room.log_token(self.client, f"{self.path}/{lock.node}")
            if tag == "x":
                self.room.count(self.pause)
            else:
                self.pause(20)
            self.room.leave(tag)
        finally:
            lock.release()
        return tag

    def hold_several(self):
        """Takes some of the locks, in the order of their paths, which all must keep; each has a
        room of its own."""
        names = CuratorNamedLock if self.kind == "multi" else Lock
        chosen = [letter for letter in ROOMS if self.random.random() < 0.67]
        locks = [names(self.client, f"{self.path}/{letter}", self.name) for letter in chosen]
        rooms = [Room(self.state / letter, self.name, 1) for letter in chosen]
        held = []
        try:
            for lock in locks:
                lock.acquire()
                held.append(lock)
            for room, lock in zip(rooms, locks):
                room.enter("x")
                room.log_token(self.client, f"{lock.path}/{lock.node}")
            for room in rooms:
                room.count(self.pause)
            for room in rooms:
                room.leave("x")
        finally:
            for lock in reversed(held):
                lock.release()
        return "".join(chosen)

    def pause(self, most_ms):
        time.sleep(self.random.uniform(0, most_ms) / 1000)


def credentials():
    """The creator may do everything, and everyone may read, if there are credentials."""
    digest = os.environ.get("CONTENDER_DIGEST")
    if not digest:
        return {}
    acl = CREATOR_ALL_ACL + READ_ACL_UNSAFE
    return {"auth_data": [("digest", digest)], "default_acl": acl}


def main(connect, kind, path, seconds, state, session_ms, name, seed):
    client = KazooClient(hosts=connect, timeout=int(session_ms) / 1000, **credentials())
    client.start()
    try:
        contender = Contender(client, kind, path, Path(state), name, int(seed))
        end = time.monotonic() + int(seconds)
        while time.monotonic() < end:
            turn = contender.turn()
            if turn:
                print("TURN", turn, flush=True)
            contender.pause(10)
        print("DONE", flush=True)
        return 0
    except Violation as violation:
        print(violation, flush=True)
        return 3
    finally:
        client.stop()
        client.close()


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
