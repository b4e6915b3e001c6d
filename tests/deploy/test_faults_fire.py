"""A real Prometheus scrapes a manager and sidecars, and faults on them fire the alerts. Debian's package prometheus."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rhino.testing.process import Process
from rhino.testing.reaper import Reaper
from tests.deploy.test_prometheus import ALERTS, alerts
from tests.rhino_core.support.metrics import free_port
from tests.worker_runtime.tmpfs import mounted

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]
LATEST_S = 60.0  # from a fault to its alert
ALMOST_FULL_MB = 1500  # a disk below the 2 GB of RhinoDiskAlmostFull


class Site:
    """A manager, sidecars by name, and Prometheus. `ports`: of the metrics of each daemon."""

    def __init__(self, folder: Path, reaper: Reaper) -> None:
        self.folder = folder
        self._reaper = reaper
        self.address = f"127.0.0.1:{free_port()}"
        self.ports: dict[str, int] = {}
        self.processes: dict[str, Process] = {}
        self._prometheus = free_port()

    def _start(self, name: str, *arguments: str) -> None:
        self.ports[name] = free_port()
        command = [sys.executable, "-m", "rhino.cli.main", *arguments, "--metrics-port", str(self.ports[name])]
        self._process(name, [*command, "--exit-with-parent"])

    def _process(self, name: str, command: list[str]) -> None:
        self.processes[name] = Process(name, command, log_dir=self.folder, env={}, reaper=self._reaper)

    def manager(self) -> None:
        self._start("manager", "manager", "--listen", self.address, "--data-dir", str(self.folder / "m"), "--bootstrap")

    def sidecar(self, name: str, data: Path) -> None:
        places = ("--data-dir", str(data), "--socket", str(self.folder / f"{name}.sock"), "--listen", "127.0.0.1:0")
        self._start(name, "sidecar", "--worker-id", name, "--host", "127.0.0.1", "--manager", self.address, *places)

    def prometheus(self) -> None:
        """With the rules as they are, but for the times that an alert waits before it fires."""
        program = shutil.which("prometheus")
        assert program, "install Debian's package prometheus"
        (self.folder / "alerts.yaml").write_text(re.sub(r"for: \d+m", "for: 0s", ALERTS.read_text()))
        targets = {job: [f"127.0.0.1:{self.ports[name]}" for name in names] for job, names in self._jobs().items()}
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(self.folder / "alerts.yaml")],
            "scrape_configs": [{"job_name": job, "static_configs": [{"targets": its}]} for job, its in targets.items()],
        }
        (self.folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        files = (f"--config.file={self.folder}/prometheus.yaml", f"--storage.tsdb.path={self.folder}/tsdb")
        self._process("prometheus", [program, *files, f"--web.listen-address=127.0.0.1:{self._prometheus}"])

    def _jobs(self) -> dict[str, list[str]]:
        return {"rhino-manager": ["manager"], "rhino-sidecar": [name for name in self.ports if name != "manager"]}

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._prometheus}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def firing(self) -> set[tuple[str, str]]:
        """Name of each alert, and the daemon, or "" for other labels."""
        names = {f"127.0.0.1:{port}": name for name, port in self.ports.items()}
        found = [one["labels"] for one in self.ask("alerts")["alerts"] if one["state"] == "firing"]
        return {(labels["alertname"], names.get(labels.get("instance", ""), "")) for labels in found}

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LATEST_S
        while True:
            try:
                if condition():
                    return
            except OSError:  # Prometheus is starting
                pass
            assert time.monotonic() < deadline, f"{what}: not within {LATEST_S:g} s"
            time.sleep(0.2)

    def wait_for_alerts(self, *alerts: tuple[str, str]) -> None:
        self.wait_for(lambda: {*alerts} <= self.firing(), f"{alerts} beside {self.firing()}")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Reaper() as reaper, mounted(tmp_path / "small", ALMOST_FULL_MB) as small:
        made = Site(tmp_path, reaper)
        made.manager()
        for name in "ab":
            made.sidecar(name, tmp_path / name)
        made.sidecar("c", small / "data")
        made.prometheus()
        try:
            yield made
        finally:
            for process in made.processes.values():
                process.kill()


def test_each_fault_fires_its_alert(site: Site) -> None:
    site.wait_for(lambda: len(site.ask("query?query=up==1")["result"]) == 4, "all daemons are scraped")
    site.wait_for_alerts(("RhinoDiskAlmostFull", "c"))
    site.processes["b"].kill()
    site.wait_for_alerts(("RhinoSidecarDown", "b"), ("RhinoWorkerLost", "manager"))
    (site.folder / "a.sock").unlink()
    site.wait_for_alerts(("RhinoNotAlive", "a"))
    site.processes["manager"].kill()
    site.wait_for_alerts(("RhinoManagerDown", "manager"))


def test_daemons_have_the_metrics_of_the_rules(site: Site) -> None:
    """Those that a daemon without queries and archive shows. The others appear with the first event."""
    site.wait_for(lambda: len(site.ask("query?query=up==1")["result"]) == 4, "all daemons are scraped")
    named = {name for rule in alerts() for name in re.findall(r"rhino_\w+", rule["expr"])}
    shown = {*site.ask("label/__name__/values")}
    later = {
        name for name in named if re.match(r"rhino_(query|archive|handovers|push_alarms|locality|replication)", name)
    }
    assert named - later <= shown
