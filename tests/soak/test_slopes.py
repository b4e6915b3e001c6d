"""Which slopes count as growth."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from tests.soak.slopes import SAMPLES_MIN, growing

SAMPLES = 60


def series(figure: str, value: Callable[[int], float]) -> list[dict[str, float]]:
    return [{figure: value(number)} for number in range(SAMPLES)]


def noise(number: int) -> float:
    return random.Random(number).uniform(-3, 3)


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("a anonymous MB", lambda n: 40 + n + noise(n)),
        ("manager threads", lambda n: 20 + n // 2),
        ("a descriptors", lambda n: 60 + 3 * n + noise(n)),
        ("a tasks", lambda n: 90 + 4 * n + 5 * noise(n)),
        ("a size of Links._links", lambda n: 4 * n),
        ("manager objects builtins.dict", lambda n: 5000 + 200 * n),
        ("journal MB", lambda n: 1 + n / 2),
        ("store files", lambda n: 100 * n),
    ],
)
def test_what_rises_all_the_time_grows(figure: str, value: Callable[[int], float]) -> None:
    assert [growth.figure for growth in growing(series(figure, value))] == [figure]


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("a anonymous MB", lambda n: 40 + noise(n)),
        ("a anonymous MB", lambda n: 40 + min(n, 15) * 10 + noise(n)),  # the warm-up
        ("a anonymous MB", lambda n: 40 + (500 if n == 55 else 0)),  # a peak
        ("a tasks", lambda n: 90 + 60 * math.sin(n)),
        ("journal MB", lambda n: 5 + n % 12),  # compacted now and then
        ("index MB", lambda n: 30 - n / 3),
        ("a size of Jobs._jobs", lambda n: 5 if n < 40 else 9),
    ],
)
def test_what_comes_to_rest_does_not(figure: str, value: Callable[[int], float]) -> None:
    assert not list(growing(series(figure, value)))


def test_a_figure_that_comes_late_counts() -> None:
    samples = [
        *({"a threads": 20.0} for _ in range(30)),
        *({"a threads": 20.0, "a tasks": n} for n in range(0, 300, 10)),
    ]
    assert [growth.figure for growth in growing(samples)] == ["a tasks"]


def test_few_samples_tell_nothing() -> None:
    with pytest.raises(AssertionError, match="say nothing"):
        list(growing([{"a tasks": 1.0}] * (SAMPLES_MIN - 1)))
