"""The event loop takes all wake-ups of gRPC's thread at once. A test has a process: grpc.aio starts once in each."""

from __future__ import annotations

import subprocess
import sys
import textwrap

STREAMS = 400  # each has an operation of its server and one of its client, and the socket holds less than 300 bytes
PROGRAM = """
import array, asyncio, fcntl, socket, termios, time

import grpc
import grpc.aio

from rhino_core.rpc import wakeups

STREAMS, MANY, TIMEOUT_S = {streams}, 200, 30
taken, ends = [], []


class Counted(wakeups.WakeUps):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        ends.append(self)

    def recv(self, size, flags=0):
        taken.append(waiting())
        return super().recv(size, flags)


def waiting():
    found = array.array("i", [0])
    fcntl.ioctl(ends[0].fileno(), termios.FIONREAD, found)
    return found[0]


async def echo(requests, context):
    async for request in requests:
        yield request


async def main():
    wakeups.WakeUps = Counted
    wakeups.start_grpc()
    assert socket.socketpair.__module__ == "socket"
    server = grpc.aio.server()
    handlers = {{"Echo": grpc.stream_stream_rpc_method_handler(echo)}}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{{port}}") as channel:
        calls = [channel.stream_stream("/test/Echo")() for _ in range(STREAMS)]
        await asyncio.gather(*[exchange(call) for call in calls])  # from now on all streams are open
        taken.clear()
        exchanges = [asyncio.create_task(exchange(call)) for call in calls]
        await asyncio.sleep(0)  # all messages are sent
        deadline = time.monotonic() + TIMEOUT_S
        while waiting() < MANY and time.monotonic() < deadline:
            time.sleep(0.001)  # the loop is busy
        await asyncio.gather(*exchanges)
        print(max(taken), waiting())
        for call in calls:
            call.cancel()
    await server.stop(None)


async def exchange(call):
    await call.write(b"asked")
    assert await call.read() == b"asked"


asyncio.run(asyncio.wait_for(main(), 2 * TIMEOUT_S))
"""


def test_a_busy_loop_takes_all_wake_ups_at_once() -> None:
    program = textwrap.dedent(PROGRAM).format(streams=STREAMS)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    at_once, left = map(int, done.stdout.split())
    assert at_once >= 200, "many operations were finished while the loop was busy"
    assert left < 20, f"{left} bytes are left behind: they fill the socket, and gRPC's thread then waits"
