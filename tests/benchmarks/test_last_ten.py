"""Q6's function with state: the same rows however its input is cut into batches, and only what has closed."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pytest

from workloads.nexmark.queries.last_ten import closings

# Twelve auctions, opened ten ms apart, open for 25 ms, two bids each: (auction, closes, price, time of the bid).
BIDS = sorted(
    ((i, 10 * i + 25, 100 + i, 10 * i + at) for i in range(12) for at in (3, 20)), key=lambda bid: (bid[3], bid[0])
)


class State:
    """The part of Spark's GroupState that the function uses."""

    def __init__(self) -> None:
        self.value: tuple[str] | None = None
        self.watermark_ms = 0
        self.timeout_ms: int | None = None

    @property
    def exists(self) -> bool:
        return self.value is not None

    @property
    def get(self) -> tuple[str]:
        assert self.value is not None
        return self.value

    def update(self, value: tuple[str]) -> None:
        self.value = value

    def getCurrentWatermarkMs(self) -> int:
        return self.watermark_ms

    def setTimeoutTimestamp(self, at: int) -> None:
        assert at > self.watermark_ms, "Spark refuses a time that has passed"
        self.timeout_ms = at


def frames(bids: list[tuple[int, int, int, int]]) -> Iterator[pd.DataFrame]:
    times = pd.to_datetime([closes for _, closes, _, _ in bids], unit="ms")
    yield pd.DataFrame({"id": [b[0] for b in bids], "expires": times, "price": [b[2] for b in bids]})


def called(state: State, bids: list[tuple[int, int, int, int]]) -> list[tuple[int, ...]]:
    (found,) = closings((7,), frames(bids) if bids else iter(()), state)
    return [tuple(row) for row in found.itertuples(index=False)]


@pytest.mark.parametrize("size", [1, 5, 24])
def test_the_rows_do_not_hang_on_the_batches(size: int) -> None:
    state, rows = State(), []
    for start in range(0, len(BIDS), size):
        part = BIDS[start : start + size]
        rows += called(state, part)
        state.watermark_ms = part[-1][3]
    state.watermark_ms = 10_000
    rows += called(state, [])
    expected = []
    for closed in range(12):
        last = [100 + i for i in range(max(closed - 9, 0), closed + 1)]
        expected.append((7, closed, sum(last), len(last)))
    assert rows == expected


def test_an_auction_stays_until_the_watermark_has_passed_its_end() -> None:
    state = State()
    assert called(state, [(1, 50, 10, 5), (1, 50, 30, 6), (1, 50, 20, 7)]) == []
    assert state.timeout_ms == 51
    state.watermark_ms = 50
    assert called(state, []) == []
    state.watermark_ms = 51
    assert called(state, []) == [(7, 1, 30, 1)]
