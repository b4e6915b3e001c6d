"""Typed records: what is written can be read, with less or more in it; and what is no such record is refused."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhino_core.errors import IntegrityError, PreconditionError
from rhino_core.records import Record, decode, encode


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    name: str
    parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Inner(Record):
    colour: Colour
    size: float | None


@dataclass(frozen=True, slots=True)
class Outer(Record):
    number: int
    inner: tuple[tuple[Inner, ...], ...]
    points: tuple[Point, ...]
    by_name: dict[str, int]
    added: bool = False


inners = st.builds(Inner, st.sampled_from(Colour), st.none() | st.floats(allow_nan=False))
points = st.builds(Point, st.text(), st.lists(st.integers()).map(tuple))
outers = st.builds(
    Outer,
    st.integers(),
    st.lists(st.lists(inners, max_size=3).map(tuple), max_size=3).map(tuple),
    st.lists(points, max_size=3).map(tuple),
    st.dictionaries(st.text(), st.integers(), max_size=3),
    st.booleans(),
)


@settings(deadline=None)
@given(outers)
def test_what_is_written_is_read(record: Outer) -> None:
    assert decode(Outer, json.loads(json.dumps(encode(record))), "it") == record


GOOD: dict[str, Any] = {
    "number": 1,
    "inner": [[{"colour": "red", "size": 2}]],
    "points": [["a", [1, 2]]],
    "by_name": {"x": 1},
}


def test_a_field_of_a_later_version_is_ignored_and_one_that_an_older_version_lacks_has_its_default() -> None:
    expected = Outer(1, ((Inner(Colour.RED, 2),),), (Point("a", (1, 2)),), {"x": 1})
    assert decode(Outer, {**GOOD, "later": []}, "it") == expected


def test_an_unknown_value_has_a_substitute_or_is_refused() -> None:
    later = {**GOOD, "inner": [[{"colour": "green", "size": None}]]}
    assert decode(Outer, later, "it", {Colour: Colour.BLUE}).inner == ((Inner(Colour.BLUE, None),),)
    with pytest.raises(PreconditionError, match="colour of inner of it is 'green': a newer version of Rhino"):
        decode(Outer, later, "it")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("number", "1", "number of it is '1': must be of type int"),
        ("points", {"a": 1}, "points of it is .*: must be a list"),
        ("by_name", {"x": "y"}, "x of by_name of it is 'y': must be of type int"),
        ("inner", [[{"colour": "red"}]], "inner of it lacks a field: .*'size'"),
        ("inner", [["red"]], "inner of it is 'red': must be an object"),
        ("inner", [[None]], "inner of it is 'None': must be an object"),
        ("by_name", [1], "by_name of it is .*: must be an object"),
        ("points", [["a"]], "points of it is too short: .*'parts'"),
    ],
)
def test_what_is_no_such_record_is_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(IntegrityError, match=message):
        decode(Outer, {**GOOD, field: value}, "it")
