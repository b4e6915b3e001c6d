"""Failpoints around the journal writes of handovers and forgotten jobs. A write's records show its purpose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from handover_manager.drive.records import HandoverRecord, StepRecord
from handover_manager.queries.forgetting import DELETION_PREFIX, DeletionRecord
from rhino_core.failpoints import hit
from rhino_core.records import Record
from rhino_model.handovers import Phase

_ORDER = (
    *("handover.intent", "handover.marker", "handover.confirm", "handover.settled", "handover.end"),
    *("forget.record", "forget.due", "forget.end"),
)


def before_write(records: Iterable[Record], gone: Iterable[str]) -> None:
    """Call it with the records and the deleted keys of one write, before the write."""
    for point in _points(records, gone):
        hit(f"{point}.before")


def after_write(records: Iterable[Record], gone: Iterable[str]) -> None:
    """Call it with the records and the deleted keys of one write, once they are on disk."""
    for point in _points(records, gone):
        hit(f"{point}.after")


def _points(records: Iterable[Record], gone: Iterable[str]) -> list[str]:
    """The failpoints of one write, in the order of a step."""
    found = {"forget.end" for key in gone if key.startswith(DELETION_PREFIX)}
    for record in records:
        if isinstance(record, StepRecord):
            found.add(f"handover.{_point(record)}")
        elif isinstance(record, HandoverRecord) and not record.finished_ms:
            found.add("handover.intent")
        elif isinstance(record, DeletionRecord):
            found.add("forget.due" if record.due else "forget.record")
    return [point for point in _ORDER if point in found]


def _point(record: StepRecord) -> str:
    match record.phase:
        case Phase.PLANNED | Phase.PREPARING:
            return "intent"
        case Phase.MARKED:
            return "marker"
        case Phase.CONFIRMED:
            return "confirm" if record.settling else "settled"
        case Phase.ROLLED_BACK | Phase.CANCELLED | Phase.REDIRECTED:
            return "end"
        case _:
            assert_never(record.phase)
