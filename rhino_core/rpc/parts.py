"""Large messages of streams: they are sent in parts, and joined in front of the gate.

A type with a field `part` may be sent in this way. The parts are the serialized form of one message of the same type.
gRPC has memory for an unfinished message as long as its connection lives, so a message is small. This module bounds the
waiting parts, and drops them with their stream, or when no further part arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from rhino_core.errors import InvalidRequestError, UnavailableError

M = TypeVar("M", bound=Message)
PART_BYTES = 1024 * 1024
WHOLE_BYTES_MAX = 64 * 1024 * 1024
UNFINISHED_BYTES_MAX = 256 * 1024 * 1024  # of all streams of this process
NEXT_PART_S = 30.0


def in_parts(message: M) -> Iterator[M]:
    """The messages to send instead of this one: itself, unless it is large."""
    if message.ByteSize() <= PART_BYTES:
        yield message
        return
    data = message.SerializeToString()
    for start in range(0, len(data), PART_BYTES):
        carrier: Any = type(message)()
        carrier.part.data = data[start : start + PART_BYTES]
        carrier.part.last = start + PART_BYTES >= len(data)
        yield carrier


class _Unfinished:
    """Bytes of the incomplete messages of this process."""

    total = 0


async def joined(messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Yields the messages of a stream, those in parts as they were before.

    Raises InvalidRequestError for parts that are no message, or too large a one, and UnavailableError when others use
    the memory, or when the next part does not arrive.
    """
    whole = bytearray()
    try:
        while True:
            try:
                async with asyncio.timeout(NEXT_PART_S if whole else None):
                    message = await anext(messages)
            except StopAsyncIteration:
                return
            if not (isinstance(message, Message) and _is_part(message)):
                yield message
                continue
            part = _add(whole, message)
            if part.last:
                complete = _complete(whole, type(message))
                _clear(whole)
                yield complete
    except TimeoutError:
        raise UnavailableError(f"a message in parts: the next part has not arrived within {NEXT_PART_S:g} s") from None
    finally:
        _clear(whole)


def _is_part(message: Message) -> bool:
    return "part" in message.DESCRIPTOR.fields_by_name and message.HasField("part")


def _add(whole: bytearray, message: Any) -> Any:
    part = message.part
    if not part.last and len(part.data) != PART_BYTES:
        raise InvalidRequestError(f"part of {len(part.data)} bytes: each but the last must have {PART_BYTES}")
    if len(whole) + len(part.data) > WHOLE_BYTES_MAX:
        raise InvalidRequestError(f"a message in parts has more than {WHOLE_BYTES_MAX} bytes, which is the most")
    if _Unfinished.total + len(part.data) > UNFINISHED_BYTES_MAX:
        raise UnavailableError("too many large messages arrive at the same time: try again")
    whole += part.data
    _Unfinished.total += len(part.data)
    return part


def _complete(whole: bytearray, kind: type[Message]) -> Message:
    try:
        complete = kind.FromString(bytes(whole))
    except DecodeError as error:
        raise InvalidRequestError(f"the parts are not a message of this stream: {error}") from None
    if _is_part(complete):
        raise InvalidRequestError("the parts are again a part")
    return complete


def _clear(whole: bytearray) -> None:
    _Unfinished.total -= len(whole)
    whole.clear()
