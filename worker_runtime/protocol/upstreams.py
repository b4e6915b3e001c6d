"""Tracks who waits for acknowledgements of a file that came down a chain, and what each of them has received."""

from __future__ import annotations

from dataclasses import dataclass, field

from rhino_core.ids import Epoch, GroupId, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.keys import FileKey, Incarnation, incarnation_of, key_of, lane_of


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
