"""Which files of a group a worker outside it may delete, given what the members have (Rhino 4.2.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rhino_core.ids import FileEntry, Version
from worker_runtime.protocol.versions.closure import StoreCatalogue, delete_order


def removable(
    here: StoreCatalogue,
    members: Sequence[StoreCatalogue],
    copies: int,
    *,
    floor: Version | None,
    pins: Iterable[Version],
    in_use: Iterable[str],
    me: str,
) -> tuple[str, ...]:
    """Names here that `copies` of `members` have, or that lie below a floor whose version that many of them hold.

    A version goes only as a whole: that many members must each have all the files from which it may open here. Nothing
    goes while `me` wrote the newest version anywhere, because its executor builds on these files.
    """
    if len(members) < copies or _wrote_newest(me, (here, *members)):
        return ()
    passed = floor is not None and sum(member.holds(floor) for member in members) >= copies
    kept = {*in_use, *here.reach(*pins)}
    needed: set[str] = set()  # files of versions that may still be loaded
    for version in here.versions():
        if passed and floor is not None and version.version < floor.version:
            continue
        names = here.reach(version)
        needed |= names
        if not _confirmed(here, members, copies, names):
            kept |= names
    for file in here.files():
        if file.entry.name not in needed and not passed and not _confirmed(here, members, copies, (file.entry.name,)):
            kept.add(file.entry.name)
    return delete_order(file for file in here.files() if file.entry.name not in kept)


def _confirmed(here: StoreCatalogue, members: Sequence[StoreCatalogue], copies: int, names: Iterable[str]) -> bool:
    """Whether that many members each have all of these files, with the same bytes."""
    names = tuple(names)
    return sum(all(_same(here.get(n), member.get(n)) for n in names) for member in members) >= copies


def _same(mine: FileEntry | None, theirs: FileEntry | None) -> bool:
    if mine is None or theirs is None:
        return False
    return (mine.size_bytes, mine.crc32c) == (theirs.size_bytes, theirs.crc32c)


def _wrote_newest(me: str, catalogues: Iterable[StoreCatalogue]) -> bool:
    files = [f for catalogue in catalogues for f in catalogue.files() if f.version is not None]
    newest = max((f.version.version for f in files if f.version), default=0)
    return any(f.version.version == newest and f.entry.written_by == me for f in files if f.version)
