"""java.util.Random and NEXMark's draws in plain Python integers, written apart from the SQL generator."""

from __future__ import annotations

import math

BASE_MS = 1_436_918_400_000
FIRST = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
LAST = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")


class JavaRandom:
    """The published algorithm of java.util.Random."""

    def __init__(self, seed: int) -> None:
        self.state = (seed ^ 25214903917) % 2**48

    def bits(self, count: int) -> int:
        self.state = (self.state * 25214903917 + 11) % 2**48
        return self.state >> 48 - count

    def next_int(self, bound: int) -> int:
        if bound.bit_count() == 1:
            return bound * self.bits(31) // 2**31
        while True:
            drawn = self.bits(31)
            if drawn - drawn % bound + bound - 1 < 2**31:
                return drawn % bound

    def next_double(self) -> float:
        return (self.bits(26) * 2**27 + self.bits(27)) / 2**53

    def next_price(self) -> int:
        return math.floor(math.pow(10, self.next_double() * 6) * 100 + 0.5)

    def next_string(self, longest: int) -> str:
        length = 3 + self.next_int(longest - 3)
        return "".join(" " if self.next_int(13) == 0 else chr(97 + self.next_int(26)) for _ in range(length)).strip()


def person(number: int) -> dict[str, object]:
    """The person that is event 50 * number."""
    random = JavaRandom(50 * number)
    return {
        "id": 1000 + number,
        "name": f"{FIRST[random.next_int(11)]} {LAST[random.next_int(9)]}",
        "email": f"{random.next_string(7)}@{random.next_string(5)}.com",
        "card": " ".join(f"{random.next_int(10_000):04}" for _ in range(4)),
        "city": CITIES[random.next_int(10)],
        "state": STATES[random.next_int(6)],
        "ts_ms": BASE_MS + 5 * number,
    }


def auction(number: int) -> dict[str, object]:
    block, place = divmod(number, 3)
    event = 50 * block + 1 + place
    random = JavaRandom(event)
    seller = block - block % 100 if random.next_int(4) > 0 else _cold_person(random, block)
    category = random.next_int(5)
    price = random.next_price()
    time_ms = BASE_MS + event // 10
    horizon_ms = (event + 1666) // 10 - event // 10
    return {
        "id": 1000 + number,
        "seller": 1000 + seller,
        "category": 10 + category,
        "initial_bid": price,
        "expires": time_ms + 1 + random.next_int(max(2 * horizon_ms, 1)),
        "item": random.next_string(20),
        "description": random.next_string(100),
        "reserve": price + random.next_price(),
        "ts_ms": time_ms,
    }


def bid(event: int) -> dict[str, object]:
    random = JavaRandom(event)
    newest = event // 50 * 3 + 2
    first = max(newest - 100, 0)
    chosen = newest - newest % 100 if random.next_int(2) > 0 else first + random.next_int(newest - first + 11)
    people = event // 50
    bidder = people - people % 100 + 1 if random.next_int(4) > 0 else _cold_person(random, people)
    price = random.next_price()
    return {"auction": 1000 + chosen, "bidder": 1000 + bidder, "price": price, "ts_ms": BASE_MS + event // 10}


def _cold_person(random: JavaRandom, newest: int) -> int:
    active = min(newest + 1, 1000)
    return newest + 1 - active + random.next_int(active + 10)
