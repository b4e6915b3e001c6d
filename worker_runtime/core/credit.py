"""Credit-based flow control of replication streams (Rhino 4.2.2, phase 2; credit-based flow control of 5.1).

A receiver grants bytes; a sender spends them. A credit returns when its bytes are on the receiver's disk or were
discarded, never when they have been forwarded: so no cycle of chains can wait for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from rhino.errors import LocalProtocolError, RemoteProtocolError

OWED_PART = 2  # of a window: credit goes back in such parts


class SendWindow:
    """The sender's side of one stream: how many bytes may still be sent."""

    def __init__(self, initial_bytes: int = 0) -> None:
        self._available = initial_bytes

    @property
    def available_bytes(self) -> int:
        return self._available

    def take(self, wanted_bytes: int) -> int:
        """Spends up to `wanted_bytes`; returns how many (0 when the window is empty)."""
        taken = min(wanted_bytes, self._available)
        self._available -= taken
        return taken

    def give_back(self, keep_bytes: int) -> int:
        """All credit but `keep_bytes` returns to the receiver: there is nothing to send. The number of bytes."""
        back = max(0, self._available - keep_bytes)
        self._available -= back
        return back

    def give(self, credit_bytes: int) -> None:
        """Credit from the receiver."""
        if credit_bytes < 0:
            raise RemoteProtocolError(f"credit of {credit_bytes} bytes")
        self._available += credit_bytes


@dataclass(slots=True)
class _Stream:
    window_bytes: int  # granted in all: with the sender, on the way, or in our buffers
    buffered_bytes: int  # of these: received, not yet on disk
    owed_bytes: int = 0  # of these: free again, and not yet told to the sender
    idle: bool = False  # its sender has given credit back and sent nothing since: wants no more


class GrantPool:
    """The receiver's side: the sum of all windows never exceeds `limit_bytes`.

    A new stream gets at most half of what is free, so that some is left for the next one however many there are.
    Early streams so get most of it: while others are hungry, those above their fair share get less back than they
    settle, until all have about the same.
    """

    def __init__(self, limit_bytes: int, window_bytes: int) -> None:
        self._limit = limit_bytes
        self._window = window_bytes
        self._streams: dict[int, _Stream] = {}
        self._last = 0

    @property
    def granted_bytes(self) -> int:
        return sum(stream.window_bytes for stream in self._streams.values())

    @property
    def owed_bytes(self) -> int:
        """Granted and free again, and not yet told to the senders."""
        return sum(stream.owed_bytes for stream in self._streams.values())

    @property
    def limit_bytes(self) -> int:
        return self._limit

    def open(self) -> tuple[int, int]:
        """A new stream: its number and the initial credit in bytes (0 when the limit is exhausted; see `top_up`)."""
        self._last += 1
        grant = self._free_share(self._window)
        self._streams[self._last] = _Stream(window_bytes=grant, buffered_bytes=0)
        return self._last, grant

    def received(self, stream: int, data_bytes: int) -> None:
        """Bytes came in. Raises RemoteProtocolError when the sender has overrun its credit."""
        state = self._streams[stream]
        credit = state.window_bytes - state.buffered_bytes - state.owed_bytes
        if data_bytes > credit:
            raise RemoteProtocolError(f"{data_bytes} bytes sent with a credit of {credit}")
        state.buffered_bytes += data_bytes
        state.idle = False

    def returned(self, stream: int, credit_bytes: int) -> None:
        """An idle sender gives credit back. Raises RemoteProtocolError when it is more than it has."""
        state = self._streams[stream]
        credit = state.window_bytes - state.buffered_bytes - state.owed_bytes
        if credit_bytes > credit:
            raise RemoteProtocolError(f"{credit_bytes} bytes of credit returned out of {credit}")
        state.window_bytes -= credit_bytes + state.owed_bytes
        state.owed_bytes, state.idle = 0, True

    def settled(self, stream: int, data_bytes: int) -> int:
        """Bytes are on disk or discarded; returns the credit to send back: more while there is room, less while this
        stream has more than its fair share and others are hungry, to whom it is due (`top_up`).

        0 until half of the window is free: a message per chunk would cost more than the chunk. A sender that waits
        has used up its whole window, so that half always comes.
        """
        state = self._streams[stream]
        if data_bytes > state.buffered_bytes:
            raise LocalProtocolError(f"settled {data_bytes} of {state.buffered_bytes} buffered bytes")
        state.buffered_bytes -= data_bytes
        excess = state.window_bytes - self._fair_bytes()
        state.owed_bytes += data_bytes
        if excess > 0 and self.hungry():
            kept_back = min(state.owed_bytes, excess)
            state.window_bytes -= kept_back
            state.owed_bytes -= kept_back
        else:
            state.owed_bytes += self._grow(state)
        if state.owed_bytes < state.window_bytes // OWED_PART:
            return 0
        credit, state.owed_bytes = state.owed_bytes, 0
        return credit

    def top_up(self, stream: int) -> int:
        """Further credit for a stream whose window is below its size; 0 when there is no room."""
        return self._grow(self._streams[stream])

    def hungry(self) -> list[int]:
        """Streams with less than half of their fair share: to be topped up whenever another one settles or closes."""
        enough = (self._fair_bytes() + 1) // 2
        return [number for number, state in self._streams.items() if state.window_bytes < enough and not state.idle]

    def close(self, stream: int) -> None:
        """Ends a stream; its credit is free again. The caller has dropped its buffers."""
        self._streams.pop(stream, None)

    def check_invariants(self) -> None:
        assert self.granted_bytes <= self._limit, "more granted than the limit"
        for state in self._streams.values():
            assert 0 <= state.buffered_bytes + state.owed_bytes <= state.window_bytes <= self._window, (
                "window out of bounds"
            )

    def _fair_bytes(self) -> int:
        """What each stream that is not idle would have if all of these had the same."""
        idle_bytes = working = 0
        for state in self._streams.values():
            if state.idle:
                idle_bytes += state.window_bytes
            else:
                working += 1
        return min(self._window, (self._limit - idle_bytes) // max(1, working))

    def _grow(self, state: _Stream) -> int:
        more = self._free_share(self._window - state.window_bytes)
        state.window_bytes += more
        return more

    def _free_share(self, wanted_bytes: int) -> int:
        return max(0, min(wanted_bytes, (self._limit - self.granted_bytes + 1) // 2))
