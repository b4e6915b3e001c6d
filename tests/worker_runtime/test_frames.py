"""Data frames in place are protobuf's, byte for byte as far as its own code can tell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from rhino.rpc.channel import aio_channel
from rhino.rpc.server import Server
from rhino_pb import peer_pb2, peer_pb2_grpc
from worker_runtime.rpc.frames import (
    DataFrame,
    add_peer_to_server,
    data_frame,
    decode,
    encode,
    read_data_frame,
    replicate,
)

NUMBERS = st.integers(0, 2**64 - 1)


def parsed(message: bytes) -> peer_pb2.PushFrame | None:
    try:
        return peer_pb2.PushFrame.FromString(message)
    except DecodeError:
        return None


@given(NUMBERS, NUMBERS, st.binary(max_size=300))
def test_both_ways(transfer: int, offset: int, data: bytes) -> None:
    message = data_frame(transfer, offset, data)
    frame = peer_pb2.PushFrame(data=peer_pb2.PushData(transfer=transfer, offset=offset, data=data))
    assert parsed(message) == frame
    assert decode(message) == DataFrame(transfer, offset, memoryview(data))
    assert encode(message) == message
    assert encode(frame) == frame.SerializeToString()


@given(NUMBERS, NUMBERS, st.binary(min_size=1, max_size=300))
def test_frames_of_the_generated_code(transfer: int, offset: int, data: bytes) -> None:
    frame = peer_pb2.PushFrame(data=peer_pb2.PushData(transfer=transfer, offset=offset, data=data))
    assert _fields(decode(frame.SerializeToString())) == (transfer, offset, data)


@given(st.binary(max_size=40), st.integers(0, 40))
def test_anything_else_is_left_to_protobuf(data: bytes, cut: int) -> None:
    for message in (data, data_frame(1, 2, data)[:cut], data_frame(1, 2, data) + b"x", b"\x1a" + data):
        expected = parsed(message)
        try:
            decoded = decode(message)
        except DecodeError:
            assert expected is None
        else:
            assert expected is not None
            assert _fields(decoded) == _fields(expected)


def test_a_frame_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)))
    fd = os.open(path, os.O_RDONLY)
    try:
        read = read_data_frame(fd, 7, 100, 50)
        assert read_data_frame(fd, 7, 250, 50) is None  # the file is shorter: the caller finds out why
    finally:
        os.close(fd)
    if read is not None:  # None where the file system cannot tell what is cached
        assert decode(read[0]) == DataFrame(7, 100, memoryview(bytes(range(100, 150))))
        assert bytes(read[1]) == bytes(range(100, 150))


class Echo(peer_pb2_grpc.PeerServicer):
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.frames: list[peer_pb2.PushFrame | DataFrame] = []

    async def Replicate(
        self, request_iterator: AsyncIterator[peer_pb2.PushFrame | DataFrame], context: object
    ) -> AsyncIterator[peer_pb2.PushReply]:
        async for frame in request_iterator:
            self.frames.append(frame)
            yield peer_pb2.PushReply()


async def test_a_server_gets_data_in_place_and_other_frames_parsed() -> None:
    echo = Echo()  # type: ignore[abstract]  # the other methods are not called
    server = Server(reflect=False)
    server.add(add_peer_to_server, echo, "rhino.v1.Peer")
    port = server.bind("127.0.0.1:0")
    await server.start()
    begin = peer_pb2.PushFrame(begin=peer_pb2.PushBegin(transfer=7))
    async with aio_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(10):
        call = replicate(channel)()
        for frame in (begin, data_frame(7, 0, b"data")):
            await call.write(frame)
            await call.read()
        call.cancel()
    await server.stop(0)
    assert echo.frames == [begin, DataFrame(7, 0, memoryview(b"data"))]


def _fields(frame: peer_pb2.PushFrame | DataFrame) -> object:
    if isinstance(frame, DataFrame):
        return frame.transfer, frame.offset, bytes(frame.data)
    if frame.WhichOneof("frame") == "data":
        return frame.data.transfer, frame.data.offset, frame.data.data
    return frame
