"""What a sidecar counts about itself: totals since start, and the newest Prepare and Commit records."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from rhino.ids import FileKind, Source, StoreVersion

RECORDS_MAX = 2000  # of each kind
_STATUS = Path("/proc/self/status")


class PrepareState(Enum):
    READY = "ready"
    UNAVAILABLE = "unavailable"  # somebody who may hold it cannot be asked yet
    LOST = "lost"  # everybody who may hold it has answered: nobody does


@dataclass(frozen=True, slots=True)
class PrepareRecord:
    """One Prepare. `held_before`: the whole closure was here when the call came. `source` only when READY."""

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


class Figures:
    """Mutable counters; the loop's thread only."""

    def __init__(self) -> None:
        self.sent_bytes = 0  # to peers, push and catch-up
        self.received_bytes = 0  # from peers, push and catch-up
        self.resumed_bytes = 0  # not received again by transfers that went on where an earlier one had broken
        self.linked_bytes = 0  # not received, because the same bytes were here under another name
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


def resident_bytes() -> tuple[int, int]:
    """Memory of this process now, and its peak."""
    fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines() if ":" in line)
    return tuple(int(fields[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))  # type: ignore[return-value]
