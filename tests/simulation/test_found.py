"""Bugs that the simulator has found, each as the shortest sequence of events that shows it."""

from __future__ import annotations

import pytest

from rhino_core.ids import Epoch, FileEntry, Lane, Member, ReplicaGroup, StoreId, Version, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.machine import ChainMachine
from worker_runtime.protocol.versions.closure import Catalogue

STORE = StoreId("job", 0, 0, "default")
SST = "SSTs/1-a.sst"
WORKERS = {name: Worker(name, f"{name}/1", name, f"{name}:1") for name in "abcd"}


def group(counter: int, names: str) -> ReplicaGroup:
    members = tuple(Member(WORKERS[name], whole=True) for name in names)
    return ReplicaGroup(STORE.group, Epoch(1, counter), members, required_copies=2)


def changelog(number: int, lineage: tuple[Version, ...] = ()) -> FileEntry:
    return FileEntry(STORE, f"{number}_x.changelog", 10, number, lineage=lineage)


def test_what_becomes_complete_is_not_acknowledged_under_an_epoch_that_has_passed() -> None:
    """Seeds 14, 27, 36, 37: the version was incomplete under epoch 1 and is complete under epoch 2."""
    catalogue, second = Catalogue(), changelog(2, (Version(1, "x"),))
    machine = ChainMachine(WORKERS["b"], catalogue, {})
    machine.handle(ev.GroupAdopted(group(1, "ab")), now=0.0)
    machine.handle(ev.BeginReceived("a", 1, second, Epoch(1, 1), ()), now=0.0)
    catalogue.add(second)
    machine.handle(ev.TransferStored(1), now=0.0)
    machine.handle(ev.GroupAdopted(group(2, "bc")), now=0.0)
    catalogue.add(changelog(1))
    effects = machine.handle(ev.FileStored(changelog(1), written=False), now=0.0)
    assert not [effect for effect in effects if isinstance(effect, ev.SendAck) and effect.epoch < Epoch(1, 2)]


def test_what_is_owed_below_the_floor_may_be_collected() -> None:
    """Seed 39, factor 2: a member that has collected the lineage never comes to hold the version."""
    catalogue, second = Catalogue(), changelog(2, (Version(1, "x"),))
    catalogue.add(second)
    machine = ChainMachine(WORKERS["a"], catalogue, {})
    machine.handle(ev.GroupAdopted(group(1, "abc")), now=0.0)
    catalogue.add(changelog(1))
    machine.handle(ev.CommitRequested(1, second, patience_s=3.0), now=0.0)
    assert machine.view.names_in_use(STORE, Version(3, "x")) == {second.name}, "somebody waits"
    ack = ev.AckReceived("c", STORE, second.name, Epoch(1, 1), WORKERS["c"], holds=True)
    assert ev.CompleteCommit(1, 2, Epoch(1, 1)) in machine.handle(ack, now=0.0)
    assert machine.view.names_in_use(STORE, Version(2, "x")) == {second.name}, "b may still come to hold it"
    assert machine.view.names_in_use(STORE, Version(3, "x")) == set()


def test_two_that_have_sent_each_other_a_file_do_not_pass_an_ack_to_and_fro_for_ever() -> None:
    """Seed 152: b and c each forward what they hear of b to the other."""
    machines, on_the_way = {}, []
    entry = changelog(2, (Version(1, "x"),))
    for name in "bc":
        catalogue = Catalogue()
        catalogue.add(entry)
        machines[name] = ChainMachine(WORKERS[name], catalogue, {})
        machines[name].handle(ev.GroupAdopted(group(1, "abc")), now=0.0)
    for name, other in ("bc", "cb"):
        begin = ev.BeginReceived(other, 1, entry, Epoch(1, 1), ())
        on_the_way += [(name, effect) for effect in machines[name].handle(begin, now=0.0)]
    for _ in range(20):
        acks = [(sender, ack) for sender, ack in on_the_way if isinstance(ack, ev.SendAck)]
        on_the_way = []
        for sender, ack in acks:
            event = ev.AckReceived(sender, ack.store, ack.name, ack.epoch, ack.member, ack.holds)
            on_the_way += [(ack.upstream, effect) for effect in machines[ack.upstream].handle(event, now=0.0)]
    assert not on_the_way


def test_a_worker_that_is_no_member_asks_for_no_tick_that_it_ignores() -> None:
    """Seed 220: an incomplete version on a worker that has left the group; its deadline never passed."""
    catalogue, second = Catalogue(), changelog(2, (Version(1, "x"),))
    machine = ChainMachine(WORKERS["c"], catalogue, {})
    machine.handle(ev.GroupAdopted(group(1, "abc")), now=0.0)
    machine.handle(ev.BeginReceived("a", 1, second, Epoch(1, 1), ()), now=0.0)
    catalogue.add(second)
    machine.handle(ev.TransferStored(1), now=0.0)
    assert machine.next_deadline() is None, "its catch-up is running"
    machine.handle(ev.CatchUpFinished(STORE.group, Epoch(1, 1)), now=0.0)
    assert machine.next_deadline() is not None
    machine.handle(ev.GroupAdopted(group(2, "ab")), now=0.0)
    assert machine.next_deadline() is None


def test_a_snapshot_that_others_hold_is_not_shown_while_a_file_of_it_is_missing_here() -> None:
    """Seed 19: a data file was damaged while the zip's commit waited."""
    catalogue = Catalogue()
    zip_ = FileEntry(STORE, "1_x.zip", 10, 1, references=("SSTs/1-a.sst",))
    catalogue.add(zip_)
    members = tuple(Member(WORKERS[name], whole=True) for name in "ab")
    machine = ChainMachine(WORKERS["a"], catalogue, {})
    machine.handle(ev.GroupAdopted(ReplicaGroup(STORE.group, Epoch(1, 1), members, required_copies=1)), now=0.0)
    machine.handle(ev.CommitRequested(1, zip_, patience_s=3.0), now=0.0)
    ack = ev.AckReceived("b", STORE, zip_.name, Epoch(1, 1), WORKERS["b"], holds=True)
    effects = machine.handle(ack, now=0.0)
    assert [type(effect) for effect in effects] == [ev.CompleteCommit]


def test_who_was_forwarding_a_file_that_is_damaged_asks_for_it_again() -> None:
    """Seed 200, factor 2: the writer waited for the ack of a member that nobody offered the file to any more."""
    catalogue, first = Catalogue(), changelog(1)
    machine = ChainMachine(WORKERS["b"], catalogue, {})
    machine.handle(ev.GroupAdopted(group(1, "abc")), now=0.0)
    machine.handle(ev.BeginReceived("a", 1, first, Epoch(1, 1), (WORKERS["c"],)), now=0.0)
    catalogue.add(first)
    machine.handle(ev.TransferStored(1), now=0.0)
    catalogue.discard(STORE, first.name)
    effects = machine.handle(ev.FilesRemoved(STORE, (first.name,), damaged=True), now=0.0)
    assert [(e.upstream, e.reason) for e in effects if isinstance(e, ev.SendRefusal)] == [("a", ev.Refusal.CHECKSUM)]


@pytest.mark.parametrize("members", ["ab", "abc"])
def test_a_worker_pushes_what_whole_members_lack(members: str) -> None:
    """Seeds 166, with drains, and 9159: c had left; a and b had collected files that a late snapshot of c named, and
    with it all that c wrote afterwards could not be opened by them."""
    catalogue = Catalogue()
    for entry in (FileEntry(STORE, SST, 10, 7), FileEntry(STORE, "1_x.zip", 10, 1, references=(SST,))):
        catalogue.add(entry)
    second = changelog(2, (Version(1, "x"),))
    catalogue.add(second)
    machine = ChainMachine(WORKERS["c"], catalogue, {})
    machine.handle(ev.GroupAdopted(group(1, members)), now=0.0)
    for lane in Lane:
        machine.handle(ev.PeerConnected("a", lane), now=0.0)
    machine.handle(ev.CommitRequested(1, second, patience_s=3.0), now=0.0)
    machine.handle(ev.AckReceived("a", STORE, second.name, Epoch(1, 1), WORKERS["a"], holds=False), now=0.0)
    effects = machine.handle(ev.Tick(), now=1.0)
    assert {(e.to.worker_id, e.entry.name) for e in effects if isinstance(e, ev.OfferFile)} == {
        ("a", name) for name in (SST, "1_x.zip")
    }
    assert [type(e) for e in machine.handle(ev.Tick(), now=3.0)] == [ev.CompleteCommit, ev.WithdrawOffer]
    machine.check_invariants()


def test_two_that_count_on_each_other_for_a_third_offer_it_the_file() -> None:
    """Seeds 179 and 247, factor 2: a and b owed the file to each other and to c, and c was offered it by nobody."""
    catalogue, first = Catalogue(), changelog(1)
    catalogue.add(first)
    machine = ChainMachine(WORKERS["a"], catalogue, {})
    machine.handle(ev.GroupAdopted(group(1, "abc")), now=0.0)
    machine.handle(ev.PeerConnected("b", Lane.COMMIT), now=0.0)
    machine.handle(ev.PeerConnected("c", Lane.COMMIT), now=0.0)
    effects = machine.handle(ev.CommitRequested(1, first, patience_s=3.0), now=0.0)
    assert [e.to.worker_id for e in effects if isinstance(e, ev.OfferFile)] == ["b"]
    begin = ev.BeginReceived("b", 1, first, Epoch(1, 1), (WORKERS["c"],))
    effects = machine.handle(begin, now=0.0)
    offers = [(e.to.worker_id, [w.worker_id for w in e.chain]) for e in effects if isinstance(e, ev.OfferFile)]
    assert offers == [("c", ["b"])]
    machine.check_invariants()


def test_a_waiting_file_that_was_damaged_is_not_offered_before_it_is_back() -> None:
    """Seed 245, factor 2."""
    catalogue, first = Catalogue(), changelog(1)
    catalogue.add(first)
    machine = ChainMachine(WORKERS["a"], catalogue, {})
    machine.handle(ev.GroupAdopted(group(1, "ab")), now=0.0)
    machine.handle(ev.CommitRequested(1, first, patience_s=3.0), now=0.0)
    catalogue.discard(STORE, first.name)
    machine.handle(ev.FilesRemoved(STORE, (first.name,), damaged=True), now=0.0)
    machine.handle(ev.GroupAdopted(group(2, "abc")), now=0.0)
    machine.check_invariants()
    catalogue.add(first)
    effects = machine.handle(ev.FileStored(first, written=False), now=0.0)
    assert ev.Connect(WORKERS["b"], Lane.COMMIT) in effects


@pytest.mark.parametrize("answered_first", [True, False])
def test_three_that_count_on_each_other_for_a_fourth_offer_it_the_file(answered_first: bool) -> None:
    """Seed 164, factor 2, with drains: a counted on c for b, c on d, and d on a; what they owed b stayed for ever."""
    catalogue, first = Catalogue(), changelog(1)
    catalogue.add(first)
    machine = ChainMachine(WORKERS["c"], catalogue, {})
    machine.handle(ev.GroupAdopted(group(1, "dacb")), now=0.0)
    for name in "db":
        machine.handle(ev.PeerConnected(name, Lane.COMMIT), now=0.0)
    machine.handle(ev.CommitRequested(1, first, patience_s=3.0), now=0.0)
    ack = ev.AckReceived("d", STORE, first.name, Epoch(1, 1), WORKERS["d"], holds=True)
    begin = ev.BeginReceived("a", 1, first, Epoch(1, 1), (WORKERS["b"],))
    events: list[ev.Event] = [ack, begin] if answered_first else [begin, ack]
    effects = [effect for event in events for effect in machine.handle(event, now=0.0)]
    assert [e.to.worker_id for e in effects if isinstance(e, ev.OfferFile)] == ["b"]
    machine.check_invariants()


def test_who_has_sent_the_file_is_asked_for_its_word_in_the_end() -> None:
    """Seed 87, factor 3: a withdrew its offer to b, which had sent it, offered it to c, and waited for b."""
    catalogue, first = Catalogue(), changelog(1)
    catalogue.add(first)
    machine = ChainMachine(WORKERS["a"], catalogue, {})
    machine.handle(ev.GroupAdopted(group(1, "abc")), now=0.0)
    for name in "bc":
        machine.handle(ev.PeerConnected(name, Lane.COMMIT), now=0.0)
    machine.handle(ev.CommitRequested(1, first, patience_s=3.0), now=0.0)
    effects = machine.handle(ev.BeginReceived("b", 1, first, Epoch(1, 1), (WORKERS["c"],)), now=0.0)
    assert {type(e): e.to for e in effects if isinstance(e, ev.WithdrawOffer | ev.OfferFile)} == {
        ev.WithdrawOffer: "b",
        ev.OfferFile: WORKERS["c"],
    }
    effects = machine.handle(ev.AckReceived("c", STORE, first.name, Epoch(1, 1), WORKERS["c"], holds=True), now=0.0)
    assert [e.to.worker_id for e in effects if isinstance(e, ev.OfferFile)] == ["b"]


def test_what_arrives_from_before_a_forgetting_goes_although_the_group_exists_again() -> None:
    """Seed 41157, factor 2: the manager lost the forgetting with its journal, and a slow file came to stay."""
    catalogue, first = Catalogue(), changelog(1)
    machine = ChainMachine(WORKERS["b"], catalogue, {})
    machine.handle(ev.GroupAdopted(group(1, "ab")), now=0.0)
    machine.handle(ev.BeginReceived("a", 1, first, Epoch(1, 1), ()), now=0.0)
    machine.handle(ev.JobForgotten("job", Epoch(1, 2)), now=0.0)
    machine.handle(ev.GroupAdopted(group(3, "ab")), now=0.0)
    catalogue.add(first)
    effects = machine.handle(ev.TransferStored(1), now=0.0)
    assert [type(effect) for effect in effects] == [ev.DropFile, ev.SendRefusal]
