"""The receiving end over gRPC: a grpc.aio server, or a sync server with threads, which needs a port of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import grpc.aio

from benchmarks.transports.certificates import HOST, Identity
from benchmarks.transports.files import Target
from benchmarks.transports.grpc_options import (
    BULK,
    COMMIT,
    SERVICE,
    TICKET,
    Options,
    identity_of,
    server_credentials,
    server_options,
)
from benchmarks.transports.socket_sender import PART, PART_BYTES, SMALL
from worker_runtime.storage.incoming import Incoming
from worker_runtime.storage.threads import run_in

THREADS = 8
ACK = b"stored"
Server = grpc.aio.Server | grpc.Server


class _File:
    """The data file under way on a stream."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._incoming: Incoming | None = None
        self._size = self._crc = 0

    def write(self, message: bytes) -> bool:
        """Blocks. Returns whether the file is complete. Raises IntegrityError for wrong bytes."""
        if self._incoming is None:
            self._size, self._crc, _ = PART.unpack(message)
            self._incoming = self._target.begin(self._size)
            return False
        self._incoming.write((message,))
        if self._incoming.size_bytes < self._size:
            return False
        self._target.finish(self._incoming, self._size, self._crc)
        self._incoming = None
        return True

    def write_all(self, messages: list[bytes]) -> bool:
        return [self.write(message) for message in messages][-1]


def _store(target: Target, message: bytes) -> None:
    size, crc = SMALL.unpack_from(message)
    target.store(memoryview(message)[SMALL.size : SMALL.size + size], crc)


async def serve_aio(target: Target, identity: Identity | None, options: Options) -> tuple[Server, int]:
    """Started, with its port. Small files are stored on the event loop, data files in a thread, some MiB at once."""

    async def bulk(messages: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        with ThreadPoolExecutor(1, thread_name_prefix="write") as pool:
            file, batch, size, missing = _File(target), [], 0, 0
            async for message in messages:
                if missing == 0:
                    missing = PART.unpack(message)[0]
                else:
                    missing -= len(message)
                batch.append(message)
                size += len(message)
                if size >= PART_BYTES or missing == 0:
                    done = await run_in(pool, partial(file.write_all, batch))
                    batch, size = [], 0
                    if done:
                        yield ACK

    async def commit(messages: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        async for message in messages:
            _store(target, message)
            yield ACK

    server = grpc.aio.server(options=server_options(options))
    server.add_generic_rpc_handlers((_handlers({BULK: bulk, COMMIT: commit}),))
    port = _listen(server, identity)
    await server.start()
    return server, port


async def serve_tickets(issue: Callable[[], bytes], identity: Identity) -> tuple[Server, int]:
    """Hands out tickets for streams of records."""

    async def ticket(_request: bytes, _: object) -> bytes:
        return issue()

    handler = grpc.unary_unary_rpc_method_handler(
        ticket, request_deserializer=identity_of, response_serializer=identity_of
    )
    server = grpc.aio.server(options=server_options(()))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {TICKET: handler}),))
    port = server.add_secure_port(f"{HOST}:0", server_credentials(identity))
    await server.start()
    return server, port


async def serve_sync(target: Target, identity: Identity | None, options: Options) -> tuple[Server, int]:
    """Started, with its port. A thread for each stream reads messages and writes them."""

    def bulk(messages: Iterator[bytes], _: object) -> Iterator[bytes]:
        file = _File(target)
        for message in messages:
            if file.write(message):
                yield ACK

    def commit(messages: Iterator[bytes], _: object) -> Iterator[bytes]:
        for message in messages:
            _store(target, message)
            yield ACK

    server = grpc.server(ThreadPoolExecutor(THREADS), options=server_options(options))
    server.add_generic_rpc_handlers((_handlers({BULK: bulk, COMMIT: commit}),))
    port = _listen(server, identity)
    server.start()
    return server, port


def _listen(server: Server, identity: Identity | None) -> int:
    """Without an identity, without TLS."""
    if identity is None:
        return server.add_insecure_port(f"{HOST}:0")
    return server.add_secure_port(f"{HOST}:0", server_credentials(identity))


def _handlers(methods: dict[str, Any]) -> grpc.GenericRpcHandler[bytes, bytes]:
    made = {
        name: grpc.stream_stream_rpc_method_handler(
            method, request_deserializer=identity_of, response_serializer=identity_of
        )
        for name, method in methods.items()
    }
    return grpc.method_handlers_generic_handler(SERVICE, made)


async def stop(server: Server) -> None:
    stopping = server.stop(0)
    if asyncio.iscoroutine(stopping):
        await stopping
