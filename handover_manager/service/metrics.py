"""The Prometheus metrics of the handover manager."""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Counted
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from handover_manager.drive.handover import DrivenHandover
from handover_manager.machine import HandoverCore
from handover_manager.queries.job import Job
from handover_manager.view import ClusterView
from rhino_core.ids import GroupId
from rhino_model.archives import NO_ARCHIVE, Archive, ArchivedQuery
from rhino_model.handovers import Phase, groups_of

BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
PREPARE, CONFIRM = "prepare", "confirm"
QUERIES_MAX = 100  # labels; a cluster in which queries come and go must not fill the monitoring
OTHERS = "(others)"
QUERY_FIGURES = (
    ("connected", "1 while the driver of the query is connected"),
    ("virtual_nodes", "Virtual nodes of the query"),
    ("under_replicated_virtual_nodes", "Those of which some state has fewer than replication factor + 1 whole copies"),
    ("misses", "Virtual nodes that a logged batch ran elsewhere than desired, as a sum over all batches"),
    ("state_bytes", "Bytes of the largest copy of each replica group of the query"),
    ("batch_id", "Newest logged batch of the query"),
    ("workers_wanted", "Workers with which the batches of the query stay within its trigger interval"),
    ("archived_batch_id", "Newest batch of the query in the archive"),
    ("archive_age_seconds", "Seconds since the oldest logged batch later than the archived one; 0: there is none"),
)
DRILL_OUTCOMES = ("passed", "unproven", "failed", "not_run")
OUTCOMES = tuple(phase for phase in Phase if phase.ended)


EVERY_S = 1.0  # between two looks at jobs whose groups or workers have changed
PAUSE_S = 0.02  # between two jobs: an answer to a heartbeat needs several turns of the event loop
SIZES_EVERY_S = 60.0  # between two sums of the bytes of a job


@dataclass(slots=True)
class Figures:
    """Figures of the groups of one job. There may be very many. `made_from`: the state of the view."""

    made_from: object
    short_nodes: int
    state_bytes: int
    sized_at: float


class HandoverMetrics(Collector):
    """Counts handovers as they end. Reads jobs and groups when the metrics are requested.

    `follow` walks the groups before that, one job at a time, so a request does not wait for all of them. Bytes may be
    SIZES_EVERY_S old.
    """

    def __init__(
        self, core: HandoverCore, registry: CollectorRegistry, archive: Callable[[], Archive] = lambda: NO_ARCHIVE
    ) -> None:
        self._core = core
        self._archive = archive
        self._figures: dict[str, Figures] = {}  # by job
        self._ended: set[str] = set()
        self._misses: dict[str, int] = {}  # of each job, when the metrics were last read
        self._misses_total = 0
        self._handovers = Counter(
            "rhino_handovers", "Handovers that have ended since start", ["outcome"], registry=registry
        )
        self._durations = Histogram(
            "rhino_handover_duration_seconds",
            "Until the newest marker (prepare), and from it to the end (confirm)",
            ["phase", "outcome"],
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._errors = Histogram(
            "rhino_handover_prediction_error_seconds",
            "Predicted and measured of a confirmed handover: how far apart",
            ["of"],
            buckets=BUCKETS_S,
            registry=registry,
        )
        for outcome in OUTCOMES:
            self._handovers.labels(outcome.value)
        registry.register(self)

    def announced(self, handover: DrivenHandover) -> None:
        """A handover has changed. It is counted once, when it has ended."""
        if handover.finished_ms is None or handover.handover_id in self._ended:
            return
        self._ended.intersection_update(one.handover_id for one in self._core.handovers.all())  # others are dropped
        self._ended.add(handover.handover_id)
        outcome = handover.phase.value
        self._handovers.labels(outcome).inc()
        predicted = handover.plan.prediction
        for what, forecast, measured in (
            ("total", predicted.total_s, handover.total_s),
            ("pause", predicted.pause_s, handover.pause_s),
        ):
            if forecast is not None and measured is not None:
                self._errors.labels(what).observe(abs(forecast - measured))
        marked_ms = handover.finished_ms if handover.marked_ms is None else handover.marked_ms
        self._durations.labels(PREPARE, outcome).observe((marked_ms - handover.started_ms) / 1000)
        if handover.marked_ms is not None:
            self._durations.labels(CONFIRM, outcome).observe((handover.finished_ms - marked_ms) / 1000)

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "rhino_under_replicated_virtual_nodes",
            "Virtual nodes of which some state has fewer than replication factor + 1 whole copies on reachable workers",
            sum(map(self._short_nodes, self._core.jobs.all())),
        )
        yield CounterMetricFamily(
            "rhino_locality_misses",
            "Virtual nodes that a logged batch ran elsewhere than desired",
            self._count_misses(),
        )
        yield GaugeMetricFamily(
            "rhino_forgotten_queries",
            "Forgotten queries whose state is still there, because the time to take that back is not over",
            len(self._core.deletions.all()),
        )
        wanted = GaugeMetricFamily(
            "rhino_workers_wanted",
            "The most workers that one of the connected queries wants. No value: not known of any query",
        )
        known = [count for job in self._core.jobs.all() if (count := self._wanted(job)) is not None]
        if known:
            wanted.add_metric([], max(known))
        yield wanted
        archive = self._archive()
        if archive.url:
            yield from _of_archive(archive)
        yield from self._of_queries({one.job: one for one in archive.queries})

    def _wanted(self, job: Job) -> int | None:
        if job.run.session is None:
            return None
        return self._core.adaptation.scaling.wanted(job.job, self._core.seen_at).workers

    def _of_queries(self, archived: Mapping[str, ArchivedQuery]) -> Iterator[Metric]:
        """Values of each query. Above QUERIES_MAX queries, the sums of the others have the label OTHERS."""
        figures = {
            what: GaugeMetricFamily(f"rhino_query_{what}", about, labels=["query"]) for what, about in QUERY_FIGURES
        }
        for label, jobs in self._labelled():
            figures["connected"].add_metric([label], sum(job.run.session is not None for job in jobs))
            figures["virtual_nodes"].add_metric([label], sum(len(job.map.nodes) for job in jobs))
            figures["under_replicated_virtual_nodes"].add_metric([label], sum(map(self._short_nodes, jobs)))
            figures["misses"].add_metric([label], sum(sum(job.logged.misses.values()) for job in jobs))
            figures["state_bytes"].add_metric([label], sum(map(self._state_bytes, jobs)))
            if label != OTHERS and jobs[0].logged.newest_id is not None:
                figures["batch_id"].add_metric([label], jobs[0].logged.newest_id)
            if label != OTHERS and (wanted := self._wanted(jobs[0])) is not None:
                figures["workers_wanted"].add_metric([label], wanted)
            ages = [archived[job.job].age_s for job in jobs if job.job in archived]
            if ages:
                figures["archive_age_seconds"].add_metric([label], max(ages))
            if ages and label != OTHERS:
                figures["archived_batch_id"].add_metric([label], archived[jobs[0].job].batch_id)
        yield from figures.values()

    def _labelled(self) -> Iterator[tuple[str, list[Job]]]:
        """The queries by label: their name, or their id if the name is not unique. Connected ones come first.

        Forgotten queries have their id, so a new query can have the name.
        """
        jobs = sorted(self._core.jobs.all(), key=lambda job: (job.run.session is None, job.run.name, job.job))
        forgotten = {deletion.job for deletion in self._core.deletions.all()}
        uses = Counted(job.run.name for job in jobs if job.job not in forgotten)
        for job in jobs[:QUERIES_MAX]:
            named = job.run.name and uses[job.run.name] == 1 and job.job not in forgotten
            yield job.run.name if named else job.job, [job]
        if len(jobs) > QUERIES_MAX:
            yield OTHERS, jobs[QUERIES_MAX:]

    async def follow(self) -> None:
        """Until cancelled."""
        while True:
            for job in self._core.jobs.all():
                self._refresh(job, sizes=True)
                await asyncio.sleep(PAUSE_S)
            known = {job.job for job in self._core.jobs.all()}
            self._figures = {job: figures for job, figures in self._figures.items() if job in known}
            await asyncio.sleep(EVERY_S)

    def _refresh(self, job: Job, *, sizes: bool = False) -> Figures:
        """The figures of the job, made anew if the job's groups or its workers have changed.

        `sizes`: also if its bytes are old. A request does not wait for these: all queries take half a second.
        """
        view, known = self._core.view, self._figures.get(job.job)
        now = time.monotonic()
        revision = None if view.revisions is None else view.revisions.get(job.job, 0)
        made_from = (job.map.task_groups, revision, job.map.edition)
        if known is None or revision is None:
            known = Figures(made_from, _short_nodes(view, job), _state_bytes(view, job), now)
        elif known.made_from != made_from:
            known = replace(known, made_from=made_from, short_nodes=_short_nodes(view, job))
        if sizes and now >= known.sized_at + SIZES_EVERY_S:
            known = replace(known, state_bytes=_state_bytes(view, job), sized_at=now)
        self._figures[job.job] = known
        return known

    def _short_nodes(self, job: Job) -> int:
        return self._refresh(job).short_nodes

    def _state_bytes(self, job: Job) -> int:
        return self._refresh(job).state_bytes

    def _count_misses(self) -> int:
        """Misses of all jobs since the start. The total never falls, although jobs may be forgotten."""
        now = {job.job: sum(job.logged.misses.values()) for job in self._core.jobs.all()}
        self._misses_total += sum(max(0, count - self._misses.get(job, 0)) for job, count in now.items())
        self._misses = now
        return self._misses_total


def _of_archive(archive: Archive) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "rhino_archive_stopped", "1 if the archive has stopped after an error of its own", bool(archive.error)
    )
    drills = CounterMetricFamily("rhino_archive_drills", "Restore drills since start", labels=["outcome"])
    for outcome in DRILL_OUTCOMES:
        drills.add_metric([outcome], getattr(archive.drills, outcome))
    yield drills
    yield GaugeMetricFamily(
        "rhino_archive_failed_groups",
        "Virtual nodes whose last restore drill has failed",
        len(archive.drills.failures),
    )
    if archive.drills.passed_age_s is not None:
        yield GaugeMetricFamily(
            "rhino_archive_passed_drill_age_seconds",
            "Seconds since the last passed restore drill, or since the first archived batch if none has passed",
            archive.drills.passed_age_s,
        )


def _short_nodes(view: ClusterView, job: Job) -> int:
    return sum(any(_short(view, group) for group in groups_of(*node)) for node in job.map.nodes.items())


def _state_bytes(view: ClusterView, job: Job) -> int:
    """Bytes of the largest copy of each group."""
    seen = (view.groups.get(group) for node in job.map.nodes.items() for group in groups_of(*node))
    return sum(max(group.stored_bytes.values(), default=0) for group in seen if group is not None)


def _short(view: ClusterView, group: GroupId) -> bool:
    seen = view.groups.get(group)
    if seen is None:
        return False  # nothing has been written yet
    whole = sum(m.whole and view.reachable(m.worker.worker_id) for m in seen.group.members)
    return whole < seen.group.settings.replication_factor + 1
