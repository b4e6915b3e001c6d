"""The steps of a member before it reports that it is whole (docs/design/catch-up.md).

By what was delivered to it, what others answered, and what it reports: never by its machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from replication_manager.protocol.workers.worker_record import Report
from rhino_core.ids import Epoch, GroupId, ReplicaGroup, StoreVersion
from tests.simulation.facts import Incarnation, require

Process = tuple[str, int]  # worker id and number of its process


@dataclass
class _Duty:
    """The duty of one process in one group. `since`: the first epoch of those that one catch-up may cover."""

    group: ReplicaGroup
    since: Epoch
    heard: dict[str, Epoch] = field(default_factory=dict)  # workers that have reported, with the epochs they had seen
    versions: dict[str, frozenset[StoreVersion]] = field(default_factory=dict)  # that opened there


class CatchUpCheckers:
    def __init__(self) -> None:
        self._duties: dict[tuple[Process, GroupId], _Duty] = {}
        self._reported: dict[tuple[Process, GroupId], Epoch] = {}

    def adopted(self, process: Process, group: ReplicaGroup, highest: Epoch | None) -> None:
        """The manager's word has come. `highest`: the epoch that is persisted there."""
        key = process, group.group
        known = self._duties.get(key)
        if (highest is not None and group.epoch < highest) or (known and group.epoch <= known.group.epoch):
            return
        mine = group.member(process[0])
        if mine is None:
            self._duties.pop(key, None)
            return
        before = known.group.member(process[0]) if known is not None else None
        discounted = before is not None and before.whole and not mine.whole
        if known is None or _incarnations(known.group) != _incarnations(group) or discounted:
            self._duties[key] = _Duty(group, group.epoch)
        else:
            known.group = group

    def left(self, process: Process, group: GroupId) -> None:
        """The manager says that the group concerns it no more."""
        self._duties.pop((process, group), None)

    def inventory(
        self, process: Process, group: GroupId, of: str, epoch: Epoch | None, versions: frozenset[StoreVersion]
    ) -> None:
        """The newest incarnation of `of` has reported what it stores, with `epoch` persisted. `versions` open there."""
        duty = self._duties.get((process, group))
        if duty is not None and epoch is not None:
            duty.heard[of] = max(epoch, duty.heard.get(of, epoch))
            duty.versions[of] = versions

    def damaged(self, process: Process, group: GroupId) -> None:
        """It has dropped a file: what it compared before counts no more."""
        if (duty := self._duties.get((process, group))) is not None:
            duty.heard.clear()
            duty.versions.clear()

    def reported_by_others(self, process: Process, group: GroupId) -> frozenset[StoreVersion]:
        """Versions that others had at their last report."""
        duty = self._duties.get((process, group))
        return frozenset[StoreVersion]().union(*duty.versions.values()) if duty is not None else frozenset()

    def reported(self, process: Process, report: Report) -> None:
        """5. Epochs of one process's reports never fall. A member is whole only after each other incarnation of the
        group, having seen the first epoch with these members, has reported what it stores."""
        key = process, report.group
        before = self._reported.get(key)
        text = f"{process[0]} reports {report.group} at {report.epoch}"
        require(before is None or before <= report.epoch, f"{text} after {before}")
        self._reported[key] = report.epoch
        duty = self._duties.get(key)
        if not report.whole or duty is None or duty.group.epoch != report.epoch:
            return
        others = {m.worker.worker_id for m in duty.group.members} - {process[0]}
        unheard = sorted(name for name in others if name not in duty.heard or duty.heard[name] < duty.since)
        require(not unheard, f"{text} as whole; since {duty.since} it has not heard what {unheard} store")


def _incarnations(group: ReplicaGroup) -> frozenset[Incarnation]:
    return frozenset((m.worker.worker_id, m.worker.incarnation) for m in group.members)
