"""Decisions about copies in which the correlation of loads decided, for `rhino explain`. Not journalled."""

from __future__ import annotations

from collections.abc import Mapping

from replication_manager.protocol.placement.better_places import Swap
from replication_manager.protocol.placement.candidates import Choice
from replication_manager.protocol.placement.load_histories import Fits
from rhino_core.ids import GroupId
from rhino_core.planning.correlation import CopyDecision

GROUPS_MAX = 10_000  # that decisions are kept of
WORKERS_MAX = 16  # of a group


class LoadDecisions:
    """The newest decision about each copy. Of many groups, or many workers of one, those decided last are kept.

    `by_group`: by group and worker, also of workers that are no longer a member. It is for reading.
    """

    def __init__(self) -> None:
        self._found: dict[GroupId, dict[str, CopyDecision]] = {}

    @property
    def by_group(self) -> Mapping[GroupId, Mapping[str, CopyDecision]]:
        return self._found

    def placed(self, group: GroupId, choice: Choice, fits: Fits, now: float) -> None:
        """A worker was chosen for a copy. If loads did not decide, a former decision about it counts no more."""
        worker = choice.worker.worker_id
        self._drop(group, worker)
        if choice.rivals:
            chosen, *others = (fits.candidate(group, name) for name in (worker, *choice.rivals))
            best = min(others, key=lambda found: (found.beyond, found.correlation, found.worker))
            self._keep(group, CopyDecision(now, chosen, best, fits.error(group)))

    def moved(self, swap: Swap, now: float) -> None:
        """A copy begins to move."""
        self._drop(swap.group, swap.target.worker)
        decision = CopyDecision(now, swap.target, swap.other, swap.error, swap.origin, swap.needed)
        self._keep(swap.group, decision)

    def forget_job(self, job: str) -> None:
        self._found = {group: found for group, found in self._found.items() if group.job != job}

    def _drop(self, group: GroupId, worker: str) -> None:
        found = self._found.get(group, {})
        if found.pop(worker, None) is not None and not found:
            del self._found[group]

    def _keep(self, group: GroupId, decision: CopyDecision) -> None:
        found = self._found.pop(group, {})
        self._found[group] = {**found, decision.chosen.worker: decision}
        for old in list(self._found[group])[:-WORKERS_MAX]:
            del self._found[group][old]
        while len(self._found) > GROUPS_MAX:
            del self._found[next(iter(self._found))]
