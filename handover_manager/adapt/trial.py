"""The present plan of adaptation, and whether it has helped."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from handover_manager.adapt.budget import Spent
from handover_manager.adapt.cool_downs import Frozen
from rhino_core.ids import VirtualNode
from rhino_core.records import Record

TRIAL_KEY = "handover_manager/adaptation/plan"
HELP_MIN = 0.25  # a plan has helped if the imbalance has fallen by this part of what was predicted


class Stage(enum.Enum):
    """MOVING: the handover runs. WATCHING: it is confirmed, and new windows are awaited. RETURNING: back again."""

    MOVING = "moving"
    WATCHING = "watching"
    RETURNING = "returning"


@dataclass(frozen=True, slots=True)
class Trial:
    """`origins`: the former worker of each moved virtual node. `before` and `planned`: imbalances of usual loads.

    `watched_until`: the monotonic time at which the watch ends, even without new windows.
    """

    job: str
    handover_id: str
    stage: Stage
    origins: Mapping[VirtualNode, str]
    before: float
    planned: float
    watched_until: float = math.inf

    def helped(self, after: float, without: float) -> bool:
        """Whether the measured imbalance `after` is better by enough: than before, or than without the moves.

        `without`: the imbalance of the same loads, with the moved virtual nodes at their former workers. Loads may have
        changed since the plan was made. While a load still rises, `before` is too low to compare with.
        """
        return after <= max(self.before, without) - HELP_MIN * (self.before - self.planned)


class Origin(NamedTuple):
    task_group: int
    partition: int
    worker: str


@dataclass(frozen=True, slots=True)
class TrialRecord(Record):
    job: str
    handover_id: str
    stage: Stage
    origins: tuple[Origin, ...]
    before: float
    planned: float


@dataclass(frozen=True, slots=True)
class AdaptationRecord(Record):
    """State for a restarted manager: the plan under way, cool-downs, and the moves and bytes of the last hour.

    `usual_rows`: input rows of a usual batch of each job.
    """

    trial: TrialRecord | None = None
    frozen: tuple[Frozen, ...] = ()
    spent: tuple[Spent, ...] = ()
    usual_rows: dict[str, float] = field(default_factory=dict)


def record_of_trial(trial: Trial) -> TrialRecord:
    origins = tuple(Origin(node.task_group, node.partition, worker) for node, worker in sorted(trial.origins.items()))
    return TrialRecord(trial.job, trial.handover_id, trial.stage, origins, trial.before, trial.planned)


def trial_of_record(record: TrialRecord, watched_until: float) -> Trial:
    origins = {VirtualNode(record.job, o.task_group, o.partition): o.worker for o in record.origins}
    figures = record.before, record.planned, watched_until
    return Trial(record.job, record.handover_id, record.stage, origins, *figures)
