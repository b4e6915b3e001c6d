"""How new code is tried, and how a supervised query ends."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rhino_core.errors import InvalidSettingError


class Outcome(enum.StrEnum):
    """Why a supervised query has ended without an error."""

    STOPPED = "stopped"
    REPLACED = "replaced"  # other code has it, and has proved itself


@dataclass(frozen=True, slots=True)
class Trial:
    """How new code that takes over is tried. Times are seconds of the monotonic clock.

    `batches`: so many must be committed before the new code is confirmed. `give_up_s`: no batch may take longer, the
    first one with the start of the query. `ask_s`: how long the former code may take to end its batch. `rehearse_s`:
    how long the rehearsal waits for its batches, the first one and, in a new driver, another one; a longer one is
    stopped. Raises InvalidSettingError for a number out of range.
    """

    batches: int = 3
    give_up_s: float = 60.0
    ask_s: float = 300.0
    rehearse_s: float = 15.0

    def __post_init__(self) -> None:
        if self.batches < 1:
            raise InvalidSettingError(f"batches: {self.batches}: must be 1 or more")
        for name in ("give_up_s", "ask_s"):
            if not getattr(self, name) > 0:
                raise InvalidSettingError(f"{name}: {getattr(self, name)}: must be above 0")
