"""A short run of the fuzzer, and all examples of the corpus. `python -m tests.fuzz` runs longer."""

from __future__ import annotations

import pytest

from tests.fuzz.fuzzer import CORPUS, corpus, edited, replaced, run, run_one
from tests.fuzz.targets import TARGETS

TIMES = 100


@pytest.mark.parametrize("name", TARGETS)
def test_a_short_run(name: str) -> None:
    run(name, TIMES, 1)


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus(name: str) -> None:
    for example in corpus(name):
        run_one(TARGETS[name], example)


def test_every_target_has_a_corpus() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)


def test_what_is_no_refusal_is_found() -> None:
    with pytest.raises(ZeroDivisionError):
        run_one(lambda data, folder: print(1 // len(data)), b"")


def test_edits() -> None:
    assert edited(b"abcdef", [(0.5, 0, b"XY")]) == b"abcXYf"
    assert edited(b"abcdef", [(0.5, 1, b"XY")]) == b"abcXYdef"
    assert edited(b"abcdef", [(0.5, 2, b"XY")]) == b"abcf"
    assert edited(b"abcdef", [(0.5, 3, b"X")]) == b"abcabcdef"


def test_values_of_json_are_replaced() -> None:
    example = b'{"a": [1, {"b": 2}]}'
    assert {replaced(example, place / 5, None) for place in range(5)} == {
        *(b"null", b'{"a": null}', b'{"a": [null, {"b": 2}]}', b'{"a": [1, null]}', b'{"a": [1, {"b": null}]}')
    }
