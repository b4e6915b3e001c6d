"""A manager that begins with an empty journal among workers that may have lived under another one."""

from __future__ import annotations

from collections.abc import Iterable

from replication_manager.core.membership import Membership, WorkerRecord
from rhino.ids import Worker


class Bootstrap:
    """Of the first life of a journal; `fresh` is false in all later ones, which know the workers themselves.

    Workers say whom they have known. Those are taken for members of the cluster that may come back, so that nobody
    takes what they hold for lost, and no group is made anew before their lease has ended.
    """

    def __init__(self, *, fresh: bool) -> None:
        self._fresh = fresh
        self._given_up: set[str] = set()

    def unheard(self, known: Iterable[Worker], membership: Membership, now: float) -> list[Worker]:
        """Adds workers that nobody had named before; returns them."""
        if not self._fresh:
            return []
        new = [w for w in known if w.worker_id not in membership.records and w.worker_id not in self._given_up]
        for worker in new:
            membership.restore(worker, now)
        return new

    def give_up(self, worker_id: str) -> None:
        """`rhino forget --worker`: others may still name it."""
        self._given_up.add(worker_id)

    def awaited(self, records: Iterable[WorkerRecord]) -> list[str]:
        """Worker ids that are known by name only and whose lease runs."""
        return sorted(r.worker.worker_id for r in records if self._fresh and r.present and not r.process_id)
