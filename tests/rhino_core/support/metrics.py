"""Parts of the tests of metrics that other tests use as well."""

from __future__ import annotations

import json
import os
import socket
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests import forked

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Daemon:
    """`rhino <command>` with its metrics on a port of its own; ready when made."""

    def __init__(self, *arguments: str) -> None:
        self.port = free_port()
        with open(os.devnull, "wb") as nothing:
            options = ("--metrics-port", str(self.port))
            self.process = forked.Popen(forked.RHINO, *arguments, *options, stderr=nothing.fileno())
        self.ready: dict[str, str] = json.loads(self.process.stdout.readline())

    def stop(self) -> int:
        self.process.terminate()
        self.process.stdout.close()
        return self.process.wait(20)

    def samples(self) -> Samples:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as response:
            text = response.read().decode()
        families = text_string_to_metric_families(text)
        return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}
