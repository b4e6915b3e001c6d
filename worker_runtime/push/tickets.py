"""Tickets for push streams: each admits one connection of one worker on one lane, for a few seconds."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from rhino_core.errors import UnavailableError
from rhino_core.ids import Lane
from worker_runtime.push.core.keys import NO_SUITE, SECRET_BYTES, STREAM_ID_BYTES

TOKEN_BYTES = STREAM_ID_BYTES  # of the token, which is the public id of an encrypted stream
TOKEN_S = 5.0  # lifetime of an unused token, and the time in which a connection has to present one
TOKENS_MAX = 4  # unused tokens per worker and lane


@dataclass(frozen=True, slots=True)
class Admission:
    """The sender and lane that a token admits."""

    sender: str
    lane: Lane


@dataclass(frozen=True, slots=True)
class Ticket:
    """What one end knows of a ticket.

    `peer`: the URI in the other end's certificate. `secret`: that of the stream. Without encryption, both are empty.
    """

    admission: Admission
    token: bytes
    suite: str
    peer: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Ticket({self.admission}, suite={self.suite!r}, peer={self.peer!r})"  # neither token nor secret


class Tickets:
    """Those that no connection has presented yet."""

    def __init__(self) -> None:
        self._unused: dict[bytes, Ticket] = {}

    def issue(self, sender: str, lane: Lane, suite: str = NO_SUITE, peer: str = "") -> Ticket:
        """A ticket for this worker, whose certificate has the URI `peer`.

        Raises UnavailableError if it has several unused ones.
        """
        admission = Admission(sender, lane)
        if sum(other.admission == admission for other in self._unused.values()) >= TOKENS_MAX:
            raise UnavailableError(
                f"{sender}, lane {lane.value}: {TOKENS_MAX} tokens have not been shown yet; try again in {TOKEN_S} s"
            )
        secret = b"" if suite == NO_SUITE else secrets.token_bytes(SECRET_BYTES)
        ticket = Ticket(admission, secrets.token_bytes(TOKEN_BYTES), suite, peer, secret)
        self._unused[ticket.token] = ticket
        asyncio.get_running_loop().call_later(TOKEN_S, self._unused.pop, ticket.token, None)
        return ticket

    def redeem(self, token: bytes) -> Ticket | None:
        """The ticket of this token, which nobody can present again. None: there is none."""
        return self._unused.pop(token, None)
