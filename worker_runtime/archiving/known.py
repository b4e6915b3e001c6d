"""The files known to lie in the archive, so that they do not go up again."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rhino_archive.bucket import Bucket
from rhino_archive.claims import require_claim
from rhino_archive.manifest import ArchivedFile, ArchivedVersion, Extent, Part
from rhino_archive.reading import read_part
from rhino_core.errors import IntegrityError, UnknownError
from rhino_core.ids import FileEntry, GroupId, StoreId
from worker_runtime.protocol.keys import same_bytes
from worker_runtime.protocol.versions.closure import Catalogue, StoreCatalogue

log = logging.getLogger(__name__)
OWN_S = 6 * 3600.0  # an upload that no manifest names is used for so long. It is deleted after a day at the earliest
CLAIM_S = 600.0  # a bucket whose claim was seen so long ago is still the same one
UNASKED_S = 24 * 3600.0  # a group that nobody has archived here for so long is forgotten
_Key = tuple[StoreId, str]


@dataclass(slots=True)
class _Group:
    """`place`: of the list with `files`. `own`: uploads of this process that no manifest names yet, and their times.

    Times are monotonic seconds.
    """

    asked_at: float
    place: Extent | None = None
    files: dict[_Key, ArchivedFile] = field(default_factory=dict)
    own: dict[_Key, tuple[float, ArchivedFile]] = field(default_factory=dict)


class ArchivedStore:
    """The files of one store in the archive."""

    def __init__(self, files: Iterable[ArchivedFile]) -> None:
        self._names: dict[str, ArchivedFile] = {}
        self._contents: dict[tuple[str, int, int], tuple[Extent, ...]] = {}
        for file in files:
            self.add(file)

    def add(self, file: ArchivedFile) -> None:
        self._names[file.entry.name] = file
        if not file.entry.kind.versioned:
            self._contents.setdefault(_content(file.entry), file.extents)

    def find(self, entry: FileEntry) -> tuple[Extent, ...] | None:
        """Where the bytes of a file lie, perhaps under another name. None: they are not in the archive."""
        known = self._names.get(entry.name)
        if known is not None and same_bytes(known.entry, entry):
            return known.extents
        return None if entry.kind.versioned else self._contents.get(_content(entry))

    def names(self, here: StoreCatalogue) -> set[str]:
        """Names of the files here whose bytes are in the archive."""
        return {entry.name for entry in here.entries() if self.find(entry) is not None}


class Known:
    """The files of a job in one archive: only the newest state of each group that was archived here."""

    def __init__(self, here: Catalogue, clock: Callable[[], float] = time.monotonic) -> None:
        self._here = here
        self._clock = clock
        self._groups: dict[GroupId, _Group] = {}
        self._claim_seen_at = -math.inf

    def used(self) -> bool:
        """Drops the groups that nobody has archived here for long. Returns whether any is left."""
        since = self._clock() - UNASKED_S
        self._groups = {group: known for group, known in self._groups.items() if known.asked_at > since}
        return bool(self._groups)

    async def refresh(self, bucket: Bucket, job: str, basis: Iterable[Part], groups: Sequence[GroupId]) -> int:
        """Reads what the parts `basis` have of the groups, unless it is remembered. Raises the errors of the bucket.

        Returns the number of requests. Without the objects of `basis` all files go up again: this repairs an archive.
        """
        now, requests = self._clock(), 0
        for group in groups:  # before the first wait: an order for another job drops what nobody has asked for
            self._groups.setdefault(group, _Group(now)).asked_at = now
        # A folder may lose its mount at any time, and a look at it costs nothing.
        if bucket.is_folder or now > self._claim_seen_at + CLAIM_S:
            await require_claim(bucket, job)
            self._claim_seen_at, requests = now, 1
        parts = {group: part for part in basis for group in part.groups}
        unread: dict[Part, list[GroupId]] = {}
        for group in groups:
            known, part = self._groups[group], parts.get(group)
            if part is None or part.place != known.place:
                known.place, known.files = None, {}
                if part is not None:
                    unread.setdefault(part, []).append(group)
        for part, theirs in unread.items():
            self._learn(part, theirs, await _versions(bucket, job, part))
        for group in groups:
            known = self._groups[group]
            known.own = {
                key: own
                for key, own in known.own.items()
                if key not in known.files and own[0] > now - OWN_S and self._here.get(*key) is not None
            }
        return requests + len(unread)

    def _learn(self, part: Part, groups: Iterable[GroupId], versions: Iterable[ArchivedVersion]) -> None:
        of_group: dict[GroupId, dict[_Key, ArchivedFile]] = {group: {} for group in groups}
        for version in versions:
            if (files := of_group.get(version.version.store.group)) is not None:
                files.update(((file.entry.store, file.entry.name), file) for file in version.files)
        for group, files in of_group.items():
            self._groups[group].place, self._groups[group].files = part.place, files

    def store(self, store: StoreId) -> ArchivedStore:
        """The files of a store, by the last `refresh` of its group and by later uploads."""
        known = self._groups[store.group]
        files = (*(file for _, file in known.own.values()), *known.files.values())
        return ArchivedStore(file for file in files if file.entry.store == store)

    def uploaded(self, file: ArchivedFile, at: float) -> None:
        """This process has uploaded the file. `at`: monotonic seconds of the first of its packs."""
        self._groups[file.entry.store.group].own[file.entry.store, file.entry.name] = at, file

    def listed(self, part: Part, versions: Iterable[ArchivedVersion]) -> None:
        """This process has written a part: the next manifest probably names it."""
        self._learn(part, part.groups, versions)


def _content(entry: FileEntry) -> tuple[str, int, int]:
    return entry.content, entry.size_bytes, entry.crc32c


async def _versions(bucket: Bucket, job: str, part: Part) -> list[ArchivedVersion]:
    try:
        return await read_part(bucket, job, part)
    except (UnknownError, IntegrityError) as error:
        log.error(
            "a part of the newest archived batch cannot be read: its files go up again", extra={"error": str(error)}
        )
        return []
