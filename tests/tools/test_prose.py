"""The counter of relatives and bare sentences counts what a person would."""

from __future__ import annotations

import pytest

from tools import prose


@pytest.mark.parametrize(
    ("text", "relatives", "bare"),
    [
        ("Returns the owner. Raises KeyError for a group that has none.", 1, []),
        ("What a worker stores.", 1, ["What a worker stores."]),
        ("What happens then? The owner that left is asked.", 2, []),
        ("Files of `what`, by name. Who asks waits.", 1, ["Who asks waits."]),
        ("Whatever it costs: nobody somewhat thatched.", 0, []),
    ],
)
def test_relatives_and_bare_sentences(text: str, relatives: int, bare: list[str]) -> None:
    counted = prose.count(iter([("here", text)]))
    assert (counted.relatives, counted.bare) == (relatives, [f"here: {sentence}" for sentence in bare])


def test_words_of_code_do_not_count() -> None:
    assert prose.count(iter([("here", "`that which` is")])).per_100_words == 0


def test_docstrings_and_documents_are_found() -> None:
    places = [place for place, _ in prose.docstrings()]
    assert "tools/prose.py:1" in places
    assert not [place for place in places if place.startswith("tests/")]
    assert "README.md" in {place for place, _ in prose.documents()}
