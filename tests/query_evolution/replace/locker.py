"""Run by the tests in a process of its own: takes a POSIX lock on a file, says so, and keeps it until it is killed."""

import fcntl
import sys
import time
from pathlib import Path

with Path(sys.argv[1]).open("r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("locked", flush=True)
    time.sleep(600)
