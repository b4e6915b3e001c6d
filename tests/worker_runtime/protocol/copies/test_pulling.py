"""The inventories that a catch-up believes, and the files that it pulls (worker_runtime/protocol/copies/pulling.py)."""

from __future__ import annotations

import pytest

from rhino_core.ids import Epoch, FileEntry
from tests.worker_runtime.scenario import GROUP, STORE, changelog, group, sst, worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.copies import pulling
from worker_runtime.protocol.copies.pulling import Found, Inventory
from worker_runtime.protocol.versions.closure import Catalogue

A, C = worker("a"), worker("c")
ORDER = ev.StartCatchUp(GROUP, Epoch(1, 5), (A, C))


def inventory(name: str, epoch: int, *files: FileEntry) -> Inventory:
    return Inventory(worker(name), files, Epoch(1, epoch))


def test_inventories_count_from_who_has_seen_the_epoch_or_a_later_one() -> None:
    answers = [inventory("a", 5), inventory("c", 6)]
    assert pulling.counted(ORDER, answers) == answers


@pytest.mark.parametrize("answer", [inventory("c", 4), None])
def test_an_inventory_from_before_the_epoch_counts_like_none_at_all(answer: Inventory | None) -> None:
    assert pulling.counted(ORDER, [inventory("a", 5), answer]) == [inventory("a", 5)]


def test_what_is_not_here_is_found_with_all_who_have_it() -> None:
    here = Catalogue()
    here.add(changelog(1))
    inventories = [inventory("a", 5, changelog(1), changelog(2)), inventory("c", 5, changelog(2), changelog(3))]
    found = pulling.finds(inventories, here, worker("b"), group(5, "abc"), lambda store: None)
    assert found == [Found(changelog(2), (A, C)), Found(changelog(3), (C,))]
    assert not here.get(STORE, changelog(2).name), "looking changes nothing"


def test_what_is_here_with_other_bytes_than_at_a_member_that_counts_more_is_fetched() -> None:
    """A file that somebody planted here before it became a member must not make it whole."""
    forged, genuine = changelog(1, crc=7), changelog(1)
    here = Catalogue()
    here.add(forged)
    answers = [inventory("c", 5, forged), inventory("a", 5, genuine)]
    assert pulling.finds(answers, here, worker("b"), group(5, "abc"), lambda store: None) == [Found(genuine, (A,))]
    assert pulling.finds(answers, here, worker("b"), group(5, "bca"), lambda store: None) == []
    whole_first = group(5, "bca", whole="a")
    assert pulling.finds(answers, here, worker("b"), whole_first, lambda store: None) == [Found(genuine, (A,))]


def test_a_file_is_fetched_only_from_those_with_the_bytes_that_count() -> None:
    answers = [inventory("c", 5, changelog(1, crc=7)), inventory("a", 5, changelog(1))]
    found = pulling.finds(answers, Catalogue(), worker("b"), group(5, "abc"), lambda store: None)
    assert found == [Found(changelog(1), (A,))]


def test_a_member_that_was_whole_waits_as_long_as_files_come_by_themselves() -> None:
    order = ev.StartCatchUp(GROUP, Epoch(1, 5), (A, C), whole=True)
    lacking = [Found(sst(number), (A,)) for number in range(3)]
    assert pulling.left_to_the_chain(order, None, lacking)
    assert pulling.left_to_the_chain(order, lacking, lacking[1:])
    assert not pulling.left_to_the_chain(order, lacking, lacking)
    assert not pulling.left_to_the_chain(order, lacking, [])
    assert not pulling.left_to_the_chain(ORDER, None, lacking)
