"""Journal records of the handover manager: jobs, their measurements, forgotten jobs, handovers and their steps."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, assert_never

from handover_manager import events as ev
from handover_manager.adapt.decisions import DECISION_PREFIX
from handover_manager.adapt.policy import Policy
from handover_manager.adapt.trial import TRIAL_KEY, AdaptationRecord
from handover_manager.drive.records import (
    HANDOVER_PREFIX,
    STEP_PREFIX,
    SUBSTITUTES,
    HandoverRecord,
    StepRecord,
    handover_of_record,
)
from handover_manager.machine import FORGET_GRACE_S, USUAL, HandoverCore, Journalled
from handover_manager.plan.measurements import (
    MEASUREMENTS_PREFIX,
    MeasurementsRecord,
    measurements_key,
    measurements_of_record,
)
from handover_manager.queries.forgetting import DELETION_PREFIX, DeletionRecord, deletion_of_record
from handover_manager.queries.history import ACTION_PREFIX, ActionRecord
from handover_manager.queries.records import JOB_PREFIX, JobRecord, job_of_record
from rhino_core.failpoints import hit
from rhino_core.journal import Journal
from rhino_core.records import Record, decode, encode
from rhino_model.decisions import Decision
from rhino_model.handovers import Phase

R = TypeVar("R", bound=Record)


def persist(journal: Journal, effects: Iterable[ev.Effect]) -> None:
    """Journals all requests of the effects, as one write. It is on disk when this returns."""
    newest = {effect.key: effect.record for effect in effects if isinstance(effect, ev.Persist)}
    records = {key: record for key, record in newest.items() if record is not None}
    gone = newest.keys() - records.keys()
    points = _points(records.values(), gone)
    for point in points:
        hit(f"{point}.before")
    journal.write({key: encode(record) for key, record in records.items()}, gone)
    for point in points:
        hit(f"{point}.after")


def restore(
    values: Mapping[str, Any],
    *,
    now: float,
    wall_offset_s: float,
    policy: Policy = USUAL,
    forget_grace_s: float = FORGET_GRACE_S,
) -> HandoverCore:
    """The core from its records. A handover past its marker gets its full deadline again.

    Raises PreconditionError for a record of a newer version.
    """
    steps = _decoded(values, STEP_PREFIX, StepRecord)
    measurements = _decoded(values, MEASUREMENTS_PREFIX, MeasurementsRecord)
    jobs = [job_of_record(record) for record in _decoded(values, JOB_PREFIX, JobRecord).values()]
    for job in jobs:
        if (record := measurements.get(measurements_key(job.job))) is not None:
            job.measurements = measurements_of_record(record)
    handovers = [handover_of_record(r, steps) for r in _decoded(values, HANDOVER_PREFIX, HandoverRecord).values()]
    deletions = [deletion_of_record(r, now) for r in _decoded(values, DELETION_PREFIX, DeletionRecord).values()]
    journalled = Journalled(
        jobs=jobs,
        handovers=handovers,
        deletions=deletions,
        actions=_decoded(values, ACTION_PREFIX, ActionRecord).values(),
        adaptation=_decoded(values, TRIAL_KEY, AdaptationRecord).get(TRIAL_KEY),
        decisions=_decoded(values, DECISION_PREFIX, Decision).values(),
    )
    return HandoverCore(
        started=now, wall_offset_s=wall_offset_s, journalled=journalled, policy=policy, forget_grace_s=forget_grace_s
    )


def open_core(
    journal: Journal, now: float, policy: Policy = USUAL, forget_grace_s: float = FORGET_GRACE_S
) -> HandoverCore:
    """The core as journalled."""
    values = dict(journal.items("handover_manager/"))
    return restore(values, now=now, wall_offset_s=time.time() - now, policy=policy, forget_grace_s=forget_grace_s)


def _decoded(values: Mapping[str, Any], prefix: str, kind: type[R]) -> dict[str, R]:
    found = {key: value for key, value in values.items() if key.startswith(prefix)}
    return {key: decode(kind, value, _name(key), SUBSTITUTES) for key, value in sorted(found.items())}


def _name(key: str) -> str:
    """The record of a key, for people."""
    _, kind, name = key.split("/", 2)
    if kind != "step":
        return f"{kind} {name}"
    handover_id, _, number = name.rpartition("/")
    return f"step {number} of handover {handover_id}"


_ORDER = (
    *("handover.intent", "handover.marker", "handover.confirm", "handover.settled", "handover.end"),
    *("forget.record", "forget.due", "forget.end"),
)


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
