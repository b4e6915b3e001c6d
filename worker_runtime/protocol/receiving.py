"""Accepts, acknowledges and forwards files that come down a chain, or refuses them (Rhino 4.2.2, phase 2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from rhino_core.errors import LocalProtocolError
from rhino_core.ids import Epoch, FileEntry, GroupId, ReplicaGroup, StoreId, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.closure import Catalogue
from worker_runtime.protocol.groups import Groups
from worker_runtime.protocol.incomplete import IncompleteVersions
from worker_runtime.protocol.keys import FileKey, Incarnation, incarnation_of, key_of, lane_of
from worker_runtime.protocol.outbox import Outbox
from worker_runtime.protocol.parked import Parked


@dataclass(slots=True)
class Waiting:
    """One sender of a file. `sent`: the acks that it has received since its newest Begin, which had `epoch`."""

    epoch: Epoch
    sent: set[tuple[Incarnation, bool]] = field(default_factory=set)


class Upstreams:
    """The workers that have sent each file.

    Each sender gets one ack about each member. Otherwise two workers that have sent each other the file (an old head
    and a new one) would exchange the same ack for ever.
    """

    def __init__(self) -> None:
        self._waiting: dict[FileKey, dict[str, Waiting]] = {}

    def add(self, begin: ev.BeginReceived) -> None:
        self._waiting.setdefault(key_of(begin.entry), {})[begin.upstream] = Waiting(begin.epoch)

    def of(self, key: FileKey) -> set[str]:
        return set(self._waiting.get(key, ()))

    def acknowledge(self, key: FileKey, member: Worker, *, holds: bool, epoch: Epoch) -> list[ev.Effect]:
        """Acks about `member` to the workers that sent this file under `epoch` and have not received this ack yet."""
        effects: list[ev.Effect] = []
        for upstream, waiting in self._waiting.get(key, {}).items():
            ack = (incarnation_of(member), holds)
            if waiting.epoch == epoch and ack not in waiting.sent:
                waiting.sent.add(ack)
                effects.append(ev.SendAck(upstream, key.store, key.name, epoch, member, holds, lane_of(key.name)))
        return effects

    def forget(self, key: FileKey) -> None:
        self._waiting.pop(key, None)

    def forget_group(self, group: GroupId) -> None:
        self._waiting = {key: waiting for key, waiting in self._waiting.items() if key.store.group != group}

    def check_invariants(self) -> None:
        assert all(self._waiting.values()), "a file without upstreams is kept"


class Receiving:
    """This worker as the downstream of others: transfers, and the `upstreams` that wait for acks."""

    def __init__(self, me: Worker, catalogue: Catalogue, groups: Groups, outbox: Outbox) -> None:
        self._me = me
        self._catalogue = catalogue
        self._groups = groups
        self._outbox = outbox
        self._transfers: dict[int, ev.BeginReceived] = {}  # accepted, and not here yet
        self._parked = Parked()
        self.upstreams = Upstreams()
        self._incomplete = IncompleteVersions()

    def check_invariants(self) -> None:
        assert all(number == begin.transfer for number, begin in self._transfers.items()), "a transfer is misfiled"
        self._parked.check_invariants()
        self.upstreams.check_invariants()
        self._incomplete.check_invariants()

    # ------------------------------------------------------------ transfers

    def begin(self, event: ev.BeginReceived, now: float) -> list[ev.Effect]:
        key, group = key_of(event.entry), event.entry.store.group
        known = self._groups.epoch(group)
        if event.epoch < known:
            return [ev.DiscardTransfer(event.transfer), self._stale(event)]
        ahead = event.epoch > known
        effects: list[ev.Effect] = [ev.AskForGroup(group)] if ahead else []
        # Files of the job are deleted on arrival until the manager creates the group again.
        if ahead and self._groups.forgotten(group):
            return [*effects, ev.DiscardTransfer(event.transfer), self._job_forgotten(event)]
        here = self._catalogue.get(*key)
        if here is None:
            self._transfers[event.transfer] = event
            return [*effects, ev.ReceiveFile(event.transfer, event.entry)]
        effects.append(ev.DiscardTransfer(event.transfer))
        if (here.crc32c, here.size_bytes) != (event.entry.crc32c, event.entry.size_bytes):
            return [*effects, self._refusal(event, ev.Refusal.NAME_CONFLICT, f"crc32c {here.crc32c:08x} is here")]
        return effects + self._take(event, now)

    def arrived(self, transfer: int) -> ev.BeginReceived:
        """All bytes of the transfer are here. Raises LocalProtocolError if it was not accepted."""
        begin = self._transfers.pop(transfer, None)
        if begin is None:
            raise LocalProtocolError(f"transfer {transfer} was not accepted")
        return begin

    def stored(self, begin: ev.BeginReceived, now: float) -> list[ev.Effect]:
        """The file of an accepted Begin has arrived: take it, unless its epoch no longer allows that."""
        known = self._groups.epoch(begin.entry.store.group)
        if begin.epoch > known and self._groups.forgotten(begin.entry.store.group):
            return [self._job_forgotten(begin)]
        # The epoch changed during the transfer. Keep the file, but the sender must learn the new membership.
        if begin.epoch < known:
            return [self._stale(begin)]
        return self._take(begin, now)

    def failed(self, event: ev.TransferFailed) -> list[ev.Effect]:
        begin = self._transfers.pop(event.transfer, None)
        if begin is None or event.reason is None:
            return []
        return [self._refusal(begin, event.reason, event.message)]

    def adopted(self, group: ReplicaGroup, now: float) -> list[ev.Effect]:
        """The manager has named the group's epoch: decide its parked files."""
        effects: list[ev.Effect] = []
        for begin in self._parked.take(group):
            if begin.epoch < group.epoch:
                effects.append(self._stale(begin))
            elif self._catalogue.get(*key_of(begin.entry)) is None:
                effects.append(self._refusal(begin, ev.Refusal.CHECKSUM, "damaged or collected after it had come"))
            else:
                effects += self._take(begin, now)
        return effects

    def _take(self, begin: ev.BeginReceived, now: float) -> list[ev.Effect]:
        """The file of an accepted Begin is here: acknowledge the own copy at once, then forward the file.

        Park the file if only a peer has named its epoch. The manager has already been asked, and its answer decides.
        """
        key = key_of(begin.entry)
        if begin.epoch > self._groups.epoch(key.store.group):
            return self._park(begin)
        holds = self._holds(begin.entry)
        self.upstreams.add(begin)
        effects = self.upstreams.acknowledge(key, self._me, holds=holds, epoch=begin.epoch)
        if not holds:
            self._incomplete.add(key)
            self._groups.version_incomplete(key.store.group, now)
        chain = tuple(w for w in begin.chain if w.worker_id != self._me.worker_id)
        out = self._outbox.get(key)
        if out is not None and out.epoch == begin.epoch:
            for worker in (w for w in chain if out.held_by(w)):
                effects += self.upstreams.acknowledge(key, worker, holds=True, epoch=begin.epoch)
            effects += self._outbox.extend(out, chain, self.upstreams.of(key))
        elif chain:
            effects += self._outbox.offer(begin.entry, begin.epoch, chain)
        self.release(key)
        return effects

    def _park(self, begin: ev.BeginReceived) -> list[ev.Effect]:
        evicted = self._parked.add(begin)
        return [self._refusal(one, ev.Refusal.STORAGE, "too many files of unknown epochs") for one in evicted]

    def _holds(self, entry: FileEntry) -> bool:
        return self._groups.policy(entry.store.group).holds(entry, self._catalogue.store(entry.store))

    # ------------------------------------------------------------ what upstreams wait for

    def refuse(self, key: FileKey, reason: ev.Refusal, message: str, member: Worker) -> list[ev.Effect]:
        """Tells the upstreams that `member` does not have the file."""
        current = self._groups.epoch(key.store.group)
        return [
            _refusal(upstream, key, reason, current, message, member) for upstream in sorted(self.upstreams.of(key))
        ]

    def refuse_and_forget(self, key: FileKey, reason: ev.Refusal, message: str, member: Worker) -> list[ev.Effect]:
        """As `refuse`. The upstreams will not send the file again."""
        effects = self.refuse(key, reason, message, member)
        self.upstreams.forget(key)
        return effects

    def acknowledge_again(self, store: StoreId) -> list[ev.Effect]:
        """Acknowledges those versions of the store that were incomplete and that this worker holds now."""
        effects: list[ev.Effect] = []
        for name in self._incomplete.names(store):
            entry = self._catalogue.get(store, name)
            if entry is None or not self._holds(entry):
                continue  # a file that has just been removed cannot become held; FilesRemoved follows
            key = FileKey(store, name)
            self._incomplete.discard(key)
            epoch = self._groups.epoch(store.group)
            effects += self.upstreams.acknowledge(key, self._me, holds=True, epoch=epoch)
            self.release(key)
        return effects

    def release(self, key: FileKey) -> None:
        """Forgets the upstreams of a file once they have all acks: its version is held here and by those behind."""
        if key not in self._outbox and key not in self._incomplete:
            self.upstreams.forget(key)

    def incomplete(self, group: GroupId) -> bool:
        """Whether a version of the group was pushed here and still lacks files."""
        return self._incomplete.any_of(group)

    # ------------------------------------------------------------ files and jobs that go

    def removed(self, key: FileKey) -> None:
        """The file is no longer here."""
        self.upstreams.forget(key)
        self._incomplete.discard(key)

    def forget_group(self, group: GroupId) -> None:
        self.upstreams.forget_group(group)
        self._incomplete.forget_group(group)

    def forget_job(self, job: str) -> None:
        self._parked.forget_job(job)

    # ------------------------------------------------------------ refusals

    def _stale(self, begin: ev.BeginReceived) -> ev.SendRefusal:
        return self._refusal(begin, ev.Refusal.STALE_EPOCH, f"epoch {begin.epoch} is old")

    def _job_forgotten(self, begin: ev.BeginReceived) -> ev.SendRefusal:
        return self._refusal(begin, ev.Refusal.STORAGE, "the job was forgotten here")

    def _refusal(self, begin: ev.BeginReceived, reason: ev.Refusal, message: str) -> ev.SendRefusal:
        key = key_of(begin.entry)
        return _refusal(begin.upstream, key, reason, self._groups.epoch(key.store.group), message, self._me)


def _refusal(
    upstream: str, key: FileKey, reason: ev.Refusal, current: Epoch, message: str, member: Worker
) -> ev.SendRefusal:
    return ev.SendRefusal(upstream, key.store, key.name, reason, current, message, member, lane_of(key.name))
