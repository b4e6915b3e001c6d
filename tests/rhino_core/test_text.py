"""Texts for people."""

from __future__ import annotations

import pytest

from rhino_core.text import count, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (59.9, "59 s"),
        (60.0, "1 min 0 s"),
        (3599.0, "59 min 59 s"),
        (86399.0, "23 h 59 min"),
        (86400.0, "1 d 0 h"),
        (200_000.0, "2 d 7 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps")])
def test_one_is_singular(number: int, text: str) -> None:
    assert count(number, "step") == text
    assert count(number, "query", "queries") == text.replace("steps", "queries").replace("step", "query")
