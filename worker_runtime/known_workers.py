"""Whom this worker has been told of: what a manager with an empty journal must hear, for it knows nobody."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable

from rhino.errors import RhinoError
from rhino.ids import Worker
from worker_runtime.storage.store import Store

log = logging.getLogger(__name__)
_KEY = "known_workers"


class KnownWorkers:
    """The workers of the cluster, live or absent, as the manager said last; kept over restarts of the sidecar."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._text = store.memo(_KEY) or "[]"

    def all(self) -> list[Worker]:
        return [Worker(**fields) for fields in json.loads(self._text)]

    def note(self, workers: Iterable[Worker]) -> None:
        """Always the full set."""
        fields = [dataclasses.asdict(worker) for worker in sorted(workers, key=lambda w: w.worker_id)]
        text = json.dumps(fields)
        if text == self._text:
            return
        self._text = text
        try:
            self._store.put_memo(_KEY, text)
        except RhinoError as error:  # the manager will say it again
            log.error("known workers not kept", extra={"error": str(error)})
