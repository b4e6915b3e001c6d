"""Who waits for acknowledgements of a file that came down a chain, and what they are told."""

from __future__ import annotations

from rhino.ids import Epoch, GroupId, Lane, Worker, parse_name
from worker_runtime.core import events as ev
from worker_runtime.core.outbox import FileKey, key_of


def lane_of(name: str) -> Lane:
    return Lane.COMMIT if parse_name(name).kind.versioned else Lane.BULK


def refusal(
    upstream: str, key: FileKey, reason: ev.Refusal, current: Epoch, message: str, member: Worker
) -> ev.SendRefusal:
    return ev.SendRefusal(upstream, key.store, key.name, reason, current, message, member, lane_of(key.name))


class Upstreams:
    """Per file the workers that have sent it, each with the epoch of its newest Begin."""

    def __init__(self) -> None:
        self._waiting: dict[FileKey, dict[str, Epoch]] = {}

    def note(self, begin: ev.BeginReceived) -> None:
        self._waiting.setdefault(key_of(begin.entry), {})[begin.upstream] = begin.epoch

    def of(self, key: FileKey) -> set[str]:
        return set(self._waiting.get(key, ()))

    def tell(self, key: FileKey, member: Worker, *, holds: bool, epoch: Epoch | None = None) -> list[ev.Effect]:
        """Acks about `member` to all that wait for this file; with `epoch`, to those who sent it under that one."""
        return [
            ev.SendAck(upstream, key.store, key.name, under, member, holds, lane_of(key.name))
            for upstream, under in self._waiting.get(key, {}).items()
            if epoch is None or under == epoch
        ]

    def forget(self, key: FileKey) -> None:
        self._waiting.pop(key, None)

    def forget_group(self, group: GroupId) -> None:
        self._waiting = {key: waiting for key, waiting in self._waiting.items() if key.store.group != group}
