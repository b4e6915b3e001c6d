"""Virtual nodes left alone by adaptation after a recent move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from handover_manager.adapt.windows import NodeLoad
from rhino_core.ids import VirtualNode

FAILURES_MAX = 6  # a cool-down is doubled at most so many times
RISEN = 1.5  # a virtual node may move on once its load is more than so many times what it was when it moved


class Frozen(NamedTuple):
    """A virtual node in its cool-down. `failures`: its useless moves in a row. Others as in `CoolDown`."""

    job: str
    task_group: int
    partition: int
    left_s: float
    failures: int
    load: NodeLoad | None = None
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CoolDown:
    """`until`: a monotonic time in seconds. `load`: the load of the virtual node when it moved; None: not known.

    `left`: the workers it has left since it last was free to move.
    """

    until: float
    failures: int = 0
    load: NodeLoad | None = None
    left: tuple[str, ...] = ()

    def may_move_on(self, now: NodeLoad) -> bool:
        """Whether the virtual node may move in its cool-down, to none of `left`, because its load has risen.

        Both its time and its share must have risen. Its time alone rises when all loads do, and its share alone when
        others fall. After a useless move it stays.
        """
        then = self.load
        if self.failures or then is None:
            return False
        return now.seconds > RISEN * then.seconds and now.share > RISEN * then.share


class CoolDowns:
    """The cool-downs of virtual nodes.

    Each doubles with a useless move, and is forgotten once it has been over for as long as it lasted.
    """

    def __init__(self, usual_s: float, frozen: Iterable[Frozen] = (), now: float = 0.0) -> None:
        self._usual_s = usual_s
        self._of = {
            VirtualNode(one.job, one.task_group, one.partition): CoolDown(
                now + one.left_s, one.failures, one.load, one.left
            )
            for one in frozen
        }

    def active(self, job: str, now: float) -> dict[VirtualNode, CoolDown]:
        """The running cool-downs of a job's virtual nodes."""
        return {node: one for node, one in self._of.items() if node.job == job and now < one.until}

    def begin(self, origins: Mapping[VirtualNode, str], loads: Mapping[VirtualNode, NodeLoad], now: float) -> None:
        """The virtual nodes have moved from `origins`. `loads`: the loads of recently run virtual nodes."""
        for node, origin in origins.items():
            former = self._of.get(node)
            failures = former.failures if former else 0
            earlier = former.left if former and now < former.until else ()
            left = tuple(dict.fromkeys((*earlier, origin)))
            self._of[node] = CoolDown(self._end(failures, now), failures, loads.get(node), left)

    def failed(self, nodes: Iterable[VirtualNode], now: float) -> None:
        """The virtual nodes have moved back, because their move did not help."""
        for node in nodes:
            former = self._of.get(node)
            failures = min((former.failures if former else 0) + 1, FAILURES_MAX)
            self._of[node] = CoolDown(self._end(failures, now), failures)

    def _end(self, failures: int, now: float) -> float:
        return now + self._usual_s * 2.0**failures

    def forget(self, job: str) -> None:
        self._of = {node: one for node, one in self._of.items() if node.job != job}

    def record(self, now: float) -> tuple[Frozen, ...]:
        """Drops cool-downs that have been over for as long as they lasted."""
        self._of = {n: one for n, one in self._of.items() if now < one.until + self._usual_s * 2**one.failures}
        return tuple(
            Frozen(n.job, n.task_group, n.partition, one.until - now, one.failures, one.load, one.left)
            for n, one in sorted(self._of.items())
        )
