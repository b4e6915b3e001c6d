"""Which members get which file of a group, and when a version counts as copied.

A job's `placement` chooses the policy. `WholeChain` is Rhino's: every member stores the whole state (Rhino 4.2.1). The
other one is a baseline (blocks.py). Everything that differs between the two is behind `CopyPolicy`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rhino_core.ids import FileEntry, FileKind, Member, Placement, ReplicaGroup, Version, Worker
from worker_runtime.protocol.chain.blocks import SPREAD_BLOCKS
from worker_runtime.protocol.chain.outgoing import Outgoing
from worker_runtime.protocol.keys import FileKey
from worker_runtime.protocol.versions.closure import StoreCatalogue, wanted


class CopyPolicy(Protocol):
    """The copies of one group's files."""

    @property
    def may_delete(self) -> bool:
        """Whether a worker can decide by its own files and those of the members which files are no longer needed."""
        ...

    @property
    def acks_complete_other_files(self) -> bool:
        """Whether the ack of one file may complete the commit of another file of its store."""
        ...

    def recipients(self, entry: FileEntry, group: ReplicaGroup) -> tuple[Worker, ...]:
        """The members that should store the file."""
        ...

    def holds(self, entry: FileEntry, here: StoreCatalogue) -> bool:
        """Whether a worker with these files counts as a holder of the file's version."""
        ...

    def copies(
        self,
        entry: FileEntry,
        group: ReplicaGroup,
        me: Worker,
        holders: Sequence[Member],
        here: StoreCatalogue,
        outgoing: Callable[[FileKey], Outgoing | None],
    ) -> int | None:
        """Number of copies of the version that `me` commits by `entry`; None while there are too few.

        `holders` have acknowledged the version. `outgoing` returns a file that `me` still pushes.
        """
        ...

    def missing(
        self, me: Worker, here: StoreCatalogue, theirs: Sequence[FileEntry], group: ReplicaGroup, floor: Version | None
    ) -> Sequence[FileEntry]:
        """The files of other members that `me` should pull in a catch-up, in this order."""
        ...


class WholeChain:
    """Every member stores every file and holds every version."""

    may_delete = True
    acks_complete_other_files = False

    def recipients(self, entry: FileEntry, group: ReplicaGroup) -> tuple[Worker, ...]:
        return tuple(member.worker for member in group.members)

    def holds(self, entry: FileEntry, here: StoreCatalogue) -> bool:
        """A changelog requires its whole closure, a zip all its files.

        A zip's version might open without the zip. But once the zip's commit has returned, Spark writes changelogs that
        open only with this snapshot. Tasks wait for the commits of these changelogs, so these commits would wait for
        gigabytes on the bulk lane.
        """
        if entry.kind is FileKind.SNAPSHOT:
            return here.has_snapshot(entry.name)
        return entry.version is None or here.holds(entry.version)

    def copies(
        self,
        entry: FileEntry,
        group: ReplicaGroup,
        me: Worker,
        holders: Sequence[Member],
        here: StoreCatalogue,
        outgoing: Callable[[FileKey], Outgoing | None],
    ) -> int | None:
        return len(holders) if sum(member.whole for member in holders) >= group.required_copies else None

    def missing(
        self, me: Worker, here: StoreCatalogue, theirs: Sequence[FileEntry], group: ReplicaGroup, floor: Version | None
    ) -> Sequence[FileEntry]:
        return wanted(here, theirs, floor)


WHOLE_CHAIN = WholeChain()
_POLICIES: dict[Placement, CopyPolicy] = {Placement.STATE: WHOLE_CHAIN, Placement.BLOCK: SPREAD_BLOCKS}


def policy_of(group: ReplicaGroup) -> CopyPolicy:
    return _POLICIES[group.settings.placement]
