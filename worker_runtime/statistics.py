"""Statistics of a sidecar: totals since start, and the newest Prepare and Commit records."""

from __future__ import annotations

import functools
import os
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from rhino_core.ids import FileKind, Source, StoreVersion
from worker_runtime.protocol.copies.preparing import PrepareState

RECORDS_MAX = 2000  # per kind
_STATUS_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class PrepareRecord:
    """One Prepare.

    `held_before`: the whole closure was here when the call arrived. `source` is set only if READY.
    """

    versions: tuple[StoreVersion, ...]
    state: PrepareState
    source: Source | None
    fetched_bytes: int
    duration_ms: float
    finished_ms: int
    held_before: bool
    message: str


@dataclass(frozen=True, slots=True)
class CommitRecord:
    version: StoreVersion
    kind: FileKind
    size_bytes: int
    copies: int
    duration_ms: float
    finished_ms: int


class Statistics:
    """Totals and newest records. For the event loop's thread only."""

    def __init__(self) -> None:
        resident_bytes()  # opens the descriptor while one is available
        self.sent_bytes = 0  # to peers, by push and catch-up
        self.received_bytes = 0  # from peers, by push and catch-up
        self.resumed_bytes = 0  # not received again by transfers that resumed a broken one
        self.linked_bytes = 0  # not received, because the same bytes were here under another name
        self.push_alarms: Counter[str] = Counter()  # streams whose bytes were changed on their way, by kind
        self.prepares: deque[PrepareRecord] = deque(maxlen=RECORDS_MAX)
        self.commits: deque[CommitRecord] = deque(maxlen=RECORDS_MAX)
        self.prepares_by_source: Counter[Source] = Counter()
        self.on_prepare: Callable[[PrepareRecord], None] = lambda record: None
        self.on_commit: Callable[[CommitRecord], None] = lambda record: None

    def committed(self, record: CommitRecord) -> None:
        self.commits.append(record)
        self.on_commit(record)

    def prepared(self, record: PrepareRecord) -> None:
        self.prepares.append(record)
        self.on_prepare(record)
        if record.source is not None:
            self.prepares_by_source[record.source] += 1


def wall_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@functools.cache
def _status() -> int:
    """Kept open: a process without a free descriptor can still report its memory."""
    return os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)


def resident_bytes() -> tuple[int, int]:
    """Memory of this process and its peak, in bytes."""
    lines = os.pread(_status(), _STATUS_BYTES_MAX, 0).decode(errors="replace").splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return tuple(int(fields[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))  # type: ignore[return-value]
