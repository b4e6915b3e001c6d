"""A query that is started again with other settings: its groups follow, and no copy is given up carelessly."""

from __future__ import annotations

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.ids import BelowMinCopies, Durability, GroupId, JobSettings
from tests.replication_manager.protocol.harness import GROUP, Manager

OTHER = GroupId("job", 1, 3)
ALONE, PAIR, THREE = JobSettings(0), JobSettings(1, 2), JobSettings(2, 2)


def started(names: str, settings: JobSettings) -> Manager:
    manager = Manager(names)
    manager.resolve("a", settings=settings)
    return manager


def named(manager: Manager, settings: JobSettings, job: str = "job") -> list[ev.Effect]:
    return manager.do(ev.SettingsNamed(job, settings))


def whole_everywhere(manager: Manager) -> None:
    for member in manager.group().members:
        manager.whole(member.worker.worker_id)


def test_a_larger_factor_adds_a_member_and_requires_it_once_it_is_whole() -> None:
    manager = started("abc", ALONE)
    before = manager.group().epoch
    named(manager, PAIR)
    group = manager.group()
    assert (manager.members(), group.settings, group.required_copies) == ("ab?", PAIR, 1)
    assert group.epoch > before
    manager.whole("b")
    assert (manager.members(), manager.group().required_copies) == ("ab", 2)


def test_new_groups_get_the_new_settings_whatever_executors_say() -> None:
    manager = started("abc", ALONE)
    named(manager, PAIR)
    manager.resolve("c", OTHER, ALONE)  # an executor of the former run
    assert manager.group(OTHER).settings == PAIR
    assert len(manager.group(OTHER).members) == 2


def test_executors_change_nothing() -> None:
    manager = started("abc", PAIR)
    group = manager.group()
    assert manager.do(ev.Resolve(GROUP, "b", THREE)) == []
    assert manager.group() == group


def test_a_smaller_factor_lets_the_end_of_the_chain_go() -> None:
    manager = started("abc", THREE)
    named(manager, PAIR)
    assert manager.members() == "ab"
    named(manager, ALONE)
    assert manager.members() == "a"
    assert manager.group().required_copies == 1


def test_a_smaller_factor_lets_those_go_first_that_are_not_whole() -> None:
    manager = started("abcd", THREE)
    manager.lose("b")
    assert manager.members() == "acd?"
    named(manager, PAIR)
    assert manager.members() == "ac"


def test_nobody_leaves_before_those_that_stay_are_whole() -> None:
    manager = started("ab", ALONE)
    named(manager, THREE)
    assert manager.members() == "ab?"
    manager.register("c")
    assert manager.members() == "ab?c?"
    named(manager, PAIR)
    assert manager.members() == "ab?c?"
    manager.whole("c")
    assert manager.members() == "ac"
    assert manager.group().required_copies == 2


def test_a_member_that_was_added_after_the_change_stays() -> None:
    """The target of a handover makes the chain longer for a while, and is not among those that may leave."""
    manager = started("abcd", ALONE)
    named(manager, THREE)
    assert manager.members() == "ab?c?"
    named(manager, PAIR)
    manager.do(ev.Change(GROUP, "d", ""))
    assert manager.members() == "ab?c?d?"
    manager.whole("b")
    assert manager.members() == "abd?"


def test_settings_of_all_groups_change_in_one_event_and_survive_a_restart() -> None:
    manager = started("abc", ALONE)
    manager.resolve("a", OTHER, ALONE)
    manager.resolve("a", GroupId("another", 0, 0), ALONE)
    effects = named(manager, PAIR)
    assert {e.group.group for e in effects if isinstance(e, ev.PersistGroup)} == {GROUP, OTHER}
    manager.restart()
    manager.register("a")
    assert {g.settings for g in manager.machine.groups.values() if g.group.job == "job"} == {PAIR}
    assert manager.group(GroupId("another", 0, 0)).settings == ALONE
    manager.resolve("a", GroupId("job", 0, 5), ALONE)
    assert manager.group(GroupId("job", 0, 5)).settings == PAIR


@pytest.mark.parametrize("asked", [PAIR, JobSettings(1)])
def test_what_comes_to_the_same_changes_nothing(asked: JobSettings) -> None:
    manager = started("abc", PAIR)
    assert named(manager, asked) == []


def test_commits_wait_or_do_not_as_was_said_last() -> None:
    manager = started("ab", PAIR)
    manager.lose("b")
    assert manager.group().required_copies == 1
    named(manager, JobSettings(1, 2, BelowMinCopies.BLOCK))
    assert manager.group().required_copies == 2
    named(manager, JobSettings(1, 1))
    assert manager.group().required_copies == 1


def test_a_job_becomes_synced_and_stays_so() -> None:
    manager = started("ab", PAIR)
    named(manager, JobSettings(1, 2, durability=Durability.SYNCED))
    assert manager.group().settings.durability is Durability.SYNCED
    named(manager, JobSettings(1, 1, durability=Durability.REPLICATED))
    assert manager.group().settings == JobSettings(1, 1, durability=Durability.SYNCED)


def test_a_job_without_groups_has_no_settings_to_change() -> None:
    manager = Manager("ab")
    assert named(manager, PAIR) == []
    assert manager.resolve("a", settings=ALONE).settings == ALONE


def test_a_forgotten_job_is_not_remembered() -> None:
    manager = started("ab", PAIR)
    manager.beat("a", Report(GROUP, manager.group().epoch, True, 10, stored_files=1))
    manager.do(ev.JobForgotten("job"))
    assert named(manager, ALONE) == []
