"""NEXMark's persons, auctions and bids as Spark SQL expressions: identical to Apache Beam's generator, replayable.

NEXMark produces events in blocks of 50: one person, three auctions, 46 bids. Event n draws from `java.util.Random(n)`.
The functions take rows with the event id in column `n`. They return ids, every draw before the first random string, and
event time; the strings only on request. Beam's last field contains random letters that fill a record to an average
size. It is left out, or with `padded` replaced by hexadecimal digits, which hardly compress.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from workloads.nexmark import draws
from workloads.nexmark.settings import (
    ACTIVE_PERSONS,
    AUCTION_BYTES,
    AUCTION_LEAD,
    BASE_MS,
    CATEGORIES,
    CITIES,
    FIRST_CATEGORY,
    FIRST_ID,
    FIRST_NAMES,
    HOT_STRIDE,
    IN_FLIGHT_AUCTIONS,
    IN_FLIGHT_EVENTS,
    LAST_NAMES,
    PERSON_BYTES,
    PERSON_LEAD,
    STATES,
    Generator,
)

BEAM = Generator()
_TS = "timestamp_millis(ms) as ts"


def persons(rows: DataFrame, generator: Generator = BEAM) -> DataFrame:
    """Returns the persons among `rows.n`: id, name, [email, card, city, state,] extra, ts."""
    events = _seeded(rows.where("n % 50 = 0"), generator)
    events = draws.next_int(events, "first", str(len(FIRST_NAMES.split(","))))
    events = draws.next_int(events, "last", str(len(LAST_NAMES.split(","))))
    name = f"concat({_pick(FIRST_NAMES, 'first')}, ' ', {_pick(LAST_NAMES, 'last')}) as name"
    events = events.selectExpr("*", f"n div 50 + {FIRST_ID} as id", name)
    address: tuple[str, ...] = ()
    if generator.addresses:
        events = _addresses(events)
        address = ("email", "card", "city", "state")
    extra = _extra(f"{PERSON_BYTES - 16} - length(name)", generator)
    return _finished(events.selectExpr("id", "name", *address, extra, _TS))


def auctions(rows: DataFrame, generator: Generator = BEAM) -> DataFrame:
    """Returns the auctions among `rows.n`.

    Columns: id, seller, category, initial_bid, expires (ms), [item, description, reserve,] extra, ts.
    """
    events = _seeded(rows.where("n % 50 between 1 and 3"), generator)
    events = draws.next_int(events, "warm", str(generator.hot_sellers))
    events = _person(events, "seller", hot="0")
    events = draws.next_int(events, "category", str(CATEGORIES))
    events = draws.next_price(events, "initial_bid")
    horizon = f"{_time(f'number + {IN_FLIGHT_EVENTS}', generator)} - {_time('number', generator)}"
    events = draws.next_int(events, "length", f"greatest(2 * ({horizon}), 1)")
    described: tuple[str, ...] = ()
    if generator.descriptions:
        events = draws.next_string(draws.next_string(events, "item", 20), "description", 100)
        events = draws.next_price(events, "more")
        described = ("item", "description", "initial_bid + more as reserve")
    made = events.selectExpr(
        f"n div 50 * 3 + n % 50 - 1 + {FIRST_ID} as id",
        *("seller", f"category + {FIRST_CATEGORY} as category", "initial_bid", "ms + 1 + length as expires"),
        *(*described, _extra(str(AUCTION_BYTES - 48), generator), _TS),
    )
    return _finished(made)


def bids(rows: DataFrame, generator: Generator = BEAM) -> DataFrame:
    """Returns the bids among `rows.n`: auction, bidder, price, ts; 32 bytes."""
    events = _seeded(rows.where("n % 50 > 3"), generator)
    events = draws.next_int(events, "warm", str(generator.hot_auctions))
    events = events.selectExpr("*", "n div 50 * 3 + 2 as newest")
    events = events.selectExpr("*", f"greatest(newest - {IN_FLIGHT_AUCTIONS}, 0) as oldest")
    events = draws.next_int(events, "cold", f"newest - oldest + 1 + {AUCTION_LEAD}", when="warm = 0")
    auction = f"if(warm > 0, newest div {HOT_STRIDE} * {HOT_STRIDE}, oldest + cold) + {FIRST_ID} as auction"
    events = events.selectExpr("n", "ms", "seed", auction)
    events = draws.next_int(events, "warm", str(generator.hot_bidders))
    events = _person(events, "bidder", hot="1")
    return _finished(draws.next_price(events, "price").selectExpr("auction", "bidder", "price", _TS))


def _seeded(rows: DataFrame, generator: Generator) -> DataFrame:
    """Adds number (of the event within its generator), ms (event time) and seed (state of new Random(n))."""
    number = "n" if generator.generators == 1 else f"n % {generator.events_each}"
    events = rows.selectExpr("n", f"{number} as number")
    return events.selectExpr("*", f"{BASE_MS} + {_time('number', generator)} as ms", f"{draws.seed('n')} as seed")


def _time(number: str, generator: Generator) -> str:
    return f"({number}) * {generator.delay_us} div 1000"


def _person(events: DataFrame, name: str, *, hot: str) -> DataFrame:
    """Adds a person's id: the hot one where warm > 0, else one drawn from the active persons and the next to come."""
    events = events.selectExpr("*", "n div 50 as last", f"least(n div 50 + 1, {ACTIVE_PERSONS}) as active")
    events = draws.next_int(events, "cold", f"active + {PERSON_LEAD}", when="warm = 0")
    hot = f"last div {HOT_STRIDE} * {HOT_STRIDE} + {hot}"
    found = f"if(warm > 0, {hot}, last + 1 - active + cold) + {FIRST_ID} as {name}"
    return events.selectExpr(*(c for c in events.columns if c not in ("warm", "last", "active", "cold")), found)


def _addresses(events: DataFrame) -> DataFrame:
    events = draws.next_string(draws.next_string(events, "user", 7), "host", 5)
    for number in range(4):
        events = draws.next_int(events, f"card{number}", "10000")
    events = draws.next_int(events, "city", str(len(CITIES.split(","))))
    events = draws.next_int(events, "state", str(len(STATES.split(","))))
    card = ", ".join(f"lpad(cast(card{number} as string), 4, '0')" for number in range(4))
    return events.selectExpr(
        *("n", "ms", "id", "name", "concat(user, '@', host, '.com') as email", f"concat_ws(' ', {card}) as card"),
        *(f"{_pick(CITIES, 'city')} as city", f"{_pick(STATES, 'state')} as state"),
    )


def _pick(names: str, index: str) -> str:
    return f"split('{names}', ',')[{index}]"


def _finished(rows: DataFrame) -> DataFrame:
    """Returns the same rows through a generator function, which stops the optimizer from pushing down conditions.

    The optimizer would push a condition on a column through all draws before it. Each copy of a draw contains several
    copies of the previous draw, so the expression would grow exponentially.
    """
    fields = ", ".join(f"'{name}', {name}" for name in rows.columns)
    return rows.selectExpr(f"inline(array(named_struct({fields})))")


def _extra(length: str, generator: Generator) -> str:
    digits = "concat(sha2(cast(n as string), 512), sha2(concat(cast(n as string), '+'), 512))"
    return f"left({digits}, {length}) as extra" if generator.padded else "'' as extra"
