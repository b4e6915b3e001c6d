"""Texts for people."""

from __future__ import annotations

import pytest

from rhino_core.text import count, duration, legible


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


@pytest.mark.parametrize(
    "text",
    ["é", "e\u0301", "a\u0302\u0301", "नमस्ते", "क्\u200dष", "日本語", "สวัสดี", "👩\u200d💻"],
)
def test_letters_of_people_stay(text: str) -> None:
    assert legible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a" + "\u0301" * 4, "a\u0301\u0301\\u0301\\u0301"),
        ("\u0301x", "\\u0301x"),
        ("a\u200b\u0301", "a\\u200b\\u0301"),
        ("\u200b\u2060x", "\\u200b\\u2060x"),
        ("\u202eexe.png", "\\u202eexe.png"),
        ("a\x1b[2J", "a\\x1b[2J"),
    ],
)
def test_what_hides_or_covers_other_text_is_escaped(text: str, shown: str) -> None:
    assert legible(text) == shown
