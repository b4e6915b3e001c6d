"""Traces of commits and handovers for OpenTelemetry, if `--traces` is on. Otherwise nothing of it is imported.

No message carries a context. Traces and spans have ids made from names that all processes know: of a file, of workers,
or of a handover. So a sidecar can name the span of another sidecar as the parent of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

from rhino_core.errors import InvalidSettingError


class Traces(Protocol):
    """Open spans of this process. `trace` and `key` together name one span. Call it on the loop's thread only."""

    def begin(self, trace: str, key: str, name: str, *, parent: str = "", **facts: str | int) -> None:
        """Begins a span, unless it is open. `parent`: the key of a span of any process; empty: the trace begins."""

    def end(self, trace: str, key: str, *, error: str = "", **facts: str | int) -> None:
        """Ends a span. Does nothing if it is not open."""


@contextlib.asynccontextmanager
async def tracing(service: str, *, on: bool) -> AsyncIterator[Traces | None]:
    """Yields None if it is off. Sends the rest at the end. Raises InvalidSettingError without the extra `otel`."""
    if not on:
        yield None
        return
    try:
        from rhino_core.open_telemetry import OpenTelemetry
    except ImportError as error:
        raise InvalidSettingError(
            f"setting traces = True: needs OpenTelemetry: pip install 'rhino-state[otel]' ({error})"
        ) from error
    traces = OpenTelemetry(service)
    try:
        yield traces
    finally:
        await asyncio.to_thread(traces.close)
