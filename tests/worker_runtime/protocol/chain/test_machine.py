"""ChainMachine by events and effects."""

from __future__ import annotations

import pytest

from rhino_core.errors import AlreadyThereError, CopiesTimeoutError
from rhino_core.ids import Epoch, Lane
from tests.worker_runtime.scenario import GROUP, STORE, changelog, group, snapshot, sst, worker
from tests.worker_runtime.support.machine import A, B, C, Rig, only, owner
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain import receiving as parked


def test_commit_travels_down_the_chain_and_returns_at_required_copies() -> None:
    rig = owner()
    (offer,) = only(rig.commit(changelog(1)), ev.OfferFile)
    assert (offer.to, offer.chain, offer.epoch, offer.lane) == (B, (C,), Epoch(1, 1), Lane.COMMIT)
    effects = rig.ack(changelog(1), 1, B)
    assert only(effects, ev.CompleteCommit) == [ev.CompleteCommit(1, 2, Epoch(1, 1))]
    assert effects.index(ev.MakeVisible(STORE, changelog(1).name)) < effects.index(ev.CompleteCommit(1, 2, Epoch(1, 1)))
    assert not only(rig.ack(changelog(1), 1, C), ev.CompleteCommit)


def test_epoch_is_persisted_before_anything_else() -> None:
    effects = Rig(A).do(ev.GroupAdopted(group(1, "ab")))
    assert effects[0] == ev.PersistEpoch(GROUP, Epoch(1, 1), ("a", "b"))


def test_acks_of_a_former_epoch_do_not_count() -> None:
    rig = owner()
    rig.commit(changelog(1))
    offers = only(rig.adopt(group(2, "ac", required=2)), ev.OfferFile)
    assert [(o.to, o.epoch) for o in offers] == [(C, Epoch(1, 2))]
    assert not only(rig.ack(changelog(1), 1, C), ev.CompleteCommit)
    assert only(rig.ack(changelog(1), 2, C, sender="c"), ev.CompleteCommit)


def test_a_commit_that_waits_asks_those_that_held_its_file_under_a_former_epoch_again() -> None:
    """Three copies are due. Only acknowledgements of the present epoch count."""
    rig = owner("abcd", required=3)
    rig.connect("d")
    rig.commit(changelog(1))
    rig.ack(changelog(1), 1, B)
    (offer,) = only(rig.adopt(group(2, "abd", required=3)), ev.OfferFile)
    assert (offer.to, offer.chain) == (B, (worker("d"),))
    assert not only(rig.ack(changelog(1), 2, worker("d")), ev.CompleteCommit)
    assert only(rig.ack(changelog(1), 2, B), ev.CompleteCommit)


def test_a_member_that_is_not_whole_does_not_count_but_is_served() -> None:
    rig = Rig(A)
    rig.adopt(group(1, "abc", whole="ac", required=2))
    rig.connect("b", "c")
    rig.commit(changelog(1))
    assert not only(rig.ack(changelog(1), 1, B), ev.CompleteCommit)
    (done,) = only(rig.ack(changelog(1), 1, C), ev.CompleteCommit)
    assert done.copies == 3


def test_ack_without_holding_does_not_count() -> None:
    rig = owner("ab")
    rig.commit(changelog(1))
    assert not only(rig.ack(changelog(1), 1, B, holds=False), ev.CompleteCommit)
    assert only(rig.ack(changelog(1), 1, B), ev.CompleteCommit)


def test_a_guest_does_not_count_itself() -> None:
    rig = Rig(C)
    rig.adopt(group(1, "ab", required=2))
    rig.connect("a", "b")
    (offer,) = only(rig.commit(changelog(1)), ev.OfferFile)
    assert (offer.to, offer.chain) == (A, (B,))
    assert not only(rig.ack(changelog(1), 1, A), ev.CompleteCommit)
    assert only(rig.ack(changelog(1), 1, B), ev.CompleteCommit)[0].copies == 2


def test_a_guests_members_get_what_they_lack_while_its_commit_waits() -> None:
    rig = Rig(C)
    rig.adopt(group(1, "ab", required=2))
    rig.connect("a", "b")
    rig.stored(changelog(1))
    rig.commit(changelog(2))
    rig.ack(changelog(2), 1, A, holds=False)
    rig.ack(changelog(2), 1, B)
    rig.now = 101
    assert [(o.to, o.entry, o.chain) for o in only(rig.do(ev.Tick()), ev.OfferFile)] == [(A, changelog(1), ())]
    assert only(rig.ack(changelog(2), 1, A), ev.CompleteCommit)[0].copies == 2


def test_a_guest_that_may_not_write_any_more_pushes_what_a_commit_waits_for_only() -> None:
    """Seed 8062, factor 3: a query had ended, and its last guest offered new members old files for ever."""
    rig = Rig(C)
    rig.adopt(group(1, "ab", required=1))
    rig.connect("a", "b")
    rig.commit(changelog(1))
    assert only(rig.ack(changelog(1), 1, A, sender="a"), ev.CompleteCommit)
    rig.commit(changelog(2), request=2)
    for entry in (changelog(1), changelog(2)):
        why = (ev.Refusal.NOT_A_WRITER, Epoch(1, 1), "no executor runs there", B)
        rig.do(ev.RefusalReceived("a", STORE, entry.name, *why))
    rig.do(ev.PeerDisconnected("a", Lane.COMMIT))
    assert [offer.entry for offer in only(rig.connect("a"), ev.OfferFile)] == [changelog(2)]


def test_a_former_member_that_may_not_write_any_more_forwards_nothing() -> None:
    """Seed 8118, factor 3."""
    rig = Rig(C)
    rig.adopt(group(1, "acb"))
    rig.connect("a", "b")
    rig.receive(changelog(1), 1, B)
    rig.adopt(group(2, "ab"))
    rig.do(ev.RefusalReceived("b", STORE, changelog(1).name, ev.Refusal.NOT_A_WRITER, Epoch(1, 2), "no executor", B))
    for peer in "ab":
        rig.do(ev.PeerDisconnected(peer, Lane.COMMIT))
    assert not only(rig.connect("a", "b"), ev.OfferFile)


def test_a_guest_does_not_send_a_whole_snapshot_while_its_new_files_are_on_their_way() -> None:
    rig = Rig(C)
    rig.adopt(group(1, "ab", required=1))
    rig.connect("a", "b")
    rig.stored(sst(1))
    rig.stored(sst(2), written=True)
    zip_ = snapshot(2, sst(1).name, sst(2).name)
    rig.commit(zip_)
    rig.ack(zip_, 1, A, holds=False)
    for rig.now in (101, 102):
        assert {e.entry.name for e in only(rig.do(ev.Tick()), ev.OfferFile)} <= {zip_.name}
    for member in (A, B):
        rig.ack(sst(2), 1, member)
    rig.now = 103
    offers = only(rig.do(ev.Tick()), ev.OfferFile)
    assert [(o.to, o.entry) for o in offers] == [(A, sst(1)), (A, sst(2))], "A has collected the old one"


def test_commit_alone_and_commit_before_the_group_is_known() -> None:
    rig = Rig(A)
    assert only(rig.commit(changelog(1)), ev.AskForGroup)
    assert only(rig.adopt(group(1, "a")), ev.CompleteCommit) == [ev.CompleteCommit(1, 1, Epoch(1, 1))]


def test_a_peers_word_alone_makes_no_epoch() -> None:
    """Else whoever reaches the push port could put a group beyond all that its manager will ever issue."""
    rig = owner("ab")
    rig.commit(changelog(1))
    effects = rig.receive(changelog(2), 1000, upstream="b")
    assert only(effects, ev.AskForGroup), "the manager decides"
    assert not only(effects, ev.ReceiveFile), "its bytes wait"
    assert not only(effects, ev.PersistEpoch)
    assert not only(effects, ev.SendAck)
    assert rig.machine.view.epoch(GROUP) == Epoch(1, 1)
    assert only(rig.ack(changelog(1), 1, B), ev.CompleteCommit), "commits go on"


def test_a_file_of_a_later_epoch_is_acknowledged_and_passed_on_once_the_manager_has_named_that() -> None:
    rig = Rig(B)
    rig.adopt(group(1, "abc"))
    rig.connect("c")
    assert not only(rig.receive(changelog(1), 2, C), ev.SendAck)
    effects = rig.adopt(group(2, "abc"))
    (ack,) = only(effects, ev.SendAck)
    assert (ack.upstream, ack.member, ack.epoch) == ("a", B, Epoch(1, 2))
    (offer,) = only(effects, ev.OfferFile)
    assert (offer.to, offer.epoch) == (C, Epoch(1, 2))


def test_a_file_of_an_epoch_that_the_manager_has_gone_beyond_is_refused() -> None:
    rig = Rig(B)
    rig.receive(changelog(1), 2)
    effects = rig.adopt(group(3, "ab"))
    assert not only(effects, ev.SendAck)
    (refusal,) = only(effects, ev.SendRefusal)
    assert (refusal.reason, refusal.current_epoch) == (ev.Refusal.STALE_EPOCH, Epoch(1, 3))


def test_a_file_that_waits_for_the_manager_is_refused_after_a_while_and_forgotten_with_its_stream() -> None:
    rig = Rig(B)
    rig.receive(changelog(1), 2)
    rig.do(ev.TransferFailed(1, None))
    assert rig.machine.next_deadline() is None
    rig.receive(changelog(2), 2)
    rig.now += parked.PARKED_S
    assert rig.machine.next_deadline() == rig.now
    effects = rig.do(ev.Tick())
    assert only(effects, ev.DiscardTransfer) == [ev.DiscardTransfer(2)]
    (refusal,) = only(effects, ev.SendRefusal)
    assert (refusal.name, refusal.reason) == (changelog(2).name, ev.Refusal.STORAGE)
    assert not only(rig.adopt(group(2, "ab")), ev.ReceiveFile)


def test_files_of_a_worker_outside_of_the_group_come_only_if_the_manager_allows_it() -> None:
    """Else any registered worker could plant a file before its genuine writer sends it."""
    rig = Rig(B)
    rig.adopt(group(1, "ab"))
    effects = rig.receive(changelog(1), 1, upstream="x")
    assert only(effects, ev.AskForWriter) == [ev.AskForWriter(GROUP, "x")]
    assert not only(effects, ev.ReceiveFile)
    effects = rig.writer("x", allowed=False)
    assert not only(effects, ev.SendAck)
    (refusal,) = only(effects, ev.SendRefusal)
    assert (refusal.upstream, refusal.reason) == ("x", ev.Refusal.NOT_A_WRITER)
    assert only(effects, ev.DiscardTransfer)
    assert only(rig.receive(changelog(1, crc=7), 1, upstream="a"), ev.SendAck), "the name is free"
    rig.receive(changelog(2), 1, upstream="x")
    assert [ack.upstream for ack in only(rig.writer("x", allowed=True), ev.SendAck)] == ["x"]
    assert only(rig.receive(changelog(3), 1, upstream="x"), ev.SendAck), "asked once"
    rig.adopt(group(2, "ab"))
    assert only(rig.receive(changelog(4), 2, upstream="x"), ev.AskForWriter), "and once more under the next epoch"


def test_a_worker_that_is_no_member_takes_no_pushed_file() -> None:
    """Else a member of the next epoch would begin with what somebody has planted there."""
    rig = Rig(C)
    rig.adopt(group(1, "ab"))
    effects = rig.receive(changelog(1), 1, upstream="a")
    assert not only(effects, ev.ReceiveFile)
    (refusal,) = only(effects, ev.SendRefusal)
    assert "c is no member under epoch 1.1" in refusal.message


def test_a_former_member_may_pass_on_what_it_took_before() -> None:
    rig = Rig(C)
    rig.adopt(group(1, "abc"))
    rig.adopt(group(2, "ac"))
    assert only(rig.receive(changelog(1), 2, upstream="b"), ev.SendAck)


def test_a_restarted_member_without_a_manager_still_knows_who_may_write() -> None:
    rig = Rig(B, {GROUP: Epoch(1, 3)}, {GROUP: ("a", "b")})
    assert only(rig.receive(changelog(1), 3, upstream="a"), ev.SendAck)
    assert only(rig.receive(changelog(2), 3, upstream="x"), ev.AskForWriter)
    rig = Rig(B, {GROUP: Epoch(1, 3)})  # its index has lost the members
    effects = rig.receive(changelog(1), 3, upstream="a")
    assert only(effects, ev.AskForGroup)
    assert not only(effects, ev.ReceiveFile)


def test_only_members_acknowledge_and_refuse() -> None:
    """A link to a worker that has left may still be open."""
    rig = owner("abc", required=3)
    rig.commit(changelog(1))
    rig.ack(changelog(1), 1, B)
    assert not only(rig.ack(changelog(1), 1, C, sender="x"), ev.CompleteCommit)
    conflict = ev.RefusalReceived("x", STORE, changelog(1).name, ev.Refusal.NAME_CONFLICT, Epoch(1, 1), "crc", B)
    assert not only(rig.do(conflict), ev.CompleteCommit)
    assert only(rig.ack(changelog(1), 1, C), ev.CompleteCommit)


def test_files_of_unknown_epochs_are_bounded_and_crowded_out_ones_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked, "PARKED_MAX", 3)
    rig = Rig(B)
    for number in range(1, 4):
        assert not only(rig.receive(changelog(number), 9), ev.SendRefusal)
    (refusal,) = only(rig.receive(changelog(4), 9), ev.SendRefusal)
    assert (refusal.name, refusal.reason) == (changelog(1).name, ev.Refusal.STORAGE)
    assert len(only(rig.adopt(group(9, "ab")), ev.SendAck)) == 3


def test_members_of_an_epoch_never_change() -> None:
    """Two managers have issued the same one: acknowledgements given for one group would count for the other."""
    rig = owner("abc")
    rig.commit(changelog(1))
    assert rig.adopt(group(1, "ac", required=1)) == []
    assert rig.adopt(group(1, "abc", whole="a", required=1)) == []
    kept = rig.machine.view.group(GROUP)
    assert kept is not None
    assert [m.worker for m in kept.members] == [A, B, C]
    assert kept.required_copies == 2


def test_a_commit_that_times_out_is_offered_to_nobody_any_more() -> None:
    rig = owner("ab")
    rig.commit(changelog(1), timeout=5)
    assert rig.machine.next_deadline() == 101
    rig.now = 101
    assert not rig.do(ev.Tick()), "it is a member: the others get everything by catching up"
    assert rig.machine.next_deadline() == 105
    rig.now = 105
    (answer,) = only(rig.do(ev.Tick()), ev.CompleteCommit)
    assert isinstance(answer.error, CopiesTimeoutError)
    rig.do(ev.PeerDisconnected("b", Lane.COMMIT))
    assert not only(rig.connect("b"), ev.OfferFile)


def test_member_acks_its_own_copy_at_once_then_forwards_and_relays() -> None:
    rig = Rig(B)
    rig.adopt(group(1, "abc"))
    rig.connect("c")
    effects = rig.receive(changelog(1), 1, C)
    (ack,) = only(effects, ev.SendAck)
    (offer,) = only(effects, ev.OfferFile)
    assert (ack.upstream, ack.member, ack.holds) == ("a", B, True)
    assert effects.index(ack) < effects.index(offer)
    assert (offer.to, offer.chain) == (C, ())
    (relayed,) = only(rig.ack(changelog(1), 1, C, sender="c"), ev.SendAck)
    assert (relayed.upstream, relayed.member) == ("a", C)


def test_stale_begin_is_refused_and_a_persisted_epoch_survives_restart() -> None:
    rig = Rig(B, {GROUP: Epoch(1, 5)})
    effects = rig.receive(changelog(1), 4)
    assert only(effects, ev.DiscardTransfer)
    (refusal,) = only(effects, ev.SendRefusal)
    assert (refusal.reason, refusal.current_epoch) == (ev.Refusal.STALE_EPOCH, Epoch(1, 5))
    assert rig.do(ev.GroupAdopted(group(4, "ab"))) == []


def test_epoch_that_moves_during_a_transfer_refuses_but_keeps_the_file() -> None:
    rig = Rig(B)
    rig.adopt(group(1, "ab"))
    rig.do(ev.BeginReceived("a", 1, changelog(1), Epoch(1, 1), ()))
    rig.adopt(group(2, "bc"))
    rig.catalogue.add(changelog(1))
    effects = rig.do(ev.TransferStored(1))
    assert not only(effects, ev.SendAck)
    assert only(effects, ev.SendRefusal)[0].reason is ev.Refusal.STALE_EPOCH
    assert only(effects, ev.MakeVisible)


def test_duplicate_is_acked_at_once_and_conflict_is_refused() -> None:
    rig = Rig(B)
    rig.adopt(group(1, "ab"))
    rig.receive(changelog(1), 1)
    effects = rig.receive(changelog(1), 1)
    assert only(effects, ev.DiscardTransfer)
    assert only(effects, ev.SendAck)[0].holds
    effects = rig.receive(changelog(1, crc=99), 1)
    assert only(effects, ev.SendRefusal)[0].reason is ev.Refusal.NAME_CONFLICT


def test_conflict_fails_the_commit() -> None:
    rig = owner("ab")
    rig.commit(changelog(1))
    refusal = ev.RefusalReceived("b", STORE, changelog(1).name, ev.Refusal.NAME_CONFLICT, Epoch(1, 1), "crc", B)
    (answer,) = only(rig.do(refusal), ev.CompleteCommit)
    assert isinstance(answer.error, AlreadyThereError)


def test_storage_refusal_is_retried_later() -> None:
    rig = owner("ab")
    rig.commit(changelog(1))
    rig.do(ev.RefusalReceived("b", STORE, changelog(1).name, ev.Refusal.STORAGE, Epoch(1, 1), "full", B))
    rig.now += 1
    assert only(rig.do(ev.Tick()), ev.OfferFile)


def test_closure_completed_later_is_acked_again() -> None:
    rig = Rig(B)
    rig.adopt(group(1, "ab"))
    assert only(rig.receive(changelog(2), 1), ev.SendAck)[0].holds is False
    (ack,) = only(rig.stored(changelog(1)), ev.SendAck)
    assert (ack.name, ack.holds, ack.upstream) == (changelog(2).name, True, "a")


def test_what_has_just_been_found_damaged_is_not_held_whatever_comes() -> None:
    rig = Rig(B)
    rig.adopt(group(1, "ab"))
    zip_ = snapshot(2, sst(1).name)
    rig.receive(zip_, 1)
    rig.catalogue.discard(STORE, zip_.name)  # FilesRemoved follows when the bytes are off the disk
    assert [ack.name for ack in only(rig.receive(sst(1), 1), ev.SendAck)] == [sst(1).name]


def test_zip_is_shown_only_when_whole() -> None:
    rig = Rig(B)
    rig.adopt(group(1, "ab"))
    zip_ = snapshot(3, sst(1).name, sst(2).name)
    assert not only(rig.receive(zip_, 1), ev.MakeVisible)
    rig.receive(sst(1), 1)
    effects = rig.receive(sst(2), 1)
    assert ev.MakeVisible(STORE, zip_.name) in effects
    assert [a.name for a in only(effects, ev.SendAck) if a.holds] == [zip_.name, sst(2).name]


def test_a_member_holds_a_zip_only_with_its_files_though_the_version_opens_without() -> None:
    rig = Rig(B)
    rig.adopt(group(1, "ab"))
    for number in (1, 2):
        rig.receive(changelog(number), 1)
    zip_ = snapshot(2, sst(1).name)
    assert [ack.holds for ack in only(rig.receive(zip_, 1), ev.SendAck)] == [False]
    assert [ack.name for ack in only(rig.receive(sst(1), 1), ev.SendAck) if ack.holds] == [zip_.name, sst(1).name]


def test_the_writer_holds_a_zip_whose_files_it_has_lost_only_when_they_are_back() -> None:
    rig = owner("ab", required=1)
    for number in (1, 2):
        rig.commit(changelog(number), request=number)
    zip_ = snapshot(2, sst(1).name)
    assert not only(rig.commit(zip_, request=3), ev.CompleteCommit)
    assert [done.request for done in only(rig.stored(sst(1)), ev.CompleteCommit)] == [3]


def test_written_data_files_go_down_the_bulk_lane_without_a_commit() -> None:
    rig = owner("ab")
    (offer,) = only(rig.stored(sst(1), written=True), ev.OfferFile)
    assert (offer.to, offer.lane) == (B, Lane.BULK)


def test_not_connected_asks_for_a_link_and_offers_when_it_opens() -> None:
    rig = Rig(A)
    rig.adopt(group(1, "ab", required=2))
    assert only(rig.commit(changelog(1)), ev.Connect) == [ev.Connect(B, Lane.COMMIT)]
    assert len(only(rig.do(ev.PeerConnected("b", Lane.COMMIT)), ev.OfferFile)) == 1


def test_new_epoch_with_the_same_members_needs_no_catch_up() -> None:
    rig = owner("ab")
    effects = rig.do(ev.GroupAdopted(group(2, "ba", required=2)))
    assert not only(effects, ev.StartCatchUp)
    assert ev.ReportGroup(GROUP) in effects
    assert rig.machine.view.whole(GROUP)


def test_who_is_not_counted_as_whole_catches_up_though_the_members_are_the_same() -> None:
    """Commits may not have waited for it."""
    rig = Rig(B)
    rig.adopt(group(1, "ab", required=2))
    assert rig.machine.view.whole(GROUP)
    assert only(rig.do(ev.GroupAdopted(group(2, "ab", whole="a"))), ev.StartCatchUp)
    assert not rig.machine.view.whole(GROUP)
    assert only(rig.do(ev.CatchUpFinished(GROUP, Epoch(1, 2))), ev.ReportGroup)
    assert rig.machine.view.whole(GROUP)


def test_a_sweep_does_not_make_a_member_whole_that_stopped_counting_meanwhile() -> None:
    """The sweep took its inventories before the commits that did not wait for this member."""
    rig = Rig(B)
    rig.adopt(group(1, "ab", required=2))
    sweep_at = rig.machine.next_deadline()
    assert sweep_at is not None
    rig.now = sweep_at
    (sweep,) = only(rig.do(ev.Tick()), ev.StartCatchUp)
    assert sweep.whole
    (catch_up,) = only(rig.do(ev.GroupAdopted(group(2, "ab", whole="a"))), ev.StartCatchUp)
    assert not catch_up.whole
    assert rig.do(ev.CatchUpFinished(GROUP, sweep.epoch)) == []
    assert not rig.machine.view.whole(GROUP)
    rig.do(ev.CatchUpFinished(GROUP, catch_up.epoch))
    assert rig.machine.view.whole(GROUP)


def test_a_sweep_goes_on_over_an_epoch_under_which_the_member_still_counts() -> None:
    rig = Rig(B)
    rig.adopt(group(1, "ab", required=2))
    rig.now = rig.machine.next_deadline() or 0.0
    assert only(rig.do(ev.Tick()), ev.StartCatchUp)
    assert not only(rig.do(ev.GroupAdopted(group(2, "ba", required=2))), ev.StartCatchUp)
    assert rig.machine.view.whole(GROUP)


def test_catch_up_goes_on_over_an_epoch_with_the_same_members() -> None:
    rig = Rig(B)
    (start,) = only(rig.do(ev.GroupAdopted(group(1, "ab"))), ev.StartCatchUp)
    assert start.members == (A,)
    assert not only(rig.do(ev.GroupAdopted(group(2, "ab"))), ev.StartCatchUp)
    assert not rig.machine.view.whole(GROUP)
    assert only(rig.do(ev.CatchUpFinished(GROUP, Epoch(1, 1))), ev.ReportGroup)
    assert rig.machine.view.whole(GROUP)


def test_any_change_of_members_starts_a_catch_up_and_outdates_the_former() -> None:
    rig = Rig(B)
    rig.do(ev.GroupAdopted(group(1, "ab")))
    assert only(rig.do(ev.GroupAdopted(group(2, "abc"))), ev.StartCatchUp)
    assert rig.do(ev.CatchUpFinished(GROUP, Epoch(1, 1))) == []
    rig.do(ev.CatchUpFinished(GROUP, Epoch(1, 2)))
    assert rig.machine.view.whole(GROUP)
    assert only(rig.do(ev.GroupAdopted(group(3, "bc"))), ev.StartCatchUp)


def test_a_forwarder_carries_on_when_the_writer_has_gone() -> None:
    rig = Rig(B)
    rig.adopt(group(1, "abc"))
    rig.connect("c")
    rig.receive(changelog(1), 1, C)
    offers = only(rig.adopt(group(2, "bc")), ev.OfferFile)
    assert [(o.to, o.epoch) for o in offers] == [(C, Epoch(1, 2))]


def test_damage_makes_a_member_catch_up_again() -> None:
    rig = owner("ab")
    rig.stored(changelog(1))
    rig.catalogue.discard(STORE, changelog(1).name)
    effects = rig.do(ev.FilesRemoved(STORE, (changelog(1).name,), damaged=True))
    assert only(effects, ev.StartCatchUp)
    assert not rig.machine.view.whole(GROUP)


def test_incomplete_version_is_repaired_when_nothing_comes_in() -> None:
    rig = Rig(B)
    rig.adopt(group(1, "ab"))
    rig.receive(changelog(2), 1)
    due = rig.machine.next_deadline()
    assert due is not None
    rig.now = due
    assert only(rig.do(ev.Tick()), ev.StartCatchUp)


def test_required_copies_that_shrink_complete_a_waiting_commit() -> None:
    rig = owner("ab")
    rig.commit(changelog(1))
    (done,) = only(rig.adopt(group(2, "a", required=1)), ev.CompleteCommit)
    assert done.copies == 1
