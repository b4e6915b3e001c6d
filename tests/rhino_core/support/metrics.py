"""Parts of the tests of metrics that other tests use as well."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Daemon:
    """`rhino <command>` with its metrics on a port of its own; ready when made."""

    def __init__(self, *arguments: str) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "rhino.cli.main", *arguments, "--exit-with-parent"]
        self.process = subprocess.Popen(
            [*command, "--metrics-port", str(self.port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.ready: dict[str, str] = json.loads(self.process.stdout.readline())

    def stop(self) -> int:
        self.process.terminate()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(20)

    def samples(self) -> Samples:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as response:
            text = response.read().decode()
        families = text_string_to_metric_families(text)
        return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}
