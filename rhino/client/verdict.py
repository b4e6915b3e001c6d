"""Whether a cluster is well: one level with its reasons, from an overview. For `rhino status` and for programs."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rhino.client.overview import GroupView, Overview, query_names
from rhino_core.ids import GroupId
from rhino_core.text import count, duration

NAMED_MAX = 3  # names in one reason
QUIET_S, SILENT_S = 120.0, 600.0  # without a batch: a hint, and a reason
INTERVALS = 3  # so many usual intervals of its batches are no silence
LATE_S, LATE_ROUNDS = 60.0, 6  # an archive is late after so many seconds, or so many of its intervals


class Level(enum.Enum):
    """OK: all copies are there. CRITICAL: some state has no reachable complete copy. DEGRADED: between."""

    OK = "ok"
    DEGRADED = "degraded"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reasons`: why the level is not OK, the worst first. `hints`: useful facts at any level."""

    level: Level
    reasons: tuple[str, ...]
    hints: tuple[str, ...]


def judge(overview: Overview) -> Verdict:
    """Returns the verdict on everything in the overview. It may be a selection."""
    critical, degraded = tuple(_critical(overview)), tuple(_degraded(overview))
    level = Level.CRITICAL if critical else Level.DEGRADED if degraded else Level.OK
    return Verdict(level, critical + degraded, tuple(_hints(overview)))


def whole_copies(group: GroupView) -> list[str]:
    """The workers with a complete copy that is not lost."""
    return [member.worker_id for member in group.members if member.whole and member.state != "lost"]


def _critical(overview: Overview) -> Iterator[str]:
    gone = [group for group in overview.groups if not whole_copies(group)]
    if gone:
        yield f"{_of(gone, overview)} no complete copy on a reachable worker: {_groups(gone, overview)}"


def _degraded(overview: Overview) -> Iterator[str]:
    workers = overview.workers
    lost = [worker.worker_id for worker in workers if worker.state == "lost"]
    suspect = [worker.worker_id for worker in workers if worker.state == "suspect"]
    if lost:
        yield f"{len(lost)} of {len(workers)} workers lost: {_named(lost)}"
    if suspect:
        yield f"{len(suspect)} of {len(workers)} workers suspect: {_named(suspect)}"
    if not workers:
        yield "0 workers live"
    if silent := overview.silent_witnesses:
        yield f"{len(silent)} of {count(len(overview.witnesses), 'witness', 'witnesses')} silent: {_named(silent)}"
    for state in ("failing", "full"):
        disks = [worker.worker_id for worker in workers if worker.disk == state]
        if disks:
            yield f"{len(disks)} of {len(workers)} disks {state}: {_named(disks)}"
    damaged = [worker for worker in workers if worker.scrub.missing]
    if damaged:
        files = sum(worker.scrub.missing for worker in damaged)
        yield f"{files} damaged files not repaired yet: {_named([worker.worker_id for worker in damaged])}"
    alive = [group for group in overview.groups if whole_copies(group)]
    below = [group for group in alive if group.degraded]
    if below:
        yield f"{_of(below, overview)} fewer complete copies than minCopies: {_groups(below, overview)}"
    short = [g for g in alive if not g.degraded and len(whole_copies(g)) < g.replication_factor + 1]
    if short:
        text = "fewer complete copies than replicationFactor + 1"
        yield f"{_of(short, overview)} {text}: {_groups(short, overview)}"
    yield from _without_a_batch(overview, SILENT_S, math.inf)
    yield from _archive(overview)


def _without_a_batch(overview: Overview, least_s: float, most_s: float) -> Iterator[str]:
    """Names the running queries with this silence. They may have no new data: nobody here knows."""
    names = query_names(overview.jobs)
    found = [
        f"{names[job.job]} ({duration(job.batch_ago_s)}{', no executor' if job.executors == 0 else ''})"
        for job in overview.jobs
        if job.connected
        and job.batch_ago_s is not None
        and least_s <= job.batch_ago_s < most_s
        and job.batch_ago_s > INTERVALS * (job.batch_interval_s or 0.0)
    ]
    if found:
        running = count(sum(job.connected for job in overview.jobs), "running query", "running queries")
        yield f"{len(found)} of {running} without a batch for minutes: {_named(found)}; is there no new data?"


def _archive(overview: Overview) -> Iterator[str]:
    archive, names = overview.archive, query_names(overview.jobs)
    if archive.error:
        yield f"the archive has stopped: {archive.error}; start the manager again"
    for query in archive.queries:
        name = names.get(query.job, query.job)
        if query.age_s > max(LATE_S, LATE_ROUNDS * max(archive.every_s, query.every_s)):
            yield f"query {name}: the archive is {duration(query.age_s)} behind" + f": {query.error}" * bool(
                query.error
            )
        elif query.error:
            yield f"query {name} is not archived: {query.error}"
    failures = archive.drills.failures
    if failures:
        yield f"{count(len(failures), 'restore drill')} failed: {_named(failures)}"


def _hints(overview: Overview) -> Iterator[str]:
    hosts = {worker.worker_id: worker.host for worker in overview.workers}
    copies = {group.group: whole_copies(group) for group in overview.groups}
    together = [
        group
        for group in overview.groups
        if len(copies[group.group]) > 1 and len({hosts.get(worker, worker) for worker in copies[group.group]}) == 1
    ]
    if together:
        named = _named(sorted({hosts.get(copies[group.group][0], "") for group in together}))
        yield f"all copies of {_groups_of(together, overview)} are on one host, and are lost with it: {named}"
    yield from _zone_hints(overview, copies)
    yield from _witness_hints(overview)
    yield from _without_a_batch(overview, QUIET_S, SILENT_S)
    once = [group for group in overview.groups if group.replication_factor == 0]
    if once:
        yield f"{_groups_of(once, overview)} kept once on purpose (replicationFactor 0)"
    versions = {worker.rhino_version or "an earlier one" for worker in overview.workers if worker.state == "live"}
    versions |= {job.rhino_version or "an earlier one" for job in overview.jobs if job.connected}
    versions |= {overview.rhino_version} - {""}
    if overview.insecure:
        yield "no encryption and no identities (--insecure): whoever reaches a port can read and delete state"
    if len(versions) > 1:
        yield f"{len(versions)} versions of Rhino run: {_named(sorted(versions))}; `--section versions` shows where"
    for drain in overview.drains:
        yield "; ".join((drain.headline, *drain.blockers))
    if overview.handovers:
        running = [one.handover_id for one in overview.handovers]
        yield f"{count(len(running), 'handover')} running: {_named(running)}"
    names = query_names(overview.jobs)
    for job in overview.jobs:
        if job.delete_in_s is not None:
            text = f"query {names[job.job]} is forgotten, and its state is deleted in {duration(job.delete_in_s)}"
            yield f"{text}; `rhino forget --job {names[job.job]} --undo` takes it back"
    away = [(names[job.job], job.missed_now) for job in overview.jobs if job.missed_now]
    if away:
        nodes = count(sum(missed for _, missed in away), "virtual node")
        yield f"{nodes} ran elsewhere than desired in the newest batch: {_named([name for name, _ in away])}"


def _witness_hints(overview: Overview) -> Iterator[str]:
    """Places whose loss takes a majority of the witnesses, and with them the manager."""
    at = {worker.peer_address: worker for worker in overview.workers}
    known = [at[address] for address in overview.witnesses if address in at]
    for kind, places in (("in zone", [one.zone for one in known]), ("on host", [one.host for one in known])):
        for place, times in Counter(places).items():
            if place and 1 < times > len(overview.witnesses) // 2:
                yield f"{times} of {len(overview.witnesses)} witnesses are {kind} {place}: managers stop without it"
                return


def _zone_hints(overview: Overview, copies: Mapping[GroupId, list[str]]) -> Iterator[str]:
    zones = {worker.worker_id: worker.zone for worker in overview.workers}
    bare = [worker.worker_id for worker in overview.workers if not worker.zone]
    if bare and len(bare) < len(zones):
        yield (
            f"{len(bare)} of {len(zones)} workers have no zone: {_named(bare)}; it may be that of any other worker, so "
            "copies go to known other zones first; set --zone of their sidecars"
        )
    if len({zone for zone in zones.values() if zone}) < 2:
        return
    known = {group: [zones.get(worker, "") for worker in workers] for group, workers in copies.items()}
    together = [
        group
        for group in overview.groups
        if len(found := known[group.group]) > 1 and all(found) and len(set(found)) == 1
    ]
    if together:
        named = _named(sorted({known[group.group][0] for group in together}))
        yield f"all copies of {_groups_of(together, overview)} are in one zone, and are lost with it: {named}"


def _groups_of(groups: Collection[GroupView], overview: Overview) -> str:
    return f"{len(groups)} of {len(overview.groups)} replica groups"


def _of(groups: Collection[GroupView], overview: Overview) -> str:
    return f"{_groups_of(groups, overview)} {'has' if len(groups) == 1 else 'have'}"


def _groups(groups: Iterable[GroupView], overview: Overview) -> str:
    names = query_names(overview.jobs)
    return _named([group_name(group, names) for group in groups])


def group_name(group: GroupView, names: dict[str, str]) -> str:
    """`<query>/<operator>/<partition>`, with the query's name if it has one."""
    job, operator, partition = group.group
    return f"{names.get(job, job)}/{operator}/{partition}"


def _named(names: Collection[str]) -> str:
    shown = list(names)[:NAMED_MAX]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
