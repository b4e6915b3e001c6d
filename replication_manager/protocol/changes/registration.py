"""Registrations and heartbeats of sidecars."""

from __future__ import annotations

from collections.abc import Iterable

from replication_manager.protocol import events as ev
from replication_manager.protocol.changes.chains import Chains
from replication_manager.protocol.changes.replacing import Replacements
from replication_manager.protocol.changes.reports import Reports
from replication_manager.protocol.groups import rules
from replication_manager.protocol.groups.returned import Returned
from replication_manager.protocol.placement.impaired import Impaired
from replication_manager.protocol.workers.bootstrap import Bootstrap
from replication_manager.protocol.workers.membership import Membership
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.errors import AlreadyThereError, UnavailableError
from rhino_core.ids import DiskState, Worker


class Registration:
    """Applies registrations and heartbeats to membership, groups and reports."""

    def __init__(
        self,
        membership: Membership,
        chains: Chains,
        impaired: Impaired,
        bootstrap: Bootstrap,
        returned: Returned,
        replacements: Replacements,
        reports: Reports,
    ) -> None:
        self._membership = membership
        self._chains = chains
        self._impaired = impaired
        self._bootstrap = bootstrap
        self._returned = returned
        self._replacements = replacements
        self._reports = reports

    def registered(self, event: ev.Registered, now: float) -> list[ev.Effect]:
        """A process has registered as a worker. Raises AlreadyThereError."""
        worker = event.worker
        if self._membership.taken_by_another(worker.worker_id, event.process_id):
            raise AlreadyThereError(
                f"worker id {worker.worker_id!r} is in use by another live sidecar: give each one its own --worker-id"
            )
        journalled = self._membership.is_known_as(worker)  # 1000 sidecars register after a restart of the manager
        effects: list[ev.Effect] = [] if journalled else [ev.PersistWorker(worker)]
        seen = max((event.highest_epoch, *(report.epoch for report in event.reports)))
        named = [known for known in event.known if known.worker_id != worker.worker_id]
        effects += [ev.PersistWorker(w) for w in self._bootstrap.restore_named(named, self._membership, now)]
        effects += self._chains.epochs.exceed(seen)
        reports = tuple(report for report in event.reports if report.group.job not in self._chains.fences)
        record = self._membership.register(worker, event.process_id, reports, now)
        self._replacements.forget(worker.worker_id)
        record.disk, record.disk_message, record.version = event.disk, event.disk_message, event.version
        self._impaired.judge(record, now)
        effects += self._overtaken(worker, event.reports)
        for group in self._chains.of_worker(worker.worker_id):
            effects += self._chains.repair(group, rules.known_as(group.members, worker))
        effects += self._chains.repair_around()
        for report in event.reports:
            effects += self._reports.take(worker, report)
        effects += self._replacements.take_back(record)
        mine = self._chains.member_of(worker.worker_id)
        outside = [report for report in reports if report.group not in mine]
        self._returned.registered(worker, outside, self._chains.groups, now)
        return [*effects, *self._reports.join_sources(worker.worker_id), ev.PublishWorkers()]

    def _overtaken(self, worker: Worker, reports: Iterable[Report]) -> list[ev.Effect]:
        """Renews groups with a later epoch at the worker.

        The journal is then an old one, and of all members only this worker can be trusted to be whole.
        """
        effects: list[ev.Effect] = []
        for report in reports:
            group = self._chains.groups.get(report.group)
            if group is None or report.epoch <= group.epoch:
                continue
            others = [m.worker for m in group.members if m.worker.worker_id != worker.worker_id]
            outside = not report.whole and group.member(worker.worker_id) is None  # it only knows of the group
            chain = tuple(others) if outside else (worker, *others)[: group.settings.replication_factor + 1]
            effects += self._chains.renew(group, rules.held_by(chain, {worker.worker_id} if report.whole else ()))
        return effects

    def beat(self, event: ev.Beat, now: float) -> list[ev.Effect]:
        """A worker has sent a heartbeat. Raises UnavailableError if its process is not registered."""
        record = self._membership.records.get(event.worker_id)
        known = record is not None and record.worker.incarnation == event.incarnation and record.process_id
        if record is None or not known or record.ended:
            raise UnavailableError(f"worker {event.worker_id!r} is not registered: register again")
        was_silent = not self._membership.is_heard_lately(record.worker, now)
        self._membership.beat(record, now)
        disk_recovered = record.disk is not DiskState.OK and event.disk is DiskState.OK
        record.stored_bytes, record.free_bytes = event.stored_bytes, event.free_bytes
        record.resident_bytes_max, record.replicated_bytes = event.resident_bytes_max, event.replicated_bytes
        record.disk, record.disk_message = event.disk, event.disk_message
        record.lags = event.lags
        # places copies for which no worker had room
        effects = self._chains.repair_around(event.worker_id) if disk_recovered else []
        if self._impaired.judge(record, now):
            effects += self._chains.reconsider(event.worker_id)
        if was_silent and self._impaired.ids():
            effects += self._chains.repair_around()  # this worker may be able to take over from impaired owners
        for report in event.changed:
            if report.group.job in self._chains.fences:
                continue  # the worker is deleting it
            self._membership.report(record, report)
            effects += self._reports.take(record.worker, report)
        return [*effects, *self._reports.join_sources(event.worker_id), *self._replacements.due(record, now)]
