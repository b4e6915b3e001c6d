"""Block-centric placement, as the distributed file system of the paper's RhinoDFS does it (Rhino 4.2.1, Figure 3a,
and 5.1.3): a baseline to measure state-centric replication against, not a way to run a query.

A file is a block: RocksDB's files are smaller than the 128 MiB of HDFS. The first copy stays where the block was
written, the others are spread over the members of the group by a hash of the block's name. So every member has some
of the state, and who takes it over has to fetch the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from rhino.ids import BelowMinCopies, FileEntry, Placement, ReplicaGroup, Worker
from worker_runtime.core.closure import StoreCatalogue
from worker_runtime.core.outbox import Outgoing


def is_spread(group: ReplicaGroup | None) -> bool:
    return group is not None and group.settings.placement is Placement.BLOCK


def keepers(entry: FileEntry, group: ReplicaGroup) -> tuple[Worker, ...]:
    """The members that are to have the file: all of them, or with spread blocks `min_copies` of them.

    Depends on the set of members only, so that every member comes to the same answer under the same epoch.
    """
    members = tuple(member.worker for member in group.members)
    if not is_spread(group):
        return members
    first = tuple(worker for worker in members if worker.worker_id == entry.written_by)
    others = sorted((worker for worker in members if worker not in first), key=lambda w: _rank(entry, w))
    return (*first, *others[: group.settings.copies - len(first)])


def _rank(entry: FileEntry, worker: Worker) -> bytes:
    return hashlib.blake2b(f"{entry.store}/{entry.name}@{worker.worker_id}".encode(), digest_size=8).digest()


def lacking(me: Worker, local: StoreCatalogue, remote: Iterable[FileEntry], group: ReplicaGroup) -> list[FileEntry]:
    """Blocks of other members that this one is to have as well, once each; data files first."""
    found = {entry.name: entry for entry in remote if entry.name not in local}
    mine = (e for e in found.values() if me.worker_id in {w.worker_id for w in keepers(e, group)})
    return sorted(mine, key=lambda entry: (entry.kind.versioned, entry.name))


def copies(
    entry: FileEntry,
    group: ReplicaGroup,
    me: Worker,
    holders: int,
    closures: Iterable[frozenset[str]],
    owed: Callable[[str], Outgoing | None],
) -> int | None:
    """Copies that every block of the version has, for a commit of `entry` that `holders` members have; None: too few.

    `me` is the writer; `closures`: those of the version that it has, newest snapshot first; `owed`: what it still owes
    of a file of the store. The closure that reaches back furthest counts: a newer snapshot may not have been committed
    yet. Blocks that others have written had their copies when their commits returned, and get them again by catch-up
    when a member is lost.
    """
    *_, closure = (frozenset[str](), *closures)
    own = int(group.member(me.worker_id) is not None)
    pending = [out for name in closure - {entry.name} if (out := owed(name)) is not None and not out.done()]
    least = min([holders, *(own + len(out.held) for out in pending)])
    all_whole = all(member.whole for member in group.members)
    blocked = group.settings.below_min_copies is BelowMinCopies.BLOCK and not all_whole
    if not closure or blocked or least < group.required_copies:
        return None
    return least if all_whole else 1
