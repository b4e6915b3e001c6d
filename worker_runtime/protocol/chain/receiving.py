"""Accepts, acknowledges and forwards files that come down a chain, or refuses them (Rhino 4.2.2, phase 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rhino_core.errors import LocalProtocolError
from rhino_core.ids import Epoch, FileEntry, GroupId, ReplicaGroup, StoreId, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.groups import Groups
from worker_runtime.protocol.chain.outbox import Outbox
from worker_runtime.protocol.keys import FileKey, Incarnation, incarnation_of, key_of, lane_of, same_bytes
from worker_runtime.protocol.versions.closure import Catalogue

PARKED_MAX = 4096  # over all groups; the bytes are within the credit of their streams
PARKED_S = 1.0  # then the sender has to try again: a stream of large files stands still meanwhile


@dataclass(frozen=True, slots=True)
class ParkedFile:
    """`until`: monotonic seconds."""

    begin: ev.BeginReceived
    until: float


class Parked:
    """The waiting Begins by transfer, oldest first."""

    def __init__(self) -> None:
        self._files: dict[int, ParkedFile] = {}

    def add(self, begin: ev.BeginReceived, now: float) -> list[ev.BeginReceived]:
        """Returns the evicted entries. Their senders have to try again."""
        self._files[begin.transfer] = ParkedFile(begin, now + PARKED_S)
        return self._pop([next(iter(self._files))]) if len(self._files) > PARKED_MAX else []

    def take(self, wanted: Callable[[ev.BeginReceived], bool]) -> list[ev.BeginReceived]:
        """Removes and returns the wanted entries."""
        return self._pop([number for number, file in self._files.items() if wanted(file.begin)])

    def discard(self, transfer: int) -> None:
        self._files.pop(transfer, None)

    def due(self, now: float) -> list[ev.BeginReceived]:
        """Removes and returns the overdue entries."""
        return self._pop([number for number, file in self._files.items() if file.until <= now])

    def next_deadline(self) -> float | None:
        return next((file.until for file in self._files.values()), None)  # the oldest

    def _pop(self, transfers: list[int]) -> list[ev.BeginReceived]:
        return [self._files.pop(transfer).begin for transfer in transfers]

    def check_invariants(self) -> None:
        assert len(self._files) <= PARKED_MAX, f"{len(self._files)} parked files"
        assert all(number == file.begin.transfer for number, file in self._files.items()), "a parked file is misfiled"


class IncompleteVersions:
    """The pushed file of each such version. It is acknowledged again when its closure is complete."""

    def __init__(self) -> None:
        self._names: dict[StoreId, set[str]] = {}

    def __contains__(self, key: FileKey) -> bool:
        return key.name in self._names.get(key.store, ())

    def names(self, store: StoreId) -> list[str]:
        names = self._names.get(store)
        return sorted(names) if names else []

    def any_of(self, group: GroupId) -> bool:
        return any(store.group == group for store in self._names)

    def add(self, key: FileKey) -> None:
        self._names.setdefault(key.store, set()).add(key.name)

    def discard(self, key: FileKey) -> None:
        names = self._names.get(key.store)
        if names is not None:
            names.discard(key.name)
            if not names:
                del self._names[key.store]

    def forget_group(self, group: GroupId) -> None:
        self._names = {store: names for store, names in self._names.items() if store.group != group}

    def check_invariants(self) -> None:
        assert all(self._names.values()), "a store without incomplete versions is kept"


@dataclass(slots=True)
class Waiting:
    """One sender of a file. `sent`: the acks sent to it since its newest Begin. `epoch`: of this Begin."""

    epoch: Epoch
    sent: set[tuple[Incarnation, bool]] = field(default_factory=set)


class Upstreams:
    """The senders of each file.

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
    """This worker as the downstream of others: transfers, and the `upstreams` waiting for acks."""

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
        """Decides whether the file may come, or asks the manager first: only it names epochs, members and guests."""
        group, writers = event.entry.store.group, self._groups.writers
        known, members = self._groups.epoch(group), writers.members(group)
        if event.epoch < known:
            return [ev.DiscardTransfer(event.transfer), self._stale(event)]
        if event.epoch > known or not members:
            ask = ev.AskForGroup(group)
            if self._groups.forgotten(group):
                return [ask, ev.DiscardTransfer(event.transfer), self._job_forgotten(event)]
            return [ask, *self._park(event, now)]
        if self._me.worker_id not in members:
            return self._reject(event, f"{self._me.worker_id} is no member under epoch {known}")
        if not writers.may_write(group, event.upstream):
            return [ev.AskForWriter(group, event.upstream), *self._park(event, now)]
        return self._accept(event, now)

    def _accept(self, event: ev.BeginReceived, now: float) -> list[ev.Effect]:
        here = self._catalogue.get(*key_of(event.entry))
        if here is None:
            self._transfers[event.transfer] = event
            return [ev.ReceiveFile(event.transfer, event.entry)]
        discard = ev.DiscardTransfer(event.transfer)
        if not same_bytes(here, event.entry):
            return [discard, self._refusal(event, ev.Refusal.NAME_CONFLICT, f"crc32c {here.crc32c:08x} is here")]
        return [discard, *self._take(event, now)]

    def _reject(self, event: ev.BeginReceived, why: str, reason: ev.Refusal = ev.Refusal.STORAGE) -> list[ev.Effect]:
        """Refuses the file for now: the sender tries again, since the manager may change its mind."""
        return [ev.DiscardTransfer(event.transfer), self._refusal(event, reason, why)]

    def _park(self, event: ev.BeginReceived, now: float) -> list[ev.Effect]:
        evicted = self._parked.add(event, now)
        return [effect for one in evicted for effect in self._reject(one, "too many files wait for the manager")]

    def arrived(self, transfer: int) -> ev.BeginReceived:
        """All bytes of the transfer are here. Raises LocalProtocolError if it was not accepted."""
        begin = self._transfers.pop(transfer, None)
        if begin is None:
            raise LocalProtocolError(f"transfer {transfer} was not accepted")
        return begin

    def stored(self, begin: ev.BeginReceived, now: float) -> list[ev.Effect]:
        """The file of an accepted Begin has arrived: take it, unless its epoch no longer allows it."""
        # The epoch changed during the transfer. Keep the file, but the sender must learn the new membership.
        if begin.epoch < self._groups.epoch(begin.entry.store.group):
            return [self._stale(begin)]
        return self._take(begin, now)

    def failed(self, event: ev.TransferFailed) -> list[ev.Effect]:
        self._parked.discard(event.transfer)
        begin = self._transfers.pop(event.transfer, None)
        if begin is None or event.reason is None:
            return []
        return [self._refusal(begin, event.reason, event.message)]

    def adopted(self, group: ReplicaGroup, now: float) -> list[ev.Effect]:
        """The manager has named the group's epoch: decide its parked files."""
        due = self._parked.take(lambda begin: begin.entry.store.group == group.group and begin.epoch <= group.epoch)
        return [effect for begin in due for effect in self.begin(begin, now)]

    def writer_named(self, event: ev.WriterNamed, now: float) -> list[ev.Effect]:
        """The manager has said whether a worker may write a group: decide its parked files."""
        if event.allowed:
            self._groups.writers.allow(event.group, event.worker_id)
        asker = event.worker_id, event.group
        due = self._parked.take(lambda begin: (begin.upstream, begin.entry.store.group) == asker)
        if event.allowed:
            return [effect for begin in due for effect in self.begin(begin, now)]
        why = f"{event.worker_id} is no member, and no executor of the query runs there"
        return [effect for begin in due for effect in self._reject(begin, why, ev.Refusal.NOT_A_WRITER)]

    def tick(self, now: float) -> list[ev.Effect]:
        """Refuses files after too long a wait for the manager."""
        why = "the manager has not named the epoch or the sender"
        return [effect for begin in self._parked.due(now) for effect in self._reject(begin, why)]

    def next_deadline(self) -> float | None:
        return self._parked.next_deadline()

    def _take(self, begin: ev.BeginReceived, now: float) -> list[ev.Effect]:
        """The file of an accepted Begin is here: acknowledge the own copy at once, then forward the file."""
        key = key_of(begin.entry)
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

    def _holds(self, entry: FileEntry) -> bool:
        return self._catalogue.store(entry.store).holds_closure(entry)

    # ------------------------------------------------------------ what upstreams wait for

    def refuse(self, key: FileKey, reason: ev.Refusal, message: str, member: Worker) -> list[ev.Effect]:
        """Tells the upstreams that `member` does not have the file."""
        current = self._groups.epoch(key.store.group)
        return [
            _refusal(upstream, key, reason, current, message, member) for upstream in sorted(self.upstreams.of(key))
        ]

    def acknowledge_again(self, store: StoreId) -> list[ev.Effect]:
        """Acknowledges the store's versions that were incomplete and are held here now."""
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

    def forget_job(self, job: str) -> list[ev.Effect]:
        due = self._parked.take(lambda begin: begin.entry.store.job == job)
        return [effect for begin in due for effect in (ev.DiscardTransfer(begin.transfer), self._job_forgotten(begin))]

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
