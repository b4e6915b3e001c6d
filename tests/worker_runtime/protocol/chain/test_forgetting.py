"""A sidecar's core and a job that was forgotten: the fence holds, nothing of it goes on, others are untouched."""

from __future__ import annotations

from dataclasses import replace

from rhino_core.errors import PreconditionError
from rhino_core.ids import Epoch, GroupId, StoreId
from tests.worker_runtime.scenario import GROUP, changelog, group, sst
from tests.worker_runtime.support.machine import A, B, Rig, only, owner
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.machine import ChainMachine
from worker_runtime.protocol.versions.closure import Catalogue

FENCE = Epoch(1, 50)
FORGET = ev.JobForgotten("job", FENCE)
OTHER = StoreId("other", 0, 0, "default")


def forget(rig: Rig) -> list[ev.Effect]:
    """As the sidecar does it: what DropJob names leaves the catalogue."""
    effects = rig.do(FORGET)
    for drop in only(effects, ev.DropJob):
        for gone in drop.groups:
            rig.catalogue.forget(gone)
    return effects


def test_waiting_commits_are_answered_and_offers_withdrawn_after_the_fence() -> None:
    rig = owner()
    rig.commit(changelog(1), request=7)
    rig.stored(sst(1), written=True)
    effects = forget(rig)
    assert effects[0] == ev.DropJob("job", FENCE, (GROUP,))
    (answer,) = only(effects, ev.CompleteCommit)
    assert answer.request == 7
    assert isinstance(answer.error, PreconditionError)
    assert len(only(effects, ev.WithdrawOffer)) == 2
    assert rig.machine.view.group(GROUP) is None
    assert rig.machine.view.highest_epoch() == FENCE
    assert rig.do(ev.PeerConnected("b", changelog(1).lane)) == []


def test_a_late_writer_is_refused_with_the_fence() -> None:
    rig = Rig(B)
    rig.adopt(group(3, "ab"))
    forget(rig)
    effects = rig.receive(changelog(1), 3)
    assert not only(effects, ev.ReceiveFile)
    (refusal,) = only(effects, ev.SendRefusal)
    assert (refusal.reason, refusal.current_epoch) == (ev.Refusal.STALE_EPOCH, FENCE)
    assert rig.do(ev.GroupAdopted(group(4, "ab"))) == []


def test_the_fence_is_what_counts_after_a_restart() -> None:
    machine = ChainMachine(A, Catalogue(), {}, {"job": FENCE})
    assert machine.view.epoch(GROUP) == FENCE
    assert machine.view.forgotten(GROUP)
    effects = machine.handle(ev.BeginReceived("b", 1, changelog(1), Epoch(1, 49), ()), now=0.0)
    assert not only(effects, ev.ReceiveFile)


def test_a_peers_word_does_not_revive_a_forgotten_job() -> None:
    rig = Rig(B)
    rig.adopt(group(3, "ab"))
    forget(rig)
    effects = rig.receive(changelog(1), FENCE.counter + 1)
    assert not only(effects, ev.ReceiveFile)
    assert only(effects, ev.AskForGroup)
    (refusal,) = only(effects, ev.SendRefusal)
    assert refusal.reason is ev.Refusal.STORAGE, "to be tried again: a manager may have made it anew"
    rig.adopt(group(FENCE.counter + 1, "ab"))
    assert only(rig.receive(changelog(1), FENCE.counter + 1), ev.SendAck)


def test_files_that_were_on_their_way_are_deleted_as_they_come() -> None:
    rig = Rig(B)
    rig.adopt(group(3, "ab"))
    rig.do(ev.BeginReceived("a", 1, changelog(1), Epoch(1, 3), ()))
    forget(rig)
    rig.catalogue.add(changelog(1))
    effects = rig.do(ev.TransferStored(1))
    assert only(effects, ev.DropJob) == [ev.DropJob("job", FENCE, (GROUP,))]
    assert not only(effects, ev.SendAck)
    rig.catalogue.forget(GROUP)
    assert only(rig.stored(sst(1), written=True), ev.DropJob)
    rig.catalogue.forget(GROUP)
    effects = rig.commit(changelog(2))
    assert only(effects, ev.DropJob)
    assert isinstance(only(effects, ev.CompleteCommit)[0].error, PreconditionError)
    assert not only(effects, ev.AskForGroup)


def test_other_jobs_go_on() -> None:
    rig = owner()
    rig.adopt(group(1, "ab", gid=OTHER.group))
    entry = replace(changelog(1), store=OTHER)
    rig.commit(entry)
    forget(rig)
    assert rig.machine.view.group(OTHER.group) is not None
    assert not rig.machine.view.forgotten(OTHER.group)
    assert only(rig.commit(replace(changelog(2), store=OTHER), request=2), ev.OfferFile)


def test_told_again_only_strays_go_and_a_job_made_anew_under_a_later_epoch_stays() -> None:
    """A manager whose journal was lost does not know that the job was forgotten."""
    rig = Rig(A)
    forget(rig)
    assert forget(rig) == []
    rig.catalogue.add(sst(2))
    assert only(forget(rig), ev.DropJob) == [ev.DropJob("job", FENCE, (GROUP,))]
    anew = replace(group(1, "a"), epoch=Epoch(2, 1))
    rig.adopt(anew)
    rig.stored(sst(1), written=True)
    assert forget(rig) == []
    assert rig.machine.view.group(GROUP) == anew
    assert rig.machine.view.forgotten(GroupId("job", 9, 9))
