"""Another application beside that of a benchmark: a process with a driver and with executors of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.stateful import Running
from rhino.testing.query_watch import RunError
from rhino.testing.session import close_driver, open_session

ROOT = Path(__file__).resolve().parents[1]


class Application:
    """A process that runs until it has printed one line, its outcome."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def outcome(self, timeout_s: float) -> str:
        """Waits for its end. Returns its last line. Raises RunError if it takes longer, or ends without one."""
        try:
            printed, _ = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise RunError(f"the other application has not ended within {timeout_s:g} s; see {self._log}") from None
        lines = printed.split("\n")[:-1]
        if self._process.returncode or not lines:
            raise RunError(f"the other application has ended with {self._process.returncode}; see {self._log}")
        return lines[-1]


@contextmanager
def application(run: Running, module: str, *arguments: str) -> Iterator[Application]:
    """Runs `python -m module` with `arguments`, beside `run` and with its settings. It ends with the context.

    The module calls `session`, and prints its outcome.
    """
    name = module.rpartition(".")[0].rpartition(".")[2]
    log = run.cluster.log_dir / f"{name}-driver.log"
    command = [sys.executable, "-m", module, *arguments]
    pipe = subprocess.PIPE
    with log.open("ab") as errors:
        process = subprocess.Popen(command, cwd=ROOT, text=True, stdin=pipe, stdout=pipe, stderr=errors)
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps({"conf": {**run.conf, "spark.app.name": name}, "log": str(log)}) + "\n")
        process.stdin.flush()
        yield Application(process, log)
    finally:
        process.kill()  # its JVM ends with it
        process.wait()


@contextmanager
def session() -> Iterator[SparkSession]:
    """The session of the process that `application` has started."""
    given = json.loads(sys.stdin.readline())
    try:
        yield open_session(given["conf"], log_path=Path(given["log"]))
    finally:
        close_driver()
