"""The bare gRPC peer: bytes from files over one grpc.aio stream into files, without checksums, index or protocol.

`python -m benchmarks.replication.bare_stream FOLDER [--next ADDRESS]` receives, and forwards each piece as it comes.
"""

from __future__ import annotations

import argparse
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import uvloop

from rhino_core.rpc.channel import SERVER_OPTIONS, aio_channel
from worker_runtime.sidecar import keep_freed_memory

METHOD = "/rhino.benchmark.Bare/Push"
HEAD = struct.Struct("<I?")  # number of the file; whether this is its last piece


def identity(data: bytes) -> bytes:
    return data


def push(channel: grpc.aio.Channel) -> grpc.aio.StreamStreamCall[bytes, bytes]:
    method: Any = channel.stream_stream(METHOD, request_serializer=identity, response_deserializer=identity)
    call: grpc.aio.StreamStreamCall[bytes, bytes] = method()
    return call


async def send(address: str, paths: tuple[Path, ...], chunk_bytes: int) -> None:
    """Returns when the last receiver has written everything."""
    async with aio_channel(address) as channel:
        call = push(channel)
        for number, path in enumerate(paths):
            with path.open("rb", buffering=0) as file:
                left = path.stat().st_size
                while left:
                    data = file.read(chunk_bytes)
                    left -= len(data)
                    await call.write(HEAD.pack(number, left == 0) + data)
        await call.done_writing()
        await call.read()


async def _serve(folder: Path, following: str | None) -> None:
    async def receive(pieces: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        channel = aio_channel(following) if following else None
        forward = push(channel) if channel else None
        target = -1
        async for piece in pieces:
            number, last = HEAD.unpack_from(piece)
            if target < 0:
                target = os.open(folder / f"{number:06d}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(target, memoryview(piece)[HEAD.size :])
            if last:
                os.close(target)
                target = -1
            if forward:
                await forward.write(piece)
        if forward and channel:
            await forward.done_writing()
            await forward.read()
            await channel.close(None)
        await context.write(b"done")

    handler = grpc.stream_stream_rpc_method_handler(
        receive, request_deserializer=identity, response_serializer=identity
    )
    server = grpc.aio.server(options=SERVER_OPTIONS)
    service, method = METHOD.strip("/").split("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--next", help="host:port of the next receiver")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True)
    keep_freed_memory()  # as sidecars do
    uvloop.run(_serve(arguments.folder, arguments.next))


if __name__ == "__main__":
    main()
