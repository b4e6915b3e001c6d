"""The durability of each job: its files count from the page cache, or once they are synced."""

from __future__ import annotations

import logging

from rhino_core.ids import Durability, StoreId
from worker_runtime.storage.disk.syncer import Syncer
from worker_runtime.storage.index.index import Index

log = logging.getLogger(__name__)


class JobDurability:
    """Durability by job, learnt from groups and kept in the index.

    An unknown job gets the stronger durability: its first files may arrive before its group.
    """

    def __init__(self, index: Index, syncer: Syncer) -> None:
        self._index = index
        self._syncer = syncer
        self._known: dict[str, Durability] = index.durabilities()

    def is_synced(self, store: StoreId) -> bool:
        """Whether the store's files count only once they are synced."""
        return self._known.get(store.job, Durability.SYNCED) is Durability.SYNCED

    def learn(self, job: str, durability: Durability) -> None:
        """Records the job's durability. Call this before the group is used.

        A job's durability never changes, unless a manager has lost its journal. Then files stored under the weaker
        durability are synced now (this blocks), and a stronger durability stays. Raises UnavailableError if the disk
        cannot sync, NoSpaceError, IntegrityError if the index cannot be written.
        """
        known = self._known.get(job)
        if known in (durability, Durability.SYNCED):
            return
        if known is Durability.REPLICATED:
            log.warning("a job is synced from now on, syncing what is here", extra={"job": job})
            self._syncer.sync_everything()
        self._known[job] = durability
        self._index.put_durability(job, durability)

    def forget(self, job: str) -> None:
        """Forgets the job. The index deletes the durability together with everything else of the job."""
        self._known.pop(job, None)
