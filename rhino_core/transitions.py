"""State machines as data: a table of transitions. It also draws the diagram of the design page."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Generic, TypeVar

from rhino_core.errors import LocalProtocolError

StateT = TypeVar("StateT", bound=enum.Enum)
TriggerT = TypeVar("TriggerT", bound=enum.Enum)


class TransitionTable(Generic[StateT, TriggerT]):
    """The transitions of one kind of thing, from its first state on."""

    def __init__(self, first: StateT, rows: Mapping[tuple[StateT, TriggerT], StateT]) -> None:
        self.first = first
        self.rows = dict(rows)

    def next(self, state: StateT, trigger: TriggerT) -> StateT:
        """The state after `trigger`. Raises LocalProtocolError if there is no such transition."""
        try:
            return self.rows[state, trigger]
        except KeyError:
            raise LocalProtocolError(f"{trigger.value} is impossible in state {state.value}") from None

    def diagram(self) -> str:
        """The table as Mermaid text."""
        arrows = [f"    {a.value} --> {b.value}: {t.value.replace('_', ' ')}" for (a, t), b in self.rows.items()]
        return "\n".join(["stateDiagram-v2", f"    [*] --> {self.first.value}", *arrows])
