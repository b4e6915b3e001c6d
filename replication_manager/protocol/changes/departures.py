"""Suspected, leaving and draining workers: streams, leases and drains."""

from __future__ import annotations

from replication_manager.protocol import events as ev
from replication_manager.protocol.changes.chains import Chains
from replication_manager.protocol.placement.lagging import Laggards
from replication_manager.protocol.workers.membership import Membership
from replication_manager.protocol.workers.worker_record import WorkerState
from rhino_core.errors import UnknownError


class Departures:
    """Changes the groups of a worker at the end of its stream, process or lease."""

    def __init__(self, membership: Membership, chains: Chains, laggards: Laggards) -> None:
        self._membership = membership
        self._chains = chains
        self._laggards = laggards

    def stream_broken(self, event: ev.StreamBroken, now: float) -> list[ev.Effect]:
        """Shortens the lease of the worker. Its groups change only when the lease ends, or its address refuses."""
        record = self._membership.process(event.worker_id, event.process_id)
        if record is not None:
            self._membership.suspect(record, now)
        return []

    def refused(self, event: ev.Refused) -> list[ev.Effect]:
        """Commits do not wait for an ended process."""
        record = self._membership.process(event.worker_id, event.process_id)
        if record is None or record.state is not WorkerState.SUSPECT:
            return []
        return self._chains.suspect(record)

    def leaving(self, event: ev.Leaving, now: float) -> list[ev.Effect]:
        """A drained worker is lost at once. Any other worker is expected back."""
        record = self._membership.process(event.worker_id, event.process_id)
        if record is None:
            return []
        for_good = event.worker_id in self._membership.draining
        self._membership.leave(record, now, for_good=for_good)
        if for_good:
            self._laggards.forget(event.worker_id)
        effects = self._chains.repair_around(event.worker_id) if for_good else self._chains.suspect(record)
        return [*effects, ev.PublishWorkers()]

    def expire(self, now: float) -> list[ev.Effect]:
        """Ends expired leases and cooldowns, and continues repairs."""
        expired = [record.worker.worker_id for record in self._membership.expired(now)]
        for worker_id in expired:
            self._laggards.forget(worker_id)
        if not expired:
            return self._chains.repair_around() if self._laggards.cooldown_ended(now) else self._chains.repair_more()
        if self._membership.silent(now):
            return [ev.PublishWorkers()]  # no worker is left to take over, and all of them may come back
        return [*self._chains.repair_around(*expired), ev.PublishWorkers()]

    def drain(self, event: ev.DrainSet) -> list[ev.Effect]:
        """Gives the groups of the worker replacements. The worker stays a member until these are whole."""
        if event.worker_id not in self._membership.records:
            raise UnknownError(f"worker {event.worker_id!r} is not known")
        if not self._membership.set_draining(event.worker_id, event.draining):
            return []
        return [ev.PersistDraining(event.worker_id, event.draining), *self._chains.repair_around(event.worker_id)]
