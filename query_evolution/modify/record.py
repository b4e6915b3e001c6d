"""A modification of a running query, as its immutable record has it."""

from __future__ import annotations

import base64
import enum
import json
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from query_evolution.modify.functions import Code, bounds, from_fields, to_fields
from query_evolution.modify.jars import JarCode
from query_evolution.modify.join import Join
from rhino_core.errors import InvalidRequestError
from rhino_core.foreign import reading

CANARY_MAX_BATCHES = 10_000
SAMPLE_MAX_ROWS = 10_000
# They end the kind in the file. A Rhino that does not know functions, or jars, refuses such a kind.
_WITH_FUNCTIONS = "+functions"
_WITH_JAR = "+jar"


class Kind(enum.StrEnum):
    """The kind of change of a modification."""

    FUNCTION = "function"  # the code of a function of Python, or of Scala and Java
    FILTER = "filter"  # the rows that pass an observed point
    JOIN = "join"  # rows, or values of columns, by a static table at an observed point
    COLUMNS = "columns"  # the values of columns at an observed point


@dataclass(frozen=True, slots=True)
class Canary:
    """The first batches of a modification are judged. A failed one, or one beyond a limit, ends the modification.

    `max_batch_ms`: from a batch's trigger to its commit; not for the first batch of a run. `min_rows`, `max_rows`: of a
    batch at `point`, which counts them by the alias `rows` of `.observe`; "" is the point of the modification itself.
    Raises InvalidRequestError.
    """

    batches: int
    max_batch_ms: int | None = None
    min_rows: int | None = None
    max_rows: int | None = None
    point: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.batches <= CANARY_MAX_BATCHES:
            raise InvalidRequestError(f"{self.batches} batches of a canary: must be 1 to {CANARY_MAX_BATCHES}")
        for name, value in (("max_batch_ms", self.max_batch_ms), ("max_rows", self.max_rows)):
            if value is not None and value < 1:
                raise InvalidRequestError(f"{name} of a canary is {value}: must be 1 or more")
        if self.min_rows is not None and not 0 <= self.min_rows <= (self.max_rows or self.min_rows):
            raise InvalidRequestError(f"min_rows of a canary is {self.min_rows}: must be 0 to max_rows")

    @property
    def counts_rows(self) -> bool:
        return self.min_rows is not None or self.max_rows is not None


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a user asks for. `target`: the name of the function, or of the observed point.

    `removes`: a former change of the same kind and target ends. Expressions are SQL. `columns` also of a join.
    `functions`: the Python functions called by these names in the SQL of a filter, of columns or of a join. `jar`: the
    new class of a function of Scala or Java.
    """

    kind: Kind
    target: str
    removes: bool = False
    code: Code = field(default_factory=Code)
    condition: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    join: Join | None = None
    functions: dict[str, Code] = field(default_factory=dict)
    jar: JarCode | None = None

    @property
    def written_kind(self) -> str:
        """The kind in the file of the record."""
        return self.kind + (_WITH_FUNCTIONS if self.functions else "") + (_WITH_JAR if self.jar else "")


@dataclass(frozen=True, slots=True)
class Sample:
    """For a dry run of a function: old and new get this many rows at most. `comparer` counts the differences.

    It is pickled as a UDF is, and runs in a Python worker of an executor. For a class of a jar it is empty: the driver
    has a comparer. Raises InvalidRequestError.
    """

    rows: int
    comparer: bytes

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= SAMPLE_MAX_ROWS:
            raise InvalidRequestError(f"{self.rows} rows of a sample: must be 1 to {SAMPLE_MAX_ROWS}, or 0 for none")


@dataclass(frozen=True, slots=True)
class Record:
    """A change with its number (from 1), author and time (wall clock, ms since the epoch)."""

    number: int
    change: Change
    author: str
    created_ms: int
    dry_run: bool = False
    canary: Canary | None = None
    sample: Sample | None = None

    @property
    def slot(self) -> tuple[Kind, str]:
        """Of several changes of one slot, the newest one counts."""
        return self.change.kind, self.change.target

    def to_json(self) -> str:
        change = self.change
        return json.dumps(
            {
                "kind": change.written_kind,
                "target": change.target,
                "removes": change.removes,
                "code": base64.b64encode(change.code.pickled).decode(),
                "eval_type": change.code.eval_type,
                "returns": change.code.returns,
                "filter": change.condition,
                "columns": change.columns,
                "author": self.author,
                "created_ms": self.created_ms,
                "dry_run": self.dry_run,
                "takes": change.code.takes,
                "canary": self.canary and asdict(self.canary),
                "guard": base64.b64encode(change.code.guard).decode(),
                "sample": self.sample and _sample_fields(self.sample),
                "join": change.join and change.join.to_fields(),
                "functions": to_fields(change.functions),
                "jar": change.jar and change.jar.to_fields(),
            }
        )

    @classmethod
    def from_json(cls, number: int, text: str) -> Self:
        """Raises IntegrityError."""
        with reading(f"the record of modification {number}"):
            fields: dict[str, Any] = json.loads(text)
            code = Code(
                base64.b64decode(fields["code"]),
                int(fields["eval_type"]),
                str(fields["returns"]),
                bounds(fields.get("takes")),
                base64.b64decode(fields.get("guard", "")),
            )
            canary = None if fields.get("canary") is None else Canary(**fields["canary"])
            written = str(fields["kind"])
            change = Change(
                Kind(written.removesuffix(_WITH_JAR).removesuffix(_WITH_FUNCTIONS)),
                str(fields["target"]),
                bool(fields["removes"]),
                code,
                str(fields["filter"]),
                {str(name): str(text) for name, text in fields["columns"].items()},
                None if fields.get("join") is None else Join.from_fields(fields["join"]),
                from_fields(fields["functions"]) if written.endswith(_WITH_FUNCTIONS) else {},
                JarCode.from_fields(fields["jar"]) if written.endswith(_WITH_JAR) else None,
            )
            author, created_ms, dry_run = str(fields["author"]), int(fields["created_ms"]), bool(fields["dry_run"])
            return cls(number, change, author, created_ms, dry_run, canary, _sample(fields.get("sample")))


def _sample_fields(sample: Sample) -> dict[str, Any]:
    return {"rows": sample.rows, "code": base64.b64encode(sample.comparer).decode()}


def _sample(fields: dict[str, Any] | None) -> Sample | None:
    return None if fields is None else Sample(int(fields["rows"]), base64.b64decode(fields["code"]))
