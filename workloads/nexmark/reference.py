"""NEXMark's events in numpy, independent of the SQL generator. The expected answers are computed from them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from workloads.nexmark.javarandom import Ints, Randoms
from workloads.nexmark.settings import (
    AUCTION_BYTES,
    BASE_MS,
    CITIES,
    FIRST_NAMES,
    LAST_NAMES,
    PERSON_BYTES,
    STATES,
    Generator,
)

Columns = dict[str, Ints | list[str]]


@dataclass(frozen=True, slots=True)
class Events:
    """The same columns as the SQL generator's, with event time as `ts_ms`."""

    person: Columns
    auction: Columns
    bid: Columns

    def table(self, name: str) -> pa.Table:
        columns: Columns = getattr(self, name)
        return pa.table(columns)


def make(events: int, generator: Generator) -> Events:
    """Returns the first `events` events."""
    ids = np.arange(events, dtype=np.int64)
    place = ids % 50
    return Events(
        _persons(ids[place == 0], generator),
        _auctions(ids[(place >= 1) & (place <= 3)], generator),
        _bids(ids[place >= 4], generator),
    )


def _since_base_ms(numbers: Ints, generator: Generator) -> Ints:
    return numbers * generator.delay_us // 1000


def _numbers(ids: Ints, generator: Generator) -> Ints:
    return ids if generator.generators == 1 else ids % generator.events_each


def _times(ids: Ints, generator: Generator) -> Ints:
    return BASE_MS + _since_base_ms(_numbers(ids, generator), generator)


def _persons(ids: Ints, generator: Generator) -> Columns:
    random = Randoms(ids)
    first, last = FIRST_NAMES.split(","), LAST_NAMES.split(",")
    given, family = random.next_int(len(first)), random.next_int(len(last))
    names = [f"{first[g]} {last[f]}" for g, f in zip(given, family, strict=True)]
    columns: Columns = {"id": 1000 + ids // 50, "name": names}
    if generator.addresses:
        users, hosts = random.next_string(7), random.next_string(5)
        cards = zip(*(random.next_int(10_000).tolist() for _ in range(4)), strict=True)
        cities, states = CITIES.split(","), STATES.split(",")
        columns["email"] = [f"{user}@{host}.com" for user, host in zip(users, hosts, strict=True)]
        columns["card"] = [" ".join(f"{part:04d}" for part in card) for card in cards]
        columns["city"] = [cities[i] for i in random.next_int(len(cities))]
        columns["state"] = [states[i] for i in random.next_int(len(states))]
    columns["extra"] = _extra(ids, [PERSON_BYTES - 16 - len(name) for name in names], generator)
    columns["ts_ms"] = _times(ids, generator)
    return columns


def _auctions(ids: Ints, generator: Generator) -> Columns:
    random = Randoms(ids)
    sellers = _people(random, ids, generator.hot_sellers, hot=0)
    categories = 10 + random.next_int(5)
    prices = random.next_price()
    numbers, times = _numbers(ids, generator), _times(ids, generator)
    horizon = _since_base_ms(numbers + 100 * 50 // 3, generator) - _since_base_ms(numbers, generator)
    expires = times + 1 + random.next_int(np.maximum(2 * horizon, 1))
    columns: Columns = {"id": 1000 + ids // 50 * 3 + ids % 50 - 1, "seller": sellers, "category": categories}
    columns |= {"initial_bid": prices, "expires": expires}
    if generator.descriptions:
        columns |= {"item": random.next_string(20), "description": random.next_string(100)}
        columns["reserve"] = prices + random.next_price()
    columns["extra"] = _extra(ids, [AUCTION_BYTES - 48] * len(ids), generator)
    columns["ts_ms"] = times
    return columns


def _bids(ids: Ints, generator: Generator) -> Columns:
    random = Randoms(ids)
    newest = ids // 50 * 3 + 2
    oldest = np.maximum(newest - 100, 0)
    hot = random.next_int(generator.hot_auctions) > 0
    cold = oldest + random.next_int(newest - oldest + 11, ~hot)
    auctions = 1000 + np.where(hot, newest // 100 * 100, cold)
    bidders = _people(random, ids, generator.hot_bidders, hot=1)
    return {"auction": auctions, "bidder": bidders, "price": random.next_price(), "ts_ms": _times(ids, generator)}


def _people(random: Randoms, ids: Ints, ratio: int, *, hot: int) -> Ints:
    warm = random.next_int(ratio) > 0
    known = ids // 50 + 1
    active = np.minimum(known, 1000)
    cold = known - active + random.next_int(active + 10, ~warm)
    return 1000 + np.where(warm, (known - 1) // 100 * 100 + hot, cold)


def _extra(ids: Ints, lengths: list[int], generator: Generator) -> list[str]:
    if not generator.padded:
        return [""] * len(ids)
    return [
        (hashlib.sha512(f"{n}".encode()).hexdigest() + hashlib.sha512(f"{n}+".encode()).hexdigest())[:length]
        for n, length in zip(ids.tolist(), lengths, strict=True)
    ]
