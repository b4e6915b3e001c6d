"""Parts of the tests of returned that other tests use as well."""

from __future__ import annotations

from replication_manager.protocol.workers.worker_record import Report
from rhino_core.ids import NO_EPOCH, StoreVersion
from tests.replication_manager.protocol.harness import GROUP, Manager, written


def holding(manager: Manager, *held: StoreVersion, whole: bool = True) -> Report:
    return Report(GROUP, manager.group().epoch, whole, 10, held)


def lost_and_replaced() -> Manager:
    """b has committed version 7 alone, and is lost. Its group then consists of a and c, which hold version 6."""
    manager = Manager("abc")
    manager.resolve("a")
    assert manager.members() == "ab"
    manager.now += 1
    manager.lose("b")
    manager.beat("c", holding(manager, written(6)))
    manager.beat("a", holding(manager, written(6)))
    assert manager.members() == "ac"
    return manager


def come_back(manager: Manager, *held: StoreVersion) -> None:
    manager.now += 1
    manager.register("b", Report(GROUP, NO_EPOCH, False, 10, held), process="second")
