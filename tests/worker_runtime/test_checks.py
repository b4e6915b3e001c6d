"""What makes a sidecar unhealthy."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rhino_core.ids import DiskState
from worker_runtime.checks import SidecarChecks
from worker_runtime.services.local_socket import LocalSocket
from worker_runtime.storage.store import Store


def checks(store: Any, tmp_path: Path, *, connected: bool = True) -> SidecarChecks:
    manager: Any = SimpleNamespace(connected=connected, address="h:1")
    return SidecarChecks(LocalSocket(tmp_path / "socket"), store, manager)


def failures(found: SidecarChecks) -> dict[str, str]:
    return {name: check() for name, check in (found.alive | found.ready).items() if name != "socket"}


def test_disk_index_and_manager_of_a_real_store(tmp_path: Path) -> None:
    store = Store.open("w", tmp_path / "data", 0)
    try:
        assert failures(checks(store, tmp_path)) == {"disk": "", "index": "", "manager": "", "space": ""}
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
