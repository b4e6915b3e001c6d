"""Members that lag beyond the cap: replaced on lasting evidence, left alone afterwards."""

from __future__ import annotations

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.placement.lagging import COOLDOWN_S, PATIENCE_S, PROOF_S, LagCap
from replication_manager.protocol.workers.worker_record import Lag, Report
from rhino_core.ids import BelowMinCopies, GroupId, JobSettings
from tests.replication_manager.protocol.harness import GROUP, Manager, written

CAP_S = LagCap().seconds
R2 = JobSettings(replication_factor=2)


def owes(manager: Manager, sender: str, *lags: Lag) -> list[ev.Effect]:
    return manager.do(ev.Beat(sender, f"{sender}/1", 0, 0, 0, 0, (), lags=lags))


def lag(to: str, oldest_s: float = CAP_S + 1, lag_bytes: int = 0, group: GroupId = GROUP) -> Lag:
    return Lag(group, to, lag_bytes, oldest_s)


def wait(manager: Manager, seconds: float) -> None:
    """Everybody goes on beating, with nothing new to say."""
    manager.now += seconds
    for record in manager.machine.membership.records.values():
        record.lease_ends = manager.now + 5.0
    manager.do(ev.Tick())


def proved(manager: Manager, sender: str, *lags: Lag) -> None:
    """The sender says so for long enough."""
    owes(manager, sender, *lags)
    wait(manager, PROOF_S)
    owes(manager, sender, *lags)


def pair(names: str = "abc") -> tuple[Manager, str, str]:
    """A manager, the secondary of the group of "a", and a worker outside it."""
    manager = Manager(names)
    manager.resolve("a")
    secondary = manager.members()[1]
    return manager, secondary, ({"b", "c"} - {secondary}).pop()


def test_with_enough_others_it_is_dropped_at_once_and_another_placed() -> None:
    manager = Manager("abcd")
    manager.resolve("a", settings=R2)
    slow, other = list(manager.members()[1:])
    free = ({"b", "c", "d"} - {slow, other}).pop()
    proved(manager, "a", lag(slow))
    assert manager.members() == f"a{other}{free}?"


def test_otherwise_its_replacement_becomes_whole_first() -> None:
    manager, slow, other = pair()
    proved(manager, "a", lag(slow))
    assert manager.members() == f"a{slow}{other}?"
    assert manager.group().required_copies == 2
    owes(manager, "a", lag(slow))
    assert manager.members() == f"a{slow}{other}?", "nobody else is added meanwhile"
    manager.whole(other)
    owes(manager, "a", lag(slow))
    assert manager.members() == f"a{other}"
    assert manager.group().required_copies == 2


@pytest.mark.parametrize("policy", BelowMinCopies)
def test_a_member_that_hangs_keeps_its_replacement_from_being_whole_and_so_the_group(policy: BelowMinCopies) -> None:
    manager = Manager("abc")
    manager.resolve("a", settings=JobSettings(below_min_copies=policy))
    slow = manager.members()[1]
    other = ({"b", "c"} - {slow}).pop()
    proved(manager, "a", lag(slow))
    wait(manager, PATIENCE_S - 1)
    owes(manager, "a", lag(slow))
    assert manager.members() == f"a{slow}{other}?"
    wait(manager, 1)
    owes(manager, "a", lag(slow))
    blocked = policy is BelowMinCopies.BLOCK
    assert manager.members() == (f"a{slow}{other}?" if blocked else f"a{other}?")
    assert manager.group().required_copies == (2 if blocked else 1)


def test_patience_is_for_those_that_still_lag() -> None:
    manager, slow, other = pair()
    proved(manager, "a", lag(slow))
    wait(manager, PATIENCE_S)
    owes(manager, "a")
    assert manager.members() == f"a{slow}{other}?"


def holding(manager: Manager, name: str, number: int) -> None:
    manager.beat(name, Report(GROUP, manager.group().epoch, True, 10, (written(number),)))


def test_a_new_attempt_at_a_batch_does_not_begin_the_wait_again() -> None:
    """The files of an attempt that has timed out are no longer owed. Those of the next one are, since a moment."""
    manager, slow, other = pair()
    holding(manager, slow, 1)
    proved(manager, "a", lag(slow))
    owes(manager, "a")
    wait(manager, PATIENCE_S)
    owes(manager, "a", lag(slow, oldest_s=1.0))
    assert manager.members() == f"a{other}?"


def test_a_laggard_that_still_stores_versions_waits_for_its_replacement_to_be_whole() -> None:
    manager, slow, other = pair()
    holding(manager, slow, 1)
    proved(manager, "a", lag(slow))
    for number in range(2, 5):
        wait(manager, PATIENCE_S - 1)
        holding(manager, slow, number)
        owes(manager, "a", lag(slow))
    assert manager.members() == f"a{slow}{other}?"
    manager.whole(other)
    owes(manager, "a", lag(slow))
    assert manager.members() == f"a{other}"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_member_that_hangs_leaves_a_chain_that_is_longer_than_usual(restarted: bool) -> None:
    """The incomplete target of a handover cannot become whole while the member that hangs does not answer."""
    manager = Manager("abcd")
    manager.resolve("a")
    slow = manager.members()[1]
    target = next(name for name in "bcd" if name != slow)
    manager.do(ev.Change(GROUP, target, ""))
    if restarted:
        manager.restart()
        for name in "abcd":
            manager.register(name)
    assert manager.members() == f"a{slow}{target}?"
    proved(manager, "a", lag(slow))
    assert manager.members() == f"a{slow}{target}?", "the target may become whole in a moment"
    wait(manager, PATIENCE_S)
    owes(manager, "a", lag(slow))
    assert manager.members() == f"a{target}?"
    assert manager.group().required_copies == 1


def test_of_two_members_that_hang_one_leaves_after_the_other() -> None:
    manager = Manager("abcdef")
    settings = JobSettings(replication_factor=2, min_copies=3)
    manager.resolve("a", settings=settings)
    one, two = list(manager.members()[1:])
    for _ in range(3):
        proved(manager, "a", lag(one), lag(two))
        wait(manager, PATIENCE_S)
        owes(manager, "a", lag(one), lag(two))
    assert one not in manager.members()
    assert two not in manager.members()


def test_without_anybody_to_take_its_place_it_stays_as_long_as_it_stores_versions() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    epoch = manager.group().epoch
    proved(manager, "a", lag("b"))
    for number in range(1, 4):
        wait(manager, PATIENCE_S - 1)
        holding(manager, "b", number)
        owes(manager, "a", lag("b"))
    assert (manager.members(), manager.group().epoch) == ("ab", epoch)


@pytest.mark.parametrize("policy", BelowMinCopies)
def test_without_anybody_to_take_its_place_a_member_that_hangs_leaves_unless_commits_are_to_wait(
    policy: BelowMinCopies,
) -> None:
    manager = Manager("ab")
    manager.resolve("a", settings=JobSettings(below_min_copies=policy))
    proved(manager, "a", lag("b"))
    wait(manager, PATIENCE_S)
    owes(manager, "a", lag("b"))
    assert manager.members() == ("ab" if policy is BelowMinCopies.BLOCK else "a")
    wait(manager, COOLDOWN_S)
    assert manager.members() == ("ab" if policy is BelowMinCopies.BLOCK else "ab?")


def test_a_member_that_has_recovered_must_lag_as_long_as_at_first_to_leave() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    proved(manager, "a", lag("b"))
    owes(manager, "a")
    holding(manager, "b", 1)
    owes(manager, "a", lag("b", oldest_s=2.0))
    wait(manager, PATIENCE_S)
    owes(manager, "a", lag("b", oldest_s=2.0 + PATIENCE_S))
    assert manager.members() == "ab"


def test_a_lag_that_passes_is_not_proved() -> None:
    manager, slow, _ = pair()
    owes(manager, "a", lag(slow))
    wait(manager, PROOF_S - 1)
    owes(manager, "a", lag(slow, oldest_s=1.0))
    wait(manager, 1)
    owes(manager, "a", lag(slow))
    assert manager.members() == f"a{slow}"


def test_around_the_cap_it_is_one_lag() -> None:
    manager, slow, other = pair()
    owes(manager, "a", lag(slow))
    wait(manager, PROOF_S / 2)
    owes(manager, "a", lag(slow, oldest_s=CAP_S - 1))
    wait(manager, PROOF_S / 2)
    owes(manager, "a", lag(slow, oldest_s=CAP_S - 1))
    assert manager.members() == f"a{slow}{other}?"


def test_bytes_alone_are_a_lag() -> None:
    manager, slow, other = pair()
    proved(manager, "a", lag(slow, oldest_s=0.0, lag_bytes=LagCap().lag_bytes + 1))
    assert manager.members() == f"a{slow}{other}?"


@pytest.mark.parametrize("off", [LagCap(0, 0)])
def test_without_a_cap_nobody_lags(off: LagCap) -> None:
    assert not off.exceeded(lag("b", oldest_s=1e9, lag_bytes=1 << 60))


def test_a_sender_that_lags_with_everybody_is_slow_itself() -> None:
    manager = Manager("abcd")
    groups = [GroupId("job", 0, partition) for partition in range(3)]
    for group in groups:
        manager.resolve("a", group)
    receivers = {group: manager.members(group)[1] for group in groups}
    assert len(set(receivers.values())) == 3
    proved(manager, "a", *(lag(to, group=group) for group, to in receivers.items()))
    assert {group: manager.members(group)[1] for group in groups} == receivers
    keeps_up = groups[0]
    proved(manager, "a", *(lag(to, group=group) for group, to in receivers.items() if group != keeps_up))
    assert all(len(manager.group(group).members) == 3 for group in groups[1:])


@pytest.mark.parametrize("second", [CAP_S + 1, CAP_S * 0.6])
def test_of_two_receivers_that_are_late_neither_is_to_blame(second: float) -> None:
    """Also if the lag with one of them is below the cap: it would still count if it had begun."""
    manager = Manager("abcd")
    groups = [GroupId("job", 0, partition) for partition in range(2)]
    for group in groups:
        manager.resolve("a", group)
    one, other = (manager.members(group)[1] for group in groups)
    assert one != other
    proved(manager, "a", lag(one, group=groups[0]), lag(other, second, group=groups[1]))
    assert [manager.members(group) for group in groups] == [f"a{one}", f"a{other}"]
    proved(manager, "a", lag(one, group=groups[0]), lag(other, 1.0, group=groups[1]))
    assert manager.members(groups[0])[:2] == f"a{one}"
    assert len(manager.group(groups[0]).members) == 3


def test_who_is_no_member_proves_nothing_and_an_owner_stays() -> None:
    manager, slow, other = pair()
    proved(manager, other, lag(slow))
    proved(manager, slow, lag("a"))
    assert manager.members() == f"a{slow}"


def test_a_dropped_worker_rests_and_may_come_back_as_a_new_member() -> None:
    manager, slow, other = pair()
    proved(manager, "a", lag(slow))
    manager.whole(other)
    owes(manager, "a")
    assert manager.members() == f"a{other}"
    manager.lose(other)
    assert manager.members() == "a", "the slow one is left alone"
    wait(manager, COOLDOWN_S)
    assert manager.members() == f"a{slow}?"
    manager.whole(slow)
    assert manager.members() == f"a{slow}"


def test_who_lags_elsewhere_when_its_rest_ends_is_placed_once_that_is_over() -> None:
    """Simulator, seed 666 with drains: the group stayed one member short."""
    manager, slow, other = pair()
    elsewhere = GroupId("job", 0, 9)
    manager.resolve(other, elsewhere)
    manager.do(ev.DrainSet("a", True))
    manager.whole(other)
    assert manager.members() == f"a{slow}{other}"
    proved(manager, "a", lag(slow))
    assert manager.members() == f"a{other}"
    late = lag(slow, group=elsewhere)
    wait(manager, COOLDOWN_S - 1)
    owes(manager, other, late)
    wait(manager, 1)
    owes(manager, other, late)
    assert manager.members() == f"a{other}"
    owes(manager, other)
    owes(manager, other)
    assert manager.members() == f"a{other}{slow}?"


def test_each_further_rest_is_longer() -> None:
    manager, slow, other = pair()
    laggards = manager.machine.laggards
    laggards.dropped(GROUP, slow, now=0.0)
    laggards.dropped(GROUP, slow, now=1.0)  # of another group, in the same rest
    assert laggards.in_cooldown(COOLDOWN_S - 1) == {slow}
    assert laggards.in_cooldown(COOLDOWN_S) == set()
    laggards.dropped(GROUP, slow, now=COOLDOWN_S)
    assert laggards.in_cooldown(3 * COOLDOWN_S - 1) == {slow}
    assert laggards.in_cooldown(3 * COOLDOWN_S) == set()
    assert other not in laggards.in_cooldown(0.0)


def test_a_replacement_that_is_lost_is_replaced() -> None:
    manager, slow, other = pair("abcd")
    proved(manager, "a", lag(slow))
    added = manager.members()[2]
    manager.lose(added)
    assert manager.members() == f"a{slow}"
    proved(manager, "a", lag(slow))
    last = ({"b", "c", "d"} - {slow, added}).pop()
    assert manager.members() == f"a{slow}{last}?"
    assert other in (added, last)


def test_a_report_that_comes_with_the_beat_counts_first() -> None:
    manager, slow, other = pair()
    proved(manager, "a", lag(slow))
    report = Report(GROUP, manager.group().epoch, True, 10)
    manager.do(ev.Beat(other, f"{other}/1", 0, 0, 0, 0, (report,)))
    assert manager.members() == f"a{other}"


def test_a_laggard_that_becomes_the_owner_stays_and_who_was_added_goes() -> None:
    """Seed 157: the chain stayed longer than it should be."""
    manager, slow, other = pair()
    proved(manager, "a", lag(slow))
    manager.do(ev.StreamBroken("a", "a-process"))
    manager.register("a", incarnation=2, process="second")
    assert manager.members() == f"{slow}a?{other}?"
    manager.beat("a", Report(GROUP, manager.group().epoch, True, 10), incarnation=2)
    assert manager.members() == f"{slow}a"


def test_a_laggard_that_becomes_the_owner_leaves_the_target_of_a_handover_where_it_is() -> None:
    manager, slow, other = pair()
    manager.do(ev.Change(GROUP, other, ""))
    proved(manager, "a", lag(slow))
    manager.do(ev.StreamBroken("a", "a-process"))
    manager.register("a", incarnation=2, process="second")
    assert manager.members() == f"{slow}a?{other}?"
    manager.beat("a", Report(GROUP, manager.group().epoch, True, 10), incarnation=2)
    assert manager.members() == f"{slow}a{other}?"
