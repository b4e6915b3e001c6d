"""Batches and faults of one run of a job. Times are wall clock in milliseconds since the epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """One micro-batch, from its progress event."""

    batch_id: int
    started_ms: int
    duration_ms: int
    rows: int
    state_rows: int
    state_bytes: int  # memory that the state stores use
    dropped: int  # rows too late for the watermark


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, from its start until the first batch after it is committed."""

    kind: str  # restart | kill | handover
    what: str
    started_ms: int
    ended_ms: int


@dataclass(slots=True)
class Timeline:
    """Batches by id. A batch that is repeated after a restart counts once."""

    batches: dict[int, BatchFacts] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def note(self, progress: Iterable[Mapping[str, Any]]) -> None:
        """Adds progress events. Events without a batch are ignored."""
        for event in progress:
            if "addBatch" in event["durationMs"]:
                facts = _facts(event)
                self.batches[facts.batch_id] = facts

    @property
    def dropped(self) -> int:
        return sum(batch.dropped for batch in self.batches.values())

    def ordered(self) -> list[BatchFacts]:
        return [self.batches[number] for number in sorted(self.batches)]


def _facts(event: Mapping[str, Any]) -> BatchFacts:
    started = datetime.fromisoformat(event["timestamp"].replace("Z", "+00:00")).timestamp()
    operators = event["stateOperators"]
    return BatchFacts(
        batch_id=event["batchId"],
        started_ms=round(started * 1000),
        duration_ms=event["durationMs"]["triggerExecution"],
        rows=event["numInputRows"],
        state_rows=sum(operator["numRowsTotal"] for operator in operators),
        state_bytes=sum(operator["memoryUsedBytes"] for operator in operators),
        dropped=sum(operator["numRowsDroppedByWatermark"] for operator in operators),
    )
