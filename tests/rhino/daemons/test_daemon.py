"""What a daemon's process does around its coroutine."""

from __future__ import annotations

import gc

import pytest

from rhino.daemons import daemon
from rhino_core.errors import RhinoError


def test_full_collections_pass_over_what_was_imported() -> None:
    """With it they hold the event loop for tens of milliseconds, a Prepare among those who wait."""
    seen: list[tuple[int, int]] = []

    async def serve() -> None:
        seen.append((gc.get_freeze_count(), len(gc.get_objects())))

    try:
        daemon.run(serve(), exit_with_parent=False)
    finally:
        gc.unfreeze()
    frozen, followed = seen[0]
    assert frozen > 10 * followed


def test_an_error_of_the_coroutine_is_the_process_s() -> None:
    async def serve() -> None:
        raise RhinoError("the port is taken")

    try:
        with pytest.raises(RhinoError, match="the port is taken"):
            daemon.run(serve(), exit_with_parent=False)
    finally:
        gc.unfreeze()
