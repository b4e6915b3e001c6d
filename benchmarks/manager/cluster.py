"""The processes of the benchmark: a manager, and clients to simulate everything else."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from benchmarks.manager.clients import Clients, Seen, serve
from benchmarks.manager.shape import Shape, job_of
from rhino.client import connection
from rhino.testing.process import Process
from rhino.testing.reaper import Reaper
from rhino.testing.rhino_daemons import serving
from rhino_core.errors import UnavailableError
from rhino_core.ids import Epoch
from rhino_core.security.choice import client_transport
from rhino_core.security.sources import read_cluster_key
from rhino_core.settings import without_settings

TIMEOUT_S = 600.0
POLL_S = 0.05


class Cluster:
    """`folder`: has the prepared journal. `key`: the cluster key."""

    def __init__(
        self, folder: Path, shape: Shape, epoch: Epoch, key: Path, ports: tuple[int, int], batch_s: float
    ) -> None:
        """`ports`: of the manager, and of its metrics."""
        self.shape = shape
        port, metrics_port = ports
        self.address = address = f"127.0.0.1:{port}"
        self.journal = folder / "journal"
        self.metrics = f"http://127.0.0.1:{metrics_port}/metrics"
        self._folder = folder
        self._key = key
        self.first_job = job_of(0)
        self._metrics_port = metrics_port
        self._reaper = Reaper()
        self._reaper.__enter__()
        connection.use(client_transport("", str(key)))
        busy = Clients(shape, range(shape.busy), True, address, read_cluster_key(key), epoch, batch_s)
        self._planned = (busy, replace(busy, numbers=range(shape.busy, shape.workers), drivers=False))
        self._clients: list[tuple[SpawnProcess, Connection]] = []
        self.manager: Process | None = None

    def start_manager(self, profile: Path | None = None) -> float:
        """Starts it on the journal. Returns the seconds until it serves. `profile`: file for cProfile's results."""
        arguments = ["manager", "--data-dir", str(self.journal), "--listen", self.address]
        arguments += ["--metrics-port", str(self._metrics_port), "--exit-with-parent", "--cluster-key", str(self._key)]
        profiler = ["-m", "cProfile", "-o", str(profile.resolve())] if profile is not None else []
        command = [sys.executable, *profiler, "-m", "rhino.cli.main", *arguments]
        began = time.monotonic()
        self.manager = Process(
            "rhino-manager", command, log_dir=self._folder, env=without_settings(os.environ), reaper=self._reaper
        )
        answers: Callable[[], bool | None] = lambda: serving(self.address) or None  # noqa: E731
        self.manager.wait_for("healthy answer", answers, timeout_s=TIMEOUT_S)
        return time.monotonic() - began

    def stop_manager(self, *, cleanly: bool) -> None:
        assert self.manager is not None
        if cleanly:
            self.manager.terminate(timeout_s=60)
        else:
            self.manager.kill()

    def start_clients(self) -> None:
        """Starts the clients. They look for the manager from now on."""
        context = multiprocessing.get_context("spawn")
        for number, clients in enumerate(self._planned):
            mine, theirs = context.Pipe()
            process = context.Process(target=serve, args=(clients, theirs), name=f"clients {number}", daemon=True)
            process.start()
            self._clients.append((process, mine))
        self.seen("state")

    @property
    def client_pids(self) -> list[int]:
        return [process.pid for process, _ in self._clients if process.pid is not None]

    def reset(self) -> None:
        """Clients count from now on."""
        for _, pipe in self._clients:
            pipe.send("reset")

    def seen(self, what: str = "seen") -> tuple[Seen, Seen]:
        """By the busy clients, and by the probes. "state": without the times of heartbeats: these may be many."""
        busy, probes = (self._ask(process, pipe, what) for process, pipe in self._clients)
        return busy, probes

    def _ask(self, process: SpawnProcess, pipe: Connection, what: str) -> Seen:
        pipe.send(what)
        if not pipe.poll(TIMEOUT_S):
            raise UnavailableError(f"{process.name}: no answer within {TIMEOUT_S:g} s")
        seen: Seen = pipe.recv()
        return seen

    def wait_all_live(self) -> float:
        """Waits until every sidecar and every driver is connected. Returns the seconds until then."""
        began = time.monotonic()
        while time.monotonic() - began < TIMEOUT_S:
            busy, probes = self.seen("state")
            if busy.live + probes.live == self.shape.workers and busy.sessions == self.shape.jobs:
                return time.monotonic() - began
            time.sleep(POLL_S)
        raise UnavailableError(
            f"{busy.live + probes.live} of {self.shape.workers} sidecars and {busy.sessions} of {self.shape.jobs} "
            f"drivers are connected after {TIMEOUT_S:g} s"
        )

    def close(self) -> None:
        """Ends all processes."""
        for process, pipe in self._clients:
            if process.is_alive():
                pipe.send("stop")
        for process, _ in self._clients:
            process.join(10)
            process.kill()
        if self.manager is not None:
            self.manager.terminate(timeout_s=10)
        connection.use(None)
        self._reaper.__exit__(None, None, None)
