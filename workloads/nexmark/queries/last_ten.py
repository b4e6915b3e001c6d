"""Q6's stateful function: a seller's open auctions with their highest bids, and the last ten closing prices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

LAST = 10
STATE = "memory string"  # JSON, because Spark 4.3 cannot read back a schema with arrays here (KeyError: 'elementType')


def closings(key: tuple[int], batches: Iterator[Any], state: Any) -> Iterator[Any]:
    """Called with rows, or when the next auction closes.

    No more bids can arrive for auctions that closed before the watermark, and auctions that close later do not precede
    them. So closing them in order gives the same rows, whenever this function is called.
    """
    import pandas as pd

    opened, last = json.loads(state.get[0]) if state.exists else ([], [])
    best = {auction: (at, price) for auction, at, price in opened}
    for rows in batches:
        times = rows["expires"].to_numpy().astype("datetime64[ms]").astype("int64")
        for auction, at, price in zip(rows["id"].tolist(), times.tolist(), rows["price"].tolist(), strict=True):
            best[auction] = (at, max(price, best.get(auction, (at, 0))[1]))
    watermark = state.getCurrentWatermarkMs()
    done = sorted((at, auction, price) for auction, (at, price) in best.items() if at < watermark)
    found = []
    for _, auction, price in done:
        last = [*last, price][-LAST:]
        found.append((key[0], auction, sum(last), len(last)))
        del best[auction]
    state.update((json.dumps([[(auction, *bid) for auction, bid in best.items()], last]),))
    if best:
        state.setTimeoutTimestamp(min(at for at, _ in best.values()) + 1)
    yield pd.DataFrame(found, columns=["seller", "auction", "total", "auctions"])
