"""The stream of heartbeats from a sidecar to its manager, including the farewell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from rhino_core.errors import UnavailableError
from rhino_core.rpc.status import error_of
from rhino_pb import replication_pb2

log = logging.getLogger(__name__)
COALESCE_S = 0.01  # delay before a change of wholeness is reported, together with other changes
LEAVE_TIMEOUT_S = 2.0


class Stream(Protocol):
    """The used part of grpc.aio's StreamStreamCall."""

    async def write(self, request: replication_pb2.HeartbeatRequest) -> None: ...
    async def read(self) -> Any: ...
    def cancel(self) -> bool: ...


class Heartbeats:
    """Sends heartbeats at an interval, sooner on request, and the farewell.

    `compose` creates the next heartbeat. Its argument says whether it is the farewell.
    """

    def __init__(self, address: str, compose: Callable[[bool], replication_pb2.HeartbeatRequest]) -> None:
        self.interval_s = 0.5
        self.leaving = False
        self._address = address
        self._compose = compose
        self._now = asyncio.Event()
        self._left = asyncio.Event()

    def beat_now(self) -> None:
        self._now.set()

    async def leave(self, *, wait: bool) -> None:
        """Sends the farewell as the next heartbeat. If asked, waits a short time until the manager has received it."""
        self.leaving = True
        self._now.set()
        if not wait:
            return
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._left.wait()
        except TimeoutError:
            log.warning("the manager did not take the farewell", extra={"manager": self._address})

    async def run(self, stream: Stream) -> None:
        """Sends heartbeats until the farewell is received or the manager ends its side.

        Raises RhinoError if the stream breaks.
        """
        reader = asyncio.create_task(_drain(stream))
        try:
            while not reader.done():
                self._now.clear()
                farewell = self.leaving  # may change while the heartbeat is written
                await stream.write(self._compose(farewell))
                if farewell:
                    await reader  # the manager ends its side once it has read the farewell
                    return
                await self._until_next(reader)
            await reader
        except grpc.RpcError as error:
            raise error_of(error, f"heartbeat to the manager at {self._address}") from error
        except asyncio.InvalidStateError as error:
            raise UnavailableError(f"heartbeat to the manager at {self._address}: the stream has ended") from error
        finally:
            if self.leaving:
                self._left.set()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            stream.cancel()

    async def _until_next(self, reader: asyncio.Task[None]) -> None:
        """Waits one interval, or less after a change that others wait for."""
        early = asyncio.create_task(self._now.wait())
        await asyncio.wait({early, reader}, timeout=self.interval_s, return_when=asyncio.FIRST_COMPLETED)
        early.cancel()
        if self._now.is_set():
            await asyncio.sleep(COALESCE_S)


async def _drain(stream: Stream) -> None:
    """Reads replies until the stream ends."""
    while isinstance(await stream.read(), replication_pb2.HeartbeatReply):
        pass
