"""A manager with an empty journal, among workers that may have served another manager."""

from __future__ import annotations

from collections.abc import Iterable

from replication_manager.protocol.workers.membership import Membership
from replication_manager.protocol.workers.worker_record import WorkerRecord
from rhino_core.ids import Worker

GIVEN_UP_MAX = 10_000  # bounds memory: the first journal lifetime may last for years


class Bootstrap:
    """Workers named by other workers during the first lifetime of the journal.

    Each sidecar reports the workers known to it. The manager restores these as members that may come back, so none of
    their versions counts as lost. It creates no group until each of them has registered or lost its lease. `fresh` is
    false in every later lifetime of the journal: by then the journal names the workers.
    """

    def __init__(self, *, fresh: bool) -> None:
        self._fresh = fresh
        self._given_up: dict[str, None] = {}  # oldest first

    def restore_named(self, known: Iterable[Worker], membership: Membership, now: float) -> list[Worker]:
        """Restores the `known` workers not named before, and returns them."""
        if not self._fresh:
            return []
        new = [w for w in known if w.worker_id not in membership.records and w.worker_id not in self._given_up]
        for worker in new:
            membership.restore(worker, now)
        return new

    def give_up(self, worker_id: str) -> None:
        """Ignores later mentions of a worker removed by `rhino forget --worker`.

        Only the first lifetime of a journal takes workers from such mentions.
        """
        if self._fresh:
            self._given_up[worker_id] = None
            while len(self._given_up) > GIVEN_UP_MAX:
                del self._given_up[next(iter(self._given_up))]

    def awaited(self, records: Iterable[WorkerRecord]) -> list[str]:
        """Ids of workers known by name only, with a running lease."""
        return sorted(r.worker.worker_id for r in records if self._fresh and r.present and not r.process_id)
