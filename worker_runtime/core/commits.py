"""Commits that wait for copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rhino.errors import CopiesTimeoutError
from rhino.ids import NO_EPOCH, FileEntry, GroupId, ReplicaGroup, StoreId
from worker_runtime.core import events as ev
from worker_runtime.core.outbox import FileKey, key_of


@dataclass(frozen=True, slots=True)
class Commit:
    """One caller who waits. `deadline`: monotonic time in seconds."""

    request: int
    entry: FileEntry
    deadline: float

    def timed_out(self, group: ReplicaGroup | None, held: Iterable[tuple[str, str]]) -> ev.CompleteCommit:
        """The answer at the deadline; `held`: lives of the other workers that hold the version."""
        need, epoch = "its group is not known", NO_EPOCH
        if group is not None:
            members = ", ".join(f"{m.worker.worker_id}{'' if m.whole else ' (not whole)'}" for m in group.members)
            need, epoch = f"needs {group.required_copies} whole members of [{members}]", group.epoch
        holders = ", ".join(sorted(worker_id for worker_id, _ in held))
        message = f"{self.entry.store}/{self.entry.name}: {need}; others that hold it: [{holders}]"
        return ev.CompleteCommit(self.request, 0, epoch, CopiesTimeoutError(message))


class Commits:
    """Waiting commits by file; several callers may wait for the same file (a retry)."""

    def __init__(self) -> None:
        self._waiting: dict[FileKey, list[Commit]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._waiting

    def __iter__(self) -> Iterator[FileKey]:
        return iter(list(self._waiting))

    def of_group(self, group: GroupId) -> list[FileKey]:
        return [key for key in self._waiting if key.store.group == group]

    def of_store(self, store: StoreId) -> list[FileKey]:
        return [key for key in self._waiting if key.store == store]

    def entry(self, key: FileKey) -> FileEntry:
        return self._waiting[key][0].entry

    def add(self, commit: Commit) -> FileKey:
        key = key_of(commit.entry)
        self._waiting.setdefault(key, []).append(commit)
        return key

    def pop(self, key: FileKey) -> list[Commit]:
        """All who wait for this file."""
        return self._waiting.pop(key, [])

    def abandon(self, request: int) -> list[FileKey]:
        """Forgets one caller; files for which nobody waits any more."""
        return self._drop(lambda commit: commit.request == request)[1]

    def due(self, now: float) -> tuple[list[Commit], list[FileKey]]:
        """Takes out those whose deadline has passed; also files for which nobody waits any more."""
        return self._drop(lambda commit: commit.deadline <= now)

    def next_deadline(self) -> float | None:
        return min((commit.deadline for waiting in self._waiting.values() for commit in waiting), default=None)

    def _drop(self, gone: Callable[[Commit], bool]) -> tuple[list[Commit], list[FileKey]]:
        dropped: list[Commit] = []
        empty: list[FileKey] = []
        for key, waiting in list(self._waiting.items()):
            dropped += [commit for commit in waiting if gone(commit)]
            self._waiting[key] = [commit for commit in waiting if not gone(commit)]
            if not self._waiting[key]:
                del self._waiting[key]
                empty.append(key)
        return dropped, empty
