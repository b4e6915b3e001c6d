"""NEXMark's persons and auctions in Spark SQL expressions: bit-exact with Apache Beam's generator, replayable.

NEXMark deals its events in blocks of 50: one person, three auctions, 46 bids; event n draws from
`java.util.Random(n)`. Only persons and auctions are made here, so ids map like this (`value` counts from 0):

- person `value` is event n = 50 * value;
- auction `value` is event n = 50 * (value div 3) + 1 + value mod 3.

Ids, seller, name, category, first bid, expiry and event time are the generator's own (every draw up to the first
random string; a draw is repeated at most once where java.util.Random may repeat it without end: chance 1e-13).
The strings behind it (mail, card, description ...) are replaced by `extra`, hexadecimal digits that hardly compress
and fill a record up to the sizes of Rhino 5.1: 206 bytes a person, 269 an auction.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

BASE_MS = 1_436_918_400_000  # 2015-07-15T00:00Z
EVENTS_PER_MS = 10  # 10 000 events/s in event time
PERSON_BYTES = 206
AUCTION_BYTES = 269
FIRST_NAMES = "Peter,Paul,Luke,John,Saul,Vicky,Kate,Julie,Sarah,Deiter,Walter"
LAST_NAMES = "Shultz,Abrams,Spencer,White,Bartels,Walton,Smith,Jones,Noris"

_MULTIPLIER = 0x5DEECE66D
_MASK = (1 << 48) - 1
_IN_FLIGHT_EVENTS = 100 * 50 // 3  # events until 100 more auctions have been made
_ACTIVE_PERSONS = 1000
_PERSON_LEAD = 10


def _step(seed: str) -> str:
    """The next 48-bit state of java.util.Random in 64-bit arithmetic that never overflows."""
    low = f"({seed} & 16777215) * {_MULTIPLIER} + 11"
    high = f"((shiftright({seed}, 24) & 16777215) * {_MULTIPLIER} & 16777215) * 16777216"
    return f"(({low}) + {high}) & {_MASK}"


def _seeded(rows: DataFrame) -> DataFrame:
    """Adds `seed` = the state of new Random(n), and `ms`, the event time."""
    return rows.selectExpr("*", f"(n ^ {_MULTIPLIER}) & {_MASK} as seed", f"{BASE_MS} + n div {EVENTS_PER_MS} as ms")


def _next_int(rows: DataFrame, name: str, bound: str) -> DataFrame:
    """Adds column `name` = nextInt(bound), for a bound from 1 to 2^31 - 1, and moves `seed` on."""
    rest = [c for c in rows.columns if c != "seed"]
    drawn = rows.selectExpr(*rest, f"cast({bound} as bigint) as b", f"{_step('seed')} as s1")
    drawn = drawn.selectExpr("*", "shiftright(s1, 17) as u1", "(b & (b - 1)) = 0 as power")
    again = "not power and u1 - u1 % b + b - 1 > 2147483647"
    drawn = drawn.selectExpr("*", f"if({again}, {_step('s1')}, s1) as s2")
    value = "if(power, shiftright(b * u1, 31), shiftright(s2, 17) % b)"
    return drawn.selectExpr(*rest, f"{value} as {name}", "s2 as seed")


def _next_price(rows: DataFrame, name: str) -> DataFrame:
    """Adds column `name` = round(10^(6 * nextDouble) * 100) and moves `seed` on."""
    rest = [c for c in rows.columns if c != "seed"]
    drawn = rows.selectExpr(*rest, f"{_step('seed')} as s1")
    drawn = drawn.selectExpr("*", f"{_step('s1')} as s2")
    fraction = f"(shiftleft(shiftright(s1, 22), 27) + shiftright(s2, 21)) * {2.0**-53!r}D"
    price = f"cast(floor(pow(10D, {fraction} * 6D) * 100D + 0.5D) as bigint)"
    return drawn.selectExpr(*rest, f"{price} as {name}", "s2 as seed")


def _extra(length: str) -> str:
    digits = "concat(sha2(cast(n as string), 512), sha2(concat(cast(n as string), '+'), 512))"
    return f"left({digits}, {length}) as extra"


def persons(rows: DataFrame) -> DataFrame:
    """Persons of `rows.value`: id, name, extra, ts."""
    events = _seeded(rows.selectExpr("value * 50 as n"))
    events = _next_int(events, "first", "11")
    events = _next_int(events, "last", "9")
    name = f"concat(split('{FIRST_NAMES}', ',')[first], ' ', split('{LAST_NAMES}', ',')[last]) as name"
    events = events.selectExpr("n", "ms", "n div 50 + 1000 as id", name)
    return events.selectExpr("id", "name", _extra(f"{PERSON_BYTES - 16} - length(name)"), "timestamp_millis(ms) as ts")


def auctions(rows: DataFrame) -> DataFrame:
    """Auctions of `rows.value`: id, seller, category, initial_bid, expires (ms), extra, ts."""
    events = rows.selectExpr("value + 1000 as id", "value div 3 as last", "value div 3 * 50 + 1 + value % 3 as n")
    events = _next_int(_seeded(events), "warm", "4")
    events = events.selectExpr("*", "seed as warm_seed", f"least(last + 1, {_ACTIVE_PERSONS}) as active")
    events = _next_int(events, "cold", f"active + {_PERSON_LEAD}")
    # A hot seller costs no second draw.
    seller = "if(warm > 0, last div 100 * 100, last + 1 - active + cold) + 1000 as seller"
    events = events.selectExpr("id", "n", "ms", seller, "if(warm > 0, warm_seed, seed) as seed")
    events = _next_int(events, "category", "5")
    events = _next_price(events, "initial_bid")
    horizon = f"((n + {_IN_FLIGHT_EVENTS}) div {EVENTS_PER_MS} - n div {EVENTS_PER_MS})"
    events = _next_int(events, "length", f"greatest(2 * {horizon}, 1)")
    return events.selectExpr(
        *("id", "seller", "category + 10 as category", "initial_bid", "ms + 1 + length as expires"),
        *(_extra(str(AUCTION_BYTES - 48)), "timestamp_millis(ms) as ts"),
    )


def stream(spark: SparkSession, rows: int, batches: int) -> DataFrame:
    """`value` from 0 to rows - 1 as a replayable stream in `batches` equal batches; later batches are empty."""
    per_batch = -(-rows // batches)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", per_batch).option("numPartitions", 2)
    return source.option("startTimestamp", BASE_MS).load().where(f"value < {rows}").select("value")


def batch(spark: SparkSession, rows: int) -> DataFrame:
    """The same values as a batch."""
    return spark.range(rows).withColumnRenamed("id", "value")
