"""Managers with their journal on three real sidecars: one leads, and another one takes over after kill -9."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rhino.cli import exit_codes
from rhino.client.connection import use
from rhino.client.handover_client import HandoverClient
from rhino.client.overview import fetch_overview
from rhino_core.security.choice import client_transport
from rhino_core.security.sources import new_cluster_key
from rhino_core.settings import without_settings
from tests import forked
from tests.rhino.support.local_cluster import eventually
from tests.rhino_core.support.metrics import free_port

LEASE_S = 4.0  # a leader ends if its witnesses do not answer for half of it: a disk may be that slow


class Daemon:
    """`rhino <command>`. It adds to the log of a former one."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("ab") as stderr:
            self._process = forked.Popen(
                forked.RHINO, *arguments, env=without_settings(os.environ), stderr=stderr.fileno()
            )

    def ready(self) -> None:
        """Waits until it serves. A manager serves when it leads."""
        assert self._process.stdout.readline(), self._log.read_text()

    def says(self, text: str, times: int = 1) -> None:
        eventually(lambda: self._log.read_text().count(text) >= times, text)

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        self._process.send_signal(number)
        return self._process.wait(40)

    def ended(self) -> int:
        return self._process.wait(60)

    def close(self) -> None:
        self.end()
        self._process.stdout.close()


class Stage:
    """Three sidecars, and the managers m1 and m2. Sidecars and commands have the addresses of both."""

    def __init__(self, folder: Path, cluster_key: str) -> None:
        self.folder = folder
        self._key = ("--cluster-key", cluster_key)
        self.managers = {name: f"127.0.0.1:{free_port()}" for name in ("m1", "m2")}
        self.address = ",".join(self.managers.values())
        self.ports = {name: free_port() for name in "abc"}
        self.processes: list[Daemon] = []

    @property
    def witnesses(self) -> str:
        return ",".join(f"{name}=127.0.0.1:{port}" for name, port in self.ports.items())

    def sidecar(self, name: str, *options: str) -> Daemon:
        (folder := self.folder / name).mkdir(mode=0o755, exist_ok=True)
        places = ("--data-dir", str(folder / "data"), "--socket", str(folder / "s"), "--manager", self.address)
        addresses = ("--host", "127.0.0.1", "--listen", f"127.0.0.1:{self.ports[name]}")
        return self._start(f"sidecar-{name}", "sidecar", "--worker-id", name, *addresses, *places, *options)

    def manager(self, name: str, *, witnessed: bool = True, bootstrap: bool = False) -> Daemon:
        options = ["--data-dir", str(self.folder / name), "--listen", self.managers[name]]
        if witnessed:
            options += ["--witnesses", self.witnesses, "--witness-lease-s", str(LEASE_S)]
        if bootstrap:
            options.append("--bootstrap")
        return self._start(name, "manager", *options)

    def begin(self) -> tuple[dict[str, Daemon], Daemon]:
        """Three witnesses and a new leader, once all of them serve."""
        sidecars = {name: self.sidecar(name) for name in "abc"}
        leader = self.manager("m1", bootstrap=True)
        for daemon in (leader, *sidecars.values()):
            daemon.ready()
        return sidecars, leader

    def _start(self, name: str, *arguments: str) -> Daemon:
        self.processes.append(Daemon(self.folder / f"{name}.log", *arguments, *self._key))
        return self.processes[-1]

    def close(self) -> None:
        for process in self.processes:
            process.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    key = tmp_path / "cluster.key"
    new_cluster_key(key)
    use(client_transport("", str(key)))
    made = Stage(tmp_path, str(key))
    yield made
    made.close()
    use(None)


@pytest.mark.timeout(300)
def test_a_standby_takes_over_and_knows_the_journal(stage: Stage) -> None:
    _, leader = stage.begin()
    standby = stage.manager("m2")
    standby.says("standby")
    with HandoverClient(stage.address) as client:
        client.drain("c")
    generation = fetch_overview(stage.address).generation
    killed_at = time.monotonic()
    leader.end()
    standby.ready()
    print(f"decides again after {time.monotonic() - killed_at:.2f} s")
    assert fetch_overview(stage.address, timeout_s=30).generation > generation
    with HandoverClient(stage.address) as client:
        assert client.drain_status("c").draining


@pytest.mark.timeout(300)
def test_witnesses_begin_with_the_journal_of_a_manager_that_had_none(stage: Stage) -> None:
    sidecars = [stage.sidecar(name) for name in "abc"]
    alone = stage.manager("m1", witnessed=False, bootstrap=True)
    for daemon in (alone, *sidecars):
        daemon.ready()
    with HandoverClient(stage.address) as client:
        client.drain("c")
    generation = fetch_overview(stage.address).generation
    alone.end(signal.SIGTERM)
    stage.manager("m1", bootstrap=True).ready()
    assert fetch_overview(stage.address, timeout_s=30).generation > generation
    with HandoverClient(stage.address) as client:
        assert client.drain_status("c").draining


@pytest.mark.nightly  # its core runs every time: tests/rhino_core/witnesses/test_contender.py
@pytest.mark.timeout(300)
def test_a_manager_without_a_majority_stops(stage: Stage) -> None:
    sidecars, leader = stage.begin()
    sidecars["a"].end()
    with HandoverClient(stage.address) as client:  # two of three suffice
        client.drain("c")
    sidecars["b"].end()
    assert leader.ended() == exit_codes.UNREACHABLE


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_witness_with_a_new_disk_gets_the_journal(stage: Stage) -> None:
    """Then it counts: with one of the others it elects the next leader, which knows the journal."""
    sidecars, leader = stage.begin()
    with HandoverClient(stage.address) as client:
        client.drain("a")
    sidecars["c"].end()
    silent = (f"127.0.0.1:{stage.ports['c']}",)
    eventually(lambda: _silent(stage) == silent, "the loss")
    shutil.rmtree(stage.folder / "c" / "data")
    stage.sidecar("c").ready()
    leader.says("witnesses change", times=2)  # the new one comes, and the former one goes
    assert _silent(stage) == ()
    sidecars["a"].end()
    leader.end()
    stage.manager("m2").ready()
    with HandoverClient(stage.address) as client:
        assert client.drain_status("a").draining


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_lost_majority_is_told_and_a_new_journal_begins_with_the_remaining_witness(stage: Stage) -> None:
    sidecars, leader = stage.begin()
    leader.end()
    for name in "ab":
        sidecars[name].end()
        shutil.rmtree(stage.folder / name / "data")
        stage.sidecar(name)
    standby = stage.manager("m2", bootstrap=True)
    standby.says("a majority of the journal's witnesses is gone")
    standby.end()
    sidecars["c"].end(signal.SIGTERM)
    stage.sidecar("c", "--forget-journal")
    stage.manager("m1", bootstrap=True).ready()
    assert fetch_overview(stage.address, timeout_s=30).generation > 0


def _silent(stage: Stage) -> tuple[str, ...]:
    return fetch_overview(stage.address, timeout_s=30).silent_witnesses


@pytest.mark.nightly  # as above
@pytest.mark.timeout(300)
def test_no_journal_begins_without_bootstrap(stage: Stage) -> None:
    for name in "abc":
        stage.sidecar(name)
    stage.manager("m1").says("keep no journal: start with --bootstrap")
