"""Block-centric placement: when a member leaves, its blocks get other keepers, and nobody is whole before these do."""

from __future__ import annotations

from replication_manager.protocol import events as ev
from rhino_core.ids import BelowMinCopies, JobSettings, Placement
from tests.replication_manager.protocol.harness import GROUP, Manager

SPREAD = JobSettings(3, 2, placement=Placement.BLOCK)


def spread(settings: JobSettings = SPREAD, workers: str = "abcd") -> Manager:
    manager = Manager(workers)
    manager.resolve("a", settings=settings)
    return manager


def test_after_a_loss_nobody_is_whole_until_he_has_said_so_anew() -> None:
    manager = spread()
    assert "?" not in manager.members()
    manager.lose("b")
    assert (manager.members()[0], sorted(manager.members().replace("?", ""))) == ("a", ["a", "c", "d"])
    assert manager.members().count("?") == 3
    assert manager.group().required_copies == 2, "new blocks have all their copies meanwhile"
    for name in "acd":
        manager.whole(name)
    assert "?" not in manager.members()


def test_the_next_member_owns_what_the_lost_owner_had_although_nobody_is_whole() -> None:
    manager = spread()
    chain = manager.members()
    manager.lose(chain[0])
    manager.lose(chain[1])
    assert manager.members() == f"{chain[2]}?{chain[3]}?"


def test_a_wide_group_gets_its_replacement_and_only_members_that_leave_count() -> None:
    manager = spread(JobSettings(2, 2, placement=Placement.BLOCK))
    (outside,) = set("abcd") - set(manager.members())
    manager.do(ev.Change(GROUP, None, outside, ""))
    assert manager.members().count("?") == 1, "the others go on having their blocks"
    manager.whole(outside)
    before = manager.members()
    manager.lose(before[-1])
    assert manager.members() == "".join(f"{name}?" for name in before[:-1])
    manager.register(before[-1])
    assert len(manager.group().members) == 3


def test_all_copies_are_asked_for_where_commits_wait() -> None:
    manager = spread(JobSettings(3, 2, BelowMinCopies.BLOCK, placement=Placement.BLOCK))
    for name in "bcd":
        manager.lose(name)
    assert manager.members() == "a?"
    assert manager.group().required_copies == 2
    manager = spread()
    for name in "bcd":
        manager.lose(name)
    assert manager.group().required_copies == 1


def test_a_state_centric_group_keeps_its_whole_members() -> None:
    manager = spread(JobSettings(3, 2))
    manager.lose("b")
    assert "?" not in manager.members()
