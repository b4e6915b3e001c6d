"""Wire format of push streams, without I/O: length-prefixed messages, each of them followed by raw file bytes.

Most bytes in a sidecar are state. Through gRPC each chunk cost several wake-ups and copies. This format lets a thread
move each chunk between a file and a socket through one small buffer in the processor's cache.
"""

from __future__ import annotations

import struct
from typing import Generic, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from rhino_core.errors import RemoteProtocolError
from rhino_core.rpc.gate import checked

M = TypeVar("M", bound=Message)
_HEAD = struct.Struct("<II")  # length of the message, length of the data behind it, in bytes
MESSAGE_BYTES_MAX = 1024 * 1024
LARGE_MESSAGE_BYTES_MAX = 16 * 1024 * 1024  # a zip's message lists all its files, a changelog's its whole lineage


def packed(message: Message, data_bytes: int = 0) -> bytes:
    """The message in its wire format, announcing `data_bytes` of data behind it."""
    body = message.SerializeToString()
    return _HEAD.pack(len(body), data_bytes) + body


class Memory(Protocol):
    """Bounds the memory of large messages (push/message_memory.py)."""

    def reserve(self, message_bytes: int) -> None:
        """Raises UnavailableError if there is not enough."""
        ...

    def release(self, message_bytes: int) -> None: ...


class Decoder(Generic[M]):
    """Splits the bytes of a connection into messages and the data behind them.

    Messages of more than MESSAGE_BYTES_MAX take their memory from `memory`; without it, they are not allowed. `what`
    names a message in errors.
    """

    def __init__(self, message_type: type[M], what: str, memory: Memory | None = None) -> None:
        self._type = message_type
        self._what = what
        self._memory = memory
        self._bytes_max = MESSAGE_BYTES_MAX if memory is None else LARGE_MESSAGE_BYTES_MAX
        self._reserved_bytes = 0  # memory for the incoming message
        self._buffer = bytearray()
        self._start = 0  # the bytes before this offset have been used
        self.messages = 0  # messages decoded so far

    def feed(self, data: bytes) -> None:
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def message(self) -> tuple[M, int, int] | None:
        """The next message if it is complete, its length, and the number of data bytes behind it.

        The caller takes these data bytes before it asks for another message. Raises RemoteProtocolError, and
        UnavailableError if there is no memory for a large message.
        """
        buffer, start = self._buffer, self._start + _HEAD.size
        if len(buffer) < start:
            return None
        message_bytes, data_bytes = _HEAD.unpack_from(buffer, self._start)
        if message_bytes > MESSAGE_BYTES_MAX:
            self._reserve(message_bytes)
        end = start + message_bytes
        if len(buffer) < end:
            return None
        with memoryview(buffer) as view:
            body = bytes(view[start:end])
        self._start = end
        if end == len(buffer):
            self._clear()
        try:
            message = checked(self._type.FromString(body), "push stream")
        except DecodeError as error:
            raise RemoteProtocolError(f"not a {self._what} of a push stream: {error}") from error
        self.messages += 1
        if self._reserved_bytes:
            self.close()
        return message, message_bytes, data_bytes

    def take(self, into: memoryview) -> int:
        """Moves buffered data bytes to the front of `into`. Returns their number."""
        start = self._start
        end = min(len(self._buffer), start + len(into))
        if start < end:
            with memoryview(self._buffer) as view:
                into[: end - start] = view[start:end]
            self._start = end
            if end == len(self._buffer):
                self._clear()
        return end - start

    def close(self) -> None:
        """Releases the memory of a large message that is complete, or is not read any further."""
        if self._reserved_bytes and self._memory is not None:
            self._memory.release(self._reserved_bytes)
            self._reserved_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer) - self._start

    @property
    def missing_bytes(self) -> int:
        """How many bytes the next message lacks, as far as is known: at least those of its length."""
        if self.buffered_bytes < _HEAD.size:
            return _HEAD.size - self.buffered_bytes
        message_bytes: int = _HEAD.unpack_from(self._buffer, self._start)[0]
        return _HEAD.size + message_bytes - self.buffered_bytes

    def _reserve(self, message_bytes: int) -> None:
        if message_bytes > self._bytes_max:
            raise RemoteProtocolError(f"a message of {message_bytes} bytes, at most {self._bytes_max} are allowed")
        if self._memory is not None and not self._reserved_bytes:
            self._memory.reserve(message_bytes)
            self._reserved_bytes = message_bytes

    def _clear(self) -> None:
        """A large message would otherwise keep its memory until something else arrives."""
        self._buffer.clear()
        self._start = 0
