"""Parts of the tests of full disks that other tests use as well."""

from __future__ import annotations

from replication_manager.protocol import events as ev
from rhino_core.ids import DiskState
from tests.replication_manager.protocol.harness import Manager


def say(manager: Manager, name: str, disk: DiskState) -> list[ev.Effect]:
    return manager.do(ev.Beat(name, f"{name}/1", 0, 0, 0, 0, (), disk, f"disk of {name}"))
