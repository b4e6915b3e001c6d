"""The replication manager's core by events and effects."""

from __future__ import annotations

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.machine import ReplicationMachine, Restored
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.errors import (
    AlreadyThereError,
    InvalidRequestError,
    PreconditionError,
    TooFewWorkersError,
    UnavailableError,
    UnknownError,
)
from rhino_core.ids import BelowMinCopies, Epoch, GroupId, JobSettings, StoreId, StoreVersion
from tests.replication_manager.protocol.harness import GROUP, LEASE_TIMES, STORE, Manager, worker, written


def test_the_first_to_name_a_group_owns_it_and_it_is_journalled_before_it_is_told() -> None:
    manager = Manager("abc")
    effects = manager.do(ev.Resolve(GROUP, "b", JobSettings()))
    assert [type(e) for e in effects] == [ev.PersistGroup, ev.PublishGroup]
    assert manager.members() in ("ba", "bc")
    assert manager.group().required_copies == 2
    assert manager.do(ev.Resolve(GROUP, "c", JobSettings())) == []


def test_too_few_workers_says_how_many_and_what_to_do() -> None:
    manager = Manager("a")
    with pytest.raises(TooFewWorkersError, match=r"needs 2 workers, 1 are live.*replicationFactor"):
        manager.resolve("a")
    assert manager.resolve("a", settings=JobSettings(0)).required_copies == 1


def test_a_branch_is_placed_where_the_files_of_its_source_are_and_whole_members_come_first() -> None:
    manager = Manager("abcdef")
    settings = JobSettings(replication_factor=2)
    source = [m.worker.worker_id for m in manager.resolve("c", settings=settings).members]
    for number in range(6):  # the least loaded workers are others
        manager.resolve("c", GroupId("busy", 0, number), settings)
    branch = GROUP._replace(job="branch")
    manager.do(ev.Resolve(branch, source[1], settings, branch_of=GROUP))
    members = [m.worker.worker_id for m in manager.machine.groups[branch].members]
    assert members == [source[1], source[0], source[2]]
    moved = GroupId("branch", GROUP.operator + 1, GROUP.partition + 9)
    manager.do(ev.Resolve(moved, source[2], settings, branch_of=GROUP))
    assert [m.worker.worker_id for m in manager.machine.groups[moved].members] == [source[2], *source[:2]]
    manager.do(ev.Resolve(branch._replace(job="other"), "f", settings, branch_of=GROUP._replace(job="never heard of")))


def test_operators_of_one_task_get_the_same_chain_and_groups_spread() -> None:
    manager = Manager("abcd")
    first = manager.resolve("a", GroupId("job", 0, 1))
    assert manager.resolve("a", GroupId("job", 1, 1)).members == first.members
    for partition in range(2, 9):
        manager.resolve("a", GroupId("job", 0, partition))
    seconds = [group.members[1].worker.worker_id for group in manager.machine.groups.values()]
    assert [seconds.count(name) for name in "bcd"] == [3, 3, 3]


def test_a_lost_owner_is_followed_by_the_whole_member_and_a_replacement_that_must_catch_up() -> None:
    manager = Manager("abc")
    manager.resolve("a")
    heir = manager.group().members[1].worker.worker_id
    other = "c" if heir == "b" else "b"
    before = manager.group().epoch
    manager.lose("a")
    assert manager.members() == f"{heir}{other}?"
    assert manager.group().epoch > before
    assert manager.group().required_copies == 1
    assert manager.whole(other)
    assert manager.members() == heir + other
    assert manager.group().required_copies == 2


def test_below_min_copies_block_keeps_asking_for_all() -> None:
    manager = Manager("abc")
    manager.resolve("a", settings=JobSettings(1, None, BelowMinCopies.BLOCK))
    manager.lose("a")
    assert manager.group().required_copies == 2


def test_the_only_whole_member_is_never_replaced() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    manager.lose("b")
    assert manager.members() == "a"
    manager.lose("a")
    assert manager.members() == "a"


def test_a_silent_worker_is_lost_after_its_lease_and_a_beating_one_never() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    for _ in range(8):
        manager.now += 1.0
        manager.beat("a")
        manager.do(ev.Tick())
    assert manager.members() == "a"
    with pytest.raises(UnavailableError, match="register again"):
        manager.beat("b")
    manager.register("b")
    assert manager.members() == "ab?"


def test_a_report_of_another_epoch_or_incarnation_makes_nobody_whole() -> None:
    manager = Manager("abc")
    manager.resolve("a")
    manager.lose("a")
    member = manager.group().members[1].worker.worker_id
    old = Epoch(1, manager.group().epoch.counter - 1)
    assert manager.beat(member, Report(GROUP, old, True, 10)) == []
    assert not manager.group().members[1].whole
    with pytest.raises(UnavailableError):
        manager.beat(member, Report(GROUP, manager.group().epoch, True, 10), incarnation=2)


def test_a_new_incarnation_joins_as_a_new_member() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    manager.do(ev.StreamBroken("b", "b-process"))
    manager.register("b", incarnation=2, process="second")
    assert manager.members() == "ab?"
    assert manager.group().required_copies == 1


def test_a_restarted_process_of_the_same_incarnation_stays_whole() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    manager.do(ev.StreamBroken("b", "b-process"))
    manager.register("b", process="second")
    assert manager.members() == "ab"
    manager.do(ev.StreamBroken("b", "b-process"))  # late news of the first process
    manager.now += 2
    manager.do(ev.Tick())
    assert manager.members() == "ab"


def test_a_worker_id_in_use_is_refused() -> None:
    manager = Manager("a")
    with pytest.raises(AlreadyThereError, match="--worker-id"):
        manager.register("a", process="another")


def test_epochs_rise_over_restarts_and_beyond_what_sidecars_have_seen() -> None:
    manager = Manager("ab")
    first = manager.resolve("a")
    restored = Restored(generation=2, workers=[worker("a"), worker("b")], groups=[first])
    restarted = ReplicationMachine(restored, LEASE_TIMES, now=0)
    assert restarted.groups[GROUP] == first
    assert restarted.handle(ev.Tick(), now=4.9) == []
    effects = restarted.handle(ev.Registered(worker("a"), "p", Epoch(7, 3), ()), now=4.9)
    assert ev.PersistGeneration(8) in effects
    for second in range(5, 10):
        restarted.handle(ev.Beat("a", "a/1", 0, 0, 0, 0, ()), now=second)
    restarted.handle(ev.Tick(), now=10)
    assert restarted.groups[GROUP].epoch.generation == 8
    assert [m.worker.worker_id for m in restarted.groups[GROUP].members] == ["a"]


def test_ownership_follows_two_logged_batches_of_another_member() -> None:
    manager = Manager("abc")
    manager.resolve("a")
    member = manager.group().members[1].worker.worker_id
    for number in (4, 5):
        manager.do(ev.BatchPublished("job", number - 1, (written(number),), ()))
        assert manager.group().owner.worker_id == "a"
        manager.beat(member, Report(GROUP, manager.group().epoch, True, 10, (), (written(number),)))
    assert manager.group().owner.worker_id == member
    assert manager.group().members[1].worker.worker_id == "a"


def test_unlogged_versions_and_a_single_batch_move_nothing() -> None:
    manager = Manager("abc")
    manager.resolve("a")
    member = manager.group().members[1].worker.worker_id
    for number in (4, 5, 6):
        manager.beat(member, Report(GROUP, manager.group().epoch, True, 10, (), (written(number),)))
    manager.do(ev.BatchPublished("job", 6, (written(6),), ()))
    assert manager.group().owner.worker_id == "a"


def test_change_adds_a_member_that_must_catch_up_then_makes_it_owner_and_cuts_the_chain() -> None:
    manager = Manager("abc")
    manager.resolve("a")
    second = manager.group().members[1].worker.worker_id
    target = "c" if second == "b" else "b"
    manager.do(ev.Change(GROUP, target, ""))
    assert manager.members() == f"a{second}{target}?"
    with pytest.raises(PreconditionError, match="not whole"):
        manager.do(ev.Change(GROUP, "", target))
    manager.whole(target)
    manager.do(ev.Change(GROUP, "", target))
    assert manager.members() == f"{target}a"


def test_change_refuses_what_it_does_not_know() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    with pytest.raises(UnknownError):
        manager.do(ev.Change(GROUP, "z", ""))
    with pytest.raises(UnknownError):
        manager.do(ev.Change(GroupId("no", 0, 0), "b", ""))


def test_a_refused_change_remembers_no_target() -> None:
    """The target of a handover is the last one to leave. This one has not even joined."""
    manager = Manager("abc")
    manager.resolve("a")
    (outsider,) = {"b", "c"} - set(manager.members())
    with pytest.raises(PreconditionError, match="not whole"):
        manager.do(ev.Change(GROUP, outsider, outsider))
    assert not manager.machine.returned.targets(GROUP)


def test_floors_only_rise() -> None:
    manager = Manager("ab")
    assert ev.PersistFloor(written(5)) in manager.do(ev.BatchPublished("job", 9, (written(9),), (written(5),)))
    assert manager.do(ev.BatchPublished("job", 9, (written(9),), (written(4),))) == []
    assert manager.machine.logged.floors[STORE].version == 5


OTHER = StoreVersion(StoreId("job-b", 0, 0, "default"), written(4).version)


@pytest.mark.parametrize(
    ("logged", "floors"),
    [
        ((written(9),), (written(10),)),
        ((written(9),), (written(4), written(10**17))),
        ((), (written(1),)),
        ((written(9),), (OTHER,)),
        ((written(9), OTHER), ()),
    ],
)
def test_a_floor_that_cannot_be_is_refused(logged: tuple[StoreVersion, ...], floors: tuple[StoreVersion, ...]) -> None:
    """Above what Spark has committed, or of another job: it would delete what a query needs."""
    manager = Manager("ab")
    manager.do(ev.BatchPublished("job", 4, (written(5),), (written(2),)))
    with pytest.raises(InvalidRequestError):
        manager.do(ev.BatchPublished("job", 8, logged, floors))
    assert manager.machine.logged.floors == {STORE: written(2).version}
