"""Parts of the tests of scrub that other tests use as well."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from rhino_core.rpc.channel import aio_channel
from rhino_pb import common_pb2, peer_pb2, peer_pb2_grpc
from tests import forked
from tests.worker_runtime.cluster import Process


async def start(process: Process) -> common_pb2.ScrubStatus:
    assert process.worker is not None
    async with aio_channel(process.worker.peer_address) as channel:
        reply: common_pb2.ScrubStatus = await peer_pb2_grpc.PeerStub(channel).StartScrub(
            peer_pb2.StartScrubRequest(), timeout=10
        )
    return reply


async def until(process: Process, condition: Callable[[common_pb2.ScrubStatus], bool]) -> common_pb2.ScrubStatus:
    async with asyncio.timeout(30), process.attach() as client:
        while True:
            scrub = (await client.describe()).scrub
            if condition(scrub):
                return scrub
            await asyncio.sleep(0.02)


def flip_a_bit(path: Path) -> None:
    """As a disk would: the bytes differ, size and times do not."""
    before = path.stat()
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


async def rhino(*arguments: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(forked.rhino, *arguments)
    return done.returncode, done.stdout, done.stderr
