"""The stored bytes of each virtual node, and their workers. Plans share them, and read changed ones again."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from handover_manager.view import ClusterView, GroupSeen
from rhino_core.ids import GroupId, VirtualNode
from rhino_model.handovers import groups_of


class Near(NamedTuple):
    """The workers with state of a virtual node.

    `holders`: whole members of all of its groups, in the order of the chain, whether or not they are reachable.
    `lacking`: the missing bytes of other workers with a part of it.
    """

    holders: tuple[str, ...]
    lacking: Mapping[str, int]


@dataclass(slots=True)
class Holding:
    """The state of one virtual node. `size_bytes`: bytes stored by the owners of its groups.

    `seen`: its groups when this was read. None: the group did not exist.
    """

    operators: tuple[int, ...]
    groups: tuple[GroupId, ...]
    seen: Sequence[GroupSeen | None]
    size_bytes: int
    _near: Near | None = None

    def near(self) -> Near:
        """The workers with state of it. It is read at the first call, as only some plans need it."""
        if self._near is None:
            self._near = _near([group for group in self.seen if group is not None])
        return self._near


class Holdings:
    """The holdings of virtual nodes requested by some plan. Changes no view, and gives the same as a new one."""

    def __init__(self) -> None:
        self._known: dict[str, dict[VirtualNode, Holding]] = {}  # by job

    def of(self, node: VirtualNode, operators: tuple[int, ...], view: ClusterView) -> Holding | None:
        """None as long as no group of the virtual node exists."""
        of_job = self._known.setdefault(node.job, {})
        known = of_job.get(node)
        groups = known.groups if known is not None and known.operators == operators else groups_of(node, operators)
        seen = [view.groups.get(group) for group in groups]
        if known is not None and known.groups is groups and all(map(operator.is_, known.seen, seen)):
            return known
        existing = [group for group in seen if group is not None]
        if not existing:
            of_job.pop(node, None)
            return None
        size_bytes = sum([group.stored_bytes.get(group.owner, 0) for group in existing])
        read = of_job[node] = Holding(operators, groups, seen, size_bytes)
        return read

    def forget(self, job: str) -> None:
        """Drops the knowledge of a job: it has ended, or begins a run with possibly other virtual nodes."""
        self._known.pop(job, None)


def _near(seen: Sequence[GroupSeen]) -> Near:
    """Looks only at members and workers with some of it, because there may be very many workers."""
    whole = [{m.worker.worker_id: None for m in group.group.members if m.whole} for group in seen]
    holders = tuple(name for name in whole[0] if all(name in others for others in whole[1:]))
    others = {name for group in seen for name in group.stored_bytes}
    others.update(m.worker.worker_id for group in seen for m in group.group.members)
    others.difference_update(holders)
    if not others:
        return Near(holders, {})
    stored = [group.stored_bytes for group in seen]
    owned = [there.get(group.owner, 0) for group, there in zip(seen, stored, strict=True)]
    lacking = {}
    for name in sorted(others):
        parts = zip(whole, stored, owned, strict=True)
        left = sum(max(size - there.get(name, 0), 0) for members, there, size in parts if name not in members)
        if left != sum(owned):
            lacking[name] = left
    return Near(holders, lacking)
