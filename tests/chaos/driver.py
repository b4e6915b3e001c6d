"""A Spark driver in a process of its own, to be killed: `python -m tests.chaos.driver CONF FOLDER [QUERY...]`.

A query that fails is started again from its checkpoint, as a user's supervisor does, and the failure is written to
standard output as a JSON line. The end of standard input, or SIGTERM, ends it.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from rhino.testing.session import close_driver, open_session
from tests.chaos import queries

POLL_S = 0.2
ERROR_CHARACTERS = 50_000  # the cause of a failed batch stands behind its stack traces


def main(conf_path: str, folder: Path, names: Sequence[str]) -> None:
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    conf = json.loads(Path(conf_path).read_text())
    spark = open_session(conf, log_path=folder / "spark-driver.log")
    try:
        running = {name: queries.start(spark, name, folder) for name in names}
        while not ending.wait(POLL_S):
            for name, query in running.items():
                if (error := query.exception()) is not None:
                    print(json.dumps({"query": name, "error": str(error)[:ERROR_CHARACTERS]}), flush=True)
                    running[name] = queries.start(spark, name, folder)
        for query in running.values():
            query.stop()
    finally:
        close_driver()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:] or queries.NAMES)
