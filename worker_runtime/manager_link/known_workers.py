"""Keeps a list of known workers, which a manager with an empty journal needs because it knows none."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

from rhino_core.errors import RhinoError
from rhino_core.ids import Worker
from rhino_core.records import known_fields
from worker_runtime.storage.index.index import Index

log = logging.getLogger(__name__)
_KEY = "known_workers"
_FIELDS = ("worker_id", "incarnation", "host", "peer_address")  # an older sidecar refuses records with others


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
        fields = [
            {name: getattr(worker, name) for name in _FIELDS} for worker in sorted(workers, key=lambda w: w.worker_id)
        ]
        text = json.dumps(fields)
        if text == self._text:
            return
        self._text = text
        try:
            self._index.put_metadata(_KEY, text)
        except RhinoError as error:  # the manager will send it again
            log.error("known workers not kept", extra={"error": str(error)})
