"""A snapshot of version 1 carries the names of column families: changelogs alone do not open such a store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from rhino_core.ids import Epoch, FileEntry
from tests.worker_runtime.cluster import zip_bytes
from tests.worker_runtime.scenario import GROUP, STORE, changelog, snapshot, sst, version
from worker_runtime.protocol.versions.closure import StoreCatalogue
from worker_runtime.storage.store import Store


def test_changelogs_suffice_when_version_1_has_no_snapshot() -> None:
    assert StoreCatalogue([changelog(1), changelog(2), changelog(3)]).holds(version(3))


def test_changelogs_do_not_suffice_beside_an_incomplete_snapshot_of_version_1() -> None:
    here = StoreCatalogue([changelog(1), changelog(2), changelog(3), snapshot(1, sst(7).name)])
    assert not here.holds(version(3))
    assert not here.holds(version(1))
    here.add(sst(7))
    assert here.holds(version(3))


def test_the_cheapest_closure_contains_the_snapshot_of_version_1() -> None:
    """A guest fetches from the files of all holders: without the zip its replay would fail in Spark."""
    holder = StoreCatalogue([changelog(1), changelog(2), snapshot(1, sst(7).name), sst(7)])
    names = holder.cheapest_closure(version(2), have=frozenset())
    assert names == frozenset({changelog(2).name, snapshot(1).name, sst(7).name})


def test_changelogs_do_not_suffice_once_the_snapshot_of_version_1_has_been_dropped() -> None:
    here = StoreCatalogue([changelog(1), changelog(2), snapshot(1)])
    assert here.holds(version(2))
    here.discard(snapshot(1).name)
    assert not here.holds(version(2))
    together = StoreCatalogue([changelog(1), changelog(2)], here.first_snapshots)
    assert together.cheapest_closure(version(2), have=frozenset()) is None


def test_a_changelog_that_comes_before_the_snapshot_says_that_there_is_one() -> None:
    first = replace(changelog(1), references=(snapshot(1).name,))
    here = StoreCatalogue([first, changelog(2)])
    assert not here.holds(version(1))
    assert not here.holds(version(2))
    assert here.missing(version(2)) == {snapshot(1).name}
    here.add(snapshot(1))
    assert here.holds(version(2))


@pytest.mark.parametrize("snapshots", [True, False])
async def test_who_writes_version_1_says_whether_it_has_a_snapshot(tmp_path: Path, snapshots: bool) -> None:
    store = Store.open("me", tmp_path, 0)
    folder = store.layout.inbox / "session"
    folder.mkdir()
    if snapshots:
        (folder / "z").write_bytes(zip_bytes())
        await store.uploads.take_over(STORE, snapshot(1).name, folder / "z")
    (folder / "c").write_bytes(b"changelog")
    record = await store.uploads.take_over(STORE, changelog(1).name, folder / "c")
    assert record.entry.references == ((snapshot(1).name,) if snapshots else ())
    assert store.files.path(record.entry).read_bytes() == b"changelog"
    store.close()
    store = Store.open("me", tmp_path, 0)
    assert store.catalogue.get(STORE, changelog(1).name) == record.entry
    store.close()


async def test_that_there_was_one_is_remembered_until_the_job_is_forgotten(tmp_path: Path) -> None:
    contents = {changelog(1).name: b"1", changelog(2).name: b"2", snapshot(1).name: b"zip"}
    lineages = {changelog(2).name: (version(1),)}

    async def receive(store: Store, name: str) -> None:
        lineage, content = lineages.get(name, ()), contents[name]
        await store.received.receive_whole(FileEntry(STORE, name, len(content), crc32c(content), lineage), [content])

    store = Store.open("me", tmp_path, 0)
    for name in contents:
        await receive(store, name)
    await store.removal.remove(STORE, [snapshot(1).name])
    assert not store.catalogue.store(STORE).holds(version(2))
    store.close()
    store = Store.open("me", tmp_path, 0)
    assert not store.catalogue.store(STORE).holds(version(2))
    await receive(store, snapshot(1).name)
    assert store.catalogue.store(STORE).holds(version(2))
    store.files.path(snapshot(1)).write_bytes(b"piz")
    store.close()
    store = Store.open("me", tmp_path, 0)  # which finds the damage
    assert store.files.record(STORE, snapshot(1).name) is None
    assert not store.catalogue.store(STORE).holds(version(2))
    store.removal.drop_job(STORE.job, Epoch(9, 9), [GROUP])
    store.close()
    store = Store.open("me", tmp_path, 0)
    assert store.catalogue.store(STORE).first_snapshots == set()
    store.close()
