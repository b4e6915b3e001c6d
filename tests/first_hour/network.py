"""Loopback addresses that no other process uses, so that tests with the ports of the documents can run at once."""

from __future__ import annotations

import random


def prefix() -> str:
    """Returns "127.X.Y.", a network of the loopback in place of "127.0.0."."""
    draw = random.SystemRandom()
    return f"127.{draw.randrange(32, 250)}.{draw.randrange(1, 250)}."
