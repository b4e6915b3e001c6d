"""How a replica group changes: pure functions from a group to its members and counts (Rhino 4.2.2, 4.2.3)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from rhino.errors import PreconditionError
from rhino.ids import BelowMinCopies, Epoch, JobSettings, Member, Placement, ReplicaGroup, Worker

Members = tuple[Member, ...]


def required_copies(settings: JobSettings, members: Members) -> int:
    """Whole members that must hold a version now: min_copies, or under DEGRADED as many as there are (at least 1).

    Spread blocks: members that must have each block, also while they are not whole for want of older ones.
    """
    if settings.below_min_copies is BelowMinCopies.BLOCK:
        return settings.copies
    if settings.placement is Placement.BLOCK:
        return max(1, min(settings.copies, len(members)))
    return max(1, min(settings.copies, sum(m.whole for m in members)))


def renewed(group: ReplicaGroup, epoch: Epoch, members: Members) -> ReplicaGroup:
    """The group under a new epoch with these members."""
    return replace(group, epoch=epoch, members=members, required_copies=required_copies(group.settings, members))


def doubted(group: ReplicaGroup, worker_id: str, live: Callable[[Worker], bool]) -> Members:
    """Members of which this one, whose process has ended, does not count as whole until it has caught up.

    Unchanged when commits have to wait for it all the same, and when nobody else who is whole is live: then the
    version that it has may be the newest there is.
    """
    others_live = any(m.whole and live(m.worker) for m in group.members if m.worker.worker_id != worker_id)
    less = tuple(Member(m.worker, m.whole and m.worker.worker_id != worker_id) for m in group.members)
    spared = required_copies(group.settings, less) < group.required_copies
    return less if others_live and spared else group.members


def settled(
    settings: JobSettings,
    members: Members,
    present: Callable[[Worker], bool],
    in_doubt: Callable[[Worker], bool] = lambda worker: False,
) -> Members:
    """Members without the absent ones; unchanged while nobody who is whole is present: they may hold the only copy.

    When the owner is absent or not whole, the first whole member that is present follows it (Rhino 4.2.3), unless the
    owner is only `in_doubt`. Of spread blocks nobody has everything anyway: then any member will do.
    """
    live = tuple(m for m in members if present(m.worker))
    heirs = [m for m in live if m.whole] or (list(live) if settings.placement is Placement.BLOCK else [])
    if not heirs:
        return members
    if live[0] in heirs or in_doubt(live[0].worker):
        return live
    return (heirs[0], *(m for m in live if m is not heirs[0]))


def respread(group: ReplicaGroup, members: Members) -> Members:
    """Members of a group of spread blocks of which some have left: other members are to keep their blocks now, and
    nobody counts as whole until all that are his have come."""
    left = {m.worker.worker_id for m in group.members} - {m.worker.worker_id for m in members}
    if group.settings.placement is not Placement.BLOCK or not left:
        return members
    return tuple(Member(m.worker, False) for m in members)


def owned_by(
    group: ReplicaGroup, worker_id: str, present: Callable[[Worker], bool], draining: Collection[str] = ()
) -> Members:
    """Members with another owner: the former one becomes the first secondary, the chain is cut to r secondaries.

    Draining workers stay at its end, uncounted, until `without_draining` lets them go.

    Raises PreconditionError for a worker that is no member, absent or not whole.
    """
    member = group.member(worker_id)
    if member is None:
        raise PreconditionError(f"worker {worker_id!r} is no member of group {group.group}: add it first")
    if not member.whole or not present(member.worker):
        raise PreconditionError(f"worker {worker_id!r} cannot own group {group.group}: it is not whole and live")
    others = [m for m in group.members if m is not member]
    whole_first = sorted(others, key=lambda m: not (m.whole and present(m.worker)))  # stable: the former owner leads
    leaving = [m for m in whole_first if m.worker.worker_id in draining]
    staying = [m for m in whole_first if m not in leaving]
    kept = group.settings.replication_factor + (worker_id in draining)
    return (member, *staying[:kept], *leaving)


def without_draining(
    settings: JobSettings, members: Members, draining: Collection[str], present: Callable[[Worker], bool]
) -> Members:
    """Members less the draining secondaries, once all copies are whole on others. A draining owner stays: only a
    handover, or its loss, gives a group another owner."""
    staying = [m for m in members if m.worker.worker_id not in draining]
    if sum(m.whole and present(m.worker) for m in staying) <= settings.replication_factor:
        return members
    return tuple(m for m in members if m is members[0] or m in staying)


def known_as(members: Members, worker: Worker) -> Members:
    """Members with this worker's present incarnation and address; a new incarnation is not whole."""

    def renew(member: Member) -> Member:
        if member.worker.worker_id != worker.worker_id or member.worker == worker:
            return member
        return Member(worker, member.whole and member.worker.incarnation == worker.incarnation)

    return tuple(renew(m) for m in members)


def held_by(workers: Iterable[Worker], whole: Collection[str]) -> Members:
    """A chain of `workers`, whole as far as `whole` has their ids."""
    return tuple(Member(worker, worker.worker_id in whole) for worker in workers)
