"""The newest accepted run of a query: a driver runs it, its driver was lost, or it has stopped."""

from __future__ import annotations

from dataclasses import dataclass

from handover_manager.plan.locations import LocationMap


@dataclass(slots=True)
class Running:
    """A driver runs the query.

    `since`: monotonic time of its report. `sent`: configuration epoch and map of the driver. None: the driver has none,
    or an old one.
    """

    session: int
    since: float
    sent: tuple[int, LocationMap] | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The driver's session broke before the query had ended. The driver may come back. `at` is monotonic time.

    After a restart of the manager every driver counts as lost at the restart.
    """

    at: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """The query has ended, or has never run."""


@dataclass(slots=True)
class Run:
    """The accepted run. A repeated report of its driver begins a new record of the same run.

    `since_ms` is the wall clock of the first acceptance. `host` is the driver's, and `rhino_version` its jar's ("": not
    reported). `idle_epoch`: no batch runs or will begin under a map older than this configuration epoch. None: unknown.
    """

    run_id: str = ""
    name: str = ""
    application_id: str = ""
    host: str = ""
    since_ms: int = 0
    phase: Running | Lost | Stopped = Stopped()
    idle_epoch: int | None = None
    rhino_version: str = ""

    @property
    def session(self) -> int | None:
        """The session of the query's driver. None without a driver."""
        return self.phase.session if isinstance(self.phase, Running) else None

    def may_return(self, lost_before: float) -> bool:
        """Whether the driver was lost after `lost_before` (monotonic), so it may come back."""
        return isinstance(self.phase, Lost) and self.phase.at > lost_before

    def stop(self) -> None:
        """The query has ended."""
        self.phase = Stopped()

    def lose(self, now: float) -> None:
        """The session of the driver broke."""
        self.phase, self.idle_epoch = Lost(now), None
