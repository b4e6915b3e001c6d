"""java.util.Random and NEXMark's draws in plain Python integers, written apart from the SQL generator."""

from __future__ import annotations

import math

BASE_MS = 1_436_918_400_000
FIRST = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
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


def person(number: int) -> tuple[int, str, int]:
    """id, name, time (ms) of the person that is event 50 * number."""
    random = JavaRandom(50 * number)
    first = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"][
        random.next_int(11)
    ]
    last = LAST[random.next_int(9)]
    return 1000 + number, f"{first} {last}", BASE_MS + 5 * number


def auction(number: int) -> tuple[int, int, int, int, int, int]:
    """id, seller, category, first bid, expiry (ms), time (ms)."""
    block, place = divmod(number, 3)
    event = 50 * block + 1 + place
    random = JavaRandom(event)
    if random.next_int(4) > 0:
        seller = block - block % 100
    else:
        people = block + 1
        active = min(people, 1000)
        seller = people - active + random.next_int(active + 10)
    category = random.next_int(5)
    price = math.floor(math.pow(10, random.next_double() * 6) * 100 + 0.5)
    time_ms = BASE_MS + event // 10
    horizon_ms = (event + 1666) // 10 - event // 10
    expires = time_ms + 1 + random.next_int(max(2 * horizon_ms, 1))
    return 1000 + number, 1000 + seller, 10 + category, price, expires, time_ms
