"""Run by test_supervise.py in a process of its own: another version of the query, with a driver of its own."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from rhino.testing.session import open_session
from rhino_core import failpoints
from tests.spark.supervised import SILENT_S, TRIAL, start


def main() -> None:
    conf, folder, version, standby = sys.argv[1:]
    failpoints.arm(os.environ)
    spark = open_session(json.loads(conf), log_path=Path(folder) / f"driver-{version}-{os.getpid()}.log")
    spark.sparkContext.setLogLevel("INFO")  # a test reads there that an executor has loaded a store
    print(f"jvm {spark.sparkContext._gateway.proc.pid}", flush=True)
    trial = replace(TRIAL, silent_s=SILENT_S) if standby else TRIAL
    running = start(spark, Path(folder), version, trial=trial, standby=bool(standby))
    while standby and not running.rehearsed and running.wait(0.1) is None:
        pass
    print("ready", flush=True)
    try:
        print(f"ended {running.wait()}", flush=True)
    except Exception as error:
        print(f"failed {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
