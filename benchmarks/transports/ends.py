"""`python -m benchmarks.transports.ends sender|receiver ...`: one end, in a process of its own.

It prints a line of JSON when it is ready. The sender then takes commands as lines of JSON on standard input, and
answers each with a line. Both end when their standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import time
from pathlib import Path
from typing import Any, Protocol

import grpc.aio
import uvloop

from benchmarks.transports import grpc_receiver, tls
from benchmarks.transports.certificates import HOST, Identity
from benchmarks.transports.files import SourceFile, Target
from benchmarks.transports.grpc_options import SERVICE, TICKET, Options, channel_credentials, channel_options
from benchmarks.transports.grpc_options import identity_of as same
from benchmarks.transports.grpc_sender import GrpcSender
from benchmarks.transports.records import RecordSession, Tickets
from benchmarks.transports.sessions import LANES, WAYS, PlainSession, Session
from benchmarks.transports.socket_receiver import SocketReceiver
from benchmarks.transports.socket_sender import SocketSender
from benchmarks.transports.subjects import Subject, parse
from worker_runtime.push.allocator import keep_freed_memory
from worker_runtime.push.sockets import tune

COMMIT_BYTES = 4 * 1024
PAUSE_S = 0.010  # between two commits: data files travel at full speed again when the next one comes
BESIDE_S = 0.3  # until data files travel at full speed


class Sending(Protocol):
    """The sending end of a transport."""

    async def send(self, file: SourceFile) -> None:
        """Returns when the receiver has written and checked the file."""
        ...

    async def commit(self, content: bytes) -> None:
        """Returns when the receiver has stored the small file."""
        ...

    async def close(self) -> None: ...


# ---------------------------------------------------------------- the receiver


async def receive(subject: Subject, identity: Identity, folder: Path, options: Options) -> None:
    target = Target(folder)
    ports: dict[str, int] = {}
    servers: list[grpc_receiver.Server] = []
    if subject.way == "grpc":
        shown = identity if subject.encrypted else None
        for kind in {subject.bulk, subject.commit}:
            serve = grpc_receiver.serve_aio if kind == "aio" else grpc_receiver.serve_sync
            server, ports[kind] = await serve(target, shown, options)
            servers.append(server)
    else:
        tickets = Tickets()
        if subject.way == "records":
            server, ports["ticket"] = await grpc_receiver.serve_tickets(tickets.issue, identity)
            servers.append(server)

        def accept(sock: socket.socket, lane: str, way: str) -> Session:
            return session(subject, identity, (sock, lane, way), tickets)

        receiver = SocketReceiver(target, accept, subject.piece_bytes, pairs=subject.way == "tls")
        ports["socket"] = receiver.port
    answer({"ports": ports})
    await asyncio.to_thread(sys.stdin.read)
    for server in servers:
        await grpc_receiver.stop(server)
    target.close()


def session(
    subject: Subject, identity: Identity, connected: tuple[socket.socket, str, str], secret: Tickets | bytes
) -> Session:
    """After the handshake, which blocks. `secret`: tickets at the receiver, the ticket at the sender."""
    sock, lane, way = connected
    server = isinstance(secret, Tickets)
    match subject.bulk if (lane, way) == ("bulk", "data") else subject.commit:
        case "plain":
            return PlainSession(sock)
        case "socket":
            return tls.SocketSession(sock, tls.context(identity, server=server), server=server)
        case "bio":
            return tls.BioSession(sock, tls.context(identity, server=server), server=server)
        case "pyopenssl":
            return tls.PyOpenSslSession(sock, tls.pyopenssl_context(identity, server=server), server=server)
        case _ if isinstance(secret, Tickets):
            return RecordSession.accept(sock, secret)
        case _:
            return RecordSession.connect(sock, secret)


# ---------------------------------------------------------------- the sender


async def sending(subject: Subject, identity: Identity, ports: dict[str, int], options: Options) -> Sending:
    if subject.way == "grpc":
        return GrpcSender(identity if subject.encrypted else None, subject, ports, options)
    made: dict[tuple[str, str], Session] = {}
    for lane in LANES:
        ticket = await _ticket(identity, ports["ticket"]) if subject.way == "records" else b""
        for way in WAYS if subject.way == "tls" else WAYS[:1]:
            sock = socket.create_connection((HOST, ports["socket"]))
            tune(sock)
            sock.sendall(bytes((LANES.index(lane), WAYS.index(way))))
            made[lane, way] = await asyncio.to_thread(session, subject, identity, (sock, lane, way), ticket)
    bulk, commit = ((made[lane, WAYS[0]], made.get((lane, WAYS[1]), made[lane, WAYS[0]])) for lane in LANES)
    return SocketSender(bulk, commit, subject.piece_bytes)


async def _ticket(identity: Identity, port: int) -> bytes:
    async with grpc.aio.secure_channel(
        f"{HOST}:{port}", channel_credentials(identity), options=channel_options(())
    ) as channel:
        call: Any = channel.unary_unary(f"/{SERVICE}/{TICKET}", request_serializer=same, response_deserializer=same)
        ticket: bytes = await call(b"", timeout=10)
    return ticket


async def send(transport: Sending, whole: SourceFile, part: SourceFile) -> None:
    content = bytes(range(256)) * (COMMIT_BYTES // 256)
    await transport.commit(content)
    await transport.send(part)
    answer({"ready": True})
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        if command["do"] == "bulk":
            started = time.perf_counter()
            await transport.send(whole)
            answer({"wall_s": time.perf_counter() - started})
        elif command["do"] == "commits":
            answer({"ms": [await _commit_ms(transport, content) for _ in range(command["count"])]})
        else:
            answer(await _beside(transport, part, content, command["count"]))
    await transport.close()


async def _commit_ms(transport: Sending, content: bytes) -> float:
    await asyncio.sleep(PAUSE_S)
    started = time.perf_counter()
    await transport.commit(content)
    return (time.perf_counter() - started) * 1000


async def _beside(transport: Sending, part: SourceFile, content: bytes, count: int) -> dict[str, Any]:
    enough = asyncio.Event()

    async def bulk() -> int:
        sent_bytes = 0
        while not enough.is_set():
            await transport.send(part)
            sent_bytes += part.entry.size_bytes
        return sent_bytes

    started = time.perf_counter()
    beside = asyncio.create_task(bulk())
    await asyncio.sleep(BESIDE_S)
    found = [await _commit_ms(transport, content) for _ in range(count)]
    enough.set()
    sent_bytes = await beside
    return {"ms": found, "bulk_mb_per_s": sent_bytes / 1e6 / (time.perf_counter() - started)}


# ---------------------------------------------------------------- the process


def answer(found: dict[str, Any]) -> None:
    print(json.dumps(found), flush=True)


async def _run(arguments: argparse.Namespace) -> None:
    subject = parse(arguments.subject)
    identity = Identity.of(arguments.certificates, arguments.end)
    options = [(name, int(value)) for name, _, value in (pair.partition("=") for pair in arguments.grpc)]
    if arguments.end == "receiver":
        await receive(subject, identity, arguments.folder, options)
    else:
        whole, part = (SourceFile.of(arguments.folder / name) for name in ("whole.sst", "part.sst"))
        await send(await sending(subject, identity, json.loads(arguments.ports), options), whole, part)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transports.ends", description=__doc__)
    parser.add_argument("end", choices=("sender", "receiver"))
    parser.add_argument("--subject", required=True)
    parser.add_argument("--certificates", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="of the files to send, or to receive into")
    parser.add_argument("--ports", default="{}", help="that the receiver has printed, for the sender")
    parser.add_argument("--grpc", nargs="*", default=[], metavar="OPTION=NUMBER", help="options of channel and server")
    return parser.parse_args()


if __name__ == "__main__":
    keep_freed_memory()  # as sidecars do
    uvloop.run(_run(_arguments()))
