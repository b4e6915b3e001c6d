"""Managers with their journal on three real sidecars: one leads, and another one takes over after kill -9."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rhino.cli import exit_codes
from rhino.client.connection import use
from rhino.client.handover_client import HandoverClient
from rhino.client.overview import fetch_overview
from rhino.testing.process import Process
from rhino.testing.reaper import Reaper
from rhino.testing.rhino_daemons import start_manager, start_sidecar, wait_manager, wait_sidecar
from rhino_core.security.choice import client_transport
from rhino_core.security.sources import new_cluster_key
from rhino_core.settings import SidecarSettings
from tests.rhino_core.support.metrics import free_port

LEASE_S = 1.0
TAKEN_OVER_S = 20.0  # on a busy machine


class Stage:
    """Three sidecars, and the managers m1 and m2. Sidecars and commands have the addresses of both."""

    def __init__(self, folder: Path, reaper: Reaper, cluster_key: str) -> None:
        self.folder = folder
        self._reaper = reaper
        self._key = cluster_key
        self.managers = {name: f"127.0.0.1:{free_port()}" for name in ("m1", "m2")}
        self.address = ",".join(self.managers.values())
        self.ports = {name: free_port() for name in "abc"}
        self.processes: list[Process] = []

    @property
    def witnesses(self) -> str:
        return ",".join(f"{name}=127.0.0.1:{port}" for name, port in self.ports.items())

    def sidecar(self, name: str, *, forget_journal: bool = False) -> Process:
        (folder := self.folder / name).mkdir(mode=0o755, exist_ok=True)
        settings = SidecarSettings(
            worker_id=name,
            host="127.0.0.1",
            listen=f"127.0.0.1:{self.ports[name]}",
            data_dir=folder / "data",
            socket=folder / "s",
            manager=self.address,
            cluster_key=self._key,
            forget_journal=forget_journal,
        )
        return self._own(start_sidecar(f"sidecar-{name}", settings, log_dir=self.folder, reaper=self._reaper))

    def manager(self, name: str, *, witnessed: bool = True, bootstrap: bool = False) -> Process:
        process = start_manager(
            self.folder / name,
            log_dir=self.folder,
            reaper=self._reaper,
            listen=self.managers[name],
            bootstrap=bootstrap,
            cluster_key=self._key,
            options=("--witnesses", self.witnesses, "--witness-lease-s", str(LEASE_S)) if witnessed else (),
        )
        return self._own(process)

    def begin(self) -> tuple[dict[str, Process], Process]:
        """Three witnesses and a new leader, once all of them serve."""
        sidecars = {name: self.sidecar(name) for name in "abc"}
        leader = self.manager("m1", bootstrap=True)
        wait_manager(leader)
        for sidecar in sidecars.values():
            wait_sidecar(sidecar)
        return sidecars, leader

    def _own(self, process: Process) -> Process:
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            process.kill()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    key = tmp_path / "cluster.key"
    new_cluster_key(key)
    use(client_transport("", str(key)))
    with Reaper() as reaper:
        made = Stage(tmp_path, reaper, str(key))
        yield made
        made.close()
    use(None)


@pytest.mark.timeout(300)
def test_a_standby_takes_over_and_knows_the_journal(stage: Stage) -> None:
    _, leader = stage.begin()
    standby = stage.manager("m2")
    standby.wait_for("a standby", lambda: _logged(standby, "standby"), timeout_s=60)
    with HandoverClient(stage.address) as client:
        client.drain("c")
    generation = fetch_overview(stage.address).generation
    killed_at = time.monotonic()
    leader.kill()
    wait_manager(standby)
    assert time.monotonic() - killed_at < TAKEN_OVER_S
    print(f"decides again after {time.monotonic() - killed_at:.2f} s")
    assert fetch_overview(stage.address, timeout_s=30).generation > generation
    with HandoverClient(stage.address) as client:
        assert client.drain_status("c").draining


@pytest.mark.timeout(300)
def test_witnesses_begin_with_the_journal_of_a_manager_that_had_none(stage: Stage) -> None:
    sidecars = [stage.sidecar(name) for name in "abc"]
    alone = stage.manager("m1", witnessed=False, bootstrap=True)
    wait_manager(alone)
    for sidecar in sidecars:
        wait_sidecar(sidecar)
    with HandoverClient(stage.address) as client:
        client.drain("c")
    generation = fetch_overview(stage.address).generation
    alone.terminate(timeout_s=20)
    wait_manager(stage.manager("m1", bootstrap=True))
    assert fetch_overview(stage.address, timeout_s=30).generation > generation
    with HandoverClient(stage.address) as client:
        assert client.drain_status("c").draining


@pytest.mark.nightly  # its core runs every time: tests/rhino_core/witnesses/test_contender.py
@pytest.mark.timeout(300)
def test_a_manager_without_a_majority_stops(stage: Stage) -> None:
    sidecars, leader = stage.begin()
    sidecars["a"].kill()
    with HandoverClient(stage.address) as client:  # two of three suffice
        client.drain("c")
    sidecars["b"].kill()
    leader.wait_for("its end", lambda: not leader.running or None, timeout_s=60)
    assert leader.returncode == exit_codes.UNREACHABLE


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_witness_with_a_new_disk_gets_the_journal(stage: Stage) -> None:
    """Then it counts: with one of the others it elects the next leader, which knows the journal."""
    sidecars, leader = stage.begin()
    with HandoverClient(stage.address) as client:
        client.drain("a")
    sidecars["c"].kill()
    silent = (f"127.0.0.1:{stage.ports['c']}",)
    leader.wait_for("the loss", lambda: _silent(stage) == silent or None, timeout_s=60)
    shutil.rmtree(stage.folder / "c" / "data")
    wait_sidecar(stage.sidecar("c"))
    changes = "witnesses change"  # the new one comes, and the former one goes
    leader.wait_for("it", lambda: leader.log_path.read_text().count(changes) == 2 or None, timeout_s=60)
    assert _silent(stage) == ()
    sidecars["a"].kill()
    leader.kill()
    wait_manager(stage.manager("m2"))
    with HandoverClient(stage.address) as client:
        assert client.drain_status("a").draining


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_lost_majority_is_told_and_a_new_journal_begins_with_the_remaining_witness(stage: Stage) -> None:
    sidecars, leader = stage.begin()
    leader.kill()
    for name in "ab":
        sidecars[name].kill()
        shutil.rmtree(stage.folder / name / "data")
        stage.sidecar(name)
    standby = stage.manager("m2", bootstrap=True)
    told = "a majority of the journal's witnesses is gone"
    standby.wait_for("the reason", lambda: _logged(standby, told), timeout_s=60)
    standby.kill()
    sidecars["c"].terminate(timeout_s=20)
    stage.sidecar("c", forget_journal=True)
    wait_manager(stage.manager("m1", bootstrap=True))
    assert fetch_overview(stage.address, timeout_s=30).generation > 0


def _silent(stage: Stage) -> tuple[str, ...]:
    return fetch_overview(stage.address, timeout_s=30).silent_witnesses


@pytest.mark.nightly  # as above
@pytest.mark.timeout(300)
def test_no_journal_begins_without_bootstrap(stage: Stage) -> None:
    for name in "abc":
        stage.sidecar(name)
    manager = stage.manager("m1")
    manager.wait_for("the refusal", lambda: _logged(manager, "keep no journal: start with --bootstrap"), timeout_s=60)


def _logged(process: Process, text: str) -> bool | None:
    return text in process.log_path.read_text() or None
