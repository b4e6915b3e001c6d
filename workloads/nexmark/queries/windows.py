"""Q5, Q7 and NBQ5: windows over bids."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from workloads.nexmark.query import LATENESS, Query, Streams
from workloads.nexmark.settings import Generator


def q5(size_s: int = 10, slide_s: int = 5) -> Query:
    """The auctions with the most bids in each sliding window. If several have the same number, all of them."""

    def stream(s: Streams) -> DataFrame:
        counts = _counts(s, size_s, slide_s)
        listed = counts.groupBy("window").agg(F.collect_list(F.struct("bids", "auction")).alias("all"))
        most = "filter(all, x -> x.bids = array_max(all).bids)"
        rows = listed.select(F.unix_millis("window.start").alias("window_ms"), F.expr(f"explode({most}) as hot"))
        return rows.select("window_ms", "hot.auction", "hot.bids")

    return Query(
        "q5",
        "auctions with the most bids in a window",
        ("window_ms", "auction", "bids"),
        stream,
        f"""
        with counts as ({_counted(size_s, slide_s)})
        select window_ms, auction, bids from counts
        qualify bids = max(bids) over (partition by window_ms)
        """,
    )


def q7(window_s: int = 10) -> Query:
    """The highest bids of each window. If several are equally high, all of them."""

    def stream(s: Streams) -> DataFrame:
        bids = s.bid().withWatermark("ts", LATENESS).select("*", F.window("ts", f"{window_s} seconds").alias("w"))
        same = F.collect_list(F.struct("auction", "bidder", F.unix_millis("ts").alias("ts_ms"))).alias("bids")
        equal = bids.groupBy("w", "price").agg(same)
        best = equal.groupBy("w").agg(F.max(F.struct("price", "bids")).alias("best"))
        rows = best.select(F.unix_millis("w.start").alias("window_ms"), "best.price", F.explode("best.bids").alias("b"))
        return rows.select("window_ms", "b.auction", "b.bidder", "price", "b.ts_ms")

    return Query(
        "q7",
        "highest bids of a window",
        ("window_ms", "auction", "bidder", "price", "ts_ms"),
        stream,
        f"""
        select ts_ms // {window_s}000 * {window_s}000 as window_ms, auction, bidder, price, ts_ms from bid
        qualify price = max(price) over (partition by ts_ms // {window_s}000)
        """,
    )


def nbq5(size_s: int = 60, slide_s: int = 10) -> Query:
    """Rhino 5.1: bids per auction in sliding windows. Its state is small and is read, changed and written."""

    def stream(s: Streams) -> DataFrame:
        counts = _counts(s, size_s, slide_s)
        return counts.select(F.unix_millis("window.start").alias("window_ms"), "auction", "bids")

    columns = ("window_ms", "auction", "bids")
    answer = f"select window_ms, auction, bids from ({_counted(size_s, slide_s)})"
    return Query("nbq5", "bids per auction in sliding windows", columns, stream, answer, Generator(rate=1000))


def _counts(s: Streams, size_s: int, slide_s: int) -> DataFrame:
    bids = s.bid().withWatermark("ts", LATENESS)
    window = F.window("ts", f"{size_s} seconds", f"{slide_s} seconds").alias("window")
    return bids.groupBy(window, "auction").agg(F.count("*").alias("bids"))


def _counted(size_s: int, slide_s: int) -> str:
    return f"""
        select (ts_ms // {slide_s}000 - back) * {slide_s}000 as window_ms, auction, count(*) as bids
        from bid cross join (select unnest(range({size_s // slide_s})) as back)
        group by all
    """
