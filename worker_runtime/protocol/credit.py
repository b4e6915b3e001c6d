"""Credit-based flow control of push streams (Rhino 4.2.2, phase 2; credit-based flow control of 5.1).

A receiver grants bytes, and a sender spends them. Credit returns when its bytes are on the receiver's disk or were
discarded, never when they have been forwarded. So no cycle of chains can wait for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from rhino_core.errors import LocalProtocolError, RemoteProtocolError

RETURNED_PART = 2  # credit goes back in parts of 1/RETURNED_PART of a window


class SendWindow:
    """The sender's side of one stream: how many bytes it may still send."""

    def __init__(self, initial_bytes: int = 0) -> None:
        self._available = initial_bytes

    @property
    def available_bytes(self) -> int:
        return self._available

    def take(self, wanted_bytes: int) -> int:
        """Spend up to `wanted_bytes`. Return how many bytes were spent (0 if the window is empty)."""
        taken = min(wanted_bytes, self._available)
        self._available -= taken
        return taken

    def give_back(self, keep_bytes: int) -> int:
        """Returns all credit but `keep_bytes` to the receiver, because there is nothing to send.

        Returns the number of bytes.
        """
        back = max(0, self._available - keep_bytes)
        self._available -= back
        return back

    def give(self, credit_bytes: int) -> None:
        """Adds credit from the receiver. Raises RemoteProtocolError for a negative amount."""
        if credit_bytes < 0:
            raise RemoteProtocolError(f"credit of {credit_bytes} bytes")
        self._available += credit_bytes


@dataclass(slots=True)
class _Stream:
    window_bytes: int  # total grant: at the sender, in transit, or in our buffers
    buffered_bytes: int  # part of the window: received, not yet on disk
    returnable_bytes: int = 0  # part of the window: free again, not yet returned to the sender
    idle: bool = False  # the sender has returned credit and sent nothing since: it wants no more
    silent: bool = False  # nothing has arrived since the last `take_back`
    was_starved: bool = False  # at the last `take_back`


class GrantPool:
    """The receiver's side: the sum of all windows never exceeds `limit_bytes`.

    A new stream gets at most half of the free credit, so some is left for the next stream, however many there are.
    Early streams therefore get most of it. While other streams are starved, a stream above its fair share gets back
    less than it settles, until all have about the same.
    """

    def __init__(self, limit_bytes: int, window_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._window = window_bytes
        self._streams: dict[int, _Stream] = {}
        self._last = 0

    @property
    def granted_bytes(self) -> int:
        return sum(stream.window_bytes for stream in self._streams.values())

    def open(self) -> tuple[int, int]:
        """Opens a stream.

        Returns its number and its initial credit in bytes (0 if the limit is exhausted; see `top_up`).
        """
        self._last += 1
        grant = self._free_share(self._window)
        self._streams[self._last] = _Stream(window_bytes=grant, buffered_bytes=0)
        return self._last, grant

    def received(self, stream: int, data_bytes: int) -> None:
        """Records received bytes. Raises RemoteProtocolError if the sender has overrun its credit."""
        state = self._streams[stream]
        credit = state.window_bytes - state.buffered_bytes - state.returnable_bytes
        if data_bytes > credit:
            raise RemoteProtocolError(f"{data_bytes} bytes sent with a credit of {credit}")
        state.buffered_bytes += data_bytes
        state.idle = state.silent = False

    def returned(self, stream: int, credit_bytes: int) -> None:
        """Records credit returned by an idle sender.

        Raises RemoteProtocolError if it exceeds the sender's credit.
        """
        state = self._streams[stream]
        credit = state.window_bytes - state.buffered_bytes - state.returnable_bytes
        if credit_bytes > credit:
            raise RemoteProtocolError(f"{credit_bytes} bytes of credit returned out of {credit}")
        state.window_bytes -= credit_bytes + state.returnable_bytes
        state.returnable_bytes, state.idle, state.silent = 0, True, False

    def settled(self, stream: int, data_bytes: int) -> int:
        """Call when bytes have reached the disk or were discarded. Return the credit to send back now.

        A stream below its window size gets more back while there is room. A stream above its fair share gets less back
        while others are starved (see `top_up`).

        Returns 0 until half of the window is free: a message per chunk would cost more than the chunk. This half is
        always reached, because a waiting sender has used up its whole window.
        """
        state = self._streams[stream]
        if data_bytes > state.buffered_bytes:
            raise LocalProtocolError(f"settled {data_bytes} of {state.buffered_bytes} buffered bytes")
        state.buffered_bytes -= data_bytes
        excess = state.window_bytes - self._fair_bytes()
        state.returnable_bytes += data_bytes
        if excess > 0 and self.starved():
            kept_back = min(state.returnable_bytes, excess)
            state.window_bytes -= kept_back
            state.returnable_bytes -= kept_back
        else:
            state.returnable_bytes += self._grow(state)
        if state.returnable_bytes < state.window_bytes // RETURNED_PART:
            return 0
        credit, state.returnable_bytes = state.returnable_bytes, 0
        return credit

    def top_up(self, stream: int) -> int:
        """Further credit for a stream below its full window size; 0 if there is no room."""
        return self._grow(self._streams[stream])

    def starved(self) -> list[int]:
        """Starved streams: those with less than half of their fair share.

        Top them up whenever another stream settles or closes.
        """
        enough = (self._fair_bytes() + 1) // 2
        return [number for number, state in self._streams.items() if state.window_bytes < enough and not state.idle]

    def take_back(self) -> list[int]:
        """Streams to end because they keep credit unused while others starve. Call this every few seconds.

        A candidate has had credit and sent nothing since the last call, while other streams were starved all the time.
        As few streams are ended as necessary, and streams reported as idle come last. A merely slow sender opens
        another stream.
        """
        starved = set(self.starved())
        long_starved = [state for number, state in self._streams.items() if number in starved and state.was_starved]
        silent = [
            (state.idle, -state.window_bytes, number)
            for number, state in self._streams.items()
            if state.silent and state.window_bytes and not state.buffered_bytes and number not in starved
        ]
        enough = (self._fair_bytes() + 1) // 2
        lacking = sum(enough - state.window_bytes for state in long_starved)
        ended = []
        for _, window, number in sorted(silent):
            if lacking > 0:
                ended.append(number)
                lacking += window
        for number, state in self._streams.items():
            state.silent, state.was_starved = True, number in starved
        return ended

    def close(self, stream: int) -> None:
        """Ends a stream and frees its credit. The caller has dropped its buffers."""
        self._streams.pop(stream, None)

    def check_invariants(self) -> None:
        assert self.granted_bytes <= self.limit_bytes, "more granted than the limit"
        for state in self._streams.values():
            assert 0 <= state.buffered_bytes + state.returnable_bytes <= state.window_bytes <= self._window, (
                "window out of bounds"
            )

    def _fair_bytes(self) -> int:
        """The window each non-idle stream would have if all of them had the same."""
        idle_bytes = working = 0
        for state in self._streams.values():
            if state.idle:
                idle_bytes += state.window_bytes
            else:
                working += 1
        return min(self._window, (self.limit_bytes - idle_bytes) // max(1, working))

    def _grow(self, state: _Stream) -> int:
        more = self._free_share(self._window - state.window_bytes)
        state.window_bytes += more
        return more

    def _free_share(self, wanted_bytes: int) -> int:
        return max(0, min(wanted_bytes, (self.limit_bytes - self.granted_bytes + 1) // 2))
