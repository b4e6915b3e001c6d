"""The versions before a changelog, stored compactly for stores without a snapshot for a long time.

The lineage of a version is the lineage of its predecessor plus the predecessor itself. As tuples, the lineages of n
versions take n²/2 entries in memory, on disk and in messages. Therefore the lineages of one branch share one list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from rhino_core.ids import Version

UNUSED_MAX = 1024  # versions at the beginning of a branch that no lineage contains any more
LONG = 32  # shorter lineages are plain tuples; with the default snapshot interval all lineages are shorter


class Lineage(Sequence[Version]):
    """Versions, oldest first: a slice of a branch's list. This list only grows. Equals a tuple of the same versions."""

    __slots__ = ("_branch", "_start", "_stop")

    def __init__(self, versions: Iterable[Version] = ()) -> None:
        self._branch = list(versions)
        self._start, self._stop = 0, len(self._branch)

    @classmethod
    def of(cls, versions: Sequence[Version]) -> Lineage:
        return versions if isinstance(versions, Lineage) else cls(versions)

    def _part(self, branch: list[Version], start: int, stop: int) -> Lineage:
        part = Lineage.__new__(Lineage)
        part._branch, part._start, part._stop = branch, start, stop
        return part

    def then(self, version: Version, length: int) -> Lineage:
        """Returns the last `length` - 1 of these versions plus `version`: the lineage of the changelog after it."""
        branch = self._branch
        if self._stop == len(branch):
            branch.append(version)
            if (unused := len(branch) - length) > max(UNUSED_MAX, length):
                return Lineage(branch[unused:])
        elif branch[self._stop] != version:  # another attempt already continued from here: start a new branch
            branch = [*branch[self._start : self._stop], version]
            return self._part(branch, len(branch) - length, len(branch))
        return self._part(branch, self._stop + 1 - length, self._stop + 1)

    def end(self, length: int) -> Lineage:
        """Returns the last `length` versions."""
        return self._part(self._branch, self._stop - length, self._stop)

    def is_continued_by(self, other: Sequence[Version]) -> bool:
        """Whether `other` without its last version is the end of this lineage."""
        before = len(other) - 1
        if before < 0 or before > len(self):
            return False
        if isinstance(other, Lineage) and other._branch is self._branch:
            return other._stop == self._stop + 1
        return all(mine == theirs for mine, theirs in zip(self[len(self) - before :], other, strict=False))

    def __len__(self) -> int:
        return self._stop - self._start

    @overload
    def __getitem__(self, index: int) -> Version: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Version, ...]: ...
    def __getitem__(self, index: int | slice) -> Version | tuple[Version, ...]:
        if isinstance(index, slice):
            return tuple(self._branch[self._start : self._stop][index])
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._branch[(self._start if index >= 0 else self._stop) + index]

    def __iter__(self) -> Iterator[Version]:
        return iter(self._branch[self._start : self._stop])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Lineage) and other._branch is self._branch:
            return (other._start, other._stop) == (self._start, self._stop)
        return tuple(self) == (tuple(other) if isinstance(other, Lineage) else other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def joined(before: Sequence[Version], lineage: Sequence[Version]) -> Sequence[Version]:
    """Returns `lineage` as a slice of the branch of `before`, the lineage of its last version, if it is long and
    continues this branch.
    """
    if len(lineage) < LONG or isinstance(lineage, Lineage):
        return lineage
    branch = Lineage.of(before)
    return branch.then(lineage[-1], len(lineage)) if branch.is_continued_by(lineage) else Lineage(lineage)


def union(lineages: Iterable[Sequence[Version]]) -> set[Version]:
    """Returns all versions of the lineages. Slices of one branch are scanned only once."""
    found: set[Version] = set()
    parts: dict[int, list[Lineage]] = {}
    for lineage in lineages:
        if isinstance(lineage, Lineage):
            parts.setdefault(id(lineage._branch), []).append(lineage)
        else:
            found.update(lineage)
    for of_branch in parts.values():
        reached = 0
        for part in sorted(of_branch, key=lambda part: part._start):
            found.update(part._branch[max(part._start, reached) : part._stop])
            reached = max(reached, part._stop)
    return found


def plain(lineage: Sequence[Version]) -> Sequence[Version]:
    """Converts a lineage for JSON. JSON writes tuples as lists."""
    return lineage if isinstance(lineage, tuple) else list(lineage)
