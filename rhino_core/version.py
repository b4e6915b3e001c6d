"""The version of Rhino in this process."""

from __future__ import annotations

import functools
import platform
from importlib.metadata import PackageNotFoundError, version

from rhino_core.protocol import PROTOCOL

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
