"""Q6's function with state: a seller's open auctions with their highest bids, and the prices of the last ten closed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

LAST = 10
STATE = "ids array<bigint>, expires array<bigint>, prices array<bigint>, finals array<bigint>"


def closings(key: tuple[int], batches: Iterator[Any], state: Any) -> Iterator[Any]:
    """Called with rows, or at the time at which the next auction closes.

    No bid can come any more for auctions that closed before the watermark, and whatever closes later is not before it:
    so closing those, in order, gives the same rows whenever this is called.
    """
    import pandas as pd

    ids, expires, prices, finals = state.get if state.exists else ([], [], [], [])
    best = {i: (e, p) for i, e, p in zip(ids, expires, prices, strict=True)}
    for rows in batches:
        times = rows["expires"].to_numpy().astype("datetime64[ms]").astype("int64")
        for auction, at, price in zip(rows["id"].tolist(), times.tolist(), rows["price"].tolist(), strict=True):
            best[auction] = (at, max(price, best.get(auction, (at, 0))[1]))
    watermark = state.getCurrentWatermarkMs()
    done = sorted((at, auction, price) for auction, (at, price) in best.items() if at < watermark)
    found, last = [], list(finals)
    for _, auction, price in done:
        last = [*last, price][-LAST:]
        found.append((key[0], auction, sum(last), len(last)))
        del best[auction]
    state.update(([*best], [at for at, _ in best.values()], [price for _, price in best.values()], last))
    if best:
        state.setTimeoutTimestamp(min(at for at, _ in best.values()) + 1)
    yield pd.DataFrame(found, columns=["seller", "auction", "total", "auctions"])
