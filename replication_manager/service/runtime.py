"""Runs the core with its journal and the leases of processes, and notifies sidecars and the handover manager."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from replication_manager.protocol import events as ev
from replication_manager.protocol.workers.worker_record import Report
from replication_manager.service import stored
from replication_manager.service.audience import Audience
from rhino_core.errors import PreconditionError, UnavailableError
from rhino_core.ids import GroupId
from rhino_core.journal import Journal
from rhino_core.runner import Runner
from rhino_core.settings import ManagerSettings
from rhino_pb import common_pb2

TOKEN_BYTES = 16


class LeaseTokens:
    """The token of each worker's present registration."""

    def __init__(self) -> None:
        self._tokens: dict[str, bytes] = {}

    def grant(self, worker_id: str) -> bytes:
        """Creates the token of a newly registered process. The former token of the worker becomes void."""
        token = self._tokens[worker_id] = secrets.token_bytes(TOKEN_BYTES)
        return token

    def check(self, worker_id: str, shown: bytes) -> None:
        """Checks a caller's token for a worker.

        Raises UnavailableError for an unregistered worker, and PreconditionError for a wrong token.
        """
        token = self._tokens.get(worker_id)
        if token is None:
            raise UnavailableError(f"worker {worker_id!r} is not registered: register first")
        if not hmac.compare_digest(token, shown):
            raise PreconditionError(
                f"worker {worker_id!r} was registered by another process, or again since: register, and show that lease"
            )

    def end(self, worker_id: str) -> None:
        """The worker has left, or was forgotten."""
        self._tokens.pop(worker_id, None)


log = logging.getLogger(__name__)
Listener = Callable[[Iterable[GroupId]], None]


class Runtime:
    """The machine, its runner and its ports. `leases`, `audience` and `scrubs` drop forgotten workers."""

    def __init__(self, journal: Journal, settings: ManagerSettings) -> None:
        self._journal = journal
        self.core = stored.restore(journal, settings, asyncio.get_running_loop().time())
        self.audience = Audience(self.core)
        self.leases = LeaseTokens()
        self.scrubs: dict[str, common_pb2.ScrubStatus] = {}  # latest status from each worker, for display only
        self._listeners: list[Listener] = []
        self._readers: list[Listener] = []
        self._logged: dict[str, str] = {}  # states of workers in the newest line of the log
        self._runner: Runner[ev.Event, ev.Effect] = Runner(self.core, self, ev.Tick)

    async def run(self) -> None:
        await self._runner.run()

    def subscribe(self, listener: Listener) -> None:
        """Calls `listener` with changed and ended groups; with none if only workers have changed.

        Reported bytes are no change: heartbeats bring new ones all the time.
        """
        self._listeners.append(listener)

    def on_reports(self, reader: Listener) -> None:
        """Calls `reader` with the groups of each new report."""
        self._readers.append(reader)

    def handle(self, event: ev.Event) -> None:
        """Handles an event; all its effects are applied when it returns.

        Raises the refusals of the core, and UnavailableError unless `run` is active.
        """
        before = self._worker_state(event)
        self._runner.handle(event)
        if self._worker_state(event) != before:
            self._notify(())
        reports = _reports(event)
        if reports:
            for reader in self._readers:
                reader(report.group for report in reports)

    def post(self, event: ev.Event) -> None:
        """Handles an event that the core never refuses. It never raises, and does nothing after `run`."""
        before = self._worker_state(event)
        self._runner.post(event)
        if self._worker_state(event) != before:
            self._notify(())

    def _worker_state(self, event: ev.Event) -> object:
        """The properties of a worker that may change without an effect. Sidecars need not know of such a change."""
        if not isinstance(event, ev.Beat | ev.StreamBroken):
            return None
        record = self.core.membership.records.get(event.worker_id)
        return None if record is None else (record.state, record.disk, record.disk_message)

    # ---------------------------------------------------------------- ports of the core

    def persist(self, effects: Sequence[ev.Effect]) -> None:
        stored.persist(self._journal, effects)

    def publish(self, effect: ev.Effect) -> None:
        match effect:
            case ev.PublishGroup(group):
                members = [f"{m.worker.worker_id}{'' if m.whole else '?'}" for m in group.members]
                fields = {"group": str(group.group), "epoch": str(group.epoch), "members": " > ".join(members)}
                log.info("group", extra=fields)
                self._notify((group.group,))
                self.audience.group_changed(group)
            case ev.PublishWorkers():
                self._log_workers()
                self._notify(())
                self.audience.workers_changed()
            case ev.PublishFloors(floors):
                self.audience.floors_raised(floors)
            case ev.DropGroups(groups):
                self._notify(groups)
                self.audience.groups_gone(groups)
            case ev.PublishForgotten(job, fence):
                log.info("job forgotten", extra={"job": job, "fence": str(fence)})
                self.audience.job_forgotten(job, fence)
            case ev.DropWorker(worker_id):
                log.info("worker forgotten", extra={"worker": worker_id})
                self._notify(())
                self.audience.worker_forgotten(worker_id)
                self.scrubs.pop(worker_id, None)
                self.leases.end(worker_id)
            case ev.PersistDraining(worker_id, draining):
                log.info("draining" if draining else "draining ended", extra={"worker": worker_id})
                self._notify(())
            case (
                ev.PersistWorker()
                | ev.PersistGeneration()
                | ev.PersistGroup()
                | ev.PersistFloor()
                | ev.PersistForgotten()
            ):
                return  # persisted before
            case _:
                assert_never(effect)

    def _log_workers(self) -> None:
        """Logs the workers with a new state since the line before, and the number of workers in each state."""
        states = {r.worker.worker_id: r.state.value for r in self.core.membership.records.values()}
        changed = {name: state for name, state in states.items() if self._logged.get(name) != state}
        gone = sorted(self._logged.keys() - states.keys())
        self._logged = states
        log.info("workers", extra={"states": changed, "gone": gone, "count": dict(Counter(states.values()))})

    def _notify(self, groups: Iterable[GroupId]) -> None:
        for listener in self._listeners:
            listener(groups)


def _reports(event: ev.Event) -> tuple[Report, ...]:
    match event:
        case ev.Beat():
            return event.changed
        case ev.Registered():
            return event.reports
        case _:
            return ()
