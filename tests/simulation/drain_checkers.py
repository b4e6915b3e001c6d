"""Invariants of workers that are drained (docs/design/handover.md, "Drain"), by the manager's word."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from rhino_core.ids import Member, ReplicaGroup, Worker
from tests.simulation.facts import require


def given_nothing(before: ReplicaGroup | None, group: ReplicaGroup, drained: Collection[str]) -> None:
    """9. No copy is placed on a drained worker. A new group may have it as the owner, when nobody else has room."""
    known = {m.worker.worker_id for m in (before.members if before is not None else group.members[:1])}
    given = {m.worker.worker_id for m in group.members} & set(drained) - known
    require(not given, f"{group.group} at {group.epoch}: {sorted(given)} are to be emptied and were given a copy")


def left_others_whole(
    left: Iterable[Member], group: ReplicaGroup, drained: Collection[str], present: Callable[[Worker], bool]
) -> None:
    """9. A live drained worker leaves a group when r + 1 others are whole and present.

    `left`: live members that are gone, apart from those that had begun to copy and gave way: to one that stores more,
    or to the laggard in whose place they came, because it has become the owner.
    """
    gone = {m.worker.worker_id for m in left} & set(drained)
    whole = [
        m.worker.worker_id for m in group.members if m.whole and present(m.worker) and m.worker.worker_id not in drained
    ]
    text = f"{group.group} at {group.epoch}: {sorted(gone)}, to be emptied, left when {whole} were whole"
    require(not gone or len(whole) > group.settings.replication_factor, text)


def emptied(group: ReplicaGroup, drained: Collection[str]) -> None:
    """6. In the end a drained worker has no copy but of what it owns, and every group is complete without it."""
    text = f"{group.group} at {group.epoch}: {[(m.worker.worker_id, m.whole) for m in group.members]}"
    copies = [m.worker.worker_id for m in group.members[1:] if m.worker.worker_id in drained]
    require(not copies, f"{text}: {copies} are to be emptied")
    staying = [m for m in group.members if m.worker.worker_id not in drained]
    wanted = group.settings.replication_factor + 1
    require(sum(m.whole for m in staying) >= wanted, f"{text}: {wanted} whole ones without {sorted(drained)} are due")
