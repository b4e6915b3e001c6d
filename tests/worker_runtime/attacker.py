"""Somebody who sits between two sidecars: sees all bytes of push streams, and changes them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from tests.worker_runtime.proxy import Proxy
from worker_runtime.push.core.noise import HANDSHAKE_BYTES, TAG_BYTES
from worker_runtime.push.core.records import HEAD_BYTES
from worker_runtime.push.opening import TOKEN_BYTES

TO_RECEIVER, TO_SENDER = "to receiver", "to sender"
TOKENS_BYTES = {TO_RECEIVER: TOKEN_BYTES, TO_SENDER: 0}
LARGE_BYTES = 60_000  # only data files have such records


@dataclass(eq=False)
class Attack:
    """The attacker does this once, to the first record that fits. `what`: a method of `Attacker`.

    `large`: of a data file. `after`: as many records of the stream pass first; its handshake counts as one.
    """

    what: str
    way: str = TO_RECEIVER
    large: bool = False
    after: int = 1
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def fits(self, way: str, number: int, size: int) -> bool:
        due = way == self.way and number >= self.after and not self.done.is_set()
        return due and self.large == (size > LARGE_BYTES)


class Attacker(Proxy):
    """A proxy in front of one sidecar that knows the format of encrypted streams."""

    def __init__(self, *, plain: bool = False) -> None:
        super().__init__()
        self.seen = bytearray()
        self.attack: Attack | None = None
        self._plain = plain  # the streams are not encrypted: only listen

    async def _serve_pushes(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", self.push_port)
        self._writers |= {writer, behind_writer}
        ways = (TO_RECEIVER, reader, behind_writer), (TO_SENDER, behind_reader, writer)
        await asyncio.gather(*(self._carry(*way) for way in ways))
        self._writers -= {writer, behind_writer}

    async def _carry(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            if self._plain:
                while data := await reader.read(65536):
                    await self._pass(writer, data)
            else:
                await self._pass(writer, await reader.readexactly(TOKENS_BYTES[way]))
                await self._records(way, reader, writer)
        writer.close()

    async def _records(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, former = 0, b""
        while True:
            if number == 0:
                record = await reader.readexactly(HANDSHAKE_BYTES)
            else:
                head = await reader.readexactly(HEAD_BYTES)
                record = head + await reader.readexactly(int.from_bytes(head, "big"))
            attack = self.attack
            if attack is not None and attack.fits(way, number, len(record)):
                attack.done.set()
                changed = getattr(self, attack.what)(record, former)
                await self._pass(writer, changed)
                if attack.what == "truncate":
                    return
            else:
                await self._pass(writer, record)
            number, former = number + 1, record

    async def _pass(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        self.seen += data
        writer.write(data)
        await writer.drain()

    # ------------------------------------------------------------ what becomes of a record; `former`: the one before

    def flip(self, record: bytes, former: bytes) -> bytes:
        middle = len(record) // 2
        return record[:middle] + bytes([record[middle] ^ 1]) + record[middle + 1 :]

    def flip_tag(self, record: bytes, former: bytes) -> bytes:
        return record[:-1] + bytes([record[-1] ^ 0x80])

    def replay(self, record: bytes, former: bytes) -> bytes:
        return former + record

    def repeat(self, record: bytes, former: bytes) -> bytes:
        return record + record

    def drop(self, record: bytes, former: bytes) -> bytes:
        return b""

    def shorten(self, record: bytes, former: bytes) -> bytes:
        return record[:HEAD_BYTES] + record[HEAD_BYTES + 1 :]

    def empty(self, record: bytes, former: bytes) -> bytes:
        return TAG_BYTES.to_bytes(HEAD_BYTES, "big") + record[HEAD_BYTES:]

    def truncate(self, record: bytes, former: bytes) -> bytes:
        return record[: len(record) // 2]
