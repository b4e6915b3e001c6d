"""Who waits for acknowledgements of a file that came down a chain, and what they are told."""

from __future__ import annotations

from dataclasses import dataclass, field

from rhino.ids import Epoch, GroupId, Lane, Worker, parse_name
from worker_runtime.core import events as ev
from worker_runtime.core.membership import life
from worker_runtime.core.outbox import FileKey, key_of


def lane_of(name: str) -> Lane:
    return parse_name(name).lane


def refusal(
    upstream: str, key: FileKey, reason: ev.Refusal, current: Epoch, message: str, member: Worker
) -> ev.SendRefusal:
    return ev.SendRefusal(upstream, key.store, key.name, reason, current, message, member, lane_of(key.name))


@dataclass(slots=True)
class Waiting:
    """One who has sent a file. `told`: what it has heard since its newest Begin, which had `epoch`."""

    epoch: Epoch
    told: set[tuple[tuple[str, str], bool]] = field(default_factory=set)


class Upstreams:
    """Per file the workers that have sent it.

    Each is told once of each member: two that have sent each other the file (an old head and a new one) would
    otherwise pass the same acknowledgement to and fro for ever.
    """

    def __init__(self) -> None:
        self._waiting: dict[FileKey, dict[str, Waiting]] = {}

    def note(self, begin: ev.BeginReceived) -> None:
        self._waiting.setdefault(key_of(begin.entry), {})[begin.upstream] = Waiting(begin.epoch)

    def of(self, key: FileKey) -> set[str]:
        return set(self._waiting.get(key, ()))

    def tell(self, key: FileKey, member: Worker, *, holds: bool, epoch: Epoch) -> list[ev.Effect]:
        """Acks about `member` to those who sent this file under `epoch` and have not heard it yet."""
        effects: list[ev.Effect] = []
        for upstream, waiting in self._waiting.get(key, {}).items():
            news = (life(member), holds)
            if waiting.epoch == epoch and news not in waiting.told:
                waiting.told.add(news)
                effects.append(ev.SendAck(upstream, key.store, key.name, epoch, member, holds, lane_of(key.name)))
        return effects

    def forget(self, key: FileKey) -> None:
        self._waiting.pop(key, None)

    def forget_group(self, group: GroupId) -> None:
        self._waiting = {key: waiting for key, waiting in self._waiting.items() if key.store.group != group}
