"""Commits wait as long as bytes move, and what nobody waits for any more is sent no more."""

from __future__ import annotations

from rhino_core.errors import CopiesTimeoutError
from rhino_core.ids import Epoch, FileEntry, Lane
from tests.worker_runtime.scenario import GROUP, STORE, changelog, group, snapshot, sst, worker
from tests.worker_runtime.support.machine import B, C, Rig, only, owner
from worker_runtime.protocol import events as ev

PATIENCE_S = 60.0


def answers(rig: Rig, after_s: float) -> list[ev.CompleteCommit]:
    rig.now += after_s
    return only(rig.do(ev.Tick()), ev.CompleteCommit)


def moved(rig: Rig, lane: Lane = Lane.BULK, *files: tuple[FileEntry, int], to: str = "b") -> None:
    rig.do(ev.BytesSent(to, lane, tuple(ev.Sent(entry.store, entry.name, count) for entry, count in files)))


def large(rig: Rig) -> FileEntry:
    """A commit of a snapshot whose data file is on its way to b."""
    data, zip_ = sst(1, size=1000), snapshot(1, sst(1).name)
    rig.stored(data, written=True)
    rig.commit(zip_, timeout=PATIENCE_S)
    rig.ack(zip_, 1, B, holds=False)
    return data


def test_a_commit_waits_as_long_as_bytes_of_its_files_move() -> None:
    rig = owner("ab")
    data = large(rig)
    for done in range(1, 10):
        assert not answers(rig, after_s=50)
        moved(rig, Lane.BULK, (data, done * 100))
    assert not answers(rig, after_s=59)
    (answer,) = answers(rig, after_s=1)
    assert isinstance(answer.error, CopiesTimeoutError)
    assert "nothing has moved for 60 s; to b: 905 bytes are sent, 100 are left" in str(answer.error)


def test_a_commit_during_which_no_byte_moves_ends_in_time() -> None:
    rig = owner("ab")
    large(rig)
    assert not answers(rig, after_s=59)
    (answer,) = answers(rig, after_s=1)
    assert "nothing has moved for 60 s; to b: 5 bytes are sent, 1000 are left" in str(answer.error)


def test_a_file_moves_on_in_the_queue_while_its_link_carries_others() -> None:
    rig = owner("ab")
    large(rig)
    for _ in range(3):
        assert not answers(rig, after_s=59)
        moved(rig)
    assert answers(rig, after_s=60)


def test_other_lanes_and_links_are_no_progress() -> None:
    rig = owner("ab")
    large(rig)
    rig.now += 59
    moved(rig, Lane.COMMIT)
    moved(rig, Lane.BULK, to="c")
    assert answers(rig, after_s=1)


def test_a_file_that_is_sent_to_its_end_or_refused_does_not_live_on_the_bytes_of_others() -> None:
    sent, refused = owner("ab"), owner("ab")
    data = large(sent)
    moved(sent, Lane.BULK, (data, 1000))
    large(refused)
    name, epoch = data.name, Epoch(1, 1)
    refused.do(ev.RefusalReceived("b", STORE, name, ev.Refusal.STORAGE, epoch, "full", B))
    for rig in (sent, refused):
        rig.now += 59
        moved(rig)
        assert answers(rig, after_s=1)


def test_a_refused_file_of_which_more_bytes_move_than_ever_goes_on() -> None:
    rig = owner("ab")
    data = large(rig)
    moved(rig, Lane.BULK, (data, 500))
    rig.do(ev.RefusalReceived("b", STORE, data.name, ev.Refusal.STORAGE, Epoch(1, 1), "full", B))
    rig.now += 50
    moved(rig, Lane.BULK, (data, 600))
    assert not answers(rig, after_s=50)
    moved(rig, Lane.BULK, (data, 600))
    assert answers(rig, after_s=10)


def test_new_copies_and_what_members_fetch_are_progress() -> None:
    rig = owner("abc", required=3)
    rig.commit(changelog(1), timeout=PATIENCE_S)
    rig.now += 59
    rig.ack(changelog(1), 1, B)
    assert not answers(rig, after_s=59)
    rig.ack(changelog(1), 1, B)  # the same again is none
    rig.do(ev.BytesFetched(GROUP))
    assert not answers(rig, after_s=59)
    rig.ack(changelog(1), 1, B)
    assert answers(rig, after_s=1)


def test_whole_members_get_what_the_owner_has_loaded_from_the_archive() -> None:
    """Nobody has pushed the base of the new version. B catches up, so it fetches the base."""
    rig = owner("abc")
    rig.adopt(group(2, "abc", whole="ac", required=2))
    rig.stored(changelog(1))
    rig.commit(changelog(2))
    rig.ack(changelog(2), 2, B, holds=False)
    rig.ack(changelog(2), 2, C, holds=False)
    rig.now += 1
    offers = only(rig.do(ev.Tick()), ev.OfferFile)
    assert [(offer.to.worker_id, offer.entry.name, offer.chain) for offer in offers] == [("c", changelog(1).name, ())]


# ---------------------------------------------------------------- what was given up


def in_outbox(rig: Rig) -> set[str]:
    """The names that would be offered to b again."""
    for lane in Lane:
        rig.do(ev.PeerDisconnected("b", lane))
    return {offer.entry.name for offer in only(rig.connect("b"), ev.OfferFile)}


def test_what_nobody_waits_for_any_more_leaves_the_outbox_with_the_files_that_only_it_needs() -> None:
    rig = owner("ab")
    shared, own = sst(1), sst(2)
    rig.stored(shared, written=True)
    rig.commit(snapshot(1, shared.name), request=1)
    rig.stored(own, written=True)
    rig.commit(snapshot(2, shared.name, own.name), request=2)
    effects = rig.do(ev.CommitAbandoned(2))
    withdrawn = {(offer.name, offer.stop) for offer in only(effects, ev.WithdrawOffer)}
    assert withdrawn == {(snapshot(2).name, True), (own.name, True)}
    assert in_outbox(rig) == {shared.name, snapshot(1).name}
    assert rig.machine.view.given_up(STORE) == {own.name, snapshot(2).name}


def test_a_commit_that_ended_for_want_of_progress_is_sent_no_more() -> None:
    rig = owner("ab")
    data = large(rig)
    (answer,) = answers(rig, after_s=PATIENCE_S)
    assert isinstance(answer.error, CopiesTimeoutError)
    assert in_outbox(rig) == set()
    assert rig.machine.view.given_up(STORE) == {data.name, snapshot(1).name}


def test_a_commit_for_which_another_caller_waits_goes_on() -> None:
    rig = owner("ab")
    rig.commit(changelog(1), request=1)
    rig.commit(changelog(1), request=2)
    assert not rig.do(ev.CommitAbandoned(1))
    assert in_outbox(rig) == {changelog(1).name}


def test_a_file_of_a_commit_that_succeeded_goes_on_to_the_others() -> None:
    rig = owner("abc")
    rig.commit(changelog(1))
    assert only(rig.ack(changelog(1), 1, B), ev.CompleteCommit)
    assert not rig.do(ev.CommitAbandoned(1))
    rig.do(ev.PeerDisconnected("b", Lane.COMMIT))
    assert {offer.entry.name for offer in only(rig.connect("b"), ev.OfferFile)} == {changelog(1).name}


def test_the_same_commit_again_sends_everything_again() -> None:
    rig = owner("ab")
    data = large(rig)
    rig.do(ev.CommitAbandoned(1))
    rig.commit(snapshot(1, data.name), request=2)
    assert in_outbox(rig) == {data.name, snapshot(1).name}
    assert rig.machine.view.given_up(STORE) == set()


def test_a_later_snapshot_sends_a_file_that_was_given_up_and_that_it_needs() -> None:
    rig = owner("ab")
    data = large(rig)
    rig.do(ev.CommitAbandoned(1))
    rig.commit(snapshot(2, data.name), request=2)
    assert in_outbox(rig) == {data.name, snapshot(2).name}


def test_what_was_given_up_is_not_offered_to_new_members() -> None:
    rig = owner("ab")
    large(rig)
    rig.do(ev.CommitAbandoned(1))
    rig.adopt(group(2, "ac"))
    assert not only(rig.connect("c"), ev.OfferFile)


def test_what_another_member_sends_on_was_not_given_up_after_all() -> None:
    """Seed 4161, factor 2: a member that had the file from here passed it on, to here and then to another one."""
    rig = owner("abc")
    rig.commit(changelog(1))
    rig.do(ev.CommitAbandoned(1))
    assert rig.machine.view.given_up(STORE) == {changelog(1).name}
    sent = ev.BeginReceived("b", 7, changelog(1), Epoch(1, 1), (worker("c"),))
    assert only(rig.do(sent), ev.OfferFile)
    assert rig.machine.view.given_up(STORE) == set()
    rig.machine.check_invariants()


def test_what_another_member_sends_on_under_a_new_epoch_was_not_given_up_either() -> None:
    """Seed 5192, factor 2: the file waited for the epoch."""
    rig = owner("abc")
    rig.commit(changelog(1))
    rig.do(ev.CommitAbandoned(1))
    rig.do(ev.BeginReceived("b", 7, changelog(1), Epoch(1, 2), (worker("c"),)))
    assert only(rig.adopt(group(2, "bac")), ev.OfferFile)
    assert rig.machine.view.given_up(STORE) == set()


def test_what_was_given_up_is_forgotten_with_its_file() -> None:
    rig = owner("ab")
    data = large(rig)
    rig.do(ev.CommitAbandoned(1))
    names = (data.name, snapshot(1).name)
    for name in names:
        rig.catalogue.discard(STORE, name)
    rig.do(ev.FilesRemoved(STORE, names, damaged=False))
    assert rig.machine.view.given_up(STORE) == set()
