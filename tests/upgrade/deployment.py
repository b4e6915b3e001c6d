"""A manager and three sidecars, each a process that runs the command line of some source tree."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rhino.client.overview import Overview, fetch_overview
from rhino_core.security.choice import client_transport
from rhino_core.security.identity import Role
from rhino_core.security.transport import Transport
from rhino_core.settings import SidecarSettings, without_settings
from tests.worker_runtime import cluster

WORKERS = ("a", "b", "c")
# a restart on a slow machine is no loss
LEASES = ("--lease-s", "60", "--suspect-lease-s", "60")
START_S = 90.0
END_S = 60.0
WHOLE_S = 90.0


def command(tree: Path, *arguments: str) -> list[str]:
    """The command line of `tree`. -P: the current folder, another tree perhaps, is not imported from."""
    return [sys.executable, "-P", "-m", "rhino.cli.main", *arguments]


def environment(tree: Path, cluster_key: Path | None = None) -> dict[str, str]:
    # A restart may take longer on a slow machine. Versions without this setting take no notice of it.
    patient = {"RHINO_MANAGER_RETURN_LEASE_S": "60"}
    secret = {} if cluster_key is None else {"RHINO_CLUSTER_KEY": str(cluster_key)}
    return {**without_settings(os.environ), **patient, **secret, "PYTHONPATH": f"{tree}:{tree / 'proto'}"}


class Daemon:
    """One process after another with the same name, arguments and folder. Its log is `<name>.log`."""

    def __init__(self, folder: Path, name: str, *arguments: str, cluster_key: Path | None = None) -> None:
        self._arguments = arguments
        self._cluster_key = cluster_key
        self._log = folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None
        self.tree: Path | None = None

    async def start(self, tree: Path, *more: str) -> dict[str, str]:
        """Returns the fields of the readiness line."""
        self.tree = tree
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command(tree, *self._arguments, *more, "--exit-with-parent"),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment(tree, self._cluster_key),
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_S):
            line = await self._process.stdout.readline()
        assert line, f"it has ended: {self._log.read_text()[-2000:]}"
        fields: dict[str, str] = json.loads(line)
        return fields

    async def stop(self) -> None:
        """Stops it as systemd does. An exit code other than 0 is an error."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(END_S):
            code = await self._process.wait()
        assert code == 0, f"exit code {code}: {self._log.read_text()[-2000:]}"

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


class Deployment:
    """Context manager. All daemons begin with the source tree `first`. With a cluster key, all have certificates."""

    def __init__(
        self,
        folder: Path,
        first: Path,
        workers: Sequence[str] = WORKERS,
        *,
        cluster_key: Path | None = None,
        options: Mapping[str, Sequence[str]] | None = None,
        trees: Mapping[str, Path] | None = None,
    ) -> None:
        """`options`: of single sidecars, besides the usual ones. `trees`: of single sidecars that begin with others."""
        self._first = first
        self._trees = trees or {}
        self.cluster_key = cluster_key
        self.address = f"127.0.0.1:{_free_port()}"
        manager = ("manager", "--data-dir", str(folder / "manager"), "--listen", self.address)
        self.daemons = {"manager": Daemon(folder, "manager", *manager, *LEASES, cluster_key=cluster_key)}
        self.sidecars: dict[str, cluster.Process] = {}  # to attach to them
        for number, name in enumerate(workers):
            data, path, host = folder / name, folder / f"{name}.sock", f"127.0.0.{11 + number}"
            self.sidecars[name] = cluster.Process(
                SidecarSettings(data, host=host, worker_id=name, listen=f"{host}:0", socket=path, manager=self.address)
            )
            its = ("--worker-id", name, "--host", host, "--listen", f"{host}:0", "--data-dir", str(data))
            more = ("--socket", str(path), "--manager", self.address, *(options or {}).get(name, ()))
            self.daemons[name] = Daemon(folder, name, "sidecar", *its, *more, cluster_key=cluster_key)

    async def __aenter__(self) -> Deployment:
        await self.daemons["manager"].start(self._first, "--bootstrap")
        trees = {name: self._trees.get(name, self._first) for name in self.sidecars}
        await asyncio.gather(*(self.daemons[name].start(tree) for name, tree in trees.items()))
        return self

    async def __aexit__(self, *error: object) -> None:
        for daemon in self.daemons.values():
            await daemon.kill()

    def worker_at(self, host: str) -> str:
        return next(name for name, sidecar in self.sidecars.items() if sidecar.settings.host == host)

    async def restart(self, name: str, tree: Path, *more: str) -> None:
        await self.daemons[name].stop()
        await self.daemons[name].start(tree, *more)

    def transport(self, role: Role) -> Transport:
        """For calls to the daemons."""
        return client_transport("", str(self.cluster_key or ""), role)

    async def overview(self) -> Overview:
        return await asyncio.to_thread(fetch_overview, self.address)

    async def until_whole(self) -> None:
        """Waits until all workers are live and every group has two whole members, as the guide says."""
        overview = None
        try:
            async with asyncio.timeout(WHOLE_S):
                while overview is None or not _whole(overview):
                    await asyncio.sleep(0.1)
                    overview = await self.overview()
        except TimeoutError:
            raise AssertionError(f"not whole: {overview}") from None

    async def ask(self, tree: Path, *arguments: str) -> Any:
        """The JSON that a command of the command line of `tree` prints about this deployment."""
        process = await asyncio.create_subprocess_exec(
            *command(tree, *arguments, "--manager", self.address, "--json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(tree, self.cluster_key),
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return json.loads(out)


def _whole(overview: Overview) -> bool:
    workers: Sequence[str] = [worker.worker_id for worker in overview.workers if worker.state == "live"]
    copies = [sum(member.whole and member.state == "live" for member in group.members) for group in overview.groups]
    return len(workers) == len(WORKERS) and all(count >= 2 for count in copies)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
