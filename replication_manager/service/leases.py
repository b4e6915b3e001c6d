"""Leases of registered processes: a random token each. No other process can speak for a worker.

Names and incarnations of workers are public (ListWorkers). A name not in use is open to anyone. Only certificates
prevent this.
"""

from __future__ import annotations

import hmac
import secrets

from rhino_core.errors import PreconditionError, UnavailableError

TOKEN_BYTES = 16


class Leases:
    """The token of each worker's present registration."""

    def __init__(self) -> None:
        self._tokens: dict[str, bytes] = {}

    def grant(self, worker_id: str) -> bytes:
        """Creates the token of a newly registered process. The former token of the worker becomes void."""
        token = self._tokens[worker_id] = secrets.token_bytes(TOKEN_BYTES)
        return token

    def check(self, worker_id: str, shown: bytes) -> None:
        """Checks a caller's token for a worker.

        Raises UnavailableError for an unregistered worker, and PreconditionError for a wrong token.
        """
        token = self._tokens.get(worker_id)
        if token is None:
            raise UnavailableError(f"worker {worker_id!r} is not registered: register first")
        if not hmac.compare_digest(token, shown):
            raise PreconditionError(
                f"worker {worker_id!r} was registered by another process, or again since: register, and show that lease"
            )

    def end(self, worker_id: str) -> None:
        """The worker has left, or was forgotten."""
        self._tokens.pop(worker_id, None)
