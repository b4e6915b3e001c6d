"""Annotations of model fields with a place in the message other than the field of the same name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class At:
    """The place of the value in the message, for example `worker.host`."""

    path: str


@dataclass(frozen=True, slots=True)
class Computed:
    """The value is a function of the message."""

    function: Callable[[Any], Any]
