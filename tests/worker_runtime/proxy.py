"""A TCP proxy between sidecars that can cut connections in the middle of a file, and keep new ones out."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from dataclasses import replace

from rhino_core.ids import Worker

READ_BYTES = 64 * 1024
HOST = "127.0.0.2"  # the worker's own is WORKER_HOST: push streams come to the same port of either
WORKER_HOST = "127.0.0.1"


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        return True


class Proxy:
    """In front of one worker. `cut_after_bytes`: each connection that has carried so many of them either way is cut,
    and from then on none gets through until `open`. `bytes_per_s`: how many all connections together carry each way;
    0: none, until it is changed."""

    def __init__(self) -> None:
        self.cut_after_bytes: int | None = None
        self.bytes_per_s: float | None = None
        self.carried_bytes = 0
        self.cut = asyncio.Event()
        self._target = ("", 0)
        self.address = ""
        self._servers: list[asyncio.Server] = []
        self.push_port = 0  # to be the worker's, once this listens
        self._writers: set[asyncio.StreamWriter] = set()
        self._turn = asyncio.Lock()  # one link carries the bytes of all connections

    async def __aenter__(self) -> Proxy:
        calls = await asyncio.start_server(self._serve_calls, HOST, 0)
        self._servers = [calls, await self._start_pushes()]
        self.address = f"{HOST}:{calls.sockets[0].getsockname()[1]}"
        return self

    async def _start_pushes(self) -> asyncio.Server:
        """Listens for push streams on a port that is free for the worker, too."""
        while True:
            server = await asyncio.start_server(self._serve_pushes, HOST, 0)
            self.push_port = server.sockets[0].getsockname()[1]
            if _is_free(WORKER_HOST, self.push_port):
                return server
            server.close()

    async def __aexit__(self, *error: object) -> None:
        for server in self._servers:
            server.close()
        self.cut_all()

    def hide(self, worker: Worker) -> Worker:
        """The worker as others shall see it."""
        self.forward(worker.peer_address)
        return replace(worker, peer_address=self.address)

    def forward(self, address: str) -> None:
        """Calls go to this address."""
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))

    def open(self) -> None:
        """Connections get through again, uncut."""
        self.cut_after_bytes = None
        self.cut.clear()

    async def carries(self, count: int) -> None:
        """Waits until so many more bytes have gone through."""
        end = self.carried_bytes + count
        while self.carried_bytes < end:  # noqa: ASYNC110  the pumps send no notification
            await asyncio.sleep(0.05)

    def cut_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve_calls(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(reader, writer, self._target)

    async def _serve_pushes(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(reader, writer, (self._target[0], self.push_port))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: tuple[str, int]) -> None:
        if self.cut.is_set():
            writer.transport.abort()
            return
        behind_reader, behind_writer = await asyncio.open_connection(*target)
        self._writers |= {writer, behind_writer}
        pumps = [self._pump(reader, behind_writer), self._pump(behind_reader, writer)]
        await asyncio.gather(*pumps, return_exceptions=True)
        self._writers -= {writer, behind_writer}

    async def _slowly(self, count: int) -> None:
        while self.bytes_per_s == 0:  # noqa: ASYNC110  a test changes it
            await asyncio.sleep(0.05)
        if self.bytes_per_s is not None:
            async with self._turn:
                await asyncio.sleep(count / self.bytes_per_s)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        carried = 0
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(READ_BYTES):
                carried += len(data)
                await self._slowly(len(data))
                self.carried_bytes += len(data)
                if self.cut_after_bytes is not None and carried > self.cut_after_bytes:
                    self.cut.set()
                    self.cut_all()
                writer.write(data)
                await writer.drain()
        writer.close()
