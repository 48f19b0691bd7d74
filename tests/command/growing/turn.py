"""A command that runs under a lock, and says so for as long as it does.

Arguments: LOG NAME LOCK HOLD. While the file HOLD exists, its turn does not end.
"""

import os
import sys
import time

LOG, NAME, LOCK, HOLD = sys.argv[1:]
TOKEN = os.environ["LOCKKEEPER_TOKEN"]
log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def say(what):
    # One write a line: several commands share the file.
    os.write(log, f"{time.monotonic_ns()} {NAME} {what} {LOCK} {TOKEN}\n".encode())


say("granted")
end = time.monotonic() + 0.05
said = False
while time.monotonic() < end or os.path.exists(HOLD):
    if not said and os.path.exists(HOLD):
        said = True
        say("holds-on")
    say("holds")
    time.sleep(0.005)
say("back")
