"""Files that wait for the manager: of an epoch that only a peer has named, or of a sender that is no member.

Their bytes are not received until the manager has named the epoch and the sender. Otherwise any registered worker could
plant files in a group, or move it beyond every epoch that its manager will issue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from worker_runtime.protocol import events as ev

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
        """Returns the entries that were evicted. Their senders have to try again."""
        self._files[begin.transfer] = ParkedFile(begin, now + PARKED_S)
        return self._pop([next(iter(self._files))]) if len(self._files) > PARKED_MAX else []

    def take(self, wanted: Callable[[ev.BeginReceived], bool]) -> list[ev.BeginReceived]:
        """Removes and returns the entries that are wanted."""
        return self._pop([number for number, file in self._files.items() if wanted(file.begin)])

    def discard(self, transfer: int) -> None:
        self._files.pop(transfer, None)

    def due(self, now: float) -> list[ev.BeginReceived]:
        """Removes and returns the entries whose time is over."""
        return self._pop([number for number, file in self._files.items() if file.until <= now])

    def next_deadline(self) -> float | None:
        return next((file.until for file in self._files.values()), None)  # the oldest

    def _pop(self, transfers: list[int]) -> list[ev.BeginReceived]:
        return [self._files.pop(transfer).begin for transfer in transfers]

    def check_invariants(self) -> None:
        assert len(self._files) <= PARKED_MAX, f"{len(self._files)} parked files"
        assert all(number == file.begin.transfer for number, file in self._files.items()), "a parked file is misfiled"
