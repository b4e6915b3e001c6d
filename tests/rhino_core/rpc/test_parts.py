"""Large messages in parts: joined as they were, within bounds, and given up when they do not go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from rhino_core.errors import InvalidRequestError, UnavailableError
from rhino_core.rpc import parts
from rhino_core.rpc.parts import PART_BYTES, in_parts, joined
from rhino_pb import common_pb2, handover_pb2


def batch(stores: int) -> handover_pb2.DriverEvent:
    event = handover_pb2.DriverEvent(batch_logged=handover_pb2.BatchLogged(job="j", run_id="r", batch_id=1))
    for number in range(stores):
        store = common_pb2.StoreId(job="j" * 36, operator=0, partition=number, store="default")
        event.batch_logged.versions.add(store=store)
    return event


async def stream(messages: Iterable[handover_pb2.DriverEvent]) -> AsyncIterator[handover_pb2.DriverEvent]:
    for message in messages:
        yield message


async def all_of(messages: Iterable[handover_pb2.DriverEvent]) -> list[handover_pb2.DriverEvent]:
    return [message async for message in joined(stream(messages))]


async def test_a_large_message_between_small_ones_arrives_as_it_was() -> None:
    small, large = batch(10), batch(100_000)
    sent = [*in_parts(small), *in_parts(large), *in_parts(small)]
    assert len(sent) > 5
    assert all(message.ByteSize() <= PART_BYTES + 100 for message in sent)
    assert await all_of(sent) == [small, large, small]
    assert parts._Unfinished.total == 0


async def test_what_never_ends_is_bounded_for_one_stream_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "WHOLE_BYTES_MAX", 3 * PART_BYTES)
    monkeypatch.setattr(parts, "UNFINISHED_BYTES_MAX", 4 * PART_BYTES)
    part = handover_pb2.DriverEvent(part=common_pb2.Part(data=bytes(PART_BYTES)))
    with pytest.raises(InvalidRequestError, match=f"more than {3 * PART_BYTES} bytes"):
        await all_of([part] * 4)
    assert parts._Unfinished.total == 0
    goes_on = asyncio.Event()

    async def stands() -> AsyncIterator[handover_pb2.DriverEvent]:
        for _ in range(3):
            yield part
        goes_on.set()
        await asyncio.Event().wait()

    async def reads() -> None:
        await anext(joined(stands()))

    other = asyncio.create_task(reads())
    await goes_on.wait()
    with pytest.raises(UnavailableError, match="try again"):
        await all_of([part] * 2)
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other
    assert parts._Unfinished.total == 0


async def test_a_message_whose_next_part_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "NEXT_PART_S", 0.05)

    async def stands() -> AsyncIterator[handover_pb2.DriverEvent]:
        yield handover_pb2.DriverEvent(part=common_pb2.Part(data=bytes(PART_BYTES)))
        await asyncio.Event().wait()

    with pytest.raises(UnavailableError, match="the next part has not arrived"):
        await anext(joined(stands()))
    assert parts._Unfinished.total == 0


@pytest.mark.parametrize("data", [b"x", bytes(PART_BYTES + 1), b""])
async def test_parts_have_one_size(data: bytes) -> None:
    """A stream of tiny ones would go on for ever."""
    with pytest.raises(InvalidRequestError, match=f"must have {PART_BYTES}"):
        await all_of([handover_pb2.DriverEvent(part=common_pb2.Part(data=data))])


async def test_a_part_of_parts_is_refused() -> None:
    inner = handover_pb2.DriverEvent(part=common_pb2.Part(data=b"", last=True))
    outer = handover_pb2.DriverEvent(part=common_pb2.Part(data=inner.SerializeToString(), last=True))
    with pytest.raises(InvalidRequestError, match="again a part"):
        await all_of([outer])
