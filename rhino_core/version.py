"""The versions of Rhino and of its protocol in this process. Protocol versions one apart work together.

A cluster can therefore be upgraded process by process. Increase PROTOCOL with a change that an older process cannot
follow. Then remove the compatibility code for versions more than one below the new one.
"""

from __future__ import annotations

import functools
import platform
from importlib.metadata import PackageNotFoundError, version

from rhino_core.errors import PreconditionError

PROTOCOL = 1


def check_protocol(who: str, spoken: int, *, here: str) -> int:
    """Returns the protocol version of the other side, `who`.

    Raises PreconditionError if it differs by more than one from ours. `here` names this process: the text may be read
    on either side.
    """
    if abs(spoken - PROTOCOL) > 1:
        older = who if spoken < PROTOCOL else here
        raise PreconditionError(
            f"{who} speaks version {spoken} of Rhino's protocol, {here} version {PROTOCOL}, and at most one version "
            f"apart works: upgrade {older}"
        )
    return spoken


DISTRIBUTION = "rhino-state"


@functools.cache
def rhino_version() -> str:
    """The version of the installed package, such as "0.1.0", or "unknown" for sources never installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def version_line() -> str:
    """The line printed by `rhino --version`."""
    return f"rhino {rhino_version()} (protocol {PROTOCOL}, Python {platform.python_version()})"
