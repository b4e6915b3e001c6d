"""The run of a job that counts: one driver at a time, with one location of the query checkpoint.

A job is identified by the id in the checkpoint's `metadata` file, so a copy of the folder is the same job. Two runs
would raise each other's floors, and sidecars would delete files of the slower run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from handover_manager.events import QueryStarted, RefuseQuery
from handover_manager.queries.job import Job

CLAIM_S = 16.0  # gRPC closes the session of a vanished driver after 15 s


@dataclass(frozen=True, slots=True)
class Claim:
    """A waiting run: another driver's session has the job. `until` is monotonic time."""

    event: QueryStarted
    until: float


class Claims:
    """The claims on all jobs. A claim waits until the other session closes, its driver answers, or the time is up."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[int, Claim]] = {}

    def add(self, event: QueryStarted, now: float) -> bool:
        """Adds or updates the claim of a session. Its newest report counts, and its waiting time is not extended.

        Returns False if the session has been waiting already.
        """
        claims = self._waiting.setdefault(event.job, {})
        former = claims.get(event.session)
        claims[event.session] = Claim(event, former.until if former else now + CLAIM_S)
        return former is None

    def leave(self, session: int, job: str = "") -> None:
        """Removes the session's claim on `job`, or on all jobs if `job` is empty."""
        for name in [job] if job else list(self._waiting):
            claims = self._waiting.get(name, {})
            claims.pop(session, None)
            if not claims:
                self._waiting.pop(name, None)

    def take(self, job: str) -> list[QueryStarted]:
        """Removes all claims on the job. Returns their reports, oldest first."""
        return [claim.event for claim in self._waiting.pop(job, {}).values()]

    def deadlines(self) -> list[float]:
        return [claim.until for claims in self._waiting.values() for claim in claims.values()]

    def due(self, now: float) -> list[str]:
        """Jobs with an expired claim."""
        return [job for job, claims in self._waiting.items() if any(now >= claim.until for claim in claims.values())]


def taken(job: Job, event: QueryStarted) -> RefuseQuery:
    """The refusal of a run because another driver runs the job."""
    run = job.run
    since = datetime.fromtimestamp(run.since_ms / 1000, UTC).isoformat(" ", "seconds")
    driver = f"driver {run.application_id} on host {run.host or 'unknown'}"
    return _refuse(
        event,
        f"job {job.job} ({run.name or 'without a name'}) is run by {driver} since {since}, run {run.run_id}",
        "stop that query first, or start this one from a new checkpoint",
    )


def elsewhere(job: Job, event: QueryStarted) -> RefuseQuery | None:
    """The refusal of a run because its checkpoint is not at the job's location.

    None if it is at this location, or if one of the two locations is not known.
    """
    location = canonical(event.location)
    if not location or not job.location or location == job.location:
        return None
    return _refuse(
        event,
        f"the checkpoint {location} has the id of job {job.job} ({job.run.name or 'without a name'}), whose "
        f"checkpoint is {job.location}",
        "start this query from a new checkpoint; `rhino branch` makes one with the same state. If the folder was "
        "moved, and the former one is not used any more, say so first: "
        f"`rhino moved --job {job.job} --to {location}`",
    )


def foreign(job: Job, event: QueryStarted) -> RefuseQuery | None:
    """The refusal of a run because the job belongs to another driver. None if it may run the job."""
    if not job.owner or not event.principal or event.principal == job.owner:
        return None
    return RefuseQuery(
        event.session,
        event.job,
        event.run_id,
        f"job {job.job} ({job.run.name or 'without a name'}) belongs to the driver {job.owner!r}, and the certificate "
        f"of this one says {event.principal!r}. An operator can change that: "
        f"`rhino owner --job {job.job} --to {event.principal}`",
    )


def _refuse(event: QueryStarted, what: str, way_out: str) -> RefuseQuery:
    shared = "Copies of a checkpoint share one state, and each would delete what the other needs"
    return RefuseQuery(event.session, event.job, event.run_id, f"{what}. {shared}. The way out: {way_out}")


_LOCATION = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<authority>[^/]*))?(?P<path>/.*)\Z", re.DOTALL
)
_DEFAULT_PORTS = {"hdfs": ":8020"}


def canonical(location: str) -> str:
    """One spelling for `file:/x`, `file:///x/`, `/x` and `rhino://file/x`, as Hadoop writes it: `file:/x`.

    A query checkpoint at `rhino://<scheme>@<authority>/<path>` keeps its logs at `<scheme>://<authority>/<path>`. Any
    text but an absolute location is returned unchanged.
    """
    match = _LOCATION.match(location)
    if match is None:
        return location
    scheme, authority = (match["scheme"] or "file").lower(), (match["authority"] or "").lower()
    if scheme == "rhino":
        scheme, _, authority = authority.partition("@")
    authority = authority.removesuffix(_DEFAULT_PORTS.get(scheme, ""))
    if scheme == "file" and authority == "localhost":
        authority = ""
    path = re.sub("/+", "/", match["path"]).rstrip("/") or "/"
    return f"{scheme}:{'//' if authority else ''}{authority}{path}"
