"""The contract of every protocol core: a state machine without I/O, clock or randomness.

The same core runs under asyncio (`rhino_core.runner`) and under the seeded simulator (`tests/simulation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

EventT = TypeVar("EventT", contravariant=True)
EffectT = TypeVar("EffectT", covariant=True)


class Machine(Protocol[EventT, EffectT]):
    """A protocol core. Events and effects are frozen, slotted dataclasses in closed unions."""

    def handle(self, event: EventT, *, now: float) -> Sequence[EffectT]:
        """Handles one event at monotonic time `now` (seconds). Returns effects, to be executed in order.

        Raises LocalProtocolError when it is driven against its contract.
        """
        ...

    def next_deadline(self) -> float | None:
        """Returns the monotonic time (seconds) of the core's next Tick event, or None."""
        ...

    def check_invariants(self) -> None:
        """Raises AssertionError when the core's own state is inconsistent. Tests call it after every event."""
        ...
