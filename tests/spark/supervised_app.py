"""Run by test_supervise.py in a process of its own: another version of the query, with a driver of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from rhino.testing.session import open_session
from rhino_core import failpoints
from tests.spark.supervised import start


def main() -> None:
    conf, folder, version = sys.argv[1:]
    failpoints.arm(os.environ)
    spark = open_session(json.loads(conf), log_path=Path(folder) / f"driver-{version}-{os.getpid()}.log")
    spark.sparkContext.setLogLevel("INFO")  # a test reads there that an executor has loaded a store
    print(f"jvm {spark.sparkContext._gateway.proc.pid}", flush=True)
    running = start(spark, Path(folder), version)
    try:
        print(f"ended {running.wait()}", flush=True)
    except Exception as error:
        print(f"failed {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
