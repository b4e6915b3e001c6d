"""A proxy between an archive and its store, to make requests fail as the networks and stores of a cloud do."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

PIECE, PIECE_S = 64 * 1024, 0.05


@dataclass(frozen=True)
class Answer:
    """The store never hears of the request."""

    status: int
    body: str = ""
    content_type: str = "application/xml"

    @classmethod
    def of_s3(cls, status: int, code: str, more: str = "") -> Answer:
        return cls(status, f"<?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>told</Message>{more}</Error>")


class Fault(Enum):
    PASS = "the request passes"
    SILENT = "nothing comes back, and the connection stays open"
    CUT = "the connection ends before the request is passed on"
    LOSE = "the store did it, and the connection ends before its answer"
    HALF = "the connection ends in the middle of the answer"
    SLOW = "PIECE bytes in each direction go at once, and then nothing for PIECE_S"


class FaultyProxy:
    """`faults`: for the next requests in turn; then `rest` is for all others.

    `seen`: method and target of each. `heard`: there was one.
    """

    def __init__(self, store: str) -> None:
        self.faults: deque[Fault | Answer] = deque()
        self.rest: Fault | Answer = Fault.PASS
        self.seen: list[str] = []
        self.heard = asyncio.Event()
        self.url = ""
        self._store = urlsplit(store)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request for each connection."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?im)^content-length: *(\d+)", head)
            fault = self.faults.popleft() if self.faults else self.rest
            body = await self._body(reader, int(length[1]) if length else 0, slow=fault is Fault.SLOW)
            self.seen.append(head.partition(b" HTTP")[0].decode())
            self.heard.set()
            match fault:
                case Answer():
                    text = fault.body.encode()
                    kind = f"Content-Type: {fault.content_type}\r\nContent-Length: {len(text)}\r\nConnection: close"
                    writer.write(f"HTTP/1.1 {fault.status} x\r\n{kind}\r\n\r\n".encode() + text)
                case Fault.SILENT:
                    await reader.read()  # until the client gives up
                case Fault.CUT:
                    writer.transport.abort()
                case _:
                    answer = await self._passed(head, body)
                    kept = {Fault.LOSE: 0, Fault.HALF: len(answer) - len(answer.partition(b"\r\n\r\n")[2]) // 2}
                    answer = answer[: kept.get(fault, len(answer))]
                    for at in range(0, len(answer), PIECE):
                        writer.write(answer[at : at + PIECE])
                        if fault is Fault.SLOW:
                            await writer.drain()
                            await asyncio.sleep(PIECE_S)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _body(self, reader: asyncio.StreamReader, size_bytes: int, *, slow: bool) -> bytes:
        pieces = []
        while size_bytes:
            pieces.append(await reader.readexactly(min(size_bytes, PIECE)))
            size_bytes -= len(pieces[-1])
            if slow:
                await asyncio.sleep(PIECE_S)
        return b"".join(pieces)

    async def _passed(self, head: bytes, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self._store.hostname, self._store.port)
        writer.write(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + body)
        answer = await reader.read()
        writer.close()
        return answer


@asynccontextmanager
async def faulty(store: str) -> AsyncIterator[FaultyProxy]:
    proxy = FaultyProxy(store)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
