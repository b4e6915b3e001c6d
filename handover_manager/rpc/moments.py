"""Failpoints of a handover's journal writes: what a write is for follows from its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handover_manager.core.records import HANDOVER_PREFIX, STEP_PREFIX
from handover_manager.core.step import Phase
from rhino.failpoints import hit


def before_write(records: Mapping[str, Any]) -> None:
    """To be called with what is about to be journalled in one write."""
    found = _moments(records)
    if "intent" in found:
        hit("handover.intent.before")
    if "marker" in found:
        hit("handover.marker.before")
    if "confirm" in found:
        hit("handover.confirm.before")
    if "settled" in found:
        hit("handover.settled.before")
    if "end" in found:
        hit("handover.end.before")


def after_write(records: Mapping[str, Any]) -> None:
    """To be called once it is on disk."""
    found = _moments(records)
    if "intent" in found:
        hit("handover.intent.after")
    if "marker" in found:
        hit("handover.marker.after")
    if "confirm" in found:
        hit("handover.confirm.after")
    if "settled" in found:
        hit("handover.settled.after")
    if "end" in found:
        hit("handover.end.after")


def _moments(records: Mapping[str, Any]) -> set[str]:
    found = set()
    for key, record in records.items():
        if key.startswith(STEP_PREFIX):
            found.add(_moment(Phase(record["phase"]), settling=bool(record["settling"])))
        elif key.startswith(HANDOVER_PREFIX) and not record["finished_ms"]:
            found.add("intent")
    return found


def _moment(phase: Phase, *, settling: bool) -> str:
    match phase:
        case Phase.PLANNED | Phase.PREPARING:
            return "intent"
        case Phase.MARKED:
            return "marker"
        case Phase.CONFIRMED:
            return "confirm" if settling else "settled"
        case _:
            return "end"
