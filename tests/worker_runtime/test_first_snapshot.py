"""A snapshot of version 1 carries the names of column families: changelogs alone do not open such a store."""

from __future__ import annotations

from tests.worker_runtime.scenario import changelog, snapshot, sst, version
from worker_runtime.core.closure import StoreCatalogue


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
