"""A real Prometheus scrapes a manager and sidecars, and faults on them fire the alerts. Debian's package prometheus.

tests/spark/test_faults_fire.py has the alerts that need a query.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rhino.testing.process import Process
from rhino.testing.reaper import Reaper
from tests.deploy.scraping import Prometheus
from tests.deploy.test_prometheus import ROOT, alerts
from tests.rhino_core.support.metrics import free_port
from tests.worker_runtime.attacker import Attack, Attacker
from tests.worker_runtime.support.certificates import Folders, folders
from tests.worker_runtime.support.encrypted_pushes import pair
from tests.worker_runtime.tmpfs import mounted

__all__ = ["folders"]
pytestmark = [pytest.mark.timeout(300)]
ALMOST_FULL_MB = 1500  # a disk below the 2 GB of RhinoDiskAlmostFull
# An error of the archive's own code stops it. No fault from outside does that, as far as we know.
WITHOUT_A_FAULT = {"RhinoArchiveStopped"}


def test_each_alert_is_fired_by_a_fault_somewhere() -> None:
    scenes = Path(__file__).read_text() + (ROOT / "tests/spark/test_faults_fire.py").read_text()
    fired = set(re.findall(r"\(\"(Rhino\w+)\", ", scenes))
    assert fired == {rule["alert"] for rule in alerts()} - WITHOUT_A_FAULT


class Site:
    """A manager whose journal is kept by three sidecars, and Prometheus."""

    def __init__(self, folder: Path, reaper: Reaper, data: dict[str, Path]) -> None:
        """`data`: the folder of each sidecar by name."""
        self.folder = folder
        self._reaper = reaper
        self._ports = {name: free_port() for name in ("manager", *data)}
        self.processes: dict[str, Process] = {}
        address = f"127.0.0.1:{free_port()}"
        peers = {name: f"127.0.0.1:{free_port()}" for name in data}
        witnesses = ("--witnesses", ",".join(f"{name}={peer}" for name, peer in peers.items()))
        journal = ("--data-dir", str(folder / "m"), "--bootstrap", *witnesses)
        for name, place in data.items():
            places = ("--data-dir", str(place), "--socket", str(folder / f"{name}.sock"), "--listen", peers[name])
            self._start(name, "sidecar", "--worker-id", name, "--host", "127.0.0.1", "--manager", address, *places)
        self._start("manager", "manager", "--listen", address, *journal)
        targets = {name: f"127.0.0.1:{port}" for name, port in self._ports.items()}
        manager = {"manager": targets.pop("manager")}
        self.prometheus = Prometheus(folder, reaper, {"rhino-manager": manager, "rhino-sidecar": targets})

    def _start(self, name: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "rhino.cli.main", *arguments, "--metrics-port", str(self._ports[name])]
        command.append("--exit-with-parent")
        self.processes[name] = Process(name, command, log_dir=self.folder, env={}, reaper=self._reaper)

    def live(self) -> int:
        """Workers, by the metric."""
        (found,) = self.prometheus.ask("query?query=rhino_workers%7Bstate=%22live%22%7D")["result"]
        return int(found["value"][1])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Reaper() as reaper, mounted(tmp_path / "small", ALMOST_FULL_MB) as small:
        made = Site(tmp_path, reaper, {"a": tmp_path / "a", "b": tmp_path / "b", "c": small / "data"})
        try:
            made.prometheus.wait_for_all()
            made.prometheus.wait(lambda: made.live() == len("abc"), "all workers are live")
            yield made
        finally:
            made.prometheus.stop()
            for process in made.processes.values():
                process.kill()


@pytest.mark.nightly
def test_faults_of_daemons_fire_their_alerts(site: Site) -> None:
    prometheus = site.prometheus
    prometheus.wait_for_alerts(("RhinoDiskAlmostFull", "c"))
    for _ in range(4):  # two changes each
        for sign, live in ((signal.SIGSTOP, 2), (signal.SIGCONT, 3)):
            os.kill(site.processes["b"].pid, sign)
            prometheus.wait(lambda n=live: site.live() == n, f"{live} workers are live")  # type: ignore[misc]
    prometheus.wait_for_alerts(("RhinoWorkersFlap", "manager"))
    site.processes["b"].kill()
    prometheus.wait_for_alerts(
        ("RhinoSidecarDown", "b"), ("RhinoWorkerLost", "manager"), ("RhinoWitnessSilent", "manager")
    )
    (site.folder / "a.sock").unlink()
    prometheus.wait_for_alerts(("RhinoNotAlive", "a"))
    site.processes["manager"].kill()
    prometheus.wait_for_alerts(("RhinoManagerDown", "manager"))


@pytest.mark.nightly
def test_daemons_have_the_metrics_of_the_rules(site: Site) -> None:
    """Those that a daemon without queries and archive shows. The others appear with the first event."""
    named = {name for rule in alerts() for name in re.findall(r"rhino_\w+", rule["expr"])}
    shown = {*site.prometheus.ask("label/__name__/values")}
    later = {
        name for name in named if re.match(r"rhino_(query|archive|handovers|push_alarms|locality|replication)", name)
    }
    assert named - later <= shown


@pytest.mark.nightly
async def test_changed_bytes_fire_their_alert(folders: Folders, tmp_path: Path) -> None:
    attacker = Attacker()
    with Reaper() as reaper:
        async with pair(folders, tmp_path, attacker) as sidecars, sidecars.a.attach(commit_timeout_s=45) as client:
            daemons = {
                one.settings.worker_id: f"127.0.0.1:{one.settings.metrics_port}" for one in (sidecars.a, sidecars.b)
            }
            prometheus = await asyncio.to_thread(Prometheus, tmp_path, reaper, {"rhino-sidecar": daemons})
            try:
                await sidecars.commit(client)
                await asyncio.to_thread(prometheus.wait_for_all)
                attacker.attack = Attack("flip")
                await sidecars.commit(client)
                await asyncio.to_thread(prometheus.wait_for_alerts, ("RhinoPushBytesChanged", "b"))
            finally:
                prometheus.stop()
