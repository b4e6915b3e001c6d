"""What the simulator has found, as the shortest sequence of events that shows it."""

from __future__ import annotations

from rhino.ids import Epoch, FileEntry, Member, ReplicaGroup, StoreId, Version, Worker
from worker_runtime.core import events as ev
from worker_runtime.core.chain import ChainMachine
from worker_runtime.core.closure import Catalogue

STORE = StoreId("job", 0, 0, "default")
WORKERS = {name: Worker(name, f"{name}/1", name, f"{name}:1") for name in "abc"}


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
