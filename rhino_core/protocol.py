"""The protocol version of Rhino's processes. Processes of the same or adjacent versions work together.

A cluster can therefore be upgraded process by process. Increase PROTOCOL with a change that an older process cannot
follow. Then remove the compatibility code for versions more than one below the new one.
"""

from __future__ import annotations

from rhino_core.errors import PreconditionError

PROTOCOL = 1


def check_protocol(who: str, spoken: int, *, here: str) -> int:
    """Returns the protocol version of the other side, `who`. An absent version (0) means 1.

    Raises PreconditionError if it differs by more than one from ours. `here` names this process: the text may be read
    on either side.
    """
    spoken = spoken or 1
    if abs(spoken - PROTOCOL) > 1:
        older = who if spoken < PROTOCOL else here
        raise PreconditionError(
            f"{who} speaks version {spoken} of Rhino's protocol, {here} version {PROTOCOL}, and at most one version "
            f"apart works: upgrade {older}"
        )
    return spoken
