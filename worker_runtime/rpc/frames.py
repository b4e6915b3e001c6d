"""Data frames of a push stream without copies: the wire format of `PushFrame.data`, read and written in place.

Protobuf's own code copies each chunk three times on its way through; state bytes are most of what a sidecar handles.
Any other frame, and a data frame that somebody else has encoded in another order, goes through the generated code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from rhino_pb import peer_pb2, peer_pb2_grpc
from worker_runtime.storage.files import read_cached

SERVICE, METHOD = "rhino.v1.Peer", "Replicate"
_FRAME_DATA, _TRANSFER, _OFFSET, _DATA = 0x1A, 0x08, 0x10, 0x1A  # (field number << 3) | wire type, see peer.proto


@dataclass(frozen=True, slots=True)
class DataFrame:
    """As peer_pb2.PushData; `data` is a view of the received message."""

    transfer: int
    offset: int
    data: memoryview


def encode(frame: peer_pb2.PushFrame | bytes) -> bytes:
    """Request serializer; bytes are a frame that is encoded already."""
    return frame if isinstance(frame, bytes) else frame.SerializeToString()


def data_frame(transfer: int, offset: int, data: bytes) -> bytes:
    return b"".join((_head(transfer, offset, len(data)), data))


def read_data_frame(fd: int, transfer: int, offset: int, size_bytes: int) -> tuple[bytes, memoryview] | None:
    """A frame with bytes of a file, and a view of these; None when they are not in the page cache."""
    head = _head(transfer, offset, size_bytes)
    buffer = bytearray(len(head) + size_bytes)
    buffer[: len(head)] = head
    data = memoryview(buffer)[len(head) :]
    return (bytes(buffer), data) if read_cached(fd, data, offset) else None


def decode(message: bytes) -> peer_pb2.PushFrame | DataFrame:
    """Request deserializer."""
    return _decode_data(message) or peer_pb2.PushFrame.FromString(message)


def _decode_data(message: bytes) -> DataFrame | None:
    numbers: list[int] = []
    position = 0
    for tag in (_FRAME_DATA, _TRANSFER, _OFFSET, _DATA):
        if position >= len(message) or message[position] != tag:
            return None
        value, position = _varint(message, position + 1)
        numbers.append(value)
        if tag == _FRAME_DATA and position + value != len(message):
            return None
    _, transfer, offset, size = numbers
    if position + size != len(message):
        return None
    return DataFrame(transfer, offset, memoryview(message)[position:])


def _head(transfer: int, offset: int, size_bytes: int) -> bytes:
    inner = b"".join(
        (
            bytes([_TRANSFER]),
            _encoded(transfer),
            bytes([_OFFSET]),
            _encoded(offset),
            bytes([_DATA]),
            _encoded(size_bytes),
        )
    )
    return b"".join((bytes([_FRAME_DATA]), _encoded(len(inner) + size_bytes), inner))


def _encoded(value: int) -> bytes:
    """Base 128, least significant group first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """The value, and the position after it; a truncated one has the value -1."""
    value = shift = 0
    while position < len(message):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
    return -1, position


def replicate(channel: grpc.aio.Channel) -> Any:
    """`Peer.Replicate`, for frames and encoded frames."""
    return channel.stream_stream(
        f"/{SERVICE}/{METHOD}", request_serializer=encode, response_deserializer=peer_pb2.PushReply.FromString
    )


def add_peer_to_server(servicer: peer_pb2_grpc.PeerServicer, server: grpc.aio.Server) -> None:
    """The generated function, with the deserializer of this module for Replicate."""
    peer_pb2_grpc.add_PeerServicer_to_server(servicer, server)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.Replicate, request_deserializer=decode, response_serializer=peer_pb2.PushReply.SerializeToString
    )
    server.add_registered_method_handlers(SERVICE, {METHOD: handler})  # type: ignore[attr-defined]  # not in the stubs
