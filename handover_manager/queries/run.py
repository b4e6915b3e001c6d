"""The newest accepted run of a query: a driver runs it, its driver was lost, or it has stopped."""

from __future__ import annotations

from dataclasses import dataclass

from handover_manager.plan.locations import LocationMap


@dataclass(slots=True)
class Running:
    """A driver runs the query.

    `sent`: configuration epoch and map that the driver has. None: the driver has none, or an old one.
    """

    session: int
    sent: tuple[int, LocationMap] | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The driver's session broke before the query had ended. The driver may come back. `at` is monotonic time.

    After a restart of the manager every driver counts as lost at that time.
    """

    at: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """The query has ended, or has never run."""


@dataclass(slots=True)
class Run:
    """The run that counts. A driver that reports its query again begins a new record of the same run.

    `since_ms` is the wall clock at which the run was accepted first. `host` is that of the driver, and
    `rhino_version` that of its jar ("": not reported). `idle_epoch`: no batch runs or will begin under a map older than
    that of this configuration epoch. None: unknown.
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
        """The session of the driver that runs the query. None while no driver does."""
        return self.phase.session if isinstance(self.phase, Running) else None

    def may_return(self, lost_before: float) -> bool:
        """Whether the driver was lost after `lost_before` (monotonic), so that it may come back."""
        return isinstance(self.phase, Lost) and self.phase.at > lost_before

    def stop(self) -> None:
        """The query has ended."""
        self.phase = Stopped()

    def lose(self, now: float) -> None:
        """The session of the driver broke."""
        self.phase, self.idle_epoch = Lost(now), None
