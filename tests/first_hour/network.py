"""Addresses of this machine that no other process uses: tests may run beside each other, on the ports of the documents."""

from __future__ import annotations

import random


def prefix() -> str:
    """Returns "127.X.Y.", a network of the loopback in place of "127.0.0."."""
    draw = random.SystemRandom()
    return f"127.{draw.randrange(32, 250)}.{draw.randrange(1, 250)}."
