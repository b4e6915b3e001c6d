"""The workers named by the manager, and their addresses. This worker trusts and contacts nobody else.

A name proves nothing about its user: only a certificate does.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict

from rhino_core.errors import RhinoError, UnavailableError
from rhino_core.ids import Worker
from rhino_core.records import known_fields
from worker_runtime.replication import Replication
from worker_runtime.storage.index.index import Index

log = logging.getLogger(__name__)
_KEY = "known_workers"


class KnownWorkers:
    """The workers of the cluster, live or absent, according to the manager's latest update.

    Kept over restarts of the sidecar.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._text = index.metadata(_KEY) or "[]"

    def all(self) -> list[Worker]:
        return [Worker(**known_fields(Worker, fields)) for fields in json.loads(self._text)]

    def update(self, workers: Iterable[Worker]) -> None:
        """Records the complete set."""
        text = json.dumps([asdict(worker) for worker in sorted(workers, key=lambda w: w.worker_id)])
        if text == self._text:
            return
        self._text = text
        try:
            self._index.put_metadata(_KEY, text)
        except RhinoError as error:  # the manager will send it again
            log.error("known workers not kept", extra={"error": str(error)})


class Directory:
    """The workers of the cluster by the manager's latest update, which may precede a restart of the sidecar."""

    def __init__(self, replication: Replication) -> None:
        self._replication = replication
        self._kept = KnownWorkers(replication.store.index)
        self._named = {worker.worker_id: worker for worker in self._kept.all()}
        self.live: list[Worker] = []
        self.absent: list[Worker] = []  # not live, but they may hold versions
        self._listeners: list[Callable[[Collection[str]], None]] = []

    def subscribe(self, listener: Callable[[Collection[str]], None]) -> None:
        """Calls `listener` after each update, with the ids of workers that have become live."""
        self._listeners.append(listener)

    def update(self, live: list[Worker], absent: list[Worker]) -> None:
        """Records the manager's update. Both lists are complete."""
        before = {worker.worker_id for worker in self.live}
        self.live, self.absent = live, absent
        self._named = {worker.worker_id: worker for worker in (*absent, *live)}
        self._kept.update(self._named.values())
        returned = {worker.worker_id for worker in live} - before
        for listener in self._listeners:
            listener(returned)

    def kept(self) -> list[Worker]:
        """The workers known before the restart, until the manager has sent an update."""
        return self._kept.all()

    def find(self, worker_id: str) -> Worker | None:
        """The worker's present incarnation and address; None for an unknown worker."""
        return self._named.get(worker_id) or next((m for m in self._members() if m.worker_id == worker_id), None)

    def current(self, worker: Worker) -> Worker:
        """Like `find`, for a worker named before by the manager: a restarted sidecar may have another address."""
        return self._named.get(worker.worker_id, worker)

    def named(self, worker_id: str) -> Worker:
        """As `find`. Raises UnavailableError for an unknown worker."""
        found = self.find(worker_id)
        if found is None:
            raise UnavailableError(
                f"worker {worker_id!r} is not known here: the manager has not named it; try again once it is registered"
            )
        return found

    def require(self, worker: Worker) -> None:
        """Raises UnavailableError unless the manager has named this incarnation of the worker."""
        named = self.named(worker.worker_id)
        if named.incarnation != worker.incarnation:
            raise UnavailableError(
                f"worker {worker.worker_id!r} with incarnation {worker.incarnation!r} is not known here, but one with "
                f"{named.incarnation!r}; try again once it is registered"
            )

    def wanted(self) -> set[str]:
        """Ids of the possible contacts of this worker: live workers, and members of its known groups."""
        return {worker.worker_id for worker in (*self.live, *self._members())}

    def is_live(self, worker_id: str) -> bool:
        return any(worker.worker_id == worker_id for worker in self.live)

    def _members(self) -> Iterator[Worker]:
        view = self._replication.view
        for gid in view.groups():
            if (group := view.group(gid)) is not None:
                yield from (member.worker for member in group.members)
