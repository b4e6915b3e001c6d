"""A modification of a running query, as its immutable record has it."""

from __future__ import annotations

import base64
import enum
import json
from dataclasses import dataclass, field
from typing import Any, Self

from rhino_core.errors import IntegrityError

CODE_MAX_BYTES = 1024 * 1024  # PySpark sends larger functions as broadcasts, which end with the driver


class Kind(enum.StrEnum):
    """What a modification changes."""

    FUNCTION = "function"  # the code of a Python function
    FILTER = "filter"  # the rows that pass an observed point
    COLUMNS = "columns"  # the values of columns at an observed point


@dataclass(frozen=True, slots=True)
class Code:
    """A Python function: what PySpark pickles for it, its kind in PySpark's numbers, and its return type as JSON."""

    pickled: bytes = b""
    eval_type: int = 0
    returns: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a user asks for. `target`: the name of the function, or of the observed point.

    `removes`: a former change of the same kind and target ends. Expressions are SQL.
    """

    kind: Kind
    target: str
    removes: bool = False
    code: Code = Code()
    condition: str = ""
    columns: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """A change with its number, which counts from 1, who wanted it, and when (wall clock, ms since the epoch)."""

    number: int
    change: Change
    author: str
    created_ms: int
    dry_run: bool = False

    @property
    def slot(self) -> tuple[Kind, str]:
        """Of several changes of one slot, the newest one counts."""
        return self.change.kind, self.change.target

    def to_json(self) -> str:
        change = self.change
        return json.dumps(
            {
                "kind": change.kind,
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
            }
        )

    @classmethod
    def from_json(cls, number: int, text: str) -> Self:
        """Raises IntegrityError."""
        try:
            fields: dict[str, Any] = json.loads(text)
            code = Code(base64.b64decode(fields["code"]), int(fields["eval_type"]), str(fields["returns"]))
            change = Change(
                Kind(fields["kind"]),
                str(fields["target"]),
                bool(fields["removes"]),
                code,
                str(fields["filter"]),
                {str(name): str(text) for name, text in fields["columns"].items()},
            )
            return cls(number, change, str(fields["author"]), int(fields["created_ms"]), bool(fields["dry_run"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise IntegrityError(f"the record of modification {number} is not readable: {error}") from error
