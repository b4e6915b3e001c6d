"""Long pieces of work on an event loop, with everything else between them."""

from __future__ import annotations

import asyncio

from rhino_core.turns import Turns


async def test_no_two_pieces_begin_in_one_round_of_the_loop() -> None:
    turns, told, rounds = Turns(), list[tuple[str, int]](), 0

    async def count() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async def piece(name: str) -> None:
        await turns.take()
        told.append((name, rounds))

    counting = asyncio.create_task(count())
    await asyncio.gather(*[piece(name) for name in "abcd"])
    counting.cancel()
    assert [name for name, _ in told] == list("abcd"), "in the order of the calls"
    assert len({number for _, number in told}) == 4


async def test_who_waits_may_give_up() -> None:
    turns, told = Turns(), list[str]()

    async def piece(name: str) -> None:
        await turns.take()
        told.append(name)

    tasks = [asyncio.create_task(piece(name)) for name in "abc"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert told == ["a", "c"]
