"""NBQX (Rhino 5.1): four session joins and one tumbling-window join, as one job."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from workloads.nexmark.query import LATENESS, Query, Streams
from workloads.nexmark.settings import Generator

GAPS_MIN = (30, 60, 90, 120)
WINDOW_H = 4
COLUMNS = ("query", "auction", "start_ms", "end_ms", "auctions", "bids", "price")
_WINDOW_MS = WINDOW_H * 3600 * 1000


def nbqx() -> Query:
    """Auctions joined with bids on them: in the same session, for four gaps, and in the same window."""

    def stream(s: Streams) -> DataFrame:
        return reduce(DataFrame.unionByName, [*(_session_join(s, gap) for gap in GAPS_MIN), _window_join(s)])

    answer = " union all ".join([*(_session_answer(gap) for gap in GAPS_MIN), _window_answer()])
    # With five events per second, 100 000 events cover five and a half hours.
    return Query("nbqx", "five joins of auctions and bids", COLUMNS, stream, answer, Generator(rate=5))


def _session_join(s: Streams, gap_min: int) -> DataFrame:
    """A session with auctions and bids represents all pairs of them."""
    auctions = s.auction().selectExpr("id as auction", "ts", "1 as opened", "cast(null as bigint) as price")
    bids = s.bid().selectExpr("auction", "ts", "0 as opened", "price")
    tagged = auctions.unionByName(bids).withWatermark("ts", LATENESS)
    window = F.session_window("ts", f"{gap_min} minutes").alias("w")
    sessions = tagged.groupBy(window, "auction").agg(
        F.sum("opened").alias("auctions"), F.count("price").alias("bids"), F.max("price").alias("price")
    )
    return sessions.where("auctions > 0 and bids > 0").select(
        F.lit(f"session-{gap_min}").alias("query"), "auction", *_bounds(), "auctions", "bids", "price"
    )


def _window_join(s: Streams) -> DataFrame:
    window = f"{WINDOW_H} hours"
    auctions = s.auction().withWatermark("ts", LATENESS).select("id", F.window("ts", window).alias("aw"))
    bids = s.bid().withWatermark("ts", LATENESS).select("auction", "price", F.window("ts", window).alias("w"))
    one = F.lit(1).cast("bigint")
    pairs = auctions.join(bids, F.expr("id = auction and aw = w"))
    return pairs.select(
        F.lit("window").alias("query"), "auction", *_bounds(), one.alias("auctions"), one.alias("bids"), "price"
    )


def _bounds() -> tuple[object, object]:
    return F.unix_millis("w.start").alias("start_ms"), F.unix_millis("w.end").alias("end_ms")


def _session_answer(gap_min: int) -> str:
    gap_ms = gap_min * 60_000
    return f"""
        select 'session-{gap_min}' as query, auction, min(ts_ms) as start_ms, max(ts_ms) + {gap_ms} as end_ms,
               sum(opened)::bigint as auctions, count(price) as bids, max(price) as price
        from (
            select *, sum(begins) over (partition by auction order by ts_ms rows unbounded preceding) as session
            from (
                select *, coalesce(
                    ts_ms - lag(ts_ms) over (partition by auction order by ts_ms) > {gap_ms}, true)::int as begins
                from (
                    select id as auction, ts_ms, 1 as opened, null::bigint as price from auction
                    union all select auction, ts_ms, 0, price from bid
                )
            )
        )
        group by auction, session having auctions > 0 and bids > 0
    """


def _window_answer() -> str:
    return f"""
        select 'window', auction, b.ts_ms // {_WINDOW_MS} * {_WINDOW_MS},
               (b.ts_ms // {_WINDOW_MS} + 1) * {_WINDOW_MS}, 1, 1, price
        from auction a join bid b on a.id = b.auction and a.ts_ms // {_WINDOW_MS} = b.ts_ms // {_WINDOW_MS}
    """
