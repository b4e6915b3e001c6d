"""Common parts of all checkers."""

from __future__ import annotations

Incarnation = tuple[str, str]  # worker id and incarnation


class Violation(AssertionError):
    """An invariant does not hold."""


def require(condition: bool, text: str) -> None:
    if not condition:
        raise Violation(text)
