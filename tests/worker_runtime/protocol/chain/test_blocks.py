"""Block-centric placement (the baseline): which member keeps which file, and that a commit counts every block."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from rhino_core.ids import BelowMinCopies, FileEntry, JobSettings, Placement, ReplicaGroup, Worker
from tests.worker_runtime.scenario import changelog, group, snapshot, sst, worker
from tests.worker_runtime.support.machine import Rig, only
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.blocks import SPREAD_BLOCKS
from worker_runtime.protocol.chain.copy_policy import policy_of
from worker_runtime.protocol.versions.closure import StoreCatalogue

A, B, C, D = (worker(name) for name in "abcd")
READY = ev.CompleteCommit


def spread(
    epoch: int,
    members: str,
    *,
    whole: str | None = None,
    required: int = 2,
    below: BelowMinCopies = BelowMinCopies.DEGRADED,
) -> ReplicaGroup:
    settings = JobSettings(len(members) - 1, min(2, len(members)), below, placement=Placement.BLOCK)
    return replace(group(epoch, members, whole=whole, required=required), settings=settings)


def writer(members: str = "abcd", **options: object) -> Rig:
    rig = Rig(A)
    rig.adopt(spread(1, members, **options))  # type: ignore[arg-type]
    rig.connect("b", "c", "d")
    return rig


def keepers(entry: FileEntry, of: ReplicaGroup) -> tuple[Worker, ...]:
    return policy_of(of).recipients(entry, of)


def other_keeper(number: int, members: str = "abcd") -> Worker:
    return next(w for w in keepers(sst(number), spread(1, members)) if w != A)


def test_the_first_copy_stays_with_the_writer_and_the_others_are_spread() -> None:
    found = Counter[str]()
    for number in range(300):
        kept = keepers(sst(number), spread(1, "bacd"))
        assert kept[0] == A
        assert len(kept) == 2
        found[kept[1].worker_id] += 1
    assert found.keys() == {"b", "c", "d"}
    assert min(found.values()) > 60


def test_every_member_comes_to_the_same_answer_whatever_their_order_and_wholeness() -> None:
    for number in range(50):
        entry = sst(number)
        assert set(keepers(entry, spread(1, "abcd"))) == set(keepers(entry, spread(9, "dcba", whole="b")))
        assert len(set(keepers(entry, spread(1, "bcd")))) == 2  # the writer is gone: others have all copies


def test_state_centric_groups_keep_everything_everywhere() -> None:
    assert keepers(sst(1), group(1, "abc")) == (A, B, C)


def test_a_block_goes_to_its_keepers_only_and_they_acknowledge_it_without_its_closure() -> None:
    rig = writer()
    (offer,) = only(rig.stored(sst(5), written=True), ev.OfferFile)
    assert (offer.to, offer.chain) == (other_keeper(5), ())
    receiver = Rig(B)
    receiver.adopt(spread(1, "abcd"))
    (ack,) = only(receiver.receive(changelog(7), 1), ev.SendAck)
    assert ack.holds


def test_a_block_that_came_before_its_group_is_acknowledged_once_the_group_is_known() -> None:
    receiver = Rig(B)
    assert not only(receiver.receive(changelog(7), 1), ev.SendAck)
    (ack,) = only(receiver.adopt(spread(1, "abcd")), ev.SendAck)
    assert ack.holds


def test_a_snapshot_waits_for_the_copies_of_its_blocks() -> None:
    rig = writer()
    rig.stored(sst(1), written=True)
    rig.stored(sst(2), written=True)
    zip_ = snapshot(3, sst(1).name, sst(2).name)
    rig.commit(zip_)
    keeper = next(w for w in keepers(zip_, spread(1, "abcd")) if w != A)
    assert not only(rig.ack(zip_, 1, keeper), READY)
    assert not only(rig.ack(sst(1), 1, other_keeper(1)), READY)
    assert only(rig.ack(sst(2), 1, other_keeper(2)), READY) == [READY(1, 2, spread(1, "ab").epoch)]


def test_a_changelog_waits_for_the_blocks_of_a_snapshot_that_it_rests_on() -> None:
    """The commit of that snapshot has not returned yet."""
    rig = writer()
    rig.stored(sst(1), written=True)
    rig.stored(snapshot(3, sst(1).name), written=True)
    entry = changelog(4, since=3)
    rig.commit(entry)
    for block in (snapshot(3, sst(1).name), entry):
        keeper = next(w for w in keepers(block, spread(1, "abcd")) if w != A)
        assert not only(rig.ack(block, 1, keeper), READY)
    assert only(rig.ack(sst(1), 1, other_keeper(1)), READY)


def test_while_a_member_is_not_whole_only_one_copy_is_sure() -> None:
    """An older block may be on its way to that member still."""
    entry = changelog(1)
    rig = writer(whole="abc")
    keeper = next(w for w in keepers(entry, spread(1, "abcd")) if w != A)
    rig.commit(entry)
    (done,) = only(rig.ack(entry, 1, keeper), READY)
    assert done.copies == 1
    rig = writer(whole="abc", below=BelowMinCopies.BLOCK)
    rig.commit(entry)
    assert not only(rig.ack(entry, 1, keeper), READY)
    rig.adopt(spread(2, "abcd", below=BelowMinCopies.BLOCK))
    (done,) = only(rig.ack(entry, 2, keeper), READY)
    assert done.copies == 2


def test_acks_of_a_former_epoch_do_not_count_once_a_group_that_was_left_is_known_again() -> None:
    """Files are looked at anew when the placement becomes known, before they are offered under the new epoch."""
    rig, entry = writer(whole="abc", below=BelowMinCopies.BLOCK), changelog(1)
    keeper = next(w for w in keepers(entry, spread(1, "abcd")) if w != A)
    rig.commit(entry)
    assert not only(rig.ack(entry, 1, keeper), READY)
    rig.do(ev.GroupLeft(entry.store.group))
    assert not only(rig.adopt(spread(2, "abcd", below=BelowMinCopies.BLOCK)), READY)
    (done,) = only(rig.ack(entry, 2, keeper), READY)
    assert done.copies == 2


def test_a_guest_has_its_blocks_kept_by_members() -> None:
    rig = writer("bcd")
    entry = changelog(1)
    first, second = keepers(entry, spread(1, "bcd"))
    (offer,) = only(rig.commit(entry), ev.OfferFile)
    assert (offer.to, *offer.chain) == (first, second)
    assert not only(rig.ack(entry, 1, first), READY)
    assert only(rig.ack(entry, 1, second), READY)


@pytest.mark.parametrize("me", [B, C, D])
def test_when_the_writer_is_lost_catch_up_asks_for_what_is_now_kept_here(me: Worker) -> None:
    entries = [sst(number) for number in range(40)]
    after = spread(2, "bcd")
    wanted = SPREAD_BLOCKS.missing(me, StoreCatalogue(entries[:10]), entries, after, None)
    assert wanted == sorted((e for e in entries[10:] if me in keepers(e, after)), key=lambda e: e.name)
    assert SPREAD_BLOCKS.missing(me, StoreCatalogue(entries), entries, after, None) == []
