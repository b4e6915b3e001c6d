"""How a replica group changes: pure functions from a group to its members and counts (Rhino 4.2.2, 4.2.3)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from rhino_core.errors import PreconditionError
from rhino_core.ids import BelowMinCopies, JobSettings, Member, ReplicaGroup, Worker
from rhino_core.planning.spread import Place, closest

Members = tuple[Member, ...]


def required_copies(settings: JobSettings, members: Members) -> int:
    """Number of whole members that must hold a version now, at least 1.

    It is min_copies. Under DEGRADED it is at most the number of whole members.
    """
    if settings.below_min_copies is BelowMinCopies.BLOCK:
        return settings.copies
    return max(1, min(settings.copies, sum(m.whole for m in members)))


def suspected(group: ReplicaGroup, worker_id: str, live: Callable[[Worker], bool]) -> Members:
    """Members after the process of this worker has ended: it does not count as whole until it has caught up.

    Unchanged if commits would wait for the worker all the same. Unchanged also if no other whole member is live: the
    worker may then have the only copy of the newest version.
    """
    others_live = any(m.whole and live(m.worker) for m in group.members if m.worker.worker_id != worker_id)
    less = tuple(Member(m.worker, m.whole and m.worker.worker_id != worker_id) for m in group.members)
    spared = required_copies(group.settings, less) < group.required_copies
    return less if others_live and spared else group.members


def settled(
    members: Members,
    present: Callable[[Worker], bool],
    suspected: Callable[[Worker], bool] = lambda worker: False,
) -> Members:
    """Members without the absent ones.

    Unchanged while no whole member is present, because the absent ones may have the only copy. If the owner is absent
    or not whole, the first present whole member follows it (Rhino 4.2.3). An owner stays while only `suspected`.
    """
    live = tuple(m for m in members if present(m.worker))
    successors = [m for m in live if m.whole]
    if not successors:
        return members
    if live[0] in successors or suspected(live[0].worker):
        return live
    return (successors[0], *(m for m in live if m is not successors[0]))


def without_impaired(
    members: Members,
    impaired: Collection[str],
    draining: Collection[str],
    heard_lately: Callable[[Worker], bool],
) -> Members:
    """Members with the impaired ones at the end, not counted as whole.

    A whole member that is not impaired follows an impaired owner, preferably one that is not draining.

    Unchanged unless another whole member is fit and was heard from lately: the impaired ones may have the only copy.
    """
    fit = [m for m in members if m.whole and m.worker.worker_id not in impaired and heard_lately(m.worker)]
    if not fit:
        return members
    first = members[0]
    if first.worker.worker_id in impaired:
        first = min(fit, key=lambda m: m.worker.worker_id in draining)
    others = sorted((m for m in members if m is not first), key=lambda m: m.worker.worker_id in impaired)  # stable
    return tuple(Member(m.worker, m.whole and m.worker.worker_id not in impaired) for m in (first, *others))


def owned_by(
    group: ReplicaGroup,
    worker_id: str,
    present: Callable[[Worker], bool],
    draining: Collection[str],
    place: Callable[[Worker], Place],
) -> Members:
    """Members with another owner. The former owner becomes the first secondary, and the chain is cut to r secondaries.

    Members that are not whole leave first, then those with the `place` closest to others, then the end of the chain.
    Draining workers stay at its end, uncounted, until `without_draining` removes them.

    Raises PreconditionError unless the worker is a member, present and whole.
    """
    member = group.member(worker_id)
    if member is None:
        raise PreconditionError(f"worker {worker_id!r} is no member of group {group.group}: add it first")
    if not member.whole or not present(member.worker):
        raise PreconditionError(f"worker {worker_id!r} cannot own group {group.group}: it is not whole and live")
    others = [m for m in group.members if m is not member]
    # stable: the former owner stays first
    whole_first = sorted(others, key=lambda m: not (m.whole and present(m.worker)))
    leaving = [m for m in whole_first if m.worker.worker_id in draining]
    staying = [m for m in whole_first if m not in leaving]
    kept = group.settings.replication_factor + (worker_id in draining)
    while len(staying) > kept:
        staying.remove(_most_dispensable((member, *staying), present, place))
    return (member, *staying, *leaving)


def without_draining(
    settings: JobSettings,
    members: Members,
    draining: Collection[str],
    sources: Collection[str],
    present: Callable[[Worker], bool],
) -> Members:
    """Members without the draining secondaries, once r + 1 other members are whole and present.

    A draining owner stays: only a handover, or its loss, gives a group another owner. Draining sources stay as well,
    and do not count among the others.
    """
    staying = [m for m in members if m.worker.worker_id not in draining]
    if sum(m.whole and present(m.worker) for m in staying) <= settings.replication_factor:
        return members
    return tuple(m for m in members if m is members[0] or m in staying or m.worker.worker_id in sources)


def shortened(
    settings: JobSettings,
    members: Members,
    surplus: Collection[str],
    draining: Collection[str],
    present: Callable[[Worker], bool],
    place: Callable[[Worker], Place],
) -> Members:
    """The owner and the members in `surplus`, cut to r secondaries in the order of `owned_by`.

    Unchanged until all staying members are whole and present: no copy is given up before theirs exist. Members outside
    `surplus`, such as the target of a handover, are not considered. Draining members leave by `without_draining`.
    """
    owner = members[0]
    counted = [m for m in members if m is owner or m.worker.worker_id in surplus]
    counted = [m for m in counted if m.worker.worker_id not in draining]
    kept, leaving = counted, list[Member]()
    while len(kept) > settings.replication_factor + 1:
        leaving.append(_most_dispensable((owner, *(m for m in kept if m is not owner)), present, place))
        kept.remove(leaving[-1])
    if not all(m.whole and present(m.worker) for m in kept):
        return members
    return tuple(m for m in members if m not in leaving)


def _most_dispensable(members: Members, present: Callable[[Worker], bool], place: Callable[[Worker], Place]) -> Member:
    """The first secondary to leave: not whole, closest to the others, at the end of the chain."""
    near = closest([place(m.worker) for m in members])
    lacking = [not (m.whole and present(m.worker)) for m in members]
    return members[max(range(1, len(members)), key=lambda i: (lacking[i], near[i], i))]


def known_as(members: Members, worker: Worker) -> Members:
    """Members with this worker's present incarnation and address. A new incarnation is not whole."""

    def renew(member: Member) -> Member:
        if member.worker.worker_id != worker.worker_id or member.worker == worker:
            return member
        return Member(worker, member.whole and member.worker.incarnation == worker.incarnation)

    return tuple(renew(m) for m in members)


def held_by(workers: Iterable[Worker], whole: Collection[str]) -> Members:
    """A chain of `workers`. `whole`: ids of the whole ones."""
    return tuple(Member(worker, worker.worker_id in whole) for worker in workers)
