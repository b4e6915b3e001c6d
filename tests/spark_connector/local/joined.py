"""Run by test_daemons.py in processes of their own: a user of a data directory, until its standard input ends."""

from __future__ import annotations

import json
import os
import signal
import sys

from spark_connector.local.daemons import join


def main() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever runs the tests may ignore these, as nohup does
    signal.signal(signal.SIGINT, signal.default_int_handler)
    daemons = join(sys.argv[1])
    running = daemons.directory.running()
    assert running is not None
    print(json.dumps({"pid": os.getpid(), "manager": daemons.manager, "supervisor": running.pid}), flush=True)
    for _ in sys.stdin:
        again = join(sys.argv[1])
        print(json.dumps({"manager": again.manager}), flush=True)


if __name__ == "__main__":
    main()
