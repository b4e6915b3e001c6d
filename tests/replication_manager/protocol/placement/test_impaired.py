"""Workers that live and cannot do their work: others go on with their groups, and no copy is moved for it."""

from __future__ import annotations

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.placement.impaired import CALM_S, MUTE_S, PROOF_S
from replication_manager.protocol.workers.worker_record import Lag, Report
from rhino_core.ids import BelowMinCopies, DiskState, GroupId, JobSettings, StoreId, StoreVersion, Version
from tests.replication_manager.protocol.harness import GROUP, Manager
from tests.replication_manager.support.full_disks import say

R0, R2 = JobSettings(0, 1), JobSettings(2)
OTHER_STORE = StoreId("job", 0, 9, "default")
OTHER = OTHER_STORE.group


def owned(names: str = "abc", settings: JobSettings | None = None) -> Manager:
    """A group of "a"; with three workers and r = 1 the secondary is "b"."""
    manager = Manager(names)
    manager.resolve("a", settings=settings)
    return manager


def calm(manager: Manager, name: str, disk: DiskState = DiskState.OK) -> None:
    """The worker says so until it is believed."""
    say(manager, name, disk)
    for _ in range(round(2 * CALM_S)):
        manager.now += 0.5
        manager.beat_all()
        say(manager, name, disk)


# ---------------------------------------------------------------- disks


@pytest.mark.parametrize("disk", [DiskState.FULL, DiskState.FAILING])
def test_an_owner_that_takes_no_files_is_followed_at_once_and_no_copy_is_moved(disk: DiskState) -> None:
    manager = owned()
    say(manager, "a", disk)
    assert (manager.members(), manager.group().required_copies) == ("ba?", 1)


def test_a_secondary_that_takes_no_files_comes_last_and_commits_do_not_wait_for_it() -> None:
    manager = owned("abcd", R2)
    first, second = list(manager.members()[1:])
    say(manager, first, DiskState.FULL)
    assert (manager.members(), manager.group().required_copies) == (f"a{second}{first}?", 2)


def test_it_says_in_vain_that_it_is_whole_and_catches_up_anew_once_it_has_been_well_for_a_while() -> None:
    manager = owned()
    say(manager, "a", DiskState.FULL)
    epoch = manager.group().epoch
    manager.do(ev.Beat("a", "a/1", 0, 0, 0, 0, (Report(GROUP, epoch, True, 10),), DiskState.FULL, "full"))
    assert manager.members() == "ba?"
    say(manager, "a", DiskState.OK)
    assert (manager.members(), manager.group().epoch) == ("ba?", epoch), "it may be full again in a moment"
    calm(manager, "a")
    assert manager.members() == "ba?"
    assert manager.group().epoch > epoch, "what it said before is void"
    manager.whole("a")
    assert (manager.members(), manager.group().required_copies) == ("ba", 2)


def test_a_disk_that_fills_up_again_and_again_stays_out() -> None:
    manager = owned()
    say(manager, "a", DiskState.FULL)
    epoch = manager.group().epoch
    for _ in range(10):
        manager.now += CALM_S / 2
        manager.beat_all()
        say(manager, "a", DiskState.OK)
        manager.now += CALM_S / 4
        manager.beat_all()
        say(manager, "a", DiskState.FULL)
    assert (manager.members(), manager.group().epoch) == ("ba?", epoch)


def test_the_last_whole_member_stays_whatever_its_disk_says() -> None:
    manager = owned()
    say(manager, "b", DiskState.FULL)
    say(manager, "a", DiskState.FULL)
    assert (manager.members(), manager.group().required_copies) == ("ab?", 1)
    manager.whole("b")
    assert manager.members() == "ab?", "it may have missed what a alone has"
    calm(manager, "b")
    manager.whole("b")
    assert manager.members() == "ba?", "and now it is the one that takes files"


def test_without_copies_there_is_nobody_else() -> None:
    manager = owned("abc", R0)
    epoch = manager.group().epoch
    say(manager, "a", DiskState.FULL)
    assert (manager.members(), manager.group().epoch) == ("a", epoch)


def test_who_has_not_been_heard_of_late_is_no_reason_to_doubt_another() -> None:
    """It may be gone, and then what the worker with the full disk has is all there is."""
    manager = owned()
    manager.now += 2.0
    say(manager, "a", DiskState.FULL)
    assert manager.members() == "ab"
    manager.beat("b")
    assert manager.members() == "ba?", "as soon as it is heard"


def test_the_owner_goes_to_a_worker_that_is_not_being_emptied() -> None:
    manager = owned("abcd", R2)
    first, second = list(manager.members()[1:])
    manager.do(ev.DrainSet(first, True))
    say(manager, "a", DiskState.FULL)
    assert manager.members().startswith(second)


def test_a_worker_is_not_emptied_on_the_word_of_one_that_may_lack_files() -> None:
    manager = owned("abc")
    say(manager, "b", DiskState.FULL)
    manager.do(ev.DrainSet("a", True))
    assert manager.members() == "ab?c?"
    manager.whole("c")
    assert manager.members() == "acb?"


def test_block_waits_for_copies_and_the_owner_is_followed_all_the_same() -> None:
    manager = owned("abc", JobSettings(below_min_copies=BelowMinCopies.BLOCK))
    say(manager, "a", DiskState.FULL)
    assert (manager.members(), manager.group().required_copies) == ("ba?", 2)
    calm(manager, "a")
    manager.whole("a")
    assert (manager.members(), manager.group().required_copies) == ("ba", 2)


def test_it_does_not_become_the_owner_by_writing_nor_is_it_told_to() -> None:
    manager = owned()
    say(manager, "b", DiskState.FULL)
    epoch = manager.group().epoch
    report = Report(GROUP, epoch, True, 10)
    manager.do(ev.Beat("b", "b/1", 0, 0, 0, 0, (report,), DiskState.FULL, "full"))
    assert manager.members() == "ab?"


def test_it_is_known_from_the_registration_on() -> None:
    manager = owned()
    manager.restart()
    manager.register("b")
    known = manager.workers["a"]
    manager.do(ev.Registered(known, "a-again", manager.group().epoch, (), DiskState.FULL, "full"))
    assert manager.members() == "ba?"


# ---------------------------------------------------------------- links


def owes(manager: Manager, sender: str, seconds: float, *to: str, group: GroupId = GROUP) -> None:
    lags = tuple(Lag(group, worker_id, 10, seconds) for worker_id in to)
    manager.do(ev.Beat(sender, f"{sender}/1", 0, 0, 0, 0, (), lags=lags))


def complains(manager: Manager, *to: str, seconds: float = MUTE_S + 0.5) -> None:
    """ "a" says for PROOF_S that nothing gets through to these, and everybody beats."""
    for _ in range(5):
        for name in set(manager.workers) - {"a"}:
            manager.beat(name)
        owes(manager, "a", seconds, *to)
        manager.now += PROOF_S / 3


def test_an_owner_that_reaches_nobody_is_followed_within_seconds() -> None:
    manager = owned("abcd", R2)
    first, second = list(manager.members()[1:])
    complains(manager, first, second)
    assert (manager.members(), manager.group().required_copies) == (f"{first}{second}a?", 2)


def test_one_moment_of_silence_proves_nothing() -> None:
    manager = owned("abcd", R2)
    before = manager.members()
    owes(manager, "a", 10.0, *before[1:])
    manager.now += PROOF_S
    manager.beat_all()
    owes(manager, "a", 10.0)
    assert manager.members() == before


def test_who_reaches_one_of_them_is_not_to_blame() -> None:
    manager = owned("abcd", R2)
    before = manager.members()
    complains(manager, before[1])
    assert manager.members() == before


def of_two() -> Manager:
    """The groups are "ab", and "cb" of another query."""
    manager = owned()
    manager.do(ev.DrainSet("a", True))  # so that the group of c goes to b
    manager.do(ev.Resolve(OTHER, "c", JobSettings()))
    manager.do(ev.DrainSet("a", False))
    assert manager.members(OTHER) == "cb"
    return manager


def holds(manager: Manager, name: str, number: int, *, wrote: bool = False) -> None:
    """The worker reports that it has this version of the other query, and perhaps that it wrote it itself."""
    held = (StoreVersion(OTHER_STORE, Version(number, f"id{number}")),)
    epoch = manager.group(OTHER).epoch
    manager.beat(name, Report(OTHER, epoch, True, 10, held, held if wrote else ()))


def test_of_two_it_cannot_be_told_unless_another_reaches_the_second() -> None:
    manager = of_two()
    holds(manager, "b", 1)
    complains(manager, "b")
    assert manager.members() == "abc?"
    holds(manager, "b", 2)
    complains(manager, "b")
    assert [manager.members()[0], manager.group().required_copies] == ["b", 1]


def test_an_idle_sender_without_a_lag_does_not_show_that_its_receiver_is_well() -> None:
    """The query of c is stopped, and nothing that anybody sends reaches b."""
    manager = of_two()
    holds(manager, "b", 1)
    for _ in range(5):
        complains(manager, "b")
        holds(manager, "b", 1)
    assert manager.members() == "abc?"


def test_what_the_receiver_wrote_itself_did_not_reach_it() -> None:
    manager = of_two()
    holds(manager, "b", 1)
    complains(manager, "b")
    holds(manager, "b", 2, wrote=True)
    complains(manager, "b")
    assert manager.members() == "abc?"


def test_a_sender_that_waits_for_the_receiver_as_well_does_not_show_that_it_is_well() -> None:
    manager = of_two()
    holds(manager, "b", 1)
    complains(manager, "b")
    holds(manager, "b", 2)
    owes(manager, "c", 2.0, "b", group=OTHER)
    for _ in range(5):
        manager.beat("b")
        owes(manager, "c", 2.0, "b", group=OTHER)
        owes(manager, "a", MUTE_S + 0.5, "b")
        manager.now += PROOF_S / 3
    assert manager.members() == "abc?"


def test_files_for_a_group_of_others_prove_nothing() -> None:
    """Its members may refuse them. Simulator: a late snapshot of a stopped query, and a secondary that hangs."""
    manager = owned()
    manager.do(ev.DrainSet("a", True))
    manager.do(ev.Resolve(OTHER, "c", JobSettings()))
    manager.do(ev.DrainSet("a", False))
    before = manager.members()
    for _ in range(5):
        manager.beat("b")
        manager.beat("c")
        lags = tuple(Lag(group, to, 10, MUTE_S + 0.5) for group, to in ((GROUP, "b"), (OTHER, "c"), (OTHER, "b")))
        manager.do(ev.Beat("a", "a/1", 0, 0, 0, 0, (), lags=lags))
        manager.now += PROOF_S / 3
    assert manager.members() == before


def test_receivers_that_are_silent_themselves_prove_nothing() -> None:
    """A switch has failed: their leases have not ended yet."""
    manager = owned("abcd", R2)
    before = manager.members()
    for _ in range(4):
        manager.now += 1.0
        owes(manager, "a", MUTE_S + manager.now, *before[1:])
    for name in before[1:]:
        manager.beat(name)
    assert manager.members() == before, "nor when they are heard again"


def test_a_mute_worker_is_given_nothing_and_comes_back_when_it_is_heard() -> None:
    manager = owned("abcd", R2)
    first, second = list(manager.members()[1:])
    complains(manager, first, second)
    manager.resolve(first, OTHER)
    assert "a" not in manager.members(OTHER)
    calm(manager, "a")
    manager.whole("a")
    assert manager.members() == f"{first}{second}a"
