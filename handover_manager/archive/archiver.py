"""Carries out the decisions of the archive machine: asks sidecars, and writes manifests."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never

import grpc.aio

from handover_manager.archive import events as ev
from handover_manager.archive.drilling import drill
from handover_manager.archive.drills import Drills
from handover_manager.archive.machine import ArchivedQuery, ArchiveMachine
from handover_manager.view import ClusterView
from rhino_archive.bucket import Bucket, bucket
from rhino_archive.claims import claim
from rhino_archive.keeping import Keeper
from rhino_archive.manifest import Manifest, manifest_bytes, part_of, part_to_pb
from rhino_archive.reading import manifest_names, read_manifest
from rhino_archive.retention import retention_of
from rhino_core.errors import AccessDeniedError, ConflictError, IntegrityError, NoSpaceError, RhinoError, UnknownError
from rhino_core.failpoints import hit
from rhino_core.journal import Journal
from rhino_core.rpc.channel import worker_channel
from rhino_core.rpc.convert import group_of, store_version_to_pb
from rhino_core.rpc.gate import checked
from rhino_core.rpc.status import error_of
from rhino_core.runner import Runner
from rhino_core.security.transport import Transport
from rhino_core.settings import ManagerSettings
from rhino_model.archives import Archive, ArchiveUsage, DrillCounts
from rhino_model.archives import ArchivedQuery as ArchivedView
from rhino_pb import archive_pb2, peer_pb2_grpc

log = logging.getLogger(__name__)
CLUSTER_KEY = "archive/cluster"  # of the journal
KEEP_EVERY_S = 600.0
SILENT_S = 60.0  # a sidecar without a reply for so long has failed: it replies every few seconds
UPLOAD_S_MAX = 13 * 3600.0  # every call needs a deadline; the machine ends rounds before


class Archiver:
    """The archive of this cluster. Without `run` it only collects logged batches.

    `failure`: why it has stopped: an error that nobody has foreseen. Queries and handovers go on.
    """

    def __init__(self, settings: ManagerSettings, journal: Journal, transport: Transport) -> None:
        """Raises InvalidRequestError and PreconditionError, as `Bucket`."""
        self.bucket: Bucket = bucket(settings.archive)
        self.failure = ""
        self._settings = settings
        self._retention = retention_of(settings.archive_keep)
        self._claimed: set[str] = set()  # queries
        self._keepers: dict[str, Keeper] = {}
        self._began_at = time.monotonic()
        self._uploads_used = ArchiveUsage()  # by sidecars
        self._transport = transport
        self.cluster = _cluster(journal)
        self._ask_driver: Callable[[str, int], bool] = lambda job, batch_id: False
        self.machine = ArchiveMachine(
            settings.archive_every_s,
            self.cluster,
            settings.archive_drill_every_s,
            requests_a_day=settings.archive_requests_a_day,
        )
        self._runner: Runner[ev.Event, ev.Effect] = Runner(self.machine, self, ev.Due)
        self._tasks = asyncio.TaskGroup()
        self._uploads: dict[tuple[str, int], set[asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Runs until cancelled, or until `failure`."""
        try:
            async with self._tasks:
                self._tasks.create_task(self._keep())
                await self._runner.run()
        except Exception as error:
            first: BaseException = error
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            self.failure = f"{type(first).__name__}: {first}"
            log.exception("the archive has stopped, start the manager again", extra={"error": self.failure})

    async def _keep(self) -> None:
        """Deletes old batches, until cancelled."""
        while True:
            await asyncio.sleep(KEEP_EVERY_S)
            for job, query in list(self.machine.queries.items()):
                if (newest := query.newest) is not None and not query.stranger:
                    try:
                        await self._claim(job)
                        keeper = self._keepers.setdefault(job, Keeper(self.bucket, self._retention))
                        await keeper.keep(job, newest.name)
                    except RhinoError as error:
                        log.warning("archive not pruned", extra={"job": job, "error": str(error)})

    def seen(self, view: ClusterView) -> None:
        if not self.failure:
            self._runner.post(ev.ViewSeen(view))

    def ask_driver(self, ask: Callable[[str, int], bool]) -> None:
        """`ask` sends ReadCheckpoint to the driver of a query, and returns whether there is one."""
        self._ask_driver = ask

    def post(self, event: ev.BatchKnown | ev.CheckpointRead | ev.ArchiveWanted | ev.JobGone) -> None:
        if isinstance(event, ev.CheckpointRead) and event.error:
            log.warning("archived without the query checkpoint", extra={"job": event.job, "error": event.error})
        if not self.failure:
            self._runner.post(event)

    def status(self, names: Mapping[str, str]) -> Archive:
        """How far the archive is. `names`: of the queries, by id."""
        queries = sorted(self.machine.queries.items())
        now = asyncio.get_running_loop().time()
        return Archive(
            self.bucket.url,
            self.cluster,
            tuple(_shown(*one, names, now) for one in queries),
            every_s=self._settings.archive_every_s,
            keep=self._settings.archive_keep,
            error=self.failure,
            drills=_counts(self.machine.drills, now),
            usage=self._usage(),
        )

    def _usage(self) -> ArchiveUsage:
        ours, theirs = self.bucket.requests, self._uploads_used
        return ArchiveUsage(
            time.monotonic() - self._began_at,
            theirs.writes + ours.total() - ours["get"],
            theirs.reads + ours["get"],
            theirs.uploaded_bytes + self.bucket.sent_bytes,
        )

    # ---------------------------------------------------------------- ports of the machine

    def persist(self, effects: Sequence[ev.Effect]) -> None:
        """Nothing: the archive itself is the memory."""

    def publish(self, effect: ev.Effect) -> None:
        match effect:
            case ev.FindNewest(job):
                self._step(job, 0, self._find_newest(job))
            case ev.Upload(job, number, worker):
                task = self._tasks.create_task(self._upload(effect), name=f"archive {job} by {worker.worker_id}")
                running = self._uploads.setdefault((job, number), set())
                running.add(task)
                task.add_done_callback(running.discard)
            case ev.ReadCheckpoint(job, batch_id):
                if not self._ask_driver(job, batch_id):
                    self._runner.post(ev.CheckpointRead(job, batch_id, error="no driver runs the query"))
            case ev.WriteManifest(number, manifest):
                self._uploads.pop((manifest.job, number), None)
                self._step(manifest.job, number, self._write(number, manifest))
            case ev.StopUploads(job, number):
                for task in self._uploads.pop((job, number), ()):
                    task.cancel()
            case ev.Drill():
                self._tasks.create_task(self._drill(effect), name=f"drill {effect.group}")
            case ev.DrillFailed(job, error):
                log.error("a restore drill has failed", extra={"job": job, "error": error})
            case _:
                assert_never(effect)

    def _step(self, job: str, number: int, work: Coroutine[Any, Any, ev.Event]) -> None:
        async def carried_out() -> None:
            try:
                event = await work
            except RhinoError as error:
                log.warning("batch not archived", extra={"job": job, "error": str(error)})
                event = ev.StepFailed(job, number, str(error), stranger=isinstance(error, ConflictError))
            self._runner.post(event)

        self._tasks.create_task(carried_out())

    async def _find_newest(self, job: str) -> ev.Event:
        await self._claim(job)
        for name in await manifest_names(self.bucket, job):
            try:
                return ev.NewestFound(job, await read_manifest(self.bucket, name))
            except IntegrityError as error:
                log.error("a manifest is damaged; an older one is used", extra={"job": job, "error": str(error)})
            except UnknownError:
                continue  # deleted meanwhile
        return ev.NewestFound(job, None)

    async def _claim(self, job: str) -> None:
        """Raises ConflictError, and UnavailableError if the archive has lost what this process has seen there."""
        await claim(self.bucket, job, self.cluster, again=job in self._claimed)
        self._claimed.add(job)

    async def _write(self, number: int, manifest: Manifest) -> ev.Event:
        await self._claim(manifest.job)
        written = replace(manifest, written_ms=time.time_ns() // 1_000_000)
        name, data = manifest.name, await asyncio.to_thread(manifest_bytes, written)
        hit("archive.manifest.before")
        if not await self.bucket.put(name, data, create=True):
            # By a former process of this cluster, or by this one before a time-out. It has the same versions.
            try:
                written = await read_manifest(self.bucket, name)
            except IntegrityError as error:
                log.error("a damaged manifest is replaced", extra={"job": manifest.job, "error": str(error)})
                await self.bucket.put(name, data)
        hit("archive.manifest.after")
        return ev.ManifestWritten(number, written)

    async def _upload(self, effect: ev.Upload) -> None:
        try:
            event = await self._asked(effect)
        except RhinoError as error:
            worker = effect.worker.worker_id
            text = f"worker {worker}: {error}"
            log.warning("part not archived", extra={"job": effect.job, "worker": worker, "error": str(error)})
            archive = isinstance(error, AccessDeniedError | NoSpaceError)
            event = ev.UploadFailed(effect.job, effect.round, worker, text, archive=archive)
        self._runner.post(event)

    async def _drill(self, effect: ev.Drill) -> None:
        ended = await drill(effect, self.bucket, self._transport)
        if ended.outcome is not ev.Outcome.FAILED:
            extra = {"group": str(effect.group), "worker": effect.worker.worker_id, "why": ended.why}
            log.info("restore drill", extra={**extra, "batch": effect.batch_id, "outcome": ended.outcome.value})
        self._runner.post(ended)

    async def _asked(self, effect: ev.Upload) -> ev.Event:
        worker = effect.worker
        doing = f"archive query {effect.job} by worker {worker.worker_id} at {worker.peer_address}"
        request = archive_pb2.ArchiveRequest(
            archive=self.bucket.url,
            job=effect.job,
            versions=map(store_version_to_pb, effect.versions),
            basis=map(part_to_pb, effect.basis),
        )
        async with worker_channel(worker, self._transport) as channel:
            replies = peer_pb2_grpc.PeerStub(channel).Archive(request, timeout=UPLOAD_S_MAX)
            stream, last = aiter(replies), archive_pb2.ArchiveReply()
            try:
                while True:
                    async with asyncio.timeout(SILENT_S):
                        reply = await anext(stream, None)
                    if reply is None:
                        part = part_of(last.part) if last.HasField("part") else None
                        refused = tuple(map(group_of, last.refused))
                        requests = last.writes + last.reads
                        return ev.PartUploaded(effect.job, effect.round, worker.worker_id, part, refused, requests)
                    last = checked(reply, doing)
            except TimeoutError:
                text = f"worker {worker.worker_id}: it has been silent for {SILENT_S:.0f} s"
                return ev.UploadFailed(effect.job, effect.round, worker.worker_id, text)
            except grpc.aio.AioRpcError as error:
                raise error_of(error, doing) from error
            finally:
                replies.cancel()
                used = self._uploads_used
                self._uploads_used = replace(
                    used,
                    writes=used.writes + last.writes,
                    reads=used.reads + last.reads,
                    uploaded_bytes=used.uploaded_bytes + last.uploaded_bytes,
                )


def _shown(job: str, query: ArchivedQuery, names: Mapping[str, str], now: float) -> ArchivedView:
    newest, logged = query.newest, query.logged
    return ArchivedView(
        job=job,
        name=names.get(job, ""),
        batch_id=-1 if newest is None else newest.batch_id,
        logged_ms=0 if newest is None else newest.logged_ms,
        written_ms=0 if newest is None else newest.written_ms,
        logged_batch_id=-1 if logged is None else logged.batch_id,
        whole=query.known and not query.behind,
        age_s=0.0 if query.behind_since is None else now - query.behind_since,
        running=query.round is not None,
        error=query.error,
        every_s=query.every_s,
        why=query.why,
    )


def _counts(drills: Drills, now: float) -> DrillCounts:
    return DrillCounts(
        every_s=drills.every_s,
        passed=drills.counts[ev.Outcome.PASSED],
        unproven=drills.counts[ev.Outcome.UNPROVEN],
        failed=drills.counts[ev.Outcome.FAILED],
        not_run=drills.counts[ev.Outcome.NOT_RUN],
        passed_age_s=None if drills.passed_at is None else now - drills.passed_at,
        failures=tuple(drills.failures.values()),
        why=drills.why,
    )


def _cluster(journal: Journal) -> str:
    """The id of this cluster. It is made at the first start with an archive."""
    known = journal.get(CLUSTER_KEY)
    if known is None:
        known = uuid.uuid4().hex
        journal.write({CLUSTER_KEY: known})
    return str(known)
