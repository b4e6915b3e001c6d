"""Records of the journal, the three requests of a manager to a witness, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class Position(NamedTuple):
    """A place in the log. Two logs with an equal position are equal up to there (Raft, section 5.3)."""

    generation: int
    index: int  # type: ignore[assignment]  # of the first record: 1; it hides `tuple.index`


ORIGIN = Position(0, 0)


@dataclass(frozen=True, slots=True)
class Record:
    """One write. `generation`: of the leader with this write. `values`: by key; None deletes the key.

    `witnesses`: the sorted set in force from this record on; empty: unchanged.
    """

    generation: int
    values: Mapping[str, bytes | None] = field(default_factory=dict)
    witnesses: tuple[str, ...] = ()

    def position(self, index: int) -> Position:
        return Position(self.generation, index)

    @property
    def size_bytes(self) -> int:
        return sum(len(key) + len(value or b"") for key, value in self.values.items())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The effect of all records up to `last`, all of them committed."""

    last: Position = ORIGIN
    values: Mapping[str, bytes] = field(default_factory=dict)
    witnesses: tuple[str, ...] = ()


# ---------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True)
class Promise:
    """Asks the witness to accept nothing more from lower generations: phase 1 of Paxos, the generation as the ballot.

    `candidate`: unique for one life of one manager, because a witness promises a generation to one of them only.
    """

    cluster: str
    generation: int
    candidate: str


@dataclass(frozen=True, slots=True)
class Append:
    """Asks the witness to store `records` behind `prev`, or behind `snapshot`, whose last position is `prev`.

    `committed`: the leader's index. `sent_at`: the leader's clock; it comes back in the answer.
    """

    cluster: str
    generation: int
    candidate: str
    prev: Position
    records: tuple[Record, ...]
    committed: int
    sent_at: float
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class Fetch:
    """Asks for the records behind index `after`: the committed ones, or all for the candidate of `generation`."""

    cluster: str
    after: int
    generation: int = 0


Request: TypeAlias = Promise | Append | Fetch

# ---------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Promised:
    """`granted`: this generation is promised to this candidate. `promised`: the highest generation of the witness.

    `last`: the end of its log.
    """

    witness: str
    generation: int
    granted: bool
    promised: int
    last: Position


@dataclass(frozen=True, slots=True)
class Appended:
    """`matched`: up to this index the log on disk equals the leader's. It is below `prev` if the witness lacks `prev`.

    The append was refused if `promised`, the highest generation of the witness, is above `generation`.
    """

    witness: str
    generation: int
    promised: int
    matched: int
    sent_at: float


@dataclass(frozen=True, slots=True)
class Fetched:
    """`records` follow `snapshot`, or else index `after`. `snapshot`: given if records behind `after` are folded.

    `activity`: rises with each request of a leader or candidate. A standby sees from it that the leader lives. `last`,
    `witnesses`: the end of the log, and the newest set in it, committed or not.
    """

    witness: str
    generation: int
    promised: int
    activity: int
    after: int
    records: tuple[Record, ...]
    committed: int
    last: Position
    witnesses: tuple[str, ...]
    snapshot: Snapshot | None = None


Answer: TypeAlias = Promised | Appended | Fetched
