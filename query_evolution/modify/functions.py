"""Python functions, as a record carries them: in place of a function of the query, or called by SQL at a point."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rhino_core.errors import InvalidRequestError

CODE_MAX_BYTES = 1024 * 1024  # PySpark sends larger functions as broadcasts, which end with the driver
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Code:
    """A Python function: its pickle by PySpark, its kind in PySpark's numbers, and its return type as JSON.

    `takes`: the least and the most arguments of a scalar function, None: not known. `guard`: for a processor of
    `transformWithState`, a pickled UDF that compares the state variables of two of them. `python`: the version of the
    pickle, such as "3.11".
    """

    pickled: bytes = b""
    eval_type: int = 0
    returns: str = ""
    takes: tuple[int, int] | None = None
    guard: bytes = b""
    python: str = ""


def check_functions(functions: Mapping[str, Code]) -> dict[str, Code]:
    """Returns functions for calls by their names in SQL. Raises InvalidRequestError if it cannot, or for too much code.

    All of them have 1 MiB of code together at most.
    """
    for name in functions:
        if not _NAME.fullmatch(name):
            raise InvalidRequestError(
                f"{name!r}: the name of a function in SQL has letters of ASCII, digits and _, and no digit comes first"
            )
    if len({name.lower() for name in functions}) < len(functions):
        raise InvalidRequestError(f"{', '.join(functions)}: SQL does not tell names apart by upper and lower case")
    size = sum(len(code.pickled) for code in functions.values())
    if size > CODE_MAX_BYTES:
        raise InvalidRequestError(
            f"{', '.join(functions)} have {size} bytes together, and {CODE_MAX_BYTES} are allowed: let them read large "
            "data from a file that the executors have"
        )
    return dict(functions)


def to_fields(functions: Mapping[str, Code]) -> dict[str, Any]:
    """Returns functions of a point for JSON."""
    return {
        name: {
            "code": base64.b64encode(code.pickled).decode(),
            "eval_type": code.eval_type,
            "returns": code.returns,
            "takes": code.takes,
            "python": code.python,
        }
        for name, code in functions.items()
    }


def from_fields(fields: Mapping[str, Any]) -> dict[str, Code]:
    """Raises KeyError, TypeError, ValueError, AttributeError or IndexError if they are damaged."""
    return {
        str(name): Code(
            base64.b64decode(its["code"]),
            int(its["eval_type"]),
            str(its["returns"]),
            bounds(its["takes"]),
            python=str(its["python"]),
        )
        for name, its in fields.items()
    }


def bounds(takes: Any) -> tuple[int, int] | None:
    """Returns the least and the most arguments. Raises as `from_fields`."""
    return None if takes is None else (int(takes[0]), int(takes[1]))
