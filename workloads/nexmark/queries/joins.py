"""Q3, Q8 and NBQ8: persons joined with their auctions."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from workloads.nexmark.query import LATENESS, Query, Streams
from workloads.nexmark.settings import Generator


def q3() -> Query:
    """Sellers of category 10 in three states. Nothing bounds the time between the two, so state is never dropped.

    This is a plain join, as in NEXMark's SQL. Beam's own implementation joins each auction with the first person only.
    """
    chosen = "lower(state) in ('or', 'id', 'ca')"

    def stream(s: Streams) -> DataFrame:
        persons = s.person().where(chosen).selectExpr("id as person", "name", "city", "state")
        auctions = s.auction().where("category = 10").selectExpr("id as auction", "seller")
        return persons.join(auctions, F.expr("person = seller")).select("name", "city", "state", "auction")

    return Query(
        "q3",
        "sellers in three states",
        ("name", "city", "state", "auction"),
        stream,
        f"select name, city, state, auction.id from person join auction on person.id = seller "
        f"where category = 10 and {chosen}",
        Generator(addresses=True),
        windowed=False,
    )


def q8(window_s: int = 10) -> Query:
    """Persons who opened an auction in the window in which they registered."""

    def stream(s: Streams) -> DataFrame:
        persons = _windowed(s.person(), window_s, "pw").select("id", "name", "pw")
        sellers = _windowed(s.auction(), window_s, "aw").select("seller", "aw").dropDuplicates(["seller", "aw"])
        joined = persons.join(sellers, F.expr("id = seller and pw = aw"))
        return joined.select("id", "name", F.unix_millis("pw.start").alias("window_ms"))

    return Query(
        "q8",
        "new persons who sell",
        ("id", "name", "window_ms"),
        stream,
        f"""
        with p as (select distinct id, name, ts_ms // {window_s}000 * {window_s}000 as w from person),
             a as (select distinct seller, ts_ms // {window_s}000 * {window_s}000 as w from auction)
        select id, name, p.w from p join a on id = seller and p.w = a.w
        """,
    )


def nbq8(window_s: int = 12 * 3600) -> Query:
    """Rhino 5.1: persons and the auctions that they opened in the same window. State contains all bytes of both."""

    def stream(s: Streams) -> DataFrame:
        persons = _windowed(s.person(), window_s, "pw").selectExpr("id", "name", "extra as person_extra", "pw")
        auctions = _windowed(s.auction(), window_s, "aw").selectExpr(
            "id as auction", "seller", "category", "initial_bid", "expires", "extra as auction_extra", "aw"
        )
        joined = persons.join(auctions, F.expr("id = seller and pw = aw"))
        return joined.select(
            F.unix_millis("pw.start").alias("window_ms"),
            *("id", "name", "auction", "category", "initial_bid", "expires"),
            F.md5(F.concat("person_extra", "auction_extra")).alias("payload_md5"),
        )

    return Query(
        "nbq8",
        "persons joined with their auctions by window",
        ("window_ms", "id", "name", "auction", "category", "initial_bid", "expires", "payload_md5"),
        stream,
        f"""
        select p.ts_ms // {window_s}000 * {window_s}000, p.id, p.name, a.id, a.category, a.initial_bid, a.expires,
               md5(p.extra || a.extra)
        from person p join auction a
        on p.id = a.seller and p.ts_ms // {window_s}000 = a.ts_ms // {window_s}000
        """,
        Generator(rate=1, padded=True),
    )


def _windowed(rows: DataFrame, window_s: int, name: str) -> DataFrame:
    return rows.withWatermark("ts", LATENESS).withColumn(name, F.window("ts", f"{window_s} seconds"))
