"""Q1 and Q2: queries without state."""

from __future__ import annotations

from pyspark.sql import DataFrame

from workloads.nexmark.query import Query, Streams


def q1() -> Query:
    """Currency conversion at 0.908, in thousandths, so that it is exact."""
    return Query(
        "q1",
        "bids in another currency",
        ("auction", "bidder", "price_thousandths", "ts_ms"),
        lambda s: s.bid().selectExpr(
            "auction", "bidder", "price * 908 as price_thousandths", "unix_millis(ts) as ts_ms"
        ),
        "select auction, bidder, price * 908, ts_ms from bid",
        windowed=False,
        stateful=False,
    )


def q2(wanted: str = "auction % 123 = 0") -> Query:
    """Bids on the auctions that `wanted` selects; the default is Beam's."""

    def stream(s: Streams) -> DataFrame:
        return s.bid().where(wanted).select("auction", "price")

    return Query(
        "q2",
        "bids on some auctions",
        ("auction", "price"),
        stream,
        f"select auction, price from bid where {wanted}",
        windowed=False,
        stateful=False,
    )
