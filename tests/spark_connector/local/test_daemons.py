"""The daemons of a data directory: who starts them, who shares them, and when they end. Real processes, no Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from rhino.client.overview import fetch_overview
from rhino.testing.rhino_daemons import serving
from rhino_core.errors import PreconditionError, UnavailableError
from spark_connector.local import daemons as module
from spark_connector.local.daemons import end_unused, join, leave, temporary_daemons
from spark_connector.local.directory import LocalDirectory
from tests.nightly import few

pytestmark = pytest.mark.timeout(240)
ROOT = Path(__file__).parents[3]


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.05)


@dataclass
class User:
    process: subprocess.Popen[str]
    manager: str
    supervisor: int

    def joins_again(self) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found: dict[str, str] = json.loads(self.process.stdout.readline())
        return found["manager"]

    def ends(self) -> None:
        self.process.communicate(timeout=90)


@contextmanager
def user(folder: Path) -> Iterator[User]:
    """A process in a group of its own, as a notebook's kernel is."""
    command = [sys.executable, "-m", "tests.spark_connector.local.joined", str(folder)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    ) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        try:
            yield User(process, ready["manager"], ready["supervisor"])
        finally:
            process.kill()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data directory, unused again at the end. This process has its key."""
    monkeypatch.setenv("RHINO_CLUSTER_KEY", str(tmp_path / "state" / "cluster.key"))
    yield tmp_path / "state"
    directory = LocalDirectory(tmp_path / "state")
    if directory.exists():
        wait_for(lambda: not directory.users.is_held(), "no user")
        end_unused(directory).release()


def daemons_of(supervisor: int) -> dict[str, psutil.Process]:
    """By name. Without processes that have just ended."""
    found = {}
    for child in psutil.Process(supervisor).children():
        try:
            found[child.cmdline()[3]] = child
        except (psutil.NoSuchProcess, psutil.ZombieProcess, IndexError):
            continue
    return found


def test_a_second_process_joins_and_the_daemons_end_with_the_last_one(folder: Path) -> None:
    with user(folder) as first, user(folder) as second:
        assert (second.manager, second.supervisor) == (first.manager, first.supervisor)
        assert set(daemons_of(first.supervisor)) == {"manager", "sidecar"}
        assert {worker.worker_id for worker in fetch_overview(first.manager).workers} == {"local"}
        first.ends()
        time.sleep(2 * 3.0)  # longer than the supervisor waits when it sees no user
        assert serving(second.manager)
        second.ends()
        wait_for(lambda: not LocalDirectory(folder).supervisor.is_held(), "the supervisor's end")
        assert not LocalDirectory(folder).daemons.is_held()
        assert not serving(second.manager)


def test_processes_that_start_at_once_share_one_pair(folder: Path) -> None:
    with ExitStack() as stack:
        command = [sys.executable, "-m", "tests.spark_connector.local.joined", str(folder)]
        started = [
            stack.enter_context(
                subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(3)
        ]
        said = [json.loads(process.communicate(timeout=90)[0].splitlines()[0]) for process in started]
    assert len({one["pid"] for one in said}) == 3
    assert len({(one["manager"], one["supervisor"]) for one in said}) == 1


@pytest.mark.parametrize("number", few([signal.SIGINT, signal.SIGHUP]))
def test_a_signal_to_the_users_group_does_not_reach_the_daemons_and_a_killed_user_is_none(
    folder: Path, number: signal.Signals
) -> None:
    with user(folder) as first, user(folder) as second:
        os.killpg(first.process.pid, number)
        first.process.wait(30)
        time.sleep(1)
        assert serving(second.manager)
        assert second.joins_again() == first.manager
        os.killpg(second.process.pid, signal.SIGKILL)
        wait_for(lambda: not LocalDirectory(folder).supervisor.is_held(), "the supervisor's end")
        assert not serving(second.manager)


@pytest.mark.parametrize("service", few(["manager", "sidecar"]))
def test_a_killed_daemon_comes_back_at_its_place_and_so_do_both_when_the_user_of_a_killed_supervisor_joins_again(
    folder: Path, service: str
) -> None:
    with user(folder) as one:
        killed = daemons_of(one.supervisor)[service]
        killed.kill()
        wait_for(lambda: daemons_of(one.supervisor).get(service, killed) != killed, f"another {service}")
        socket = f"unix://{LocalDirectory(folder).socket}"
        wait_for(lambda: serving(one.manager) and serving(socket), "both daemons")
        wait_for(lambda: [worker.state for worker in fetch_overview(one.manager).workers] == ["live"], "one worker")
        os.kill(one.supervisor, signal.SIGKILL)
        wait_for(lambda: not LocalDirectory(folder).supervisor.is_held(), "the supervisor's end")
        assert one.joins_again() == one.manager  # a driver that runs reaches the same address
        running = LocalDirectory(folder).running()
        assert running is not None
        assert running.pid != one.supervisor
        assert serving(one.manager)


def test_a_taken_address_is_given_up(folder: Path) -> None:
    with user(folder) as one:
        former = one.manager
    wait_for(lambda: not LocalDirectory(folder).daemons.is_held(), "the daemons' end")
    host, _, port = former.rpartition(":")
    with ExitStack() as stack:
        import socket

        taken = stack.enter_context(socket.create_server((host, int(port))))
        taken.listen()
        with user(folder) as one:
            assert one.manager != former
            assert serving(one.manager)


def test_a_directory_in_use_names_its_users_and_nobody_without_the_key_is_let_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every Unix user of the machine reaches the port."""
    with user(folder) as one:
        with pytest.raises(PreconditionError, match=rf"in use by process {one.process.pid}; end it first"):
            end_unused(LocalDirectory(folder))
        assert fetch_overview(one.manager).workers
        assert (folder / "cluster.key").stat().st_mode & 0o777 == 0o600
        monkeypatch.delenv("RHINO_CLUSTER_KEY")
        with pytest.raises(UnavailableError):
            fetch_overview(one.manager, timeout_s=2)


def test_daemons_that_cannot_start_say_why_and_leave_no_user(folder: Path) -> None:
    LocalDirectory(folder).create()
    (folder / "sidecar").mkdir()
    (folder / "sidecar" / "notes.txt").write_text("mine")
    (folder / "manager").mkdir()
    with pytest.raises(UnavailableError, match="did not start"):
        join(folder)
    assert not LocalDirectory(folder).users.is_held()
    assert not LocalDirectory(folder).daemons.is_held()
    assert (folder / "sidecar" / "notes.txt").read_text() == "mine"


def test_one_process_joins_once_and_leaves(folder: Path) -> None:
    joined = join(folder)
    assert join(folder) == joined or join(folder).manager == joined.manager
    assert list(module._used) == [folder]
    leave(joined)
    leave(joined)
    assert module._used == {}
    end_unused(joined.directory).release()
    assert not serving(joined.manager)


def test_temporary_daemons_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with temporary_daemons(tmp_path) as daemons:
        monkeypatch.setenv("RHINO_CLUSTER_KEY", str(daemons.directory.key))
        assert serving(daemons.manager)
        assert list(tmp_path.iterdir()) == [daemons.directory.path]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.delenv("RHINO_CLUSTER_KEY")
    assert not serving(daemons.manager)
