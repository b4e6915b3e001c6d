"""A member that does not get on with a file delays no commit for long: others are offered it from here as well."""

from __future__ import annotations

import dataclasses

import pytest

from rhino_core.errors import PreconditionError
from rhino_core.ids import Epoch, Lane, Worker
from tests.worker_runtime.scenario import STORE, changelog, group, snapshot, sst
from tests.worker_runtime.support.machine import A, B, C, Rig, only
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.commits import GIVE_UP_S, SLOW_S
from worker_runtime.protocol.chain.outbox import BYPASS_S, LARGE_BYTES

D = Worker("d", "d/1", "127.0.0.1", "127.0.0.1:100")


def rig(members: str = "abc", me: Worker = A, required: int = 2) -> Rig:
    """A writer that is linked to everybody."""
    made = Rig(me)
    made.adopt(group(1, members, required=required))
    made.connect(*(name for name in members if name != me.worker_id))
    return made


def offers(effects: list[ev.Effect]) -> list[tuple[str, str, list[str]]]:
    return [(e.to.worker_id, e.entry.name, [w.worker_id for w in e.chain]) for e in only(effects, ev.OfferFile)]


def later(r: Rig, seconds: float) -> list[ev.Effect]:
    r.now += seconds
    return r.do(ev.Tick())


def ack(r: Rig, member: Worker, name: str, *, sender: Worker | None = None, holds: bool = True) -> list[ev.Effect]:
    return r.do(ev.AckReceived((sender or member).worker_id, STORE, name, Epoch(1, 1), member, holds))


def refuse(r: Rig, member: Worker, name: str) -> list[ev.Effect]:
    reason = ev.Refusal.STORAGE
    return r.do(ev.RefusalReceived(member.worker_id, STORE, name, reason, Epoch(1, 1), "full", member))


def test_after_a_second_the_next_member_is_offered_it_with_the_first_behind() -> None:
    r, first = rig(), changelog(1)
    assert offers(r.commit(first)) == [("b", first.name, ["c"])]
    assert offers(later(r, SLOW_S - 0.1)) == []
    effects = later(r, 0.1)
    assert offers(effects) == [("c", first.name, ["b"])]
    assert not only(effects, ev.WithdrawOffer), "b may only be slow"
    assert [e.copies for e in only(ack(r, C, first.name), ev.CompleteCommit)] == [2]


def test_a_guest_likewise() -> None:
    r, first = rig("bc", me=A), changelog(1)
    r.commit(first)
    assert offers(later(r, SLOW_S)) == [("c", first.name, ["b"])]


def test_who_was_passed_over_comes_last_for_a_while() -> None:
    r = rig()
    r.commit(changelog(1))
    later(r, SLOW_S)
    ack(r, C, changelog(1).name)
    assert offers(r.commit(changelog(2), request=2)) == [("c", changelog(2).name, ["b"])]
    ack(r, C, changelog(2).name)
    later(r, BYPASS_S)
    assert offers(r.commit(changelog(3), request=3)) == [("b", changelog(3).name, ["c"])]


def test_several_that_wait_do_not_turn_it_to_and_fro() -> None:
    r, first, second = rig(), changelog(1), changelog(2)
    r.commit(first)
    r.now += 0.1
    r.commit(second, request=2)
    turned = offers(later(r, SLOW_S - 0.1))
    assert turned == [("c", name, ["b"]) for name in (first.name, second.name)]
    assert offers(later(r, 0.1)) == []


def test_nobody_gets_the_bytes_twice_while_all_goes_well() -> None:
    r, first = rig(required=3), changelog(1)
    r.commit(first)
    ack(r, B, first.name, holds=False)
    ack(r, C, first.name, sender=B, holds=False)
    assert offers(later(r, SLOW_S)) == []


def test_with_one_other_member_there_is_nobody_else() -> None:
    r = rig("ab")
    r.commit(changelog(1))
    assert offers(later(r, SLOW_S)) == []
    ack(r, B, changelog(1).name)
    assert offers(r.commit(changelog(2), request=2)) == [("b", changelog(2).name, [])]


def test_they_take_turns_every_second_until_somebody_has_it() -> None:
    r, first = rig("abcd"), changelog(1)
    r.commit(first)
    turns = [offers(later(r, SLOW_S))[0][0] for _ in range(4)]
    assert turns == ["c", "d", "b", "c"]


def test_a_member_behind_the_first_that_does_not_get_it_from_there_gets_it_from_here() -> None:
    r, first = rig(required=3), changelog(1)
    r.commit(first)
    ack(r, B, first.name)
    assert offers(later(r, SLOW_S)) == [("c", first.name, [])]
    assert [e.copies for e in only(ack(r, C, first.name), ev.CompleteCommit)] == [3]
    ack(r, B, first.name)
    assert offers(r.commit(changelog(2), request=2))[0][0] == "b", "it was not to blame"


@pytest.mark.parametrize("linked", [True, False])
def test_a_large_file_takes_its_time_unless_nobody_is_there(linked: bool) -> None:
    r, large = rig(), dataclasses.replace(changelog(1), size_bytes=LARGE_BYTES + 1)
    r.commit(large)
    if not linked:
        r.do(ev.PeerDisconnected("b", Lane.COMMIT))
    assert offers(later(r, SLOW_S)) == ([] if linked else [("c", large.name, ["b"])])


@pytest.mark.parametrize("linked", [True, False])
def test_data_files_for_which_a_snapshot_waits_go_past_who_is_not_there(linked: bool) -> None:
    r, data, zip_ = rig(), sst(1), snapshot(1, sst(1).name)
    r.stored(data, written=True)
    r.commit(zip_)
    if not linked:
        r.do(ev.PeerDisconnected("b", Lane.BULK))
    ack(r, B, zip_.name, holds=False)
    passed = [offer for offer in offers(later(r, SLOW_S)) if offer[1] == data.name]
    assert passed == ([] if linked else [("c", data.name, ["b"])])


def test_data_files_follow_the_commit_past_a_member_whose_connections_only_look_open() -> None:
    r, data, zip_ = rig(), sst(1), snapshot(1, sst(1).name)
    r.stored(data, written=True)
    r.commit(zip_)
    passed = offers(later(r, SLOW_S))
    assert passed == [("c", zip_.name, ["b"]), ("c", data.name, ["b"])]


def test_files_from_which_the_version_opens_go_past_who_is_not_there_too() -> None:
    r = rig()
    r.stored(sst(1), written=True)
    r.do(ev.PeerDisconnected("b", Lane.BULK))
    r.commit(changelog(2))
    assert ("c", sst(1).name, ["b"]) in offers(later(r, SLOW_S))


def test_a_member_without_room_is_passed_at_once_and_asked_again_by_who_has_the_file() -> None:
    r, first = rig(), changelog(1)
    r.commit(first)
    assert offers(refuse(r, B, first.name)) == [("c", first.name, ["b"])]
    assert offers(refuse(r, C, first.name)) == [], "nobody is left: no ping-pong"
    assert sorted(to for to, _, _ in offers(later(r, SLOW_S))) == ["b", "b", "c"]
    assert offers(r.commit(changelog(2), request=2))[0][0] in "bc"


def test_who_was_passed_over_is_offered_it_when_its_link_is_back() -> None:
    r, first = rig(), changelog(1)
    r.commit(first)
    r.do(ev.PeerDisconnected("b", Lane.COMMIT))
    later(r, SLOW_S)
    assert offers(r.do(ev.PeerConnected("b", Lane.COMMIT))) == [("b", first.name, [])]
    assert [e.copies for e in only(ack(r, B, first.name), ev.CompleteCommit)] == [2]
    ack(r, C, first.name)
    assert offers(r.do(ev.PeerConnected("b", Lane.COMMIT))) == []


def test_both_of_whom_it_was_offered_to_lag() -> None:
    r, first = rig(), changelog(1)
    r.commit(first)
    r.machine.view.lags(r.now)
    later(r, SLOW_S)
    r.machine.view.lags(r.now)
    r.now += 5.0
    assert {(lag.to, lag.oldest_s) for lag in r.machine.view.lags(r.now)} == {("b", 6.0), ("c", 5.0)}


def test_all_offers_are_taken_back_with_the_file() -> None:
    r, first = rig(), changelog(1)
    r.commit(first)
    later(r, SLOW_S)
    r.catalogue.discard(STORE, first.name)
    effects = r.do(ev.FilesRemoved(STORE, (first.name,), damaged=False))
    assert sorted(e.to for e in only(effects, ev.WithdrawOffer)) == ["b", "c"]


def waits(r: Rig, seconds: float) -> list[ev.CompleteCommit]:
    return [e for _ in range(round(seconds)) for e in only(later(r, 1.0), ev.CompleteCommit)]


def test_a_writer_that_nothing_gets_out_of_gives_up_once_another_owns_the_group() -> None:
    r, first = rig("ab"), changelog(1)
    r.commit(first, timeout=60)
    assert waits(r, GIVE_UP_S + 1) == [], "the owner waits"
    r.do(ev.GroupAdopted(group(2, "ba", whole="b")))
    r.commit(changelog(2), request=2, timeout=60)
    assert waits(r, GIVE_UP_S - 1)[1:] == [], "one that began before is answered first"
    (answer,) = waits(r, 1.0)
    assert isinstance(answer.error, PreconditionError)
    assert "owned by b" in str(answer.error)


def test_it_goes_on_waiting_while_somebody_has_the_file_or_it_counts() -> None:
    r, first = rig("abc"), changelog(1)
    r.do(ev.GroupAdopted(group(2, "bca", whole="bc", required=2)))
    r.commit(first, timeout=60)
    r.do(ev.AckReceived("b", STORE, first.name, Epoch(1, 2), B, holds=False))
    assert waits(r, GIVE_UP_S + 2) == []
    r.do(ev.GroupAdopted(group(3, "bca", required=3)))
    assert waits(r, GIVE_UP_S + 2) == []
