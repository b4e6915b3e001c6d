"""Events and effects of a manager with a journal on witnesses: closed unions of frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from rhino_core.witnesses.messages import Answer, Position, Record, Request, Snapshot


@dataclass(frozen=True, slots=True)
class Due:
    """The deadline has passed."""


@dataclass(frozen=True, slots=True)
class Put:
    """A write. Exactly one PutDone or PutFailed with its `number` answers it.

    `witnesses`: the set in force from this write on; empty: unchanged. It adds one witness, or removes one.
    """

    number: int
    values: Mapping[str, bytes | None] = field(default_factory=dict)
    witnesses: tuple[str, ...] = ()


Event: TypeAlias = Answer | Put | Due


@dataclass(frozen=True, slots=True)
class Send:
    witness: str
    request: Request


@dataclass(frozen=True, slots=True)
class Elected:
    """This manager has the promises of a majority. `last`: the end of the log that it goes on with."""

    generation: int
    last: Position


@dataclass(frozen=True, slots=True)
class Leads:
    """All records of former leaders are committed, so this manager knows all of the journal, and decides from now."""

    generation: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """This manager no longer decides: another one has a higher generation, or no majority has answered in time."""

    reason: str


@dataclass(frozen=True, slots=True)
class JournalEmpty:
    """No record is on a majority of witnesses, and this manager may not begin a journal."""


@dataclass(frozen=True, slots=True)
class PutDone:
    """A majority has the write on disk."""

    number: int


@dataclass(frozen=True, slots=True)
class PutFailed:
    """This manager stopped before it knew. The next leader may find the write, or not."""

    number: int


@dataclass(frozen=True, slots=True)
class Committed:
    """These records are committed for ever. `first`: index of the first one. They come in order, without a gap."""

    first: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Restored:
    """Replaces all records so far: their effect is in the snapshot."""

    snapshot: Snapshot


Effect: TypeAlias = Send | Elected | Leads | Stopped | JournalEmpty | PutDone | PutFailed | Committed | Restored
