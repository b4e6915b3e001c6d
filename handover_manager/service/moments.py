"""Failpoints around a handover's journal writes. The purpose of a write follows from its records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from handover_manager.drive.records import HandoverRecord, StepRecord
from handover_manager.drive.states import Phase
from rhino_core.failpoints import hit
from rhino_core.records import Record

_ORDER = ("intent", "marker", "confirm", "settled", "end")


def before_write(records: Iterable[Record]) -> None:
    """Call it with the records of one write, before the write."""
    for moment in _moments(records):
        hit(f"handover.{moment}.before")


def after_write(records: Iterable[Record]) -> None:
    """Call it with the records of one write, once they are on disk."""
    for moment in _moments(records):
        hit(f"handover.{moment}.after")


def _moments(records: Iterable[Record]) -> list[str]:
    """The moments of these records, in the order in which a step passes them."""
    found = set()
    for record in records:
        if isinstance(record, StepRecord):
            found.add(_moment(record))
        elif isinstance(record, HandoverRecord) and not record.finished_ms:
            found.add("intent")
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
