"""What each job was promised of a stored file: in the page cache, or synced."""

from __future__ import annotations

import logging

from rhino.ids import Durability
from worker_runtime.storage.index import Index
from worker_runtime.storage.syncer import Syncer

log = logging.getLogger(__name__)


class Promises:
    """Durability by job, learnt from groups and kept in the index. A job that is not known yet gets the stronger one:
    its first files may arrive before its group does."""

    def __init__(self, index: Index, syncer: Syncer) -> None:
        self._index = index
        self._syncer = syncer
        self._known: dict[str, Durability] = index.durabilities()

    def of(self, job: str) -> Durability:
        return self._known.get(job, Durability.SYNCED)

    def learn(self, job: str, durability: Durability) -> None:
        """To be called before the group is used. Raises UnavailableError when the disk fails.

        It does not change in the life of a job, except with a manager that has lost its journal: then what was stored
        under the weaker promise is synced here and now (blocks), and a stronger one stays.
        """
        known = self._known.get(job)
        if known in (durability, Durability.SYNCED):
            return
        if known is Durability.REPLICATED:
            log.warning("a job is synced from now on, syncing what is here", extra={"job": job})
            self._syncer.sync_everything()
        self._known[job] = durability
        self._index.put_durability(job, durability)
