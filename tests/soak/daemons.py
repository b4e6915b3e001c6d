"""A real manager and real sidecars, each a process with a gauge, whose workers come and go."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import sys
from dataclasses import asdict, replace
from pathlib import Path

from rhino_core.settings import ManagerSettings
from tests.soak import gauge
from tests.worker_runtime.cluster import ROOT, Cluster, Process

LASTING = "a"  # its process runs all the time, as the manager's does: what they remember is not lost by a restart
WORKERS = 4
END_S = 20.0


class Daemons(Cluster):
    """`leak`: one of `gauge.LEAKS`, planted in all of them."""

    def __init__(self, folder: Path, leak: str = "") -> None:
        super().__init__(folder)
        self._environment = {gauge.LEAK: leak} if leak else {}
        self._names = (f"w{number}" for number in itertools.count())
        self._manager: asyncio.subprocess.Process | None = None
        self.changing: set[str] = set()  # workers that are being stopped, started or emptied

    async def __aenter__(self) -> Daemons:
        settings = ManagerSettings(
            self.folder / "manager",
            "127.0.0.1:0",
            heartbeat_interval_s=0.2,
            lease_s=3.0,
            suspect_lease_s=0.5,
            return_lease_s=3.0,
            bootstrap=True,
        )
        fields = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(settings).items()}
        with (self.folder / "manager.log").open("ab") as log:
            self._manager = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.soak.manager_process", json.dumps(fields)),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env=self._environment_of("manager"),
            )
        assert self._manager.stdout is not None
        async with asyncio.timeout(30):
            self.address = (await self._manager.stdout.readline()).decode().strip()
        assert self.address, f"the manager has ended; its log is {self.folder / 'manager.log'}"
        first = [self.new_worker(LASTING), *(self.new_worker() for _ in range(WORKERS - 1))]
        await asyncio.gather(*(process.start() for process in first))
        return self

    async def __aexit__(self, *error: object) -> None:
        for sidecar in self.sidecars.values():
            if sidecar.process is not None:
                await sidecar.end()
        if self._manager is not None and self._manager.returncode is None:
            self._manager.send_signal(signal.SIGTERM)
            async with asyncio.timeout(END_S):
                await self._manager.wait()

    def _environment_of(self, name: str) -> dict[str, str]:
        own = {gauge.SOCKET: str(self.folder / f"{name}.gauge"), **self._environment}
        return {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}", **own}

    def new_worker(self, name: str = "") -> Process:
        """To be started."""
        name = name or next(self._names)
        process = self.make(name, excess_grace_s=1.0, scrub_period_s=20.0, scrub_bytes_per_s=0)
        process.settings = replace(process.settings, host=f"host-{name}")
        process.environment = self._environment_of(name)
        return process

    async def remove(self, name: str) -> None:
        """Its process is stopped, and its folder goes."""
        await self.sidecars[name].end(signal.SIGTERM)
        del self.sidecars[name]
        self.changing.discard(name)
        await asyncio.to_thread(shutil.rmtree, self.folder / name)

    def steady(self) -> list[str]:
        """Workers that run, and that nobody is about to stop."""
        return sorted(self.sidecars.keys() - self.changing)

    def check(self) -> None:
        """Raises when a daemon that is to run has ended."""
        running = {"manager": self._manager} | {name: self.sidecars[name].process for name in self.steady()}
        ended = [name for name, process in running.items() if process is None or process.returncode is not None]
        assert not ended, f"{ended} ended by themselves; logs are in {self.folder}"

    # ------------------------------------------------------------ figures

    async def figures(self) -> dict[str, float]:
        """Measurements of the processes that run all the time, and of the disk."""
        found: dict[str, float] = {}
        for name in ("manager", LASTING):
            measured = await gauge.ask(self.folder / f"{name}.gauge")
            found |= {f"{name} {figure}": value for figure, value in measured.items()}
        found |= _disk("journal", self.folder / "manager")
        for name in sorted(self.sidecars):
            for part, figures in _parts(self.folder / name / "data").items():
                found[part] = found.get(part, 0.0) + figures
        return found | {f"{LASTING} {part}": value for part, value in _parts(self.folder / LASTING / "data").items()}


def _parts(data: Path) -> dict[str, float]:
    """The sizes of the folders in a data folder, as far as they exist."""
    found: dict[str, float] = {}
    for part in data.glob("*/"):
        found |= _disk(part.name, part)
    return found


def _disk(what: str, folder: Path) -> dict[str, float]:
    """Files come and go while they are counted."""
    files = used = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                used += os.lstat(Path(path, name)).st_blocks * 512
                files += 1
    return {f"{what} MB": used / 1e6, f"{what} files": files}
