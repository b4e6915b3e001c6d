"""`--metrics-port`: what Prometheus reads from a manager and a sidecar, in real processes."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from rhino.client.overview import fetch_overview
from rhino_core.version import PROTOCOL
from tests import forked
from tests.rhino_core.support.metrics import Daemon

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[tuple[Daemon, Daemon]]:
    manager = Daemon("manager", "--data-dir", str(tmp_path / "m"), "--listen", "127.0.0.1:0", "--bootstrap")
    try:
        address = manager.ready["address"]
        folders = ("--data-dir", str(tmp_path / "s"), "--socket", str(tmp_path / "sock"))
        sidecar = Daemon("sidecar", *folders, "--host", "127.0.0.1", "--listen", "127.0.0.1:0", "--manager", address)
        try:
            yield manager, sidecar
        finally:
            assert sidecar.stop() == 0
    finally:
        assert manager.stop() == 0


def test_both_daemons_serve_their_metrics_and_nothing_else(daemons: tuple[Daemon, Daemon]) -> None:
    manager, sidecar = daemons
    seen = fetch_overview(manager.ready["address"])
    assert (seen.rhino_version, seen.workers[0].rhino_version) == (version("rhino-state"), version("rhino-state"))
    found = manager.samples()
    assert found["rhino_workers", (("state", "live"),)] == 1
    for name in (
        "rhino_replication_lag_versions",
        "rhino_under_replicated_virtual_nodes",
        "rhino_locality_misses_total",
    ):
        assert found[name, ()] == 0
    outcomes = {labels[0][1] for name, labels in found if name == "rhino_handovers_total"}
    assert outcomes == {"confirmed", "rolled_back", "cancelled", "redirected"}
    found = sidecar.samples()
    assert found["rhino_replication_lag_bytes", ()] == 0
    assert found["rhino_scrub_errors_total", ()] == 0
    assert found["rhino_replicated_bytes_total", (("direction", "received"),)] == 0
    sources = {labels[0][1] for name, labels in found if name == "rhino_prepare_duration_seconds_count"}
    assert sources == {"empty", "local", "replica", "remote"}
    kinds = {labels[0][1] for name, labels in found if name == "rhino_commit_duration_seconds_count"}
    assert kinds == {"changelog", "snapshot"}
    for samples in (manager.samples(), found):
        kinds = {labels[0][1] for name, labels in samples if name == "rhino_archive_requests_total"}
        assert kinds == {"put", "get", "list", "delete"}
        build = {name: dict(labels) for name, labels in samples if name == "rhino_build_info"}
        assert build == {"rhino_build_info": {"version": version("rhino-state"), "protocol": str(PROTOCOL)}}
        assert samples["process_resident_memory_bytes", ()] > 10_000_000
        assert not [name for name, _ in samples if name.endswith("_created")]
    assert found["rhino_disk_free_bytes", ()] <= found["rhino_disk_size_bytes", ()]
    assert found["rhino_disk_state", (("state", "ok"),)] == 1
    assert found["rhino_waiting_commits", ()] == 0
    assert found["rhino_manager_connected", ()] == 1
    assert manager.samples()["rhino_draining_workers", ()] == 0
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{sidecar.port}/", timeout=10)


def test_a_taken_port_is_exit_code_4_and_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        arguments = ["manager", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--bootstrap"]
        ended = forked.rhino(*arguments, "--metrics-port", port)
    assert ended.returncode == 4
    assert f"cannot serve metrics on 127.0.0.1:{port}" in ended.stderr
