"""One scrub: its progress, its findings, and their persistent form."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from rhino_core.ids import StoreId
from rhino_core.records import known_fields

Key = tuple[StoreId, str]


class Damage(NamedTuple):
    """A damaged or missing file. `references`: its data files, if it is a zip."""

    store: StoreId
    name: str
    references: tuple[str, ...]


@dataclass(slots=True)
class ScrubRound:
    """Mutable state of a scrub. `number` 0: none has run yet. Times are milliseconds since the epoch."""

    number: int = 0
    running: bool = False
    full_pace: bool = False
    checked_bytes: int = 0
    total_bytes: int = 0
    checked_files: int = 0
    errors: int = 0
    started_ms: int = 0
    finished_ms: int = 0  # end of the newest finished scrub
    position: Key | None = None  # the last file checked
    damaged: list[Damage] = field(default_factory=list)  # found and not yet repaired

    @property
    def repaired(self) -> int:
        return self.errors - len(self.damaged)

    def next(self, *, full_pace: bool, total_bytes: int, started_ms: int, damaged: list[Damage]) -> ScrubRound:
        """A new scrub from the beginning.

        `damaged`: files found by earlier scrubs and still missing here. They remain errors.
        """
        return ScrubRound(
            number=self.number + 1,
            running=True,
            full_pace=full_pace,
            total_bytes=total_bytes,
            errors=len(damaged),
            started_ms=started_ms,
            finished_ms=self.finished_ms,
            damaged=damaged,
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ScrubRound:
        fields = json.loads(text)
        fields["position"] = _key(fields["position"]) if fields["position"] else None
        fields["damaged"] = [
            Damage(StoreId(*store), name, tuple(references)) for store, name, references in fields["damaged"]
        ]
        return cls(**known_fields(cls, fields))


def _key(value: list[object]) -> Key:
    store, name = value
    return StoreId(*store), str(name)  # type: ignore[misc]  # as asdict wrote it
