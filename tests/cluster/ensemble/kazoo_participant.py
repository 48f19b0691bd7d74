"""Takes kazoo's locks again and again, as a careful program would, and says all that it is told to
the recorder; see tests/cluster/ensemble/README.md.

Arguments: CONNECT FOLDER SESSION_MS NAME SEED
"""

import json
import random
import socket
import sys
import threading
import time
from pathlib import Path

from kazoo.client import KazooClient, KazooState
from kazoo.recipe.lock import Semaphore

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "interop"))
from kazoo_locks import CuratorNamedLock, CuratorNamedReadLock, CuratorNamedWriteLock  # noqa: E402

PERMITS = 2
# Longer than anything takes while nothing is wrong.
PATIENCE = 40
HOLD = 0.3
# How much of a lock one has.
ALONE = "Alone"


class Recorder:
    """The way to the recorder, whose clock is CLOCK_MONOTONIC."""

    def __init__(self, path, who):
        self.path = path
        self.who = who
        self.lock = threading.Lock()
        self.events = self.introduce()

    def introduce(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(self.path))
        connection.sendall(f"{self.who}\n".encode())
        return connection

    def say(self, nanos, words):
        with self.lock:
            self.events.sendall(f"{nanos} {words}\n".encode())

    def what(self, nanos, what):
        self.say(nanos, f"what {json.dumps(what)}")

    def write(self, lock, token):
        with self.introduce() as connection:
            connection.sendall(f"{time.monotonic_ns()} write {lock} {token}\n".encode())
            connection.recv(16)


class Session:
    """A client, and the warnings that a careful program stops at."""

    def __init__(self, connect, session_ms, recorder):
        self.recorder = recorder
        self.warnings = []
        self.client = KazooClient(hosts=connect, timeout=int(session_ms) / 1000)
        self.client.add_listener(self.hear)

    def __enter__(self):
        self.client.start(timeout=PATIENCE)
        self.tell()
        return self

    def __exit__(self, *_):
        self.client.remove_listener(self.hear)
        self.client.stop()
        self.client.close()

    def hear(self, state):
        if state != KazooState.CONNECTED:
            now = time.monotonic_ns()
            self.warnings.append(now)
            self.recorder.what(now, "Warned")
        else:
            self.tell()

    def tell(self):
        session = self.client.client_id
        if session is not None:
            self.recorder.say(time.monotonic_ns(), f"session 0x{session[0] & (1 << 64) - 1:x}")

    def first_warning(self, since):
        return next((warning for warning in self.warnings if warning >= since), None)


class Worker:
    """Contends for one of the locks, with a session of its own."""

    def __init__(self, connect, folder, session_ms, name, kind, seed):
        self.connect = connect
        self.folder = Path(folder)
        self.session_ms = session_ms
        self.kind = kind
        self.random = random.Random(seed)
        self.recorder = Recorder(self.folder / "recorder", f"{name}/{kind}")

    def work(self):
        """A failed call may have left a node behind, which would keep everyone out for as long as
        its session lives; so a session ends with the first failure."""
        while not self.stopped():
            try:
                with Session(self.connect, self.session_ms, self.recorder) as session:
                    while not self.stopped():
                        self.turn(session)
                        self.pause(0.3)
            except Exception as failed:
                why = f"starts anew: {type(failed).__name__}"
                self.recorder.what(time.monotonic_ns(), {"Note": why})
            self.pause(0.2)

    def turn(self, session):
        client, path = session.client, f"/locks/{self.kind}"
        if self.kind == "kazoo-semaphore":
            lock = Semaphore(client, path, "kazoo", PERMITS)
            share = {"Permits": {"taken": 1, "of": PERMITS}}
        elif self.kind == "mutex":
            lock, share = CuratorNamedLock(client, path, "kazoo"), ALONE
        elif self.random.random() < 0.5:
            lock, share = CuratorNamedReadLock(client, path, "kazoo"), "Reader"
        else:
            lock, share = CuratorNamedWriteLock(client, path, "kazoo"), ALONE
        if not lock.acquire(timeout=PATIENCE):
            raise TimeoutError
        believed = time.monotonic_ns()
        try:
            node = lock.create_path if self.kind == "kazoo-semaphore" else f"{path}/{lock.node}"
            stat = client.exists(node)
            token = stat.czxid if stat else 0
            here = {"lock": path, "token": token << 32}
            self.recorder.what(believed, {"Believes": {**here, "share": share}})
            self.hold(session, believed, path, node, token, share)
            ended = session.first_warning(believed) or time.monotonic_ns()
            self.recorder.what(ended, {"Stops": here})
        finally:
            lock.release()

    def hold(self, session, believed, path, node, token, share):
        end = time.monotonic() + self.random.uniform(0, HOLD)
        # Through all of what goes wrong, or in the middle of it.
        stubborn = self.random.random() < 0.75
        while time.monotonic() < end or (stubborn and self.in_trouble()):
            if session.first_warning(believed) is not None:
                break
            self.pause(0.1)
            if share == ALONE and token and self.random.random() < 0.3:
                self.write(session.client, path, node, token)

    def write(self, client, path, node, token):
        if self.random.random() < 0.5:
            self.recorder.write(path, token)
            return
        transaction = client.transaction()
        transaction.check(node, -1)
        transaction.set_data(path.replace("/locks", "/registers"), str(token).encode())
        written = transaction.commit()[1]
        if isinstance(written, Exception):
            raise written
        committed = {"lock": path, "token": token << 32, "zxid": written.mzxid}
        self.recorder.what(time.monotonic_ns(), {"Committed": committed})

    def in_trouble(self):
        return (self.folder / "trouble").exists()

    def stopped(self):
        return (self.folder / "stop").exists()

    def pause(self, most):
        time.sleep(self.random.uniform(0, most))


def main(connect, folder, session_ms, name, seed):
    threads = []
    for number, kind in enumerate(["mutex", "rw", "kazoo-semaphore"]):
        worker = Worker(connect, folder, session_ms, name, kind, int(seed) * 10 + number)
        threads.append(threading.Thread(target=worker.work))
        threads[-1].start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
