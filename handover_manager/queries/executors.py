"""The places of the executors of each driver's application, by the driver's reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import NamedTuple

from handover_manager.events import ExecutorChanged
from handover_manager.view import ClusterView

# Per session. Further ones are ignored: placement is less good, and their workers may write as members only.
EXECUTORS_MAX = 10_000


class Places(NamedTuple):
    """Workers of executors that have reported theirs, and hosts of the other executors."""

    workers: frozenset[str]
    hosts: frozenset[str]

    def usable(self, view: ClusterView, desired: Collection[str]) -> ClusterView:
        """The view without workers that have neither an executor nor a desired virtual node.

        It is the whole view while no executor is known. A query uses a part of a cluster if others use the rest. A new
        worker has no executor for some seconds.
        """
        if not self.workers and not self.hosts:
            return view
        workers = {
            name: seen
            for name, seen in view.workers.items()
            if name in self.workers or seen.worker.host in self.hosts or name in desired
        }
        return dataclasses.replace(view, workers=workers)


NOWHERE = Places(frozenset(), frozenset())


class Executors:
    """Executors by session. A driver that connects again reports all its executors."""

    def __init__(self) -> None:
        self._of: dict[int, dict[str, ExecutorChanged]] = {}

    def changed(self, event: ExecutorChanged) -> bool:
        """Adds or removes an executor. Returns whether the places have changed."""
        before, known = self.places(event.session), self._of.setdefault(event.session, {})
        if event.removed or not (event.host or event.worker_id):
            known.pop(event.executor_id, None)
        elif event.executor_id in known or len(known) < EXECUTORS_MAX:
            known[event.executor_id] = event
        return self.places(event.session) != before

    def places(self, session: int) -> Places:
        known = self._of.get(session, {}).values()
        workers = frozenset(executor.worker_id for executor in known if executor.worker_id)
        return Places(workers, frozenset(executor.host for executor in known if not executor.worker_id))

    def count(self, session: int) -> int:
        return len(self._of.get(session, ()))

    def closed(self, session: int) -> None:
        self._of.pop(session, None)
