"""The caller of the method served by this task."""

from __future__ import annotations

from contextvars import ContextVar

from rhino_core.security.identity import Identity

CALLER: ContextVar[Identity | None] = ContextVar("caller", default=None)  # None: plain transport, or no call
