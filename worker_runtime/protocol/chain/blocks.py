"""Block-centric placement, like the distributed file system of the paper's RhinoDFS (Rhino 4.2.1, Figure 3a, and
5.1.3).

It is a baseline for measuring state-centric replication, not meant for running queries. A file is a block: RocksDB's
files are smaller than the 128 MiB blocks of HDFS. The first copy stays on the worker that wrote the block. A hash of
the block's name spreads the other copies over the members of the group. So every member has some of the state, and a
new owner has to fetch the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

from rhino_core.ids import BelowMinCopies, FileEntry, Member, ReplicaGroup, Version, Worker
from worker_runtime.protocol.chain.outgoing import Outgoing
from worker_runtime.protocol.keys import FileKey
from worker_runtime.protocol.versions.closure import StoreCatalogue


class SpreadBlocks:
    """The `CopyPolicy` of the baseline (copy_policy.py)."""

    may_delete = False  # another worker may need any block of this one
    acks_complete_other_files = True  # the commit of a zip waits for the snapshot's blocks

    def recipients(self, entry: FileEntry, group: ReplicaGroup) -> tuple[Worker, ...]:
        """`min_copies` members.

        The result depends only on the set of members, so every member computes the same one under the same epoch.
        """
        members = tuple(member.worker for member in group.members)
        first = tuple(worker for worker in members if worker.worker_id == entry.written_by)
        others = sorted((worker for worker in members if worker not in first), key=lambda w: _rank(entry, w))
        return (*first, *others[: group.settings.copies - len(first)])

    def holds(self, entry: FileEntry, here: StoreCatalogue) -> bool:
        """A block requires nothing else: only the writer has it together with its closure."""
        return entry.name in here

    def copies(
        self,
        entry: FileEntry,
        group: ReplicaGroup,
        me: Worker,
        holders: Sequence[Member],
        here: StoreCatalogue,
        outgoing: Callable[[FileKey], Outgoing | None],
    ) -> int | None:
        """Every block of the version has at least this many copies.

        The closure that reaches back furthest counts, because a newer snapshot may not be committed yet. Blocks written
        by others had their copies when their commits returned. When a member is lost, catch-up restores its copies.
        """
        closures: Iterable[frozenset[str]] = here.closures(entry.version) if entry.version else ()
        *_, closure = (frozenset[str](), *closures)
        own = int(group.member(me.worker_id) is not None)
        others = (outgoing(FileKey(entry.store, name)) for name in closure - {entry.name})
        least = min([len(holders), *(own + len(out.holders()) for out in others if out is not None and not out.done())])
        all_whole = all(member.whole for member in group.members)
        blocked = group.settings.below_min_copies is BelowMinCopies.BLOCK and not all_whole
        if not closure or blocked or least < group.required_copies:
            return None
        return least if all_whole else 1

    def missing(
        self, me: Worker, here: StoreCatalogue, theirs: Sequence[FileEntry], group: ReplicaGroup, floor: Version | None
    ) -> Sequence[FileEntry]:
        """Blocks that this worker should also have, once each; data files first."""
        found = {entry.name: entry for entry in theirs if entry.name not in here}
        mine = (e for e in found.values() if me.worker_id in {w.worker_id for w in self.recipients(e, group)})
        return sorted(mine, key=lambda entry: (entry.kind.versioned, entry.name))


SPREAD_BLOCKS = SpreadBlocks()


def _rank(entry: FileEntry, worker: Worker) -> bytes:
    return hashlib.blake2b(f"{entry.store}/{entry.name}@{worker.worker_id}".encode(), digest_size=8).digest()
