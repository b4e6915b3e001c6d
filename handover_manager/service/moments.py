"""Failpoints around the journal writes of handovers and forgotten jobs. A write's records show its purpose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from handover_manager.drive.records import HandoverRecord, StepRecord
from handover_manager.drive.states import Phase
from handover_manager.queries.forgetting import DELETION_PREFIX, DeletionRecord
from rhino_core.failpoints import hit
from rhino_core.records import Record

_ORDER = (
    *("handover.intent", "handover.marker", "handover.confirm", "handover.settled", "handover.end"),
    *("forget.record", "forget.due", "forget.end"),
)


def before_write(records: Iterable[Record], gone: Iterable[str]) -> None:
    """Call it with the records and the deleted keys of one write, before the write."""
    for moment in _moments(records, gone):
        hit(f"{moment}.before")


def after_write(records: Iterable[Record], gone: Iterable[str]) -> None:
    """Call it with the records and the deleted keys of one write, once they are on disk."""
    for moment in _moments(records, gone):
        hit(f"{moment}.after")


def _moments(records: Iterable[Record], gone: Iterable[str]) -> list[str]:
    """The moments of one write, in the order in which a step passes them."""
    found = {"forget.end" for key in gone if key.startswith(DELETION_PREFIX)}
    for record in records:
        if isinstance(record, StepRecord):
            found.add(f"handover.{_moment(record)}")
        elif isinstance(record, HandoverRecord) and not record.finished_ms:
            found.add("handover.intent")
        elif isinstance(record, DeletionRecord):
            found.add("forget.due" if record.due else "forget.record")
    return [moment for moment in _ORDER if moment in found]


def _moment(record: StepRecord) -> str:
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
