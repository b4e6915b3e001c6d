"""Q4 and Q6: closed auctions and the highest bids that they had while they were open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.nexmark.query import LATENESS, Query, Streams

LAST = 10  # auctions of a seller

_CLOSED = """
    select a.id, seller, category, expires, max(price) as final
    from auction a join bid b on a.id = b.auction and b.ts_ms between a.ts_ms and a.expires
    group by a.id, seller, category, expires
"""


def closed(s: Streams) -> DataFrame:
    """id, seller, category, expires, final: one row per auction with a bid, after it has closed.

    Event time of an auction is when it closes. What bounds state is that no auction is open for longer than
    `longest_auction_ms`: the join says so.
    """
    longest = f"{s.generator.longest_auction_ms} milliseconds"
    auctions = s.auction().selectExpr(
        "id", "seller", "category", "ts as opened", "timestamp_millis(expires) as expires"
    )
    bids = s.bid().selectExpr("auction", "price", "ts as at")
    auctions = auctions.withWatermark("expires", f"{s.generator.longest_auction_ms + 1000} milliseconds")
    matching = f"id = auction and at >= opened and at <= expires and expires <= at + interval {longest}"
    pairs = auctions.join(bids.withWatermark("at", LATENESS), F.expr(matching)).drop("at", "opened")
    return pairs.groupBy("expires", "id", "seller", "category").agg(F.max("price").alias("final"))


def q4(window_s: int = 10) -> Query:
    """Sum and number of closing prices per category, by window of closing."""

    def stream(s: Streams) -> DataFrame:
        window = F.window("expires", f"{window_s} seconds").alias("w")
        sums = closed(s).groupBy(window, "category").agg(F.sum("final").alias("total"), F.count("*").alias("auctions"))
        return sums.select(F.unix_millis("w.start").alias("window_ms"), "category", "total", "auctions")

    return Query(
        "q4",
        "closing prices per category",
        ("window_ms", "category", "total", "auctions"),
        stream,
        f"""
        select expires // {window_s}000 * {window_s}000, category, sum(final)::bigint, count(*)
        from ({_CLOSED}) group by all
        """,
    )


def q6() -> Query:
    """Sum and number of the closing prices of each seller's last ten auctions, whenever one closes."""
    columns = ("seller", "auction", "total", "auctions")

    def stream(s: Streams) -> DataFrame:
        sold = closed(s).selectExpr("seller", "id", "unix_millis(expires) as expires", "final")
        return sold.groupBy("seller").applyInPandasWithState(
            _last_ten,
            "seller bigint, auction bigint, total bigint, auctions bigint",
            "finals array<bigint>",
            "append",
            "NoTimeout",
        )

    return Query(
        "q6",
        "closing prices of a seller's last ten auctions",
        columns,
        stream,
        f"""
        select seller, id, sum(final) over last_ten ::bigint, count(*) over last_ten from ({_CLOSED})
        window last_ten as (partition by seller order by expires, id rows {LAST - 1} preceding)
        """,
    )


def _last_ten(key: tuple[int], batches: Iterator[Any], state: Any) -> Iterator[Any]:
    """Auctions come to a batch by their time of closing, so only those of one batch have to be sorted."""
    import pandas as pd

    rows = pd.concat(list(batches)).sort_values(["expires", "id"])
    finals = [int(price) for price in state.get[0]] if state.exists else []
    found = []
    for auction, final in zip(rows["id"], rows["final"], strict=True):
        finals = [*finals, int(final)][-LAST:]
        found.append((key[0], int(auction), sum(finals), len(finals)))
    state.update((finals,))
    yield pd.DataFrame(found, columns=["seller", "auction", "total", "auctions"])
