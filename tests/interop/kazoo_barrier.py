"""Does with kazoo's barriers what it is told, step by step.

Arguments: CONNECT SESSION_MS PATH PARTIES; see tests/interop/README.md.
"""

import sys
import threading

from kazoo.client import KazooClient

from kazoo_steps import next_step


class Steps:
    def __init__(self, client, path, parties):
        self.barrier = client.Barrier(path)
        self.new_party = lambda: client.DoubleBarrier(path, parties)
        self.entered = None

    def take(self, step, millis=None):
        seconds = None if millis is None else int(millis) / 1000
        if step == "close":
            self.barrier.create()
            return True
        if step == "open":
            self.barrier.remove()
            return True
        if step == "wait":
            return self.barrier.wait(seconds)
        if step == "enter":
            self.entered = self.new_party()
            return returns(self.entered.enter, seconds)
        if step == "entered":
            return self.entered.participating
        return returns(self.entered.leave, seconds)


def returns(call, seconds):
    """Whether it does within this time; it cannot be told one itself."""
    calling = threading.Thread(target=call, daemon=True)
    calling.start()
    calling.join(seconds)
    return not calling.is_alive()


def main(connect, session_ms, path, parties):
    client = KazooClient(
        hosts=connect,
        timeout=int(session_ms) / 1000,
        connection_retry={"max_tries": -1, "delay": 0.02, "max_delay": 0.1},
        command_retry={"max_tries": -1, "delay": 0.02, "max_delay": 0.1},
    )
    client.add_listener(lambda state: print("STATE", state, flush=True))
    client.start(timeout=30)
    steps = Steps(client, path, int(parties))
    number = 0
    while (step := next_step(".", number)) != "end":
        came = steps.take(*step.split(" "))
        print("DONE", "true" if came else "false", flush=True)
        number += 1
    client.stop()
    client.close()


main(*sys.argv[1:])
