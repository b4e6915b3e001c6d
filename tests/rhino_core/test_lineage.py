"""Lineages that share the list of their branch, and inventories that contain it once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rhino_core.errors import RemoteProtocolError
from rhino_core.ids import FileEntry, StoreId, Version
from rhino_core.lineage import LONG, UNUSED_MAX, Lineage, joined, union
from rhino_core.rpc.inventory import files_of, files_to_pb

STORE = StoreId("job", 0, 0, "default")


def versions(first: int, end: int, branch: str = "x") -> tuple[Version, ...]:
    return tuple(Version(number, f"{branch}{number}") for number in range(first, end))


def entry(lineage: Sequence[Version], last: Version, store: StoreId = STORE) -> FileEntry:
    return FileEntry(store, f"{last}.changelog", 10, 1, lineage=lineage)


def history(length: int, base: int = 1, store: StoreId = STORE) -> list[FileEntry]:
    """Changelogs as a store enters them, one behind the other."""
    entries: list[FileEntry] = []
    for last in versions(base, base + length):
        before = entries[-1].lineage if entries else ()
        whole = (*before, Version(last.version - 1, f"x{last.version - 1}")) if entries else ()
        entries.append(entry(joined(before, whole), last, store))
    return entries


def test_it_is_what_a_tuple_is() -> None:
    whole = versions(1, 80)
    lineage = Lineage(whole)
    assert lineage == whole
    assert whole == lineage
    assert hash(lineage) == hash(whole)
    assert (lineage[0], lineage[-1], lineage[3:5]) == (whole[0], whole[-1], whole[3:5])
    assert tuple(reversed(lineage)) == whole[::-1]
    assert lineage.end(3) == whole[-3:]
    assert lineage.end(3)[0] == whole[-3]
    assert lineage != whole[1:]
    for index in (79, -80):
        with pytest.raises(IndexError):
            lineage[index]


def test_branches_part_and_none_sees_the_others_versions() -> None:
    start = Lineage(versions(1, 50))
    one = start.then(Version(50, "a"), 50)
    other = start.then(Version(50, "b"), 50)
    again = start.then(Version(50, "a"), 40)
    assert one == (*versions(1, 50), Version(50, "a"))
    assert other == (*versions(1, 50), Version(50, "b"))
    assert again == one[10:]
    assert again._branch is one._branch
    assert start == versions(1, 50)
    assert one.then(Version(51, "a"), 51)[-1] == Version(51, "a")
    assert other.then(Version(51, "b"), 51) == (*other, Version(51, "b"))


@given(
    st.lists(st.tuples(st.integers(0, 120), st.sampled_from("xxxxy")), max_size=60),
    st.integers(1, 60),
)
def test_joined_lineages_are_as_they_were_given(cuts: list[tuple[int, str]], begin: int) -> None:
    known: Sequence[Version] = versions(1, begin)
    for turn, (cut, branch) in enumerate(cuts):
        given_ = (*known[cut % (len(known) + 1) if turn % 7 == 0 else 0 :], Version(1000 + turn, branch))
        found = joined(known, given_)
        assert tuple(found) == given_
        known = found
    assert union([known, known[:3], ()]) == set(known)


def test_the_union_of_parts_of_one_branch_leaves_nothing_out() -> None:
    whole = Lineage(versions(0, 100))
    parts = [whole.end(10), whole._part(whole._branch, 5, 20), whole._part(whole._branch, 15, 40), versions(200, 203)]
    assert union(parts) == {*whole[5:40], *whole[90:], *versions(200, 203)}


def test_three_thousand_batches_without_a_snapshot_take_little_memory() -> None:
    tracemalloc.start()
    try:
        entries = history(3000)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(entries[-1].lineage) == 2999
    assert used < 3_000_000  # 36 MB of pointers alone as tuples
    assert isinstance(entries[LONG - 1].lineage, tuple)


def test_what_no_lineage_goes_back_to_any_more_is_given_up() -> None:
    lineage: Sequence[Version] = Lineage(versions(0, LONG))
    for version in versions(LONG, 10 * UNUSED_MAX):
        lineage = joined(lineage, (*lineage[1:], version))
    assert isinstance(lineage, Lineage)
    assert len(lineage) == LONG
    assert len(lineage._branch) <= UNUSED_MAX + LONG + 1


@pytest.mark.parametrize("shuffled", [False, True])
def test_an_inventory_tells_a_branch_once(shuffled: bool) -> None:
    entries = history(3000)
    if shuffled:
        entries = entries[::-1]
    entries.append(FileEntry(STORE, "SSTs/1-x.sst", 5, 1))
    entries += history(50, base=1, store=StoreId("job", 0, 0, "other"))
    messages = files_to_pb(entries)
    assert sum(message.ByteSize() for message in messages) < 1_000_000
    found = files_of(messages)
    assert list(found) == entries
    assert found[0].lineage == entries[0].lineage


def test_a_changelog_whose_predecessor_is_not_there_has_its_whole_lineage() -> None:
    entries = [one for one in history(200) if one.version is not None and one.version.version % 50]
    assert list(files_of(files_to_pb(entries))) == entries
    other = entry((*versions(1, 60), Version(60, "elsewhere")), Version(61, "x"))
    assert list(files_of(files_to_pb([*entries, other]))) == [*entries, other]


def test_a_beginning_that_is_not_told_is_refused() -> None:
    messages = files_to_pb(history(100))
    with pytest.raises(RemoteProtocolError, match="beginning of its lineage"):
        files_of(messages[-1:])
    messages[-1].lineage_before = 4_000_000_000
    with pytest.raises(RemoteProtocolError, match="beginning of its lineage"):
        files_of(messages)
