"""Old against new: calls two versions of a Python function with the same rows, and counts the differences.

This runs in a Python worker of an executor, in place of the function. It is pickled by value, because the executors
need not have Rhino. So it imports nothing of Rhino. Errors of the functions are caught here, because Spark would log
them, and they may name values of rows.
"""

from __future__ import annotations

import base64
import copy
import json
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any

EXAMPLES_MAX = 5
TEXT_MAX = 200  # characters of a value
VERSIONS = ("old", "new")
Made = tuple[list[Any] | None, str, int]  # values, or None and the error; nanoseconds


class RunningComparison:
    """Results of two versions of a function for the rows so far."""

    def __init__(self, functions: dict[str, Callable[..., Any]]) -> None:
        self.rows = 0
        self._functions = functions
        self._different = 0
        self._failed = dict.fromkeys(VERSIONS, 0)
        self._errors = dict.fromkeys(VERSIONS, "")
        self._ns = dict.fromkeys(VERSIONS, 0)
        self._timed = 0
        self._examples: list[dict[str, str]] = []

    def row(self, args: Sequence[Any], named: dict[str, Any]) -> None:
        """Calls both versions with one row. The first row of all is not timed: it may load modules."""
        made = {version: self._called(version, args, named, lambda value: [value]) for version in self._order()}
        self._count([_text((*args, *named.values()))], made, strict=True)
        if self.rows > 1:
            self._time(1, made)

    def batch(self, length: int, args: Sequence[Any], named: dict[str, Any]) -> None:
        """Calls both versions with columns of many rows, and first with the first row, untimed."""
        if self.rows == 0 and length > 1:
            first = [_head(arg) for arg in args], {name: _head(arg) for name, arg in named.items()}
            for version in self._order():
                self._called(version, *first, lambda value: _column(value, 1))
        made = {
            version: self._called(version, args, named, lambda value: _column(value, length))
            for version in self._order()
        }
        columns = [_values(arg) for arg in (*args, *named.values())]
        rows = list(zip(*columns, strict=True)) if columns else [()] * length
        self._count([_text(row) for row in rows], made, strict=False)
        self._time(length, made)

    def result(self) -> dict[str, Any]:
        """Returns all of it for JSON."""
        versions = {
            version: {
                "failed": self._failed[version],
                "error": self._errors[version],
                "us": round(self._ns[version] / self._timed / 1000, 3) if self._timed else None,
            }
            for version in VERSIONS
        }
        return {"rows": self.rows, "different": self._different, **versions, "examples": self._examples}

    def _order(self) -> Sequence[str]:
        """Neither version always has the caches warmed by the other one."""
        return VERSIONS if self.rows % 2 == 0 else VERSIONS[::-1]

    def _called(
        self, version: str, args: Sequence[Any], named: dict[str, Any], listed: Callable[[Any], list[Any]]
    ) -> Made:
        """A function may change its arguments, so it gets copies."""
        given, by_name = copy.deepcopy((tuple(args), named))
        begun = time.perf_counter_ns()
        try:
            value = self._functions[version](*given, **by_name)
            spent = time.perf_counter_ns() - begun
            return listed(value), "", spent
        except Exception as error:  # the user's code
            return None, f"{type(error).__name__}: {error}"[:TEXT_MAX], time.perf_counter_ns() - begun

    def _time(self, rows: int, made: dict[str, Made]) -> None:
        self._timed += rows
        for version, (_, _, spent) in made.items():
            self._ns[version] += spent

    def _count(self, given: Sequence[str], made: dict[str, Made], *, strict: bool) -> None:
        """`given`: of each row, the arguments as text."""
        self.rows += len(given)
        for version, (values, error, _) in made.items():
            if values is None:
                self._failed[version] += len(given)
                self._errors[version] = self._errors[version] or error
        (old, old_error, _), (new, new_error, _) = made["old"], made["new"]
        for place, arguments in enumerate(given):
            if old is None or new is None:
                differs = old is not new or old_error != new_error
            else:
                differs = not same(old[place], new[place], strict=strict)
            self._different += differs
            if differs and len(self._examples) < EXAMPLES_MAX:
                texts = (
                    old_error if old is None else _text(old[place]),
                    new_error if new is None else _text(new[place]),
                )
                self._examples.append({"given": arguments, "old": texts[0], "new": texts[1]})


def same(old: Any, new: Any, *, strict: bool) -> bool:
    """Whether Spark would make the same value of both. `strict`: of another class, it may make null of it."""
    old, new = (value.tolist() if hasattr(value, "tolist") else value for value in (old, new))  # NumPy's
    if old is None or new is None:
        return old is new
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        return len(old) == len(new) and all(same(a, b, strict=strict) for a, b in zip(old, new, strict=True))
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(old[key], new[key], strict=strict) for key in old)
    if strict and type(old) is not type(new):
        return False
    return bool(old == new) or bool(old != old and new != new)  # NaN


def row_comparer() -> Callable[..., str | None]:
    """Makes the substitute of a plain UDF. The last row gets the result as JSON, the others None."""
    open_comparison: list[tuple[RunningComparison, int]] = []

    def compare(header: str | None, *args: Any, **named: Any) -> str | None:
        if header is not None:
            open_comparison[:] = [_opened(header)]
        comparison, total = open_comparison[0]
        comparison.row(args, named)
        return json.dumps(comparison.result()) if comparison.rows == total else None

    return compare


def column_comparer() -> Callable[..., Any]:
    """Makes the substitute of a pandas or Arrow UDF. The last row gets the result as JSON, the others None."""
    open_comparison: list[tuple[RunningComparison, int]] = []

    def compare(headers: Any, *args: Any, **named: Any) -> Any:
        first = _values(headers)[0]
        if first is not None:
            open_comparison[:] = [_opened(first)]
        comparison, total = open_comparison[0]
        comparison.batch(len(headers), args, named)
        answers: list[str | None] = [None] * len(headers)
        if comparison.rows == total:
            answers[-1] = json.dumps(comparison.result())
        return type(headers)(answers, dtype=object) if hasattr(headers, "iloc") else _array(answers)

    return compare


def _opened(header: str) -> tuple[RunningComparison, int]:
    fields = json.loads(header)
    functions = {version: pickle.loads(base64.b64decode(fields[version]))[0] for version in VERSIONS}
    return RunningComparison(functions), fields["rows"]


def _array(values: list[str | None]) -> Any:
    import pyarrow as pa

    return pa.array(values, pa.string())


def _values(column: Any) -> list[Any]:
    """Returns the values of a column of pandas or Arrow, None for null. Raises TypeError for anything else."""
    if hasattr(column, "to_pylist"):
        return list(column.to_pylist())
    if hasattr(column, "to_dict") and hasattr(column, "columns"):
        return list(column.to_dict("records"))
    if hasattr(column, "isna"):
        return [None if null else value for value, null in zip(column.tolist(), column.isna(), strict=True)]
    raise TypeError(f"{type(column).__name__} is no column")


def _column(value: Any, length: int) -> list[Any]:
    """Raises TypeError or ValueError for anything but a column of this length."""
    found = _values(value)
    if len(found) != length:
        raise ValueError(f"{len(found)} values for {length} rows")
    return found


def _head(column: Any) -> Any:
    return column.iloc[:1] if hasattr(column, "iloc") else column.slice(0, 1)


def _text(value: Any) -> str:
    return repr(value)[:TEXT_MAX]
