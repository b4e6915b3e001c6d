"""Files to push: not every member of their chain is known to hold them.

A file stays here until all members have acknowledged their copies. So a lost frame, a broken link or a restarted
neighbour costs one more offer, never a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rhino_core.ids import Epoch, FileEntry, GroupId, Lane, StoreId, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.outgoing import Outgoing
from worker_runtime.protocol.keys import FileKey, incarnation_of, key_of

RETRY_S = 1.0  # delay before a file is offered again to a member that could not accept it
BYPASS_S = 30.0  # how long a member that made no progress with a file comes last in chains
# Only an unreachable member is bypassed for a larger file, because its transfer takes long anyway.
LARGE_BYTES = 16 * 1024 * 1024


class Outbox:
    """All outgoing files of a worker, and the links over which it may offer them now."""

    def __init__(self) -> None:
        self._files: dict[FileKey, Outgoing] = {}
        self._links: set[tuple[str, Lane]] = set()
        self._retries: dict[FileKey, float] = {}  # time at which each file is offered again
        self._bypassed: dict[str, float] = {}  # members, and until when they come last

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

    def pending_bytes(self) -> int:
        """Bytes of files not stored by members yet, counted once per member."""
        return sum(out.entry.size_bytes * len(out.pending()) for out in self.values())

    def check_invariants(self) -> None:
        for key, out in self._files.items():
            assert key == key_of(out.entry), f"{key} holds {out.entry.name}"
            out.check_invariants()

    # ------------------------------------------------------------ offers

    def offer(self, entry: FileEntry, epoch: Epoch, chain: tuple[Worker, ...]) -> list[ev.Effect]:
        """Pushes `entry` to every member of `chain`: offers it to the first one.

        Recently bypassed members come last. This replaces an earlier offer of the file.
        """
        key = key_of(entry)
        former = self._files.pop(key, None)
        effects: list[ev.Effect] = []
        if self._bypassed:
            chain = tuple(sorted(chain, key=lambda worker: worker.worker_id in self._bypassed))  # stable
        if former is not None:
            asked = [former.to, *(worker for worker in former.pending_directly() if worker != former.to)]
            still = chain[0].worker_id if chain else ""
            effects += [self._withdraw(former, worker) for worker in asked if worker.worker_id != still]
        if chain:
            out = self._files[key] = Outgoing(entry, epoch, chain)
            effects += self._send(out)
        return effects

    def extend(self, out: Outgoing, chain: tuple[Worker, ...], upstreams: Collection[str]) -> list[ev.Effect]:
        """One of `upstreams` sent us the file and relies on this worker to forward it to `chain`: push it to these
        members, too.
        """
        mine = {incarnation_of(worker) for worker in out.chain}
        out.chain += tuple(worker for worker in chain if incarnation_of(worker) not in mine)
        out.received_again = True
        grown = len(out.chain) > len(mine)
        return self.break_forwarding_loop(out, upstreams) or (self._send(out) if grown else [])

    def break_forwarding_loop(self, out: Outgoing, upstreams: Collection[str]) -> list[ev.Effect]:
        """Offers the file to another member if forwarding duties form a loop.

        Workers that have sent each other the file may each rely on the other to forward it. Then nobody offers it to
        the remaining members. Therefore, once the first of the chain has the file, another member becomes the first:
        the next one without a direct offer from this worker.
        """
        if not out.received_again:
            return []
        has_it = out.to.worker_id in upstreams or out.stored_by(out.to)
        others = out.not_offered()
        if not has_it or not others:
            return []
        effects: list[ev.Effect] = [self._withdraw(out, out.to)]
        if not out.stored_by(out.to):
            out.offered.discard(out.to.worker_id)  # the offer may have been withdrawn before it was sent
        # Upstreams have the file, only their acks are due.
        first = min(others, key=lambda worker: worker.worker_id in upstreams)
        out.chain = (first, *(worker for worker in out.chain if worker != first))
        return effects + self._send(out)

    def bypass(self, out: Outgoing, now: float) -> list[ev.Effect]:
        """Bypass the first of the chain, because a caller waits and this member makes no progress.

        The next member without the file becomes the first one, with the others behind it. Members without an offer of
        their own come before the others. The earlier offer stays valid.
        """
        reached = (out.to.worker_id, out.entry.lane) in self._links and out.to.worker_id not in self._bypassed
        if reached and (out.entry.lane is Lane.BULK or out.entry.size_bytes > LARGE_BYTES):
            return []  # the link is just slow: the same bytes would travel twice
        if out.bypassed_at is not None and now - out.bypassed_at < RETRY_S:
            return []  # the member has had no time to store the file; several commits may ask for this
        others = out.chain[1:]
        if reached:
            return self._put_next_first(out, now, [w for w in others if not out.stored_by(w)])
        # The acks of members behind a broken link do not arrive: who has stored the file may hold the version by now.
        unheard = [w for w in others if w.worker_id not in out.offered and not out.held_by(w)]
        return self._put_next_first(out, now, [w for w in others if not out.stored_by(w) or w in unheard])

    def bypass_full(self, out: Outgoing, now: float) -> list[ev.Effect]:
        """The first of the chain has no room: offer the file at once to a member without an offer of its own."""
        return self._put_next_first(out, now, out.not_offered())

    def _put_next_first(self, out: Outgoing, now: float, candidates: list[Worker]) -> list[ev.Effect]:
        if not candidates:
            return []
        former, *others = out.chain
        out.bypassed_at = now
        if not out.stored_by(former):
            self._bypassed[former.worker_id] = now + BYPASS_S
        first = min(candidates, key=lambda worker: worker.worker_id in out.offered)
        out.chain = (first, *(worker for worker in others if worker != first), former)
        return self._send(out)

    def drop(self, key: FileKey, *, stop: bool = False) -> list[ev.Effect]:
        """Pushes this file to nobody any more. `stop`: not even to its end if it is under way."""
        out = self._files.pop(key, None)
        if out is None:
            return []
        return [self._withdraw(out, w, stop=stop) for w in out.chain if w == out.to or w in out.pending_directly()]

    def settle(self, key: FileKey) -> bool:
        """Forgets the file if all members of its chain hold it. Returns whether it is not here (any more)."""
        out = self._files.get(key)
        if out is None:
            return True
        if not out.done():
            return False
        del self._files[key]
        return True

    # ------------------------------------------------------------ links and time

    def change_addresses(self, group: GroupId, workers: dict[str, Worker]) -> list[ev.Effect]:
        """Members have new addresses. The chains stay as they are."""
        effects: list[ev.Effect] = []
        for key, out in self._files.items():
            chain = tuple(workers.get(worker.worker_id, worker) for worker in out.chain)
            if key.store.group == group and chain != out.chain:
                out.chain = chain
                effects += [ev.Connect(w, out.entry.lane) for w in chain if w == out.to or w in out.pending_directly()]
        return effects

    def link_moved(self, event: ev.BytesSent) -> set[StoreId]:
        """Bytes have gone to a member. Returns the stores with files nearer to their end."""
        sent = {FileKey(store, name): count for store, name, count in event.files}
        return {
            key.store
            for key, out in self._files.items()
            if out.entry.lane is event.lane
            and any(worker.worker_id == event.to for worker in out.pending_directly())
            and out.link_moved(event.to, sent.get(key))
        }

    def left(self, store: StoreId) -> dict[str, tuple[int, int]]:
        """Bytes of the store's files by member, sent and remaining."""
        found: dict[str, tuple[int, int]] = {}
        for key in self.of_store(store):
            out = self._files[key]
            for worker in out.chain:
                if worker.worker_id not in out.offered:
                    continue
                size, (done, left) = out.entry.size_bytes, found.get(worker.worker_id, (0, 0))
                sent = size if out.stored_by(worker) else min(out.sent.get(worker.worker_id, 0), size)
                found[worker.worker_id] = done + sent, left + size - sent
        return found

    def connected(self, worker_id: str, lane: Lane) -> list[ev.Effect]:
        """A link has opened with nothing queued on it: offer all its files."""
        self._links.add((worker_id, lane))
        effects: list[ev.Effect] = []
        for out in self._files.values():
            if out.entry.lane is not lane:
                continue
            out.sent.pop(worker_id, None)
            if out.to.worker_id == worker_id:
                effects += self._send(out)
            elif worker_id in out.offered:
                lacking = (w for w in out.chain if w.worker_id == worker_id and not out.held_by(w))
                effects += [self._offer_alone(out, worker) for worker in lacking]
        return effects

    def disconnected(self, worker_id: str, lane: Lane) -> None:
        self._links.discard((worker_id, lane))

    def retry_later(self, key: FileKey, now: float) -> None:
        """A member could not accept the file now: schedule another offer."""
        self._retries[key] = now + RETRY_S

    def next_retry(self) -> float | None:
        return min(self._retries.values(), default=None)

    def retry(self, now: float) -> list[ev.Effect]:
        """Offers again the files that members could not accept some time ago. Also ends the expired bypasses."""
        if self._bypassed:
            self._bypassed = {worker_id: until for worker_id, until in self._bypassed.items() if until > now}
        effects: list[ev.Effect] = []
        for key in [key for key, at in self._retries.items() if at <= now]:
            del self._retries[key]
            if (out := self._files.get(key)) is not None:
                for worker in out.pending_directly():
                    effects += self._send(out) if worker == out.to else [self._offer_alone(out, worker)]
        return effects

    # ------------------------------------------------------------ effects

    def _send(self, out: Outgoing) -> list[ev.Effect]:
        """Offers the file to the first of its chain. That member forwards it to the members not known to hold it.

        A member that has the file answers at once. Its earlier ack may have been lost with a link.
        """
        lane = out.entry.lane
        out.offered.add(out.to.worker_id)
        if (out.to.worker_id, lane) not in self._links:
            return [ev.Connect(out.to, lane)]
        behind = tuple(worker for worker in out.chain[1:] if not out.held_by(worker))
        return [ev.OfferFile(out.to, out.entry, out.epoch, behind, lane)]

    def _offer_alone(self, out: Outgoing, to: Worker) -> ev.Effect:
        """Offers the file to another member than the first of the chain.

        It forwards to nobody: the first of the chain does.
        """
        lane = out.entry.lane
        linked = (to.worker_id, lane) in self._links
        return ev.OfferFile(to, out.entry, out.epoch, (), lane) if linked else ev.Connect(to, lane)

    def _withdraw(self, out: Outgoing, from_: Worker, *, stop: bool = False) -> ev.WithdrawOffer:
        return ev.WithdrawOffer(from_.worker_id, out.entry.store, out.entry.name, out.entry.lane, stop)
