"""What a sidecar still owes to others: files that not every member of their chain is known to hold.

A file stays here until all have acknowledged that they hold it; so a lost frame, a broken link or a restarted
neighbour costs one more offer, never a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rhino.ids import Epoch, FileEntry, GroupId, Lane, StoreId, Worker
from worker_runtime.core import events as ev
from worker_runtime.core.membership import life

RETRY_S = 1.0  # a member that could not take a file is offered it again after this time


class FileKey(NamedTuple):
    store: StoreId
    name: str


def key_of(entry: FileEntry) -> FileKey:
    return FileKey(entry.store, entry.name)


@dataclass(slots=True)
class Outgoing:
    """One file on its way down `chain`. `held`: lives of the members that have acknowledged under `epoch`.

    `stored`: of these, and of those that have the file but not the whole version. `tried`: ids of the members that it
    has been offered to directly. `crossed`: the file has come from others as well since it was offered, and they count
    on this worker for members for which this one counts on the first of the chain.
    """

    entry: FileEntry
    epoch: Epoch
    chain: tuple[Worker, ...]
    held: set[tuple[str, str]] = field(default_factory=set)
    stored: set[tuple[str, str]] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)
    crossed: bool = False

    @property
    def to(self) -> Worker:
        return self.chain[0]

    def done(self) -> bool:
        return all(life(worker) in self.held for worker in self.chain)


class Outbox:
    """All outgoing files of a worker, and the links over which they may be offered right now."""

    def __init__(self) -> None:
        self._files: dict[FileKey, Outgoing] = {}
        self._links: set[tuple[str, Lane]] = set()
        self._retries: dict[FileKey, float] = {}  # when a file is to be offered again

    def get(self, key: FileKey) -> Outgoing | None:
        return self._files.get(key)

    def __contains__(self, key: object) -> bool:
        return key in self._files

    def of_group(self, group: GroupId) -> list[FileKey]:
        return [key for key in self._files if key.store.group == group]

    def of_store(self, store: StoreId) -> list[FileKey]:
        return [key for key in self._files if key.store == store]

    def values(self) -> Iterator[Outgoing]:
        return iter(self._files.values())

    def owed_bytes(self) -> int:
        """Bytes of files that members have not stored yet, once for each such member."""
        return sum(out.entry.size_bytes * sum(life(w) not in out.stored for w in out.chain) for out in self.values())

    def offer(self, entry: FileEntry, epoch: Epoch, chain: tuple[Worker, ...]) -> list[ev.Effect]:
        """Owes `entry` to every member of `chain`, and offers it to the first. Replaces what was owed of this file."""
        key = key_of(entry)
        former = self._files.pop(key, None)
        effects: list[ev.Effect] = []
        if former is not None and (not chain or former.to.worker_id != chain[0].worker_id):
            effects.append(self._withdraw(former))
        if chain:
            out = self._files[key] = Outgoing(entry, epoch, chain)
            effects += self._send(out)
        return effects

    def extend(self, out: Outgoing, chain: tuple[Worker, ...], upstreams: Collection[str]) -> list[ev.Effect]:
        """The file has come from one of `upstreams`, which counts on this worker for `chain`: owes it to these, too."""
        mine = {life(worker) for worker in out.chain}
        out.chain += tuple(worker for worker in chain if life(worker) not in mine)
        out.crossed = True
        grown = len(out.chain) > len(mine)
        return self.go_round(out, upstreams) or (self._send(out) if grown else [])

    def go_round(self, out: Outgoing, upstreams: Collection[str]) -> list[ev.Effect]:
        """Two or more that have sent each other the file may count on each other, and nobody offers it to the rest: so
        once the first of the chain has it, the next that has not been offered it directly comes first."""
        has_it = out.to.worker_id in upstreams or life(out.to) in out.stored
        untried = [w for w in out.chain if w.worker_id not in out.tried and life(w) not in out.stored]
        if not out.crossed or not has_it or not untried:
            return []
        effects: list[ev.Effect] = [self._withdraw(out)]
        if life(out.to) not in out.stored:
            out.tried.discard(out.to.worker_id)  # the offer may have been taken back in time
        first = min(untried, key=lambda w: w.worker_id in upstreams)  # these have it, but their word is still due
        out.chain = (first, *(worker for worker in out.chain if worker != first))
        return effects + self._send(out)

    def drop(self, key: FileKey) -> list[ev.Effect]:
        """Owes this file to nobody any more."""
        out = self._files.pop(key, None)
        return [self._withdraw(out)] if out is not None else []

    def settle(self, key: FileKey) -> None:
        """Forgets the file if all members of its chain hold it."""
        out = self._files.get(key)
        if out is not None and out.done():
            del self._files[key]

    def readdress(self, group: GroupId, workers: dict[str, Worker]) -> list[ev.Effect]:
        """Members have new addresses, the chains stay as they are."""
        effects: list[ev.Effect] = []
        for key, out in self._files.items():
            chain = tuple(workers.get(worker.worker_id, worker) for worker in out.chain)
            if key.store.group == group and chain != out.chain:
                out.chain = chain
                effects.append(ev.Connect(out.to, out.entry.lane))
        return effects

    def connected(self, worker_id: str, lane: Lane) -> list[ev.Effect]:
        """A link is open with nothing queued on it: everything owed over it is offered."""
        self._links.add((worker_id, lane))
        effects: list[ev.Effect] = []
        for out in self._files.values():
            if out.to.worker_id == worker_id and out.entry.lane is lane:
                effects += self._send(out)
        return effects

    def disconnected(self, worker_id: str, lane: Lane) -> None:
        self._links.discard((worker_id, lane))

    def retry_later(self, key: FileKey, now: float) -> None:
        """The first of the chain could not take the file now."""
        self._retries[key] = now + RETRY_S

    def next_retry(self) -> float | None:
        return min(self._retries.values(), default=None)

    def retry(self, now: float) -> list[ev.Effect]:
        """Offers again what a member could not take a while ago."""
        effects: list[ev.Effect] = []
        for key in [key for key, at in self._retries.items() if at <= now]:
            del self._retries[key]
            if (out := self._files.get(key)) is not None:
                effects += self._send(out)
        return effects

    def _send(self, out: Outgoing) -> list[ev.Effect]:
        lane = out.entry.lane
        out.tried.add(out.to.worker_id)
        if (out.to.worker_id, lane) not in self._links:
            return [ev.Connect(out.to, lane)]
        return [ev.OfferFile(out.to, out.entry, out.epoch, out.chain[1:], lane)]

    def _withdraw(self, out: Outgoing) -> ev.WithdrawOffer:
        return ev.WithdrawOffer(out.to.worker_id, out.entry.store, out.entry.name, out.entry.lane)
