"""The requests of `rhino plan` and `rhino handover`, parsed from their arguments."""

from __future__ import annotations

import re
import time
from datetime import datetime

from rhino_core.errors import InvalidRequestError

START_IN_MAX_S = 366 * 24 * 3600
_GAP = re.compile(r"(\d+(?:\.\d+)?)(s|b)?")


def parse_gap(text: str) -> tuple[float, int]:
    """Returns the gap in seconds and in logged batches. One of both is 0. Raises InvalidRequestError."""
    if not text:
        return 0.0, 0
    match = _GAP.fullmatch(text)
    if match is None or (match[2] == "b" and "." in match[1]):
        raise InvalidRequestError(f"--gap {text!r}: must be seconds (10 or 10s) or logged batches (2b)")
    return (0.0, int(match[1])) if match[2] == "b" else (float(match[1]), 0)


def parse_start(start_at: str, start_in_s: float) -> int:
    """Returns the start in milliseconds since the epoch, or 0 for now. Raises InvalidRequestError."""
    if start_at and start_in_s:
        raise InvalidRequestError("--start-at and --start-in-s: give only one of them")
    if start_in_s > START_IN_MAX_S:
        raise InvalidRequestError(f"--start-in-s {start_in_s:g}: must be at most {START_IN_MAX_S} (a year)")
    if start_in_s:
        return round((time.time() + start_in_s) * 1000)
    if not start_at:
        return 0
    try:
        moment = datetime.fromisoformat(start_at)
    except ValueError as error:
        raise InvalidRequestError(
            f"--start-at {start_at!r}: must be an ISO 8601 time, such as 2030-01-31T22:00"
        ) from error
    if moment.timestamp() < time.time():
        raise InvalidRequestError(f"--start-at {start_at!r}: must not be in the past")
    return round(moment.timestamp() * 1000)
