"""Acts of people and adaptation on the cluster, for `rhino history`: actor, act and time.

Only the newest executed actions are here. The audit log also has the refusals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from handover_manager import events as ev
from rhino_core.records import Record

ACTION_PREFIX = "handover_manager/action/"
ACTIONS_MAX = 1000  # that are kept
HANDOVER, CANCEL = "handover", "cancel handover"
DRAIN, UNDRAIN = "drain", "end of drain"
FORGET, UNDO, DELETED = "forget query", "take back forget", "query deleted"
FORGET_WORKER, OWNER, MOVED = "forget worker", "owner", "checkpoint moved"


@dataclass(frozen=True, slots=True)
class ActionRecord(Record):
    """One action. `at_ms`: wall clock, for people. `by`: the identity of the requester; empty: not known.

    `kind`: one of the texts above. `job`, `name` of the query, `worker` and `handover_id`: its subject; empty: nothing
    of the kind. `detail`: for people. `leaves_ms`: wall clock at which a worker with notice leaves. 0: it waits.
    """

    kind: str
    by: str = ""
    number: int = 0
    at_ms: int = 0
    job: str = ""
    name: str = ""
    worker: str = ""
    handover_id: str = ""
    detail: str = ""
    leaves_ms: int = 0

    def told(self) -> str:
        """The action in one line, for people."""
        since = datetime.fromtimestamp(self.at_ms / 1000, UTC).isoformat(" ", "seconds")
        what = " ".join(filter(None, (self.kind, self.worker or self.name or self.job)))
        return f"{what}: asked for at {since}" + (f" by {self.by}" if self.by else "")


def action_key(number: int) -> str:
    return f"{ACTION_PREFIX}{number:012d}"


class History:
    """The table of actions, oldest first."""

    def __init__(self, wall_offset_s: float, restored: Iterable[ActionRecord] = ()) -> None:
        self._offset_s = wall_offset_s
        self._actions = {action.number: action for action in sorted(restored, key=lambda action: action.number)}

    def all(self) -> list[ActionRecord]:
        return list(self._actions.values())

    def newest(self, kind: str, *, worker: str = "", job: str = "") -> ActionRecord | None:
        """The newest action of the kind on the worker or the job."""
        found = (a for a in reversed(self._actions.values()) if a.kind == kind)
        return next((a for a in found if (a.worker == worker if worker else a.job == job)), None)

    def add(self, now: float, action: ActionRecord) -> list[ev.Effect]:
        """Keeps an action, with a number and this moment. Returns effects, to be executed with those of the action."""
        number = max(self._actions, default=0) + 1
        action = dataclasses.replace(action, number=number, at_ms=round((now + self._offset_s) * 1000))
        self._actions[number] = action
        gone = list(self._actions)[: max(len(self._actions) - ACTIONS_MAX, 0)]
        for one in gone:
            del self._actions[one]
        return [*(ev.Persist(action_key(one), None) for one in gone), ev.Persist(action_key(number), action)]
