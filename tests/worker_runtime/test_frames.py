"""Data frames in place are protobuf's, byte for byte as far as its own code can tell."""

from __future__ import annotations

import os
from pathlib import Path

from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from rhino_pb import peer_pb2
from worker_runtime.rpc.frames import DataFrame, data_frame, decode, encode, read_data_frame

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


def _fields(frame: peer_pb2.PushFrame | DataFrame) -> object:
    if isinstance(frame, DataFrame):
        return frame.transfer, frame.offset, bytes(frame.data)
    if frame.WhichOneof("frame") == "data":
        return frame.data.transfer, frame.data.offset, frame.data.data
    return frame
