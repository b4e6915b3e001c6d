"""The sending end over gRPC: grpc.aio on the event loop, or the sync stack in threads."""

from __future__ import annotations

import asyncio
import itertools
import queue
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

import grpc
import grpc.aio
from crc32c import crc32c

from benchmarks.transports.certificates import HOST, Identity
from benchmarks.transports.files import SourceFile
from benchmarks.transports.grpc_options import (
    BULK,
    COMMIT,
    SERVICE,
    Options,
    channel_credentials,
    channel_options,
    identity_of,
)
from benchmarks.transports.socket_sender import PART, PART_BYTES, SMALL
from benchmarks.transports.subjects import Subject
from worker_runtime.precedence import Precedence
from worker_runtime.storage.threads import run_in


class Lane(Protocol):
    """One stream: bulk or commit."""

    async def send(self, file: SourceFile) -> None: ...

    async def commit(self, content: bytes) -> None: ...

    async def close(self) -> None: ...


def _head(file: SourceFile) -> bytes:
    return PART.pack(file.entry.size_bytes, file.entry.crc32c, 0)


def _small(content: bytes) -> bytes:
    return SMALL.pack(len(content), crc32c(content)) + content


class AioLane:
    """A stream of grpc.aio. A thread reads the file while the event loop sends what was read before."""

    def __init__(self, channel: grpc.aio.Channel, method: str, chunk_bytes: int, precedence: Precedence) -> None:
        self._channel = channel
        made: Any = channel.stream_stream(
            f"/{SERVICE}/{method}", request_serializer=identity_of, response_deserializer=identity_of
        )
        self._call: Any = made()
        self._chunk_bytes = chunk_bytes
        self._precedence = precedence
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="read")

    async def send(self, file: SourceFile) -> None:
        await self._call.write(_head(file))
        chunks, sent_at = file.chunks(self._chunk_bytes), 0.0
        batch = partial(lambda: list(itertools.islice(chunks, max(1, PART_BYTES // self._chunk_bytes))))
        reading = asyncio.ensure_future(run_in(self._pool, batch))
        while part := await reading:
            reading = asyncio.ensure_future(run_in(self._pool, batch))
            for chunk in part:
                sent_at = await self._precedence.yield_to_commits(sent_at)
                await self._call.write(chunk)
        await self._call.read()

    async def commit(self, content: bytes) -> None:
        await self._call.write(_small(content))
        await self._call.read()

    async def close(self) -> None:
        self._call.cancel()
        await self._channel.close(None)
        self._pool.shutdown()


class SyncLane:
    """A stream of the sync stack: gRPC's own thread reads the file and sends it, another waits for the answers."""

    def __init__(self, channel: grpc.Channel, method: str, chunk_bytes: int, precedence: Precedence) -> None:
        self._channel = channel
        self._requests: queue.SimpleQueue[Iterable[bytes] | None] = queue.SimpleQueue()
        made: Any = channel.stream_stream(
            f"/{SERVICE}/{method}", request_serializer=identity_of, response_deserializer=identity_of
        )
        self._call: Any = made(self._messages())
        self._chunk_bytes = chunk_bytes
        self._precedence = precedence
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="answers")

    def _messages(self) -> Iterator[bytes]:
        while (messages := self._requests.get()) is not None:
            yield from messages

    def _file(self, file: SourceFile) -> Iterator[bytes]:
        yield _head(file)
        sent_at = 0.0
        for chunk in file.chunks(self._chunk_bytes):
            while (wait_s := self._precedence.wait_s(sent_at)) > 0:
                time.sleep(wait_s)
            sent_at = time.monotonic()
            yield chunk

    async def send(self, file: SourceFile) -> None:
        self._requests.put(self._file(file))
        await run_in(self._pool, partial(next, self._call))

    async def commit(self, content: bytes) -> None:
        self._requests.put((_small(content),))
        await run_in(self._pool, partial(next, self._call))

    async def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()
        self._channel.close()
        self._pool.shutdown()


class GrpcSender:
    """`Sending` over one channel for each lane."""

    def __init__(self, identity: Identity | None, subject: Subject, ports: dict[str, int], options: Options) -> None:
        """`ports`: of "aio" and "sync". Without an identity, without TLS."""
        self._identity = identity
        self._precedence = Precedence(lambda: False)
        self._chunk_bytes = subject.piece_bytes
        self._options = channel_options(options)
        self._bulk = self._lane(subject.bulk, ports[subject.bulk], BULK)
        self._commit = self._lane(subject.commit, ports[subject.commit], COMMIT)

    def _lane(self, kind: str, port: int, method: str) -> Lane:
        address, options = f"{HOST}:{port}", self._options
        credentials = channel_credentials(self._identity) if self._identity else None
        if kind == "aio":
            aio = (
                grpc.aio.secure_channel(address, credentials, options=options)
                if credentials
                else grpc.aio.insecure_channel(address, options=options)
            )
            return AioLane(aio, method, self._chunk_bytes, self._precedence)
        sync = (
            grpc.secure_channel(address, credentials, options=options)
            if credentials
            else grpc.insecure_channel(address, options=options)
        )
        return SyncLane(sync, method, self._chunk_bytes, self._precedence)

    async def send(self, file: SourceFile) -> None:
        await self._bulk.send(file)

    async def commit(self, content: bytes) -> None:
        self._precedence.commit()
        await self._commit.commit(content)
        self._precedence.commit()

    async def close(self) -> None:
        await self._bulk.close()
        await self._commit.close()
