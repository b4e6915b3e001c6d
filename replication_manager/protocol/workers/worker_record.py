"""The manager's record of one worker: its state and its reports."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from rhino_core.ids import DiskState, Epoch, GroupId, StoreVersion, Worker


class WorkerState(enum.Enum):
    LIVE = "live"
    SUSPECT = "suspect"  # its stream broke, or the manager has just started; the lease still runs
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Report:
    """One worker's report on one group (proto: GroupReport)."""

    group: GroupId
    epoch: Epoch
    whole: bool
    stored_bytes: int
    newest_held: tuple[StoreVersion, ...] = ()
    newest_written: tuple[StoreVersion, ...] = ()
    stored_files: int = 0


@dataclass(frozen=True, slots=True)
class Lag:
    """Lag of worker `to` with the files pushed by another worker (proto: Lag)."""

    group: GroupId
    to: str
    lag_bytes: int
    oldest_s: float


@dataclass(slots=True)
class WorkerRecord:
    """A worker as the manager knows it. Times are monotonic seconds."""

    worker: Worker
    state: WorkerState
    heard_at: float
    lease_ends: float
    process_id: str = ""
    stored_bytes: int = 0
    free_bytes: int = 0
    resident_bytes_max: int = 0
    replicated_bytes: int = 0
    reports: dict[GroupId, Report] = field(default_factory=dict)
    lags: tuple[Lag, ...] = ()  # of the workers it sends to
    disk: DiskState = DiskState.OK  # a worker that is not OK joins no further groups
    disk_message: str = ""
    version: str = ""  # of Rhino, for people; empty: not reported
    # its lease ended while the manager heard from no worker: the manager itself may have been cut off
    lost_in_silence: bool = False
    left: bool = False  # it shut down cleanly, and may be started again
    # groups in which it does not count as whole, only because its process ended
    suspected: set[GroupId] = field(default_factory=set)
    # groups whose files it may store without a report: it was a member, or asked for the group to write
    unreported: set[GroupId] = field(default_factory=set)

    @property
    def present(self) -> bool:
        """Whether it may be placed on and counted: live, or its lease still runs."""
        return self.state is not WorkerState.LOST

    @property
    def ended(self) -> bool:
        """Lost, or known to have ended."""
        return self.left or not self.present
