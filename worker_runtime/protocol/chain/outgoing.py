"""One file on its way to members, and the known state of each member's copy."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from rhino_core.ids import Epoch, FileEntry, Worker
from rhino_core.transitions import TransitionTable
from worker_runtime.protocol.keys import Incarnation, incarnation_of


class Delivery(enum.Enum):
    """One member's copy of a file as the sender knows it, under the epoch of the offer."""

    MISSING = "missing"  # no acknowledgement so far
    STORED = "stored"  # the member has the file, but not the whole closure of its version
    HELD = "held"  # the member holds the version
    REFUSED = "refused"  # the member held the version, and has refused the file since: its copy may be damaged


STORED = (Delivery.STORED, Delivery.HELD)  # the file need not be offered to the member
COUNTED = (Delivery.HELD, Delivery.REFUSED)  # the member counts as a holder, until its damage has led to a new epoch


class Reply(enum.Enum):
    """The messages of a member about a file."""

    STORES = "ack_without_the_version"
    HOLDS = "ack_with_the_version"
    REFUSES = "refusal"


DELIVERY = TransitionTable(
    Delivery.MISSING,
    {
        (Delivery.MISSING, Reply.STORES): Delivery.STORED,
        (Delivery.MISSING, Reply.HOLDS): Delivery.HELD,
        (Delivery.MISSING, Reply.REFUSES): Delivery.MISSING,
        (Delivery.STORED, Reply.STORES): Delivery.STORED,
        (Delivery.STORED, Reply.HOLDS): Delivery.HELD,
        (Delivery.STORED, Reply.REFUSES): Delivery.MISSING,
        (Delivery.HELD, Reply.STORES): Delivery.HELD,
        (Delivery.HELD, Reply.HOLDS): Delivery.HELD,
        (Delivery.HELD, Reply.REFUSES): Delivery.REFUSED,
        (Delivery.REFUSED, Reply.STORES): Delivery.HELD,
        (Delivery.REFUSED, Reply.HOLDS): Delivery.HELD,
        (Delivery.REFUSED, Reply.REFUSES): Delivery.REFUSED,
    },
)


@dataclass(slots=True)
class Outgoing:
    """One file on its way down `chain`.

    `offered`: ids of the members with a direct offer from this worker, including the first of the chain.
    `received_again`: another worker sent us this file after we had offered it, so forwarding duties may form a loop
    (see `Outbox.break_forwarding_loop`). `bypassed_at`: when another member was last put first because a caller waits,
    in monotonic seconds. `sent`: bytes gone to each of these members, at most. `refused_by`: ids of the members that
    have refused the file, and have not stored it since.
    """

    entry: FileEntry
    epoch: Epoch
    chain: tuple[Worker, ...]
    offered: set[str] = field(default_factory=set)
    received_again: bool = False
    bypassed_at: float | None = None
    sent: dict[str, int] = field(default_factory=dict)
    refused_by: set[str] = field(default_factory=set)
    _deliveries: dict[Incarnation, Delivery] = field(default_factory=dict)  # MISSING if not here

    @property
    def to(self) -> Worker:
        return self.chain[0]

    def delivery(self, worker: Worker) -> Delivery:
        return self._deliveries.get(incarnation_of(worker), Delivery.MISSING)

    def acknowledged(self, member: Worker, *, holds: bool) -> bool:
        """Returns whether the ack is new."""
        key, reply = incarnation_of(member), Reply.HOLDS if holds else Reply.STORES
        before = self._deliveries.get(key, Delivery.MISSING)
        self._deliveries[key] = DELIVERY.next(before, reply)
        self.refused_by.discard(member.worker_id)
        return self._deliveries[key] is not before

    def link_moved(self, to: str, sent_bytes: int | None) -> bool:
        """The link to a member has moved. `sent_bytes`: of this file, None if it is not under way there.

        Returns whether the file is nearer to its end. A file waiting in the queue counts as nearer, too. A refused
        file, or one sent completely, counts only by its own bytes.
        """
        before = self.sent.get(to, 0)
        if sent_bytes is not None and sent_bytes > before:
            self.sent[to] = sent_bytes
            return True
        return to not in self.refused_by and before < self.entry.size_bytes

    def refused(self, worker_id: str) -> None:
        """Every incarnation of this worker has refused the file."""
        self.refused_by.add(worker_id)
        for member, delivery in self._deliveries.items():
            if member[0] == worker_id:
                self._deliveries[member] = DELIVERY.next(delivery, Reply.REFUSES)

    def stored_by(self, worker: Worker) -> bool:
        return self._deliveries.get(incarnation_of(worker)) in STORED

    def held_by(self, worker: Worker) -> bool:
        return self._deliveries.get(incarnation_of(worker)) in COUNTED

    def holders(self) -> set[Incarnation]:
        """Incarnations counted as holders of the version under `epoch`. Some may be behind others' chains."""
        return {member for member, delivery in self._deliveries.items() if delivery in COUNTED}

    def stored_anywhere(self) -> bool:
        return any(delivery in STORED for delivery in self._deliveries.values())

    def done(self) -> bool:
        """Whether every member of the chain holds the version."""
        return len(self._deliveries) >= len(self.chain) and all(self.held_by(worker) for worker in self.chain)

    def pending(self) -> list[Worker]:
        """Members without the stored file."""
        return [worker for worker in self.chain if not self.stored_by(worker)]

    def pending_directly(self) -> list[Worker]:
        """Members with a direct offer from this worker, but without the stored file.

        Only these are to blame for a delay.
        """
        return [worker for worker in self.chain if worker.worker_id in self.offered and not self.stored_by(worker)]

    def not_offered(self) -> list[Worker]:
        """Members without the stored file and without a direct offer from this worker."""
        return [worker for worker in self.pending() if worker.worker_id not in self.offered]

    def check_invariants(self) -> None:
        assert self.chain, f"{self.entry.name} is offered to nobody"
        assert self.to.worker_id in self.offered, f"{self.entry.name}: the first of the chain has no offer"
