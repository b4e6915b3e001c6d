"""After a reboot only that is read of which nobody knows that it is on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rhino_core.ids import StoreId
from tests.worker_runtime.scenario import STORE
from worker_runtime.storage.disk.syncer import _MARKER
from worker_runtime.storage.keeping import recovery
from worker_runtime.storage.store import Store
from worker_runtime.upkeep import flusher as flusher_module
from worker_runtime.upkeep.flusher import Flusher


class Machine:
    """A store on a machine that can be rebooted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._patch = monkeypatch
        self._boots = 0
        self.reboot()

    def start(self) -> None:
        self.store = Store.open("me", self.folder, 0)
        self.flusher = Flusher(self.store.layout.root, self.store.index, self.store.arrivals)

    def stop(self) -> None:
        self.flusher.close()
        self.store.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def reboot(self, *, failed: bool = False) -> None:
        if self._boots:
            self.stop()
            if failed:
                (self.folder / _MARKER).write_text(f"boot {self._boots}")
        self._boots += 1
        boot = f"boot {self._boots}"
        self._patch.setattr(recovery, "boot_id", lambda: boot)
        self.start()

    async def add(self, name: str) -> None:
        source = self.folder / "inbox" / "new"
        source.write_bytes(b"content")
        await self.store.uploads.take_over(STORE, name, source)

    def tear(self, name: str) -> None:
        """As a loss of power may leave a file that was not written: its size and time are right."""
        path = self.folder / "store" / str(STORE) / name
        status = path.stat()
        path.write_bytes(bytes(status.st_size))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def has(self, name: str, store: StoreId = STORE) -> bool:
        return self.store.files.record(store, name) is not None


EARLY, LATE = "SSTs/000001-x.sst", "SSTs/000002-x.sst"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(tmp_path / "data", monkeypatch)
    yield made
    made.stop()


async def test_what_is_known_to_be_on_disk_is_not_read(machine: Machine) -> None:
    await machine.add(EARLY)
    await machine.flusher.flush()
    await machine.add(LATE)
    for name in (EARLY, LATE):
        machine.tear(name)
    machine.restart()
    assert not machine.store.partly_read
    assert machine.has(EARLY)
    assert machine.has(LATE)
    machine.reboot()
    assert machine.has(EARLY)  # that this is damage of another kind is a scrub's business
    assert not machine.has(LATE)
    assert machine.store.partly_read


async def test_without_a_flush_everything_is_read(machine: Machine) -> None:
    await machine.add(EARLY)
    machine.tear(EARLY)
    machine.reboot()
    assert not machine.has(EARLY)
    assert not machine.store.partly_read


async def test_after_a_failed_sync_everything_is_read_once(machine: Machine) -> None:
    await machine.add(EARLY)
    await machine.add(LATE)
    await machine.flusher.flush()
    machine.tear(EARLY)
    machine.reboot(failed=True)
    assert not machine.has(EARLY)
    machine.tear(LATE)
    machine.reboot()
    assert machine.has(LATE)


async def test_a_file_system_that_cannot_be_synced_is_not_believed_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Flusher) -> None:
        raise OSError(5, "Input/output error")

    await machine.add(EARLY)
    with monkeypatch.context() as patched:
        patched.setattr(Flusher, "_sync", fail)
        await machine.flusher.flush()
    assert machine.store.index.metadata(recovery.ON_DISK_UNTIL) is None
    monkeypatch.setattr(flusher_module, "PERIOD_S", 0.0)
    await machine.flusher.run()  # ends: an error that was reported once is not reported again
    assert machine.store.index.metadata(recovery.ON_DISK_UNTIL) is None


async def test_a_new_file_is_later_than_what_was_written_down_though_the_newest_has_gone(machine: Machine) -> None:
    await machine.add(EARLY)
    await machine.flusher.flush()
    await machine.store.removal.remove(STORE, [EARLY])
    machine.restart()
    await machine.add(LATE)
    machine.tear(LATE)
    machine.reboot()
    assert not machine.has(LATE)


async def test_an_idle_store_is_not_synced(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Flusher] = []
    original = Flusher._sync

    def count(self: Flusher) -> None:
        synced.append(self)
        original(self)

    monkeypatch.setattr(Flusher, "_sync", count)
    await machine.flusher.flush()
    assert len(synced) == 0
    for number in (1, 2):
        await machine.add(EARLY if number == 1 else LATE)
        await machine.flusher.flush()
        await machine.flusher.flush()
        assert len(synced) == number
