"""A join of the rows of a point with a static table, as a record carries it."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from rhino_core.errors import InvalidRequestError

FORMATS = ("parquet", "orc", "csv", "json")
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")


class How(enum.StrEnum):
    """The rows of a join's result."""

    INNER = "inner"  # those with a row of the table
    LEFT = "left"  # all; columns of the table are null where it has no row
    LEFT_SEMI = "left_semi"  # those with rows of the table, once each
    LEFT_ANTI = "left_anti"  # those without

    @property
    def filters(self) -> bool:
        """Whether it gives no columns of the table."""
        return self in (How.LEFT_SEMI, How.LEFT_ANTI)


@dataclass(frozen=True, slots=True)
class StaticTable:
    """The place where the driver's Spark reads a table, once. `path`: as Spark takes it, a URI or an absolute path.

    `schema`: in Spark's DDL, "": the format has it, or Spark infers it. `options`: of Spark's reader for the format.
    They are in the record, so they must not be secret. Raises InvalidRequestError.
    """

    path: str
    format: str = "parquet"
    schema: str = ""
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidRequestError(f"format {self.format!r} of a table: must be one of {', '.join(FORMATS)}")
        if not _ABSOLUTE.match(self.path):
            raise InvalidRequestError(
                f"table {self.path!r}: must be an absolute path or a URI, because the driver reads it, not this process"
            )


@dataclass(frozen=True, slots=True)
class Join:
    """`on`: columns of the table by the equal columns of the point."""

    table: StaticTable
    on: dict[str, str]
    how: How

    @classmethod
    def made(cls, table: StaticTable, on: Mapping[str, str], how: str, columns: Mapping[str, str]) -> Self:
        """Raises InvalidRequestError for arguments that make no join. `columns`: new values of columns, in SQL."""
        if how not in tuple(How):
            raise InvalidRequestError(f"join {how!r}: must be one of {', '.join(How)}")
        if not on or not all(of.strip() and its.strip() for of, its in on.items()):
            raise InvalidRequestError("a join needs columns of the point and of the table that must be equal")
        its = How(how)
        if its.filters and columns:
            raise InvalidRequestError(
                f"a {its} join gives no columns of the table: new values of columns need an inner or left join"
            )
        if its is How.LEFT and not columns:
            raise InvalidRequestError("a left join without new values of columns changes nothing")
        return cls(table, dict(on), its)

    def to_fields(self) -> dict[str, Any]:
        table = asdict(self.table)
        return {"table": table.pop("path"), **table, "on": self.on, "how": self.how}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError, ValueError, AttributeError or InvalidRequestError if they are damaged."""
        table = StaticTable(
            str(fields["table"]), str(fields["format"]), str(fields["schema"]), _texts(fields["options"])
        )
        return cls(table, _texts(fields["on"]), How(fields["how"]))

    def __str__(self) -> str:
        equal = " and ".join(f"{of}={its}" for of, its in self.on.items())
        return f"{self.how} {self.table.path} on {equal}"


def _texts(fields: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(text) for name, text in fields.items()}
