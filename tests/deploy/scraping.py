"""A real Prometheus, of Debian's package, with the rules of deploy/prometheus in a hurry."""

from __future__ import annotations

import json
import math
import re
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from rhino.testing.process import Process
from rhino.testing.reaper import Reaper
from tests.deploy.test_prometheus import ALERTS
from tests.rhino_core.support.metrics import free_port

LATEST_S = 60.0  # from a fault to its alert
# A fault of minutes, hours or gigabytes is tried with seconds and bytes. promtool checks the rules as they are.
IN_A_HURRY = {
    r"for: \d+m": "for: 0s",
    r"(min_over_time\(\w+)\[10m\]": r"\1[2s]",
    r"\[10m\]": "[10s]",
    r"> 4e9": "> 0",
    r"> 100$": "> 5",
    r"> 2$": "> 0",
    r"seconds > \d+": "seconds > 8",
}


class Prometheus:
    """Scrapes the metrics of daemons on this machine every second.

    `jobs`: for each job of the rules, the "host:port" of each daemon by its name.
    """

    def __init__(self, folder: Path, reaper: Reaper, jobs: Mapping[str, Mapping[str, str]]) -> None:
        program = shutil.which("prometheus")
        assert program, "install Debian's package prometheus"
        rules = ALERTS.read_text()
        for usual, hurry in IN_A_HURRY.items():
            rules, count = re.subn(usual, hurry, rules, flags=re.MULTILINE)
            assert count, usual
        (folder / "alerts.yaml").write_text(rules)
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "alerts.yaml")],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [*daemons.values()]}]} for job, daemons in jobs.items()
            ],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self._names = {target: name for daemons in jobs.values() for name, target in daemons.items()}
        port = free_port()
        self._url = f"http://127.0.0.1:{port}/api/v1"
        files = (f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/tsdb")
        command = [program, *files, f"--web.listen-address=127.0.0.1:{port}"]
        self._process = Process("prometheus", command, log_dir=folder, env={}, reaper=reaper)

    def stop(self) -> None:
        self._process.kill()

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def fired(self, within_s: float) -> set[tuple[str, str]]:
        """The alerts of the last seconds: name of each, and of the daemon, or "" for other labels."""
        query = f'last_over_time(ALERTS{{alertstate="firing"}}[{math.ceil(within_s)}s])'
        found = [one["metric"] for one in self.ask(f"query?{urllib.parse.urlencode({'query': query})}")["result"]]
        return {(labels["alertname"], self._names.get(labels.get("instance", ""), "")) for labels in found}

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LATEST_S
        while True:
            try:
                if condition():
                    return
            except OSError:  # Prometheus is starting
                pass
            assert time.monotonic() < deadline, f"{what}: not within {LATEST_S:g} s, but {self.fired(LATEST_S)}"
            time.sleep(0.2)

    def wait_for_all(self) -> None:
        """Every daemon answers."""
        self.wait(lambda: len(self.ask("query?query=up==1")["result"]) == len(self._names), "all daemons are scraped")

    def wait_for_alerts(self, *alerts: tuple[str, str]) -> None:
        """From now on, if only for a moment."""
        began = time.monotonic()
        self.wait(lambda: {*alerts} <= self.fired(1 + time.monotonic() - began), str(alerts))
