"""Files that arrived under an epoch that only a peer has named.

They are stored. They are neither acknowledged nor forwarded until the manager has named that epoch. Otherwise anyone
who can reach the push port could move a group beyond every epoch that its manager will issue.
"""

from __future__ import annotations

from rhino_core.ids import ReplicaGroup
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.keys import FileKey, key_of

PARKED_MAX = 4096  # over all groups; the files are on disk, so each entry costs memory only for its names


class Parked:
    """The newest Begin per sender and file, oldest first."""

    def __init__(self) -> None:
        self._begins: dict[tuple[str, FileKey], ev.BeginReceived] = {}

    def __len__(self) -> int:
        return len(self._begins)

    def add(self, begin: ev.BeginReceived) -> list[ev.BeginReceived]:
        """Returns the entries that were evicted. Their senders have to try again."""
        key = (begin.upstream, key_of(begin.entry))
        self._begins.pop(key, None)
        self._begins[key] = begin
        return [self._begins.pop(next(iter(self._begins)))] if len(self._begins) > PARKED_MAX else []

    def take(self, decided: ReplicaGroup) -> list[ev.BeginReceived]:
        """Removes and returns the group's entries that the manager's answer decides: those of its epoch or an earlier
        one.
        """
        due = [
            key
            for key, begin in self._begins.items()
            if begin.entry.store.group == decided.group and begin.epoch <= decided.epoch
        ]
        return [self._begins.pop(key) for key in due]

    def forget_job(self, job: str) -> None:
        self._begins = {key: begin for key, begin in self._begins.items() if begin.entry.store.job != job}

    def check_invariants(self) -> None:
        assert len(self._begins) <= PARKED_MAX, f"{len(self._begins)} parked files"
