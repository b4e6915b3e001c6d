"""Memory for the few large messages of push streams, shared by all streams of a sidecar."""

from __future__ import annotations

import threading

from rhino_core.errors import UnavailableError


class MessageMemory:
    """Bounds the bytes of large messages during receipt and parsing. Safe for any thread."""

    def __init__(self, limit_bytes: int) -> None:
        self._free_bytes = limit_bytes
        self._lock = threading.Lock()

    def reserve(self, message_bytes: int) -> None:
        """Raises UnavailableError if other messages leave no room; the sender has to try again."""
        with self._lock:
            if message_bytes > self._free_bytes:
                raise UnavailableError(
                    f"no room for a message of {message_bytes} bytes beside those of others; send it again later"
                )
            self._free_bytes -= message_bytes

    def release(self, message_bytes: int) -> None:
        with self._lock:
            self._free_bytes += message_bytes
