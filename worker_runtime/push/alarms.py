"""Tells people that somebody has changed the bytes of a push stream on their way."""

from __future__ import annotations

import logging

from rhino_core.ids import Lane
from worker_runtime.push.core.records import CUT, TamperedError
from worker_runtime.statistics import Statistics

log = logging.getLogger(__name__)


def alarm(statistics: Statistics, peer: str, lane: Lane, error: TamperedError) -> None:
    """Logs and counts it. Call it on the event loop. `peer`: the worker at the other end."""
    statistics.push_alarms[error.kind] += 1
    level = logging.WARNING if error.kind == CUT else logging.ERROR  # processes that end cut streams, too
    extra = {"peer": peer, "lane": lane.value, "kind": error.kind, "error": str(error)}
    log.log(level, "push stream ended: its bytes are not those that the peer has sent", extra=extra)
