"""What a virtual node keeps and takes, as its job's driver tells of every batch: for balancing by rows or time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

from rhino.errors import PreconditionError
from rhino.ids import VirtualNode

KEPT = 8  # batches: one of them may have loaded state, or have waited for a busy machine


class Work(NamedTuple):
    """Of one virtual node in one batch: keys in its stores, and seconds for which its task ran."""

    rows: int
    task_s: float


class WorkFigures:
    """The newest KEPT reports of each virtual node of a job. Not journalled: the next batch tells again."""

    def __init__(self) -> None:
        self._kept: dict[VirtualNode, deque[Work]] = {}

    def clear(self) -> None:
        self._kept.clear()

    def note(self, work: Mapping[VirtualNode, Work]) -> None:
        for node, told in work.items():
            self._kept.setdefault(node, deque(maxlen=KEPT)).append(told)

    def usual(self) -> dict[VirtualNode, Work]:
        """The newest rows and the median time of each virtual node that was told of."""
        return {
            node: Work(kept[-1].rows, median(work.task_s for work in kept)) for node, kept in self._kept.items() if kept
        }


def check_told(nodes: Iterable[VirtualNode], work: Mapping[VirtualNode, Work], by: str) -> None:
    """Raises PreconditionError when the driver has told nothing of one of them yet."""
    silent = sorted(node for node in nodes if node not in work)
    if silent:
        raise PreconditionError(
            f"by {by}: job {silent[0].job} has not told the {by} of virtual nodes "
            f"{', '.join(node.name for node in silent[:20])} yet: wait for its next batch, or go by bytes or count"
        )
