"""Q4 and Q6: closed auctions and the highest bids while they were open."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from workloads.nexmark.queries import last_ten
from workloads.nexmark.query import LATENESS, Query, Streams

_CLOSED = """
    select a.id, seller, category, expires, max(price) as final
    from auction a join bid b on a.id = b.auction and b.ts_ms between a.ts_ms and a.expires
    group by a.id, seller, category, expires
"""


def matches(s: Streams) -> DataFrame:
    """Returns id, seller, category, expires, price: one row per bid on an open auction.

    The event time of an auction is its closing time. The join condition states that no auction is open for longer than
    `longest_auction_ms`, which bounds the state.
    """
    longest = f"{s.generator.longest_auction_ms} milliseconds"
    auctions = s.auction().selectExpr(
        "id", "seller", "category", "ts as opened", "timestamp_millis(expires) as expires"
    )
    bids = s.bid().selectExpr("auction", "price", "ts as at")
    auctions = auctions.withWatermark("expires", f"{s.generator.longest_auction_ms + 1000} milliseconds")
    matching = f"id = auction and at >= opened and at <= expires and expires <= at + interval {longest}"
    return auctions.join(bids.withWatermark("at", LATENESS), F.expr(matching)).drop("at", "opened", "auction")


def q4(window_s: int = 10) -> Query:
    """Sum and number of closing prices per category and window of closing times."""

    def stream(s: Streams) -> DataFrame:
        window = F.window("expires", f"{window_s} seconds").alias("w")
        closed = matches(s).groupBy("expires", "id", "category").agg(F.max("price").alias("final"))
        sums = closed.groupBy(window, "category").agg(F.sum("final").alias("total"), F.count("*").alias("auctions"))
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
    """Sum and number of the closing prices of each seller's last ten auctions, at every closing.

    Spark allows no stateful function after an aggregation, so the function also determines the highest bids.
    """

    def stream(s: Streams) -> DataFrame:
        return (
            matches(s)
            .groupBy("seller")
            .applyInPandasWithState(
                last_ten.closings,
                "seller bigint, auction bigint, total bigint, auctions bigint",
                last_ten.STATE,
                "append",
                "EventTimeTimeout",
            )
        )

    return Query(
        "q6",
        "closing prices of a seller's last ten auctions",
        ("seller", "auction", "total", "auctions"),
        stream,
        f"""
        select seller, id, sum(final) over last_ten ::bigint, count(*) over last_ten from ({_CLOSED})
        window last_ten as (partition by seller order by expires, id rows {last_ten.LAST - 1} preceding)
        """,
    )
