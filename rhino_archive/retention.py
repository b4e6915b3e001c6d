"""Which archived batches stay, and which packs may go. Pure: an invariant of it is that no named pack goes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rhino_core.errors import InvalidRequestError

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
# A pack goes when it has had no name for so long. A round of uploads is shorter: its manifest names packs that it has
# just uploaded, and packs of a manifest that may be deleted meanwhile. A restore may read as long.
GRACE_MS = DAY_MS
USUAL = "newest=3,hourly=24,daily=7"
_FORM = re.compile(r"(newest|hourly|daily)=([0-9]{1,6})")


class Written(NamedTuple):
    """A manifest's name, and when it was written, in Unix milliseconds by the store's clock."""

    name: str
    written_ms: int


@dataclass(frozen=True, slots=True)
class Retention:
    """The numbers of batches that stay: the newest, and the newest of each of the last hours and days with batches."""

    newest: int
    hourly: int
    daily: int

    def kept(self, manifests: Iterable[Written]) -> frozenset[str]:
        """Names of the manifests that stay. The newest one always stays, and that of the highest batch.

        They differ after a rewind, after a step of the store's clock, and when a manager that hung writes an old batch.
        """
        found = sorted(manifests, key=lambda one: (one.written_ms, one.name), reverse=True)
        kept = {one.name for one in (*found[: max(self.newest, 1)], *sorted(found)[-1:])}
        for length_ms, periods in ((HOUR_MS, self.hourly), (DAY_MS, self.daily)):
            newest_of: dict[int, str] = {}
            for one in found:
                newest_of.setdefault(one.written_ms // length_ms, one.name)
            kept.update(list(newest_of.values())[:periods])
        return frozenset(kept)


def retention_of(text: str) -> Retention:
    """Raises InvalidRequestError for anything but numbers of newest, hourly and daily."""
    parts = [_FORM.fullmatch(part.strip()) for part in text.split(",")]
    numbers = {match[1]: int(match[2]) for match in parts if match}
    if not all(parts) or len(numbers) != len(parts) or not any(numbers.values()):
        raise InvalidRequestError(f"batches to keep = {text!r}: must be like {USUAL}, with at least one batch")
    return Retention(numbers.get("newest", 0), numbers.get("hourly", 0), numbers.get("daily", 0))


class Sweep(NamedTuple):
    """Packs to delete now, and all without a name: since when, in Unix milliseconds. None: since this sweep.

    The time of a sweep is that of the object in which it is noted. So it is known to the next one only.
    """

    gone: tuple[str, ...]
    unnamed: Mapping[str, int | None]


def sweep(packs: Iterable[str], named: Collection[str], before: Mapping[str, int | None], noted_ms: int) -> Sweep:
    """`packs`: all that are stored; they were listed before the manifests were read.

    `before` and `noted_ms`: the note of the last sweep, and its time.
    """
    # After a step back of the store's clock, times may lie in the future.
    times = {pack: noted_ms if since_ms is None else min(since_ms, noted_ms) for pack, since_ms in before.items()}
    unnamed = {pack: times.get(pack) for pack in packs if pack not in named}
    gone = (pack for pack, since_ms in unnamed.items() if since_ms is not None and noted_ms - since_ms >= GRACE_MS)
    return Sweep(tuple(gone), unnamed)
