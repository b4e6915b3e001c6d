"""`rhino scale`: tells how many workers the queries need. Rhino starts and ends no machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rhino.cli import exit_codes
from rhino.cli.columns import Row, show_columns
from rhino.cli.options import CallOptions
from rhino.cli.output import console, say, say_json
from rhino.client.overview import JobView, fetch_overview, query_names
from rhino_core.errors import UnknownError


def run_scale(job: str, call: CallOptions) -> int:
    """Prints the wanted numbers and returns the exit code. The caller handles RhinoErrors."""
    overview = fetch_overview(call.manager)
    names = query_names(overview.jobs)
    found = [one for one in overview.jobs if one.connected and job in ("", one.job, names[one.job])]
    if job and not found:
        raise UnknownError(f"query {job!r}: no query with this id or name is running")
    live = sum(worker.state == "live" for worker in overview.workers)
    wanted = max((one.workers_wanted for one in found if one.workers_wanted is not None), default=None)
    if call.as_json:
        say_json({"live": live, "wanted": wanted, "queries": [_plain(one) for one in found]})
        return exit_codes.OK
    say(_verdict(live, wanted, found))
    if found:
        show_columns(console(), ("query", "wanted", "behind", "why"), _rows(found, names))
    return exit_codes.OK


def _plain(job: JobView) -> dict[str, object]:
    wanted = {"wanted": job.workers_wanted, "why": job.workers_wanted_why}
    return {"job": job.job, "name": job.name, **wanted, "lags": job.lags}


def _verdict(live: int, wanted: int | None, found: Sequence[JobView]) -> str:
    if not found:
        return f"{live} workers live, and no query is running"
    if wanted is None:
        return f"{live} workers live; how many are wanted is not known yet"
    if wanted > live:
        return f"{live} workers live, {wanted} wanted: start {wanted - live} more, then `rhino handover scale-out`"
    if wanted < live:
        return f"{live} workers live, {wanted} wanted: `rhino drain` empties one; remove it when that says it is safe"
    return f"{live} workers live, as many as wanted"


def _rows(found: Iterable[JobView], names: dict[str, str]) -> Iterable[Row]:
    for job in found:
        wanted = "?" if job.workers_wanted is None else str(job.workers_wanted)
        behind = ", ".join(f"{lag.behind:.0f} {lag.unit} of {lag.source}" for lag in job.lags if lag.behind)
        yield names[job.job], wanted, behind, job.workers_wanted_why
