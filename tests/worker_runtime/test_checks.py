"""What makes a sidecar unhealthy."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rhino_core.ids import DiskState, Epoch, GroupId, Member, ReplicaGroup, Worker
from worker_runtime.checks import COPIES_S_MAX, CopiesCheck, SidecarChecks
from worker_runtime.services.local_socket import LocalSocket
from worker_runtime.storage.store import Store


def checks(store: Any, tmp_path: Path, *, connected: bool = True) -> SidecarChecks:
    manager: Any = SimpleNamespace(connected=connected, address="h:1")
    copies: Any = SimpleNamespace(failure=lambda: "")
    return SidecarChecks(LocalSocket(tmp_path / "socket"), store, manager, copies)


def failures(found: SidecarChecks) -> dict[str, str]:
    return {name: check() for name, check in (found.alive | found.ready).items() if name != "socket"}


def test_disk_index_and_manager_of_a_real_store(tmp_path: Path) -> None:
    store = Store.open("w", tmp_path / "data", 0)
    try:
        assert failures(checks(store, tmp_path)) == {"disk": "", "index": "", "manager": "", "space": "", "copies": ""}
        assert checks(store, tmp_path).alive["socket"]().startswith(f"{tmp_path / 'socket'} is gone")
        away = failures(checks(store, tmp_path, connected=False))
        assert away["manager"] == "no connection to the manager at h:1"
        store.disk.record_error(OSError(errno.EIO, "Input/output error"))
        assert "Input/output error" in failures(checks(store, tmp_path))["disk"]
    finally:
        store.close()
    assert failures(checks(store, tmp_path))["index"]


@pytest.mark.parametrize(("state", "check"), [(DiskState.FULL, "space"), (DiskState.FAILING, "disk")])
def test_a_full_disk_is_not_ready_and_a_failing_one_is_not_alive(tmp_path: Path, state: DiskState, check: str) -> None:
    store = SimpleNamespace(
        space=SimpleNamespace(state=lambda: (state, "")),
        syncer=SimpleNamespace(failure=None),
        index=SimpleNamespace(failure=lambda: ""),
    )
    found = failures(checks(store, tmp_path))
    assert {name for name, why in found.items() if why} == {check}


class Groups:
    """The groups of worker "b", as the manager names them and as the worker finds them. And a clock."""

    def __init__(self, **members: str) -> None:
        self.now, self.known, self.whole_here = 1000.0, True, {*members}
        self._found = {name: self._group(name, text) for name, text in members.items()}
        view: Any = SimpleNamespace(
            groups=lambda: [group.group for group in self._found.values()],
            group=lambda group: self._found[group.job],
            whole=lambda group: group.job in self.whole_here,
        )
        self.check = CopiesCheck("b", view, lambda: self.known, lambda: self.now)

    def set(self, name: str, members: str) -> None:
        self._found[name] = self._group(name, members)

    @staticmethod
    def _group(name: str, text: str) -> ReplicaGroup:
        members = tuple(
            Member(Worker(part[0], "1", "h", "h:1"), whole=not part.endswith("?")) for part in text.split(",")
        )
        return ReplicaGroup(GroupId(name, 0, 0), Epoch(1, 1), members, 1)


def test_a_worker_is_not_ready_before_its_groups_are_known_and_whole() -> None:
    groups = Groups(mine="a,b?", others="a,c")
    groups.known = False
    assert "has not named the groups" in groups.check.failure()
    groups.known = True
    assert groups.check.failure() == "groups that are not whole yet: 1, such as mine/0/0"
    groups.set("mine", "a,b")
    groups.whole_here.remove("mine")
    assert groups.check.failure(), "the worker knows better than the manager"
    groups.whole_here.add("mine")
    assert groups.check.failure() == ""


def test_a_worker_without_groups_is_ready_at_once() -> None:
    assert Groups().check.failure() == ""


def test_a_worker_that_was_replaced_is_not_ready_before_its_replacement_is_whole() -> None:
    groups = Groups(former="a,c?")
    assert groups.check.failure()
    groups.set("former", "a,c")
    assert groups.check.failure() == ""


def test_a_worker_that_was_ready_stays_so_when_a_group_moves_to_it() -> None:
    groups = Groups(mine="a,b")
    assert groups.check.failure() == ""
    groups.set("mine", "a,b?")
    assert groups.check.failure() == ""


def test_a_worker_is_ready_after_a_limit_whatever_its_copies_are(caplog: pytest.LogCaptureFixture) -> None:
    groups = Groups(one="a,b?", other="a,b?")
    assert groups.check.failure()
    groups.now += COPIES_S_MAX - 1
    assert groups.check.failure()
    groups.now += 1
    assert groups.check.failure() == groups.check.failure() == ""
    [record] = caplog.records
    assert record.message == "ready although copies are not whole"
    assert (record.__dict__["groups"], record.__dict__["first"]) == (2, "one/0/0")
