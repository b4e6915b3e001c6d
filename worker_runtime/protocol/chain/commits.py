"""Commits waiting for copies."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rhino_core.errors import CopiesTimeoutError, PreconditionError
from rhino_core.ids import NO_EPOCH, FileEntry, GroupId, ReplicaGroup, StoreId, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.keys import FileKey, Incarnation, key_of

GIVE_UP_S = 5.0  # when an uncounted writer gives up if another worker owns the group and no member has stored the file
SLOW_S = 1.0  # when a commit gets help: other members are asked, the version's other files are sent


@dataclass(frozen=True, slots=True)
class Commit:
    """One waiting caller. It waits since `since`, monotonic seconds, until nothing has moved for `patience_s`."""

    request: int
    entry: FileEntry
    patience_s: float
    since: float = 0.0

    def timed_out(
        self, group: ReplicaGroup | None, held: Iterable[Incarnation], left: Mapping[str, tuple[int, int]]
    ) -> ev.CompleteCommit:
        """The answer after too long a time without progress.

        `held`: incarnations of the other workers that hold the version. `left`: bytes of the store's files by member,
        sent and remaining.
        """
        need, epoch = "its group is not known", NO_EPOCH
        if group is not None:
            members = ", ".join(f"{m.worker.worker_id}{'' if m.whole else ' (not whole)'}" for m in group.members)
            need, epoch = f"needs {group.required_copies} whole members of [{members}]", group.epoch
        holders = ", ".join(sorted(worker_id for worker_id, _ in held))
        parts = [need, f"others that hold it: [{holders}]", f"nothing has moved for {self.patience_s:g} s"]
        parts += [f"to {to}: {sent} bytes are sent, {rest} are left" for to, (sent, rest) in sorted(left.items())]
        message = f"{self.entry.store}/{self.entry.name}: {'; '.join(parts)}"
        return ev.CompleteCommit(self.request, 0, epoch, CopiesTimeoutError(message))

    def given_up(self, group: ReplicaGroup, me: Worker) -> ev.CompleteCommit:
        """The answer when waiting on this worker is useless."""
        owner = group.owner.worker_id
        message = (
            f"{self.entry.store}/{self.entry.name}: no other worker has taken it from {me.worker_id} for "
            f"{GIVE_UP_S:.0f} s, and the group is owned by {owner} now: run the task there"
        )
        return ev.CompleteCommit(self.request, 0, group.epoch, PreconditionError(message))


class Commits:
    """Waiting commits by file. Several callers may wait for the same file (a retry)."""

    def __init__(self) -> None:
        self._waiting: dict[FileKey, list[Commit]] = {}
        self._of_store: dict[StoreId, dict[FileKey, None]] = {}  # the same files by store, in order of arrival
        self._requests: dict[int, Commit] = {}
        # Heap of (earliest deadline, request), including finished requests. Progress is looked at when one is reached.
        self._deadlines: list[tuple[float, int]] = []
        self._moved: dict[StoreId, float] = {}  # last progress of stores with commits, monotonic seconds
        # (when it is slow, request, closure due) in order of arrival, including finished requests.
        self._checks: deque[tuple[float, int, bool]] = deque()

    def __contains__(self, key: object) -> bool:
        return key in self._waiting

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
        heapq.heappush(self._deadlines, (commit.since + commit.patience_s, commit.request))
        self._checks.append((now + SLOW_S, commit.request, True))
        return key

    def moved(self, store: StoreId, now: float) -> None:
        """The store's files are nearer to their targets."""
        if store in self._of_store:
            self._moved[store] = now

    def pop(self, key: FileKey) -> list[Commit]:
        """Removes and returns all callers waiting for this file."""
        popped = list(self._waiting.get(key, ()))
        self._drop(popped)
        return popped

    def abandon(self, request: int) -> list[FileKey]:
        """Forgets one caller. Returns the files that have no caller left."""
        commit = self._requests.get(request)
        return self._drop([commit]) if commit is not None else []

    def slow(self, now: float) -> list[tuple[Commit, bool]]:
        """Commits that have waited for SLOW_S, each with whether its closure has not been sent yet.

        Each appears once, unless `check_again` is called.
        """
        waiting: list[tuple[Commit, bool]] = []
        while self._checks and self._checks[0][0] <= now:
            _, request, closure_due = self._checks.popleft()
            commit = self._requests.get(request)
            if commit is not None:
                waiting.append((commit, closure_due))
        return waiting

    def check_again(self, commit: Commit, now: float, *, closure_due: bool) -> None:
        """Reports a commit of `slow` once more after SLOW_S."""
        self._checks.append((now + SLOW_S, commit.request, closure_due))

    def due(self, now: float) -> tuple[list[Commit], list[FileKey]]:
        """Removes the commits that have waited too long for progress. Returns them, and the files that have no caller
        left.
        """
        late: list[Commit] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            commit = self._requests.get(heapq.heappop(self._deadlines)[1])
            if commit is None:
                continue
            end = max(commit.since, self._moved.get(commit.entry.store, 0.0)) + commit.patience_s
            if end > now:
                heapq.heappush(self._deadlines, (end, commit.request))
            else:
                late.append(commit)
        return late, self._drop(late)

    def next_deadline(self) -> float | None:
        while self._deadlines and self._deadlines[0][1] not in self._requests:
            heapq.heappop(self._deadlines)
        while self._checks and self._checks[0][1] not in self._requests:
            self._checks.popleft()
        ends = [self._deadlines[0][0]] if self._deadlines else []
        ends += [self._checks[0][0]] if self._checks else []
        return min(ends, default=None)

    def check_invariants(self) -> None:
        waiting = [commit for commits in self._waiting.values() for commit in commits]
        assert {commit.request for commit in waiting} == self._requests.keys(), "a caller is lost"
        assert {key for keys in self._of_store.values() for key in keys} == self._waiting.keys(), "a store is lost"
        assert all(self._waiting.values()), "a file without callers is kept"
        assert self._moved.keys() <= self._of_store.keys(), "progress of a store without commits is kept"

    def _drop(self, commits: list[Commit]) -> list[FileKey]:
        """Removes these commits. Returns the files that have no caller left."""
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
                    self._moved.pop(key.store, None)
        return empty
