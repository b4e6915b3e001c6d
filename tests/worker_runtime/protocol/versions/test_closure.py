"""Closures, retention and what catch-up wants, by examples and by Hypothesis."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rhino_core.ids import FileEntry, Version
from tests.worker_runtime.scenario import STORE, changelog, snapshot, sst, version
from worker_runtime.protocol.versions.closure import (
    ZIP_AFTER_FILES_S,
    Catalogue,
    StoreCatalogue,
    collectable,
    kept_names,
    raise_floor,
    wanted,
)


def catalogue(*entries: FileEntry) -> StoreCatalogue:
    return StoreCatalogue(entries)


def test_version_0_is_always_held_and_1_needs_its_changelog() -> None:
    assert catalogue().holds(Version(0, ""))
    assert not catalogue().holds(version(1))
    assert catalogue(changelog(1)).holds(version(1))


def test_a_gap_in_the_lineage_breaks_the_closure() -> None:
    held = catalogue(changelog(1), changelog(3))
    assert not held.holds(version(3))
    assert held.missing(version(3)) == {changelog(2).name}
    held.add(changelog(2))
    assert held.holds(version(3))
    assert held.missing(version(3)) == frozenset()


def test_a_snapshot_stands_for_everything_before_it() -> None:
    held = catalogue(snapshot(5, sst(1).name), sst(1), changelog(6, since=5), changelog(7, since=5))
    assert held.closure(version(7)) == frozenset(e.name for e in held.entries())
    held.discard(sst(1).name)
    assert not held.holds(version(7))
    assert held.missing(version(7)) == {sst(1).name}


def test_nothing_behind_the_lineage_of_the_version_is_looked_at() -> None:
    """All changelogs from 1 are here, but 7's own lineage begins at 5, whose snapshot is not."""
    held = catalogue(*(changelog(n) for n in range(1, 7)), changelog(7, since=5))
    assert held.holds(version(6))
    assert not held.holds(version(7))


def test_another_checkpoint_id_is_another_version() -> None:
    assert not catalogue(changelog(1)).holds(Version(1, "zombie"))


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 6))))
def test_versions_come_newest_first_whatever_came_and_went(steps: list[tuple[bool, bool, int]]) -> None:
    held = catalogue()
    for comes, zipped, number in steps:
        entry = snapshot(number) if zipped else changelog(number)
        if comes:
            held.add(entry)
        else:
            held.discard(entry.name)
    assert list(held.newest_first()) == sorted(held.versions(), reverse=True)


def test_the_cheapest_closure_counts_only_what_is_not_here() -> None:
    union = catalogue(snapshot(2, sst(1).name), sst(1, size=1000), changelog(1), changelog(2), changelog(3))
    newest = frozenset({snapshot(2).name, sst(1).name, changelog(3).name})
    replay = frozenset({changelog(1).name, changelog(2).name, changelog(3).name})
    assert union.closure(version(3)) == newest
    assert union.cheapest_closure(version(3), have=()) == replay
    assert union.cheapest_closure(version(3), have={sst(1).name}) == newest


def test_collects_what_no_version_above_the_floor_reaches_zips_before_data() -> None:
    held = Catalogue()
    for at, entry in enumerate((sst(1), snapshot(2, sst(1).name), sst(2), snapshot(5, sst(2).name), changelog(1))):
        held.add(entry, at)
    held.add(changelog(6, since=5), 9)
    store = held.store(STORE)
    assert collectable(store, version(6)) == (snapshot(2).name, changelog(1).name, sst(1).name)
    assert collectable(store, version(6), pins=[version(2)]) == (changelog(1).name,)
    assert collectable(store, version(6), in_use=[changelog(1).name, snapshot(2).name]) == ()


def test_nothing_goes_without_a_floor_or_while_the_floor_itself_is_not_held() -> None:
    held = catalogue(changelog(1), changelog(6, since=5))
    assert collectable(held, None) == ()
    assert collectable(held, version(6)) == ()


def test_data_that_came_after_the_newest_zip_stays() -> None:
    held = Catalogue()
    held.add(snapshot(5), 1.0)
    held.add(sst(9), 2.0)
    assert collectable(held.store(STORE), version(5)) == ()


def test_floor_is_monotone() -> None:
    assert raise_floor(None, version(3)) == version(3)
    assert raise_floor(version(3), version(2)) == version(3)
    assert raise_floor(version(3), Version(3, "other")) == version(3)
    assert raise_floor(version(3), version(4)) == version(4)


def test_catch_up_wants_data_then_zips_then_changelogs_and_nothing_below_the_floor() -> None:
    remote = [changelog(6, since=5), snapshot(5, sst(2).name), sst(2), changelog(1)]
    assert [e.name for e in wanted(catalogue(), remote, version(6))] == [
        sst(2).name,
        snapshot(5).name,
        changelog(6).name,
    ]
    assert wanted(catalogue(*remote), remote, version(6)) == ()


SSTS = [sst(n) for n in range(4)]


@st.composite
def stores(draw: st.DrawFn) -> list[FileEntry]:
    """Up to ten versions with changelogs whose lineage starts at 1 or at some snapshot, some of it missing."""
    count = draw(st.integers(1, 10))
    entries: list[FileEntry] = list(draw(st.lists(st.sampled_from(SSTS), unique=True)))
    base = 1
    for number in range(1, count + 1):
        if draw(st.booleans()):
            entries.append(changelog(number, since=base))
        if draw(st.integers(0, 3)) == 0:
            entries.append(snapshot(number, *(s.name for s in draw(st.lists(st.sampled_from(SSTS), unique=True)))))
            base = number
    return draw(st.permutations(entries))


@settings(deadline=None)
@given(stores(), st.integers(1, 10))
def test_held_exactly_when_nothing_is_missing(entries: list[FileEntry], number: int) -> None:
    held = catalogue(*entries)
    assert held.holds(version(number)) == (not held.missing(version(number)))


@settings(deadline=None)
@given(stores(), st.integers(1, 10))
def test_a_closure_alone_opens_its_version(entries: list[FileEntry], number: int) -> None:
    held = catalogue(*entries)
    for closure in held.closures(version(number)):
        assert catalogue(*(e for e in entries if e.name in closure)).holds(version(number))
        assert closure <= held.reach(version(number))


@settings(deadline=None)
@given(stores(), st.integers(1, 10), st.sets(st.integers(1, 10)))
def test_collecting_never_touches_a_closure_above_the_floor_or_pinned(
    entries: list[FileEntry], floor: int, pins: set[int]
) -> None:
    held = catalogue(*entries)
    safe = [version(n) for n in range(1, 11) if (n >= floor or n in pins) and held.holds(version(n))]
    names = collectable(held, version(floor), pins=[version(n) for n in pins])
    for done, name in enumerate(names):
        held.discard(name)
        assert all(held.holds(v) for v in safe), f"broken after {names[: done + 1]}"
    for zip_ in (e for e in held.entries() if e.references):
        assert all(name not in names for name in zip_.references)


@settings(deadline=None)
@given(stores(), st.data(), st.one_of(st.none(), st.integers(1, 10)))
def test_after_catch_up_nothing_more_is_wanted(
    entries: list[FileEntry], data: st.DataObject, floor: int | None
) -> None:
    """Two members have parts of the same files: a name has one checksum forever."""
    at = version(floor) if floor else None
    mine = [entry for entry in entries if data.draw(st.booleans())]
    theirs = [entry for entry in entries if entry not in mine or data.draw(st.booleans())]
    held = catalogue(*mine)
    for entry in wanted(held, theirs, at):
        held.add(entry)
    assert wanted(held, theirs, at) == ()
    for number in range(floor or 1, 11):
        assert held.holds(version(number)) == catalogue(*entries).holds(version(number))


def test_data_files_are_kept_for_a_zip_that_another_one_has_overtaken() -> None:
    """Simulator: retention deleted the files of a snapshot between their arrival and that of its zip."""
    store = StoreCatalogue()
    for number in range(1, 4):
        lineage = tuple(Version(n, "x") for n in range(1, number))
        store.add(FileEntry(STORE, f"{number}_x.changelog", 10, number, lineage=lineage), arrived_s=number)
    store.add(FileEntry(STORE, "SSTs/1-late.sst", 10, 1), arrived_s=4.0)
    store.add(FileEntry(STORE, "SSTs/2-fast.sst", 10, 2), arrived_s=5.0)
    store.add(FileEntry(STORE, "3_x.zip", 10, 3, references=("SSTs/2-fast.sst",)), arrived_s=6.0)
    assert "SSTs/1-late.sst" in kept_names(store, Version(3, "x"))
    store.add(FileEntry(STORE, "3_x.zip", 10, 3, references=("SSTs/2-fast.sst",)), arrived_s=4.1 + ZIP_AFTER_FILES_S)
    assert "SSTs/1-late.sst" not in kept_names(store, Version(3, "x"))


def test_nothing_is_remembered_of_versions_that_are_not_here() -> None:
    catalogue = Catalogue()
    assert not catalogue.store(STORE).holds(Version(1, "x"))
    assert list(catalogue.groups()) == []
    catalogue.add(FileEntry(STORE, "1_x.changelog", 10, 1))
    here = catalogue.store(STORE)
    for number in range(2, 1000):
        assert not here.holds(Version(number, "x"))
    assert here.holds(Version(1, "x"))
    assert here.holds(Version(0, ""))
    assert len(here._held) == 1
