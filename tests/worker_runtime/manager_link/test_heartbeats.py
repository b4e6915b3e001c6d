"""The stream of heartbeats, step by step, on a stream whose writes take as long as the test wants."""

from __future__ import annotations

import asyncio
from typing import Any

from rhino_pb.replication_pb2 import HeartbeatRequest
from worker_runtime.manager_link.heartbeats import Heartbeats


class SlowStream:
    """Ends, as the manager does, once it has been written a farewell."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()  # a write has begun
        self.go_on = asyncio.Event()  # it may end
        self.written: list[bool] = []
        self.ended = asyncio.Event()

    async def write(self, request: HeartbeatRequest) -> None:
        self.begun.set()
        await self.go_on.wait()
        self.written.append(request.leaving)
        if request.leaving:
            self.ended.set()

    async def read(self) -> Any:
        await self.ended.wait()
        return None  # neither: the stream is at its end

    def cancel(self) -> bool:
        return True


def compose(farewell: bool) -> HeartbeatRequest:
    return HeartbeatRequest(worker_id="a", leaving=farewell)


async def test_a_farewell_asked_for_while_a_beat_is_written_goes_with_the_next() -> None:
    beats, stream = Heartbeats("manager", compose), SlowStream()
    async with asyncio.timeout(10):
        running = asyncio.create_task(beats.run(stream))
        await stream.begun.wait()
        leaving = asyncio.create_task(beats.leave(wait=True))
        await asyncio.sleep(0)
        assert beats.leaving
        stream.go_on.set()
        await leaving
        await running
    assert stream.written == [False, True]


async def test_whoever_leaves_before_the_stream_is_there_says_farewell_first() -> None:
    beats, stream = Heartbeats("manager", compose), SlowStream()
    stream.go_on.set()
    await beats.leave(wait=False)
    async with asyncio.timeout(10):
        await beats.run(stream)
    assert stream.written == [True]


async def test_ends_when_the_manager_ends_its_side() -> None:
    beats, stream = Heartbeats("manager", compose), SlowStream()
    stream.go_on.set()
    async with asyncio.timeout(10):
        running = asyncio.create_task(beats.run(stream))
        await stream.begun.wait()
        stream.ended.set()
        await running
    assert not beats.leaving
