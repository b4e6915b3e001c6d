"""A query that fails and is started again, over and over: the attempts that it leaves do not fill the disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from crc32c import crc32c

from rhino_core.ids import FileEntry, StoreVersion, Version
from tests.worker_runtime.scenario import STORE, changelog, snapshot, sst, version
from tests.worker_runtime.support.collector import around
from worker_runtime.protocol.versions.attempts import ATTEMPTS_KEPT, crowded, given_up
from worker_runtime.protocol.versions.closure import StoreCatalogue, collectable, kept_names, wanted
from worker_runtime.storage.store import Store
from worker_runtime.upkeep import collector
from worker_runtime.upkeep.collector import Collector

MORE = 10


def attempt(number: int, at: int = 3) -> FileEntry:
    """A changelog of version `at`, on top of version `at` - 1."""
    lineage = tuple(version(n) for n in range(1, at))
    return FileEntry(STORE, f"{at}_try{number}.changelog", 10, number, lineage=lineage)


def looping(tries: int = ATTEMPTS_KEPT + MORE) -> StoreCatalogue:
    return StoreCatalogue([changelog(1), changelog(2), *(attempt(n) for n in range(tries))])


def names(entries: list[FileEntry]) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in entries))


@pytest.mark.parametrize("floor", [None, version(1), version(2)])
def test_all_but_the_newest_go_with_and_without_a_floor(floor: Version | None) -> None:
    catalogue = looping()
    assert crowded(catalogue)
    assert collectable(catalogue, floor) == names([attempt(n) for n in range(MORE)])
    assert collectable(looping(ATTEMPTS_KEPT), floor) == ()
    assert not crowded(looping(ATTEMPTS_KEPT))


def test_what_a_later_version_was_built_on_stays_however_old_it_is() -> None:
    """It may be the logged one: Spark builds on what its commit log names."""
    catalogue = looping()
    logged = Version(3, "try0")
    catalogue.add(FileEntry(STORE, "4_x.changelog", 10, 1, lineage=(version(1), version(2), logged)))
    for late in range(2 * MORE):
        catalogue.add(attempt(1000 + late))
    assert catalogue.holds(logged)
    gone = collectable(catalogue, None)
    assert attempt(0).name not in gone
    assert len(gone) == 3 * MORE - 1
    assert catalogue.holds(Version(4, "x"))


def test_what_is_pinned_or_under_way_stays() -> None:
    catalogue = looping()
    assert given_up(catalogue) == {Version(3, f"try{n}") for n in range(MORE)}
    pinned, in_use = Version(3, "try0"), attempt(1).name
    assert collectable(catalogue, None, [pinned], [in_use]) == names([attempt(n) for n in range(2, MORE)])


def test_data_files_of_their_snapshots_go_unless_others_name_them() -> None:
    catalogue = looping()
    catalogue.add(snapshot(2, sst(1).name))
    for n in range(2):
        zip_ = FileEntry(STORE, f"3_try{n}.zip", 10, n, references=(sst(1).name, sst(10 + n).name))
        for entry in (sst(1), sst(10 + n), zip_):
            catalogue.add(entry)
    gone = collectable(catalogue, None)
    data = {name for name in gone if name.startswith("SSTs/")}
    assert data == {sst(10).name, sst(11).name}
    assert {"3_try0.zip", "3_try1.zip"} <= set(gone)


def test_members_agree_although_they_got_them_in_different_orders() -> None:
    """A member does not fetch what it has deleted. A member that has few attempts gets the newest ones."""
    everything = [changelog(1), changelog(2), *(attempt(n) for n in range(ATTEMPTS_KEPT + MORE))]
    kept = StoreCatalogue([e for e in everything if e.name not in collectable(StoreCatalogue(everything), None)])
    assert wanted(kept, everything, None) == ()
    member = StoreCatalogue()
    for entry in wanted(member, everything, None):
        member.add(entry)
    assert names(list(member.entries())) == names(list(kept.entries()))
    assert wanted(member, everything, None) == ()
    few = StoreCatalogue([attempt(n) for n in range(ATTEMPTS_KEPT + MORE - 2, ATTEMPTS_KEPT + MORE)])
    for entry in wanted(few, everything, None):
        few.add(entry)
    assert names(list(few.entries())) == names(list(kept.entries()))


async def test_a_real_store_stays_small_also_over_restarts_without_any_floor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "SWEEP_S", 0.1)
    store = Store.open("me", tmp_path, 0)

    async def receive(entry: FileEntry) -> None:
        content = entry.name.encode()
        await store.received.receive_whole(
            FileEntry(STORE, entry.name, len(content), crc32c(content), lineage=entry.lineage), [content]
        )

    for entry in (changelog(1), changelog(2)):
        await receive(entry)
    for turn in range(3):
        for number in range(ATTEMPTS_KEPT):
            await receive(attempt(1000 * turn + number))
        store.close()
        store = Store.open("me", tmp_path, 0)
        work = asyncio.create_task(Collector(around(store)).run())
        async with asyncio.timeout(20):
            while len(store.files.entries()) > ATTEMPTS_KEPT + 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        here = {entry.name for entry in store.files.entries()}
        assert {attempt(1000 * turn + number).name for number in range(ATTEMPTS_KEPT)} <= here
    assert [v.version.version for v in store.files.newest.held(STORE.group)] == [3]
    assert StoreVersion(STORE, version(2)).version in store.catalogue.store(STORE).versions()
    assert kept_names(store.catalogue.store(STORE), None) == {entry.name for entry in store.files.entries()}
    store.close()
