"""Losses that overlap, journals that are old or gone, and what belongs together stays together."""

from __future__ import annotations

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.groups.logged import STREAK_GAP
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.errors import AlreadyThereError, PreconditionError, TooFewWorkersError
from rhino_core.ids import NO_EPOCH, Epoch, GroupId, JobSettings, StoreId, StoreVersion, Version
from tests.replication_manager.protocol.harness import GROUP, STORE, Manager, worker, written


def report(
    epoch: Epoch, *, whole: bool = True, group: GroupId = GROUP, versions: tuple[StoreVersion, ...] = ()
) -> Report:
    return Report(group, epoch, whole, 10, (), versions)


def test_a_member_lost_together_with_the_owner_leaves_when_the_owner_returns() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    for name in "ab":
        manager.do(ev.StreamBroken(name, f"{name}-process"))
    manager.now += 1.5
    manager.do(ev.Tick())
    manager.register("c")
    assert manager.members() == "ab"
    manager.register("a", process="again")
    assert manager.members() == "ab", "it may have been the manager that was away"
    manager.a_lease_later()
    assert manager.members() == "ac?"


def test_a_lost_member_that_was_never_whole_leaves_when_a_whole_one_is_back() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    manager.lose("b")
    manager.register("c")
    assert manager.members() == "ac?"
    manager.lose("a")
    assert manager.members() == "ac?"
    manager.lose("c")
    manager.register("d")
    manager.register("a", process="again")
    manager.a_lease_later()
    assert manager.members() == "ad?"


def test_an_owner_with_an_empty_store_gives_way_to_a_whole_member() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    manager.do(ev.StreamBroken("a", "a-process"))
    manager.register("a", incarnation=2, process="second")
    assert manager.members() == "ba?"


def test_an_only_member_with_an_empty_store_starts_anew() -> None:
    manager = Manager("a")
    manager.resolve("a", settings=JobSettings(0))
    manager.do(ev.StreamBroken("a", "a-process"))
    manager.register("a", incarnation=2, process="second")
    assert manager.members() == "a?"
    assert manager.group().required_copies == 1
    manager.beat("a", report(manager.group().epoch), incarnation=2)
    assert manager.members() == "a"


def test_replacements_are_the_same_for_all_operators_of_one_task() -> None:
    manager = Manager("abcde")
    groups = [GroupId("job", operator, partition) for partition in range(4) for operator in range(3)]
    for group in groups:
        manager.resolve("a", group)
    lost = manager.group(groups[0]).members[1].worker.worker_id
    manager.lose(lost)
    for partition in range(4):
        assert len({manager.group(GroupId("job", operator, partition)).members for operator in range(3)}) == 1


def test_an_operator_used_for_the_first_time_after_a_loss_has_all_its_copies() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    manager.lose("b")
    with pytest.raises(TooFewWorkersError):
        manager.resolve("a", GroupId("job", 1, 3))
    manager.register("c")
    assert [m.whole for m in manager.resolve("a", GroupId("job", 1, 3)).members] == [True, True]


def test_settings_are_those_of_the_first_group_of_the_job() -> None:
    manager = Manager("abc")
    manager.resolve("a", settings=JobSettings(2))
    assert manager.resolve("b", GroupId("job", 1, 9), JobSettings(0)).settings == JobSettings(2)
    manager.restart()
    for name in "abc":
        manager.register(name)
    assert manager.resolve("b", GroupId("job", 1, 8), JobSettings(0)).settings == JobSettings(2)


def test_workers_under_suspicion_come_last() -> None:
    manager = Manager("abc")
    manager.do(ev.StreamBroken("b", "b-process"))
    for partition in range(4):
        assert manager.resolve("a", GroupId("job", 0, partition)).members[1].worker.worker_id == "c"


def test_a_restarted_manager_waits_one_lease_for_the_workers_it_knows() -> None:
    manager = Manager("abc")
    manager.resolve("a")
    before = manager.group()
    manager.restart()
    assert manager.group() == before
    manager.now += 4.9
    assert manager.do(ev.Tick()) == []
    survivor = before.members[1].worker.worker_id
    manager.register(survivor)
    manager.now += 0.2
    manager.do(ev.Tick())
    assert manager.group().owner.worker_id == "a", "the others may come as late as the first one"
    manager.a_lease_later()
    assert manager.group().owner.worker_id == survivor
    assert manager.group().epoch.generation == 2


def test_an_old_journal_believes_the_worker_that_has_seen_more() -> None:
    manager = Manager("abc")
    old = manager.resolve("a")
    heir = old.members[1].worker.worker_id
    manager.lose("a")
    newest = manager.group().epoch
    manager.generation, manager.workers = 1, {name: worker(name) for name in "abc"}
    manager.restart(groups=[old])
    manager.register("a")
    assert manager.members() == f"a{heir}"
    manager.register(heir, report(newest), seen=newest)
    assert manager.group().epoch > newest
    assert manager.members() == f"{heir}a?"


def test_an_old_journal_does_not_make_an_owner_of_who_has_only_heard_of_the_group() -> None:
    """A worker outside a group hears of it while it stores files of it."""
    manager = Manager("abc")
    old = manager.resolve("a")
    outside = ({"b", "c"} - {manager.members()[1]}).pop()
    manager.restart(groups=[old])
    seen = Epoch(1, 9)
    manager.register(outside, Report(GROUP, seen, False, 10, stored_files=3), seen=seen)
    assert manager.group().member(outside) is None
    assert manager.group().owner.worker_id == "a"
    assert manager.group().epoch > seen
    assert not any(member.whole for member in manager.group().members), "an old journal does not say who is whole"


def test_two_managers_that_go_beyond_the_same_epoch_never_issue_the_same_one() -> None:
    first, second = Manager("ab", process_number=1), Manager("ab", process_number=2)
    for manager in (first, second):
        manager.register("c", report(Epoch(7, 3)), seen=Epoch(7, 4))
        assert manager.generation == 8
    issued = {manager.resolve("a").epoch for manager in (first, second)}
    assert len(issued) == 2
    (lower, higher) = sorted((first, second), key=lambda manager: manager.group().epoch)
    lower.register("b", report(higher.group().epoch), seen=higher.group().epoch)
    assert lower.group().epoch > higher.group().epoch


def test_groups_of_a_lost_journal_are_not_taken_for_empty() -> None:
    manager = Manager()
    manager.register("a")
    manager.register("b")
    manager.register("c", report(Epoch(7, 3)), seen=Epoch(7, 4))
    group = manager.resolve("a")
    assert manager.members() == "ca?"
    assert group.epoch > Epoch(7, 4)
    assert manager.generation == 8


def test_a_group_that_nobody_ever_adopted_is_empty() -> None:
    manager = Manager("a")
    manager.register("b", report(NO_EPOCH, whole=False))
    manager.resolve("a")
    assert manager.members() == "ab"


def test_a_batch_of_several_stores_counts_once() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    left, right = (StoreVersion(StoreId("job", 0, 3, s), Version(4, s)) for s in ("left", "right"))
    manager.do(ev.BatchPublished("job", 3, (left, right), ()))
    for versions in ((right,), (left, right), (right, left)):
        manager.beat("b", report(manager.group().epoch, versions=versions))
    assert manager.group().owner.worker_id == "a"


def test_the_streak_starts_anew_when_the_owner_writes() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    for number, writer in enumerate("bababb", start=1):
        assert manager.group().owner.worker_id == "a"
        manager.do(ev.BatchPublished("job", number - 1, (written(number),), ()))
        manager.beat(writer, report(manager.group().epoch, versions=(written(number),)))
    assert manager.group().owner.worker_id == "b"


def test_the_streak_starts_anew_when_an_owner_is_named() -> None:
    manager = Manager("ab")
    manager.resolve("a")

    def batch_of_b(number: int) -> None:
        manager.do(ev.BatchPublished("job", number - 1, (written(number),), ()))
        manager.beat("b", report(manager.group().epoch, versions=(written(number),)))

    batch_of_b(1)
    batch_of_b(2)
    assert manager.group().owner.worker_id == "b"
    manager.do(ev.Change(GROUP, "", "a"))
    batch_of_b(3)  # was running
    assert manager.group().owner.worker_id == "a"


def test_the_streak_starts_anew_after_many_batches_of_unknown_writers() -> None:
    """Seed 1182: the owner was cut off from the manager while it wrote the batches between two of another member."""
    manager = Manager("ab")
    manager.resolve("a")
    owners = []
    for number in (1, 2 + STREAK_GAP, 3 + STREAK_GAP):
        manager.do(ev.BatchPublished("job", number - 1, (written(number),), ()))
        manager.beat("b", report(manager.group().epoch, versions=(written(number),)))
        owners.append(manager.group().owner.worker_id)
    assert owners == ["a", "a", "b"]


def test_a_refused_owner_leaves_the_streak() -> None:
    manager = Manager("abc")
    manager.resolve("a")
    second = manager.group().members[1].worker.worker_id
    for number in (1, 2):
        manager.do(ev.BatchPublished("job", number - 1, (written(number),), ()))
        with pytest.raises(PreconditionError, match="no member"):
            manager.do(ev.Change(GROUP, "", "c" if second == "b" else "b"))
        manager.beat(second, report(manager.group().epoch, versions=(written(number),)))
    assert manager.group().owner.worker_id == second


def test_a_change_may_add_one_and_promote_another() -> None:
    manager = Manager("abc")
    manager.resolve("a")
    second = manager.group().members[1].worker.worker_id
    target = "c" if second == "b" else "b"
    with pytest.raises(PreconditionError, match="not whole"):
        manager.do(ev.Change(GROUP, target, target))
    with pytest.raises(PreconditionError, match="no member"):
        manager.do(ev.Change(GROUP, "", target))
    assert manager.members() == f"a{second}"
    manager.do(ev.Change(GROUP, target, ""))
    assert manager.do(ev.Change(GROUP, target, "")) == []
    manager.do(ev.Change(GROUP, "", "a"))
    assert manager.members() == f"a{second}", "the owner made owner again cuts the chain: a handover was given up"


def test_a_second_process_is_welcome_once_the_first_has_fallen_silent() -> None:
    manager = Manager("ab")
    with pytest.raises(AlreadyThereError):
        manager.register("a", process="second")
    manager.now += 5.0
    manager.do(ev.Tick())
    manager.register("a", process="second")


def test_floors_survive_restarts() -> None:
    manager = Manager("ab")
    manager.do(ev.BatchPublished("job", 9, (written(9),), (written(5),)))
    manager.restart()
    assert manager.do(ev.BatchPublished("job", 9, (written(9),), (written(4),))) == []
    assert manager.machine.logged.floors[STORE].version == 5
