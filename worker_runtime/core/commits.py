"""Commits that wait for copies."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rhino.errors import CopiesTimeoutError
from rhino.ids import NO_EPOCH, FileEntry, GroupId, ReplicaGroup, StoreId
from worker_runtime.core import events as ev
from worker_runtime.core.outbox import FileKey, key_of

PATIENCE_S = 1.0  # after which members that have the file and cannot open its version are helped


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
        self._of_store: dict[StoreId, dict[FileKey, None]] = {}  # the same files, in order
        self._requests: dict[int, Commit] = {}
        self._deadlines: list[tuple[float, int]] = []  # a heap of deadline and request, also of requests that have gone
        self._patience: deque[tuple[float, int]] = deque()  # its end and request, as they came; also of those gone

    def __contains__(self, key: object) -> bool:
        return key in self._waiting

    def __iter__(self) -> Iterator[FileKey]:
        return iter(list(self._waiting))

    def of_group(self, group: GroupId) -> list[FileKey]:
        return [key for key in self._waiting if key.store.group == group]

    def of_store(self, store: StoreId) -> list[FileKey]:
        return list(self._of_store.get(store, ()))

    def entry(self, key: FileKey) -> FileEntry:
        return self._waiting[key][0].entry

    def add(self, commit: Commit, now: float) -> FileKey:
        key = key_of(commit.entry)
        self._waiting.setdefault(key, []).append(commit)
        self._of_store.setdefault(key.store, {})[key] = None
        self._requests[commit.request] = commit
        heapq.heappush(self._deadlines, (commit.deadline, commit.request))
        self._patience.append((now + PATIENCE_S, commit.request))
        return key

    def pop(self, key: FileKey) -> list[Commit]:
        """All who wait for this file."""
        popped = list(self._waiting.get(key, ()))
        self._drop(popped)
        return popped

    def abandon(self, request: int) -> list[FileKey]:
        """Forgets one caller; files for which nobody waits any more."""
        commit = self._requests.get(request)
        return self._drop([commit]) if commit is not None else []

    def impatient(self, now: float) -> list[Commit]:
        """Those that have waited for PATIENCE_S; each once, unless told to `wait_again`."""
        waiting: list[Commit] = []
        while self._patience and self._patience[0][0] <= now:
            commit = self._requests.get(self._patience.popleft()[1])
            if commit is not None:
                waiting.append(commit)
        return waiting

    def wait_again(self, commit: Commit, now: float) -> None:
        """One that `impatient` has named: once more after PATIENCE_S."""
        self._patience.append((now + PATIENCE_S, commit.request))

    def due(self, now: float) -> tuple[list[Commit], list[FileKey]]:
        """Takes out those whose deadline has passed; also files for which nobody waits any more."""
        late: list[Commit] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            commit = self._requests.get(heapq.heappop(self._deadlines)[1])
            if commit is not None:
                late.append(commit)
        return late, self._drop(late)

    def next_deadline(self) -> float | None:
        while self._deadlines and self._deadlines[0][1] not in self._requests:
            heapq.heappop(self._deadlines)
        while self._patience and self._patience[0][1] not in self._requests:
            self._patience.popleft()
        return min((waiting[0][0] for waiting in (self._deadlines, self._patience) if waiting), default=None)

    def _drop(self, commits: list[Commit]) -> list[FileKey]:
        """Files for which nobody waits any more."""
        empty: list[FileKey] = []
        for commit in commits:
            key = key_of(commit.entry)
            del self._requests[commit.request]
            self._waiting[key].remove(commit)
            if not self._waiting[key]:
                del self._waiting[key], self._of_store[key.store][key]
                empty.append(key)
                if not self._of_store[key.store]:
                    del self._of_store[key.store]
        return empty
