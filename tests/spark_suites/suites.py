"""Runs modules of PySpark's own tests: on Spark's own state store, and in both integration modes of Rhino."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rhino import rhino_conf
from rhino.client.overview import fetch_overview
from rhino.testing.reaper import Reaper
from rhino.testing.rhino_daemons import start_manager, start_sidecar, wait_manager, wait_sidecar
from rhino.testing.spark_daemons import lean_jvm, spark_env
from rhino_core.settings import SidecarSettings
from spark_connector.conf import PROVIDER_CLASSES, STREAMING

REPOSITORY = Path(__file__).parents[2]
STOP_TIMEOUT_S = 5.0
MODULE_TIMEOUT_S = 1200.0
INTEGRATIONS = ("stock", "provider", "checkpoint")


@dataclass(frozen=True, slots=True)
class Expected:
    """Conditions without which the success of a module would mean nothing."""

    passing: int  # tests that pass on stock, at least
    served: int  # queries whose state Rhino keeps, at least, with their checkpoints on rhino://
    by_provider: int = 0  # the same with Rhino's provider, which refuses transformWithState


# Below pyspark.sql.tests.
MODULES = {
    "pandas.streaming.test_pandas_transform_with_state": Expected(passing=18, served=12),
    "pandas.streaming.test_pandas_transform_with_state_state_variable": Expected(passing=18, served=18),
    "pandas.streaming.test_transform_with_state": Expected(passing=18, served=12),
    "pandas.streaming.test_transform_with_state_state_variable": Expected(passing=18, served=18),
    "pandas.test_pandas_grouped_map_with_state": Expected(passing=10, served=10, by_provider=10),
    "streaming.test_streaming_offline_state_repartition": Expected(passing=12, served=7),
    "streaming.test_streaming": Expected(passing=28, served=1, by_provider=1),
    "streaming.test_streaming_foreach": Expected(passing=9, served=0),
    "streaming.test_streaming_foreach_batch": Expected(passing=10, served=0),
    "streaming.test_streaming_listener": Expected(passing=10, served=3, by_provider=3),
}
_CONNECT = (
    "the client of Spark Connect has readers and writers of its own, whose checkpoints the harness does not put on "
    "rhino://. The driver runs the same code for it; tests/spark/test_connect.py runs a query of such a client"
)
_FORMAT_2 = "checkpoint format 2, which Rhino sets: the module without this ending has it"
# Other modules about streaming and state, each with the reason.
LEFT_OUT = {
    "connect.pandas.streaming.test_parity_pandas_grouped_map_with_state": _CONNECT,
    "connect.pandas.streaming.test_parity_pandas_transform_with_state": _CONNECT,
    "connect.pandas.streaming.test_parity_pandas_transform_with_state_state_variable": _CONNECT,
    "connect.pandas.streaming.test_parity_transform_with_state": _CONNECT,
    "connect.pandas.streaming.test_parity_transform_with_state_state_variable": _CONNECT,
    "connect.streaming.test_parity_foreach": _CONNECT,
    "connect.streaming.test_parity_foreach_batch": _CONNECT,
    "connect.streaming.test_parity_listener": _CONNECT,
    "connect.streaming.test_parity_streaming": _CONNECT,
    "connect.test_parity_python_streaming_datasource": "sources, without state",
    "test_python_streaming_datasource": "sources, without state",
    "pandas.streaming.test_pandas_transform_with_state_checkpoint_v2": _FORMAT_2,
    "pandas.streaming.test_pandas_transform_with_state_state_variable_checkpoint_v2": _FORMAT_2,
    "pandas.streaming.test_transform_with_state_checkpoint_v2": _FORMAT_2,
    "pandas.streaming.test_transform_with_state_state_variable_checkpoint_v2": _FORMAT_2,
    "pandas.streaming.test_tws_tester": "a processor in the process of its test, without a query",
    "streaming.test_streaming_kafka_rtm": "needs Kafka",
}
# What Rhino's provider cannot do (docs/user/integration.md): transformWithState, which Rhino refuses, and offline
# repartitioning and the real-time mode, which Spark refuses. A test that fails with one of these texts is refused.
REFUSALS = (
    "insists on Spark's own state store provider",
    "STATE_REPARTITION_INVALID_CHECKPOINT.UNSUPPORTED_PROVIDER",
    "incompatible with Real-Time Mode: 1. spark.sql.streaming.stateStore.providerClass must be",
)
HOSTS = ("127.0.0.1", "127.0.0.2")  # the driver's host, and one more for the second copy
SPARK = {
    "spark.master": "local[2]",
    "spark.driver.host": HOSTS[0],
    "spark.driver.bindAddress": HOSTS[0],
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}


@dataclass(frozen=True, slots=True)
class Daemons:
    manager: str  # host:port
    socket: str  # a value for spark.rhino.socket


@dataclass(slots=True)
class ModuleRun:
    """A module in one integration mode, or on stock."""

    module: str
    integration: str
    seconds: float = 0.0
    broken: str = ""  # why the module did not run to its end; empty if it did
    served: int = 0  # queries whose state Rhino has kept
    outcomes: dict[str, str] = field(default_factory=dict)  # passed | failed | skipped | refused, by test
    texts: dict[str, str] = field(default_factory=dict)  # of tests that did not pass

    def passed(self) -> set[str]:
        return {test for test, outcome in self.outcomes.items() if outcome == "passed"}

    def worse_than(self, stock: ModuleRun) -> dict[str, str]:
        """Tests that pass on stock but neither pass nor are refused here, with what they say."""
        fine = {test for test, outcome in self.outcomes.items() if outcome in ("passed", "refused")}
        return {test: self.texts.get(test, "did not run") for test in sorted(stock.passed() - fine)}

    def __str__(self) -> str:
        counts = Counter(self.outcomes.values())
        numbers = ", ".join(f"{counts[outcome]} {outcome}" for outcome in sorted(counts)) or "no tests"
        ending = f", BROKEN: {self.broken.splitlines()[0]}" if self.broken else ""
        return f"{self.integration:10} {self.module}: {numbers}, {self.served} served, {self.seconds:.0f} s{ending}"


@contextmanager
def daemons(folder: Path) -> Iterator[Daemons]:
    """A manager and two sidecars, for a driver in local mode: its host and one more, so each commit has two copies."""
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    sockets = Path(tempfile.mkdtemp(prefix="rhino-"))  # the path of a Unix socket is short
    running = []
    with Reaper() as reaper:
        reaper.remove(sockets)
        try:
            running.append(start_manager(folder / "manager", log_dir=logs, reaper=reaper))
            manager = wait_manager(running[0])
            for host in HOSTS:
                (sockets / host).mkdir()
                name, socket = f"sidecar-{host}", sockets / host / "sidecar.sock"
                sidecar_settings = SidecarSettings(
                    worker_id=name,
                    host=host,
                    listen=f"{host}:0",
                    data_dir=folder / name,
                    socket=socket,
                    manager=manager,
                )
                running.append(start_sidecar(name, sidecar_settings, log_dir=logs, reaper=reaper))
            for sidecar in running[1:]:
                wait_sidecar(sidecar)
            yield Daemons(manager, f"{sockets}/{{host}}/sidecar.sock")
        finally:
            for process in reversed(running):
                process.terminate(timeout_s=STOP_TIMEOUT_S)
            shutil.rmtree(sockets, ignore_errors=True)


def settings(integration: str, of: Daemons, temporary: Path) -> dict[str, str]:
    """Stock has Spark's defaults, so that a setting of Rhino that breaks something is a difference, too."""
    java_options = " ".join([*lean_jvm(), f"-Djava.io.tmpdir={temporary}"])
    common = SPARK | {"spark.driver.extraJavaOptions": java_options}
    if integration == "stock":
        return common | {f"{STREAMING}.stateStore.providerClass": PROVIDER_CLASSES["checkpoint"]}
    return common | rhino_conf(of.manager, socket=of.socket, integration=integration)


def run_module(
    module: str, integration: str, of: Daemons, folder: Path, timeout_s: float = MODULE_TIMEOUT_S
) -> ModuleRun:
    """Runs a module in a process of its own. `folder` gets its log, and its data until it ends."""
    work, log = folder / f"{module}-{integration}", folder / f"{module}-{integration}.log"
    _make_inputs(work)
    results = work / "outcomes"
    temporary = work / "tmp"
    temporary.mkdir()
    request = {"settings": settings(integration, of, temporary), "on_rhino": integration == "checkpoint"}
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "proto")])
    env = spark_env(HOSTS[0], {"TMPDIR": str(temporary), "SPARK_LOCAL_DIRS": str(temporary), "PYTHONPATH": path})
    command = [sys.executable, "-m", "tests.spark_suites.child", module, str(results)]
    before = _served(of) if integration != "stock" else set()
    began = time.monotonic()
    with log.open("w") as sink, Reaper() as reaper:
        child = subprocess.Popen(
            command, cwd=work, env=env, stdin=subprocess.PIPE, stdout=sink, stderr=sink, text=True,
            start_new_session=True,
        )  # fmt: skip
        reaper.watch(child.pid)
        broken = _wait(child, json.dumps(request), timeout_s)
    run = ModuleRun(module, integration, round(time.monotonic() - began, 1), broken)
    run.served = len(_served(of) - before) if integration != "stock" else 0
    _read(results, run)
    if run.broken:
        run.broken += f"; the end of {log}:\n{log.read_text()[-3000:]}"
    shutil.rmtree(work, ignore_errors=True)
    return run


def _served(of: Daemons) -> set[str]:
    """The jobs that have replica groups."""
    return {view.group.job for view in fetch_overview(of.manager).groups}


def _make_inputs(work: Path) -> None:
    """Writes the files that the tests read below the folder where they run. They are not in the wheel."""
    texts = work / "python/test_support/sql/streaming"
    (texts / "time").mkdir(parents=True)
    (texts / "text-test.txt").write_text("hello\nthis\n")
    rows = [f"2024-01-01 00:00:{2 * i:02};{i % 7}\n" for i in range(10)]
    (texts / "time/rows.txt").write_text("".join(rows))


def _wait(child: subprocess.Popen[str], request: str, timeout_s: float) -> str:
    """Ends the whole session of the child, among it the driver's JVM. Returns why it did not end well."""
    try:
        child.communicate(request, timeout=timeout_s)
        return "" if child.returncode == 0 else f"ended with code {child.returncode}"
    except subprocess.TimeoutExpired:
        return f"not done within {timeout_s:g} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _read(results: Path, run: ModuleRun) -> None:
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    if not run.broken and not (lines and lines[-1].get("done")):
        run.broken = "ended before its last test"
    for line in lines:
        test = line.get("test", "")
        if not test or run.outcomes.get(test) == "failed":
            continue
        run.outcomes[test] = "refused" if _refused(run.integration, line) else line["outcome"]
        if line["outcome"] != "passed":
            run.texts[test] = line["text"]


def _refused(integration: str, line: dict[str, str]) -> bool:
    return integration == "provider" and line["outcome"] == "failed" and any(text in line["text"] for text in REFUSALS)
