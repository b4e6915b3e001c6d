"""The beginning of a push stream at a real listener: who gets in with which ticket, and who does not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from rhino_core.errors import LocalProtocolError, PreconditionError, UnavailableError
from rhino_core.ids import Lane
from rhino_core.security.identity import Identity, Role
from rhino_core.settings import OFF, REQUIRED
from worker_runtime.push import opening as module
from worker_runtime.push.alarms import NO_TICKET, Alarms
from worker_runtime.push.connection import Connection
from worker_runtime.push.core.noise import HANDSHAKE_BYTES
from worker_runtime.push.core.records import HANDSHAKE, UNFINISHED, TamperedError
from worker_runtime.push.listener import PushListener
from worker_runtime.push.opening import NOT_ENCRYPTED, AdmittedSender, Encryption, Ticket, Tickets, as_sender
from worker_runtime.push.sockets import connect
from worker_runtime.statistics import Statistics

A, B, EVE = (Identity("c", Role.WORKER, name) for name in ("a", "b", "eve"))
HERE = "127.0.0.1"


class Echo:
    """A receiver that sends back what arrives, in capitals."""

    def __init__(self) -> None:
        self.statistics = Statistics()
        self.alarms = Alarms(self.statistics, encryption=Encryption(B, REQUIRED))
        self.served: list[tuple[str, Lane]] = []
        self.checks: list[Callable[[], None] | None] = []

    async def serve(self, connection: Connection, sender: str, lane: Lane) -> None:
        self.served.append((sender, lane))
        self.checks.append(connection.check)

        def readable() -> None:
            try:
                connection.post(connection.read().upper())
            except BlockingIOError:
                return
            except (EOFError, OSError, TamperedError) as error:
                connection.lose(error)

        connection.watch(readable)
        try:
            with contextlib.suppress(UnavailableError, TamperedError):
                await connection.lost
        finally:
            connection.close()


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
async def listener(echo: Echo) -> AsyncIterator[PushListener]:
    """Of the sidecar `b`, which has to encrypt."""
    made = PushListener(echo, HERE, 0, Encryption(B, REQUIRED))  # type: ignore[arg-type]
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def ticket_of_a(listener: PushListener) -> Ticket:
    """As `a` gets it over TLS: with the receiver's identity, instead of its own."""
    ticket = listener.admit("a", Lane.COMMIT, A, encrypts=True)
    assert (bool(ticket.secret), ticket.peer) == (True, str(A))
    return replace(ticket, peer=str(B))


async def until(found: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not found():  # noqa: ASYNC110  a log has no notification
            await asyncio.sleep(0.01)


async def answer(connection: Connection, message: bytes) -> bytes:
    connection.post(message)
    found = b""
    async with asyncio.timeout(20):
        while len(found) < len(message):
            try:
                found += connection.read()
            except BlockingIOError:
                await asyncio.sleep(0.01)
    return found


async def ends(sock: socket.socket) -> None:
    """The other end closes the connection, whatever it has sent before."""
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):
            while await asyncio.get_running_loop().sock_recv(sock, 4096):
                pass


async def test_both_ends_have_the_same_keys(listener: PushListener, echo: Echo) -> None:
    sock, session = await as_sender(HERE, listener.port, ticket_of_a(listener), Encryption(A, REQUIRED))
    connection = Connection(sock, session)
    assert await answer(connection, b"state") == b"STATE"
    assert await answer(connection, b"x" * 3_000_000) == b"X" * 3_000_000
    assert echo.served == [("a", Lane.COMMIT)]
    connection.close()


async def test_a_sender_with_the_other_cluster_key_gets_in(listener: PushListener) -> None:
    """While the key changes, both accept both, and each one uses another one."""
    sender, receiver = (replace(one, cluster="new") for one in (A, B))
    ticket = replace(listener.admit("a", Lane.COMMIT, sender, encrypts=True), peer=str(receiver))
    connection = Connection(*await as_sender(HERE, listener.port, ticket, Encryption(sender, REQUIRED)))
    assert await answer(connection, b"state") == b"STATE"
    connection.close()


class Transport:
    """Of the sidecar `b`: it looks at certificates."""

    def __init__(self) -> None:
        self.checks: dict[object, Callable[[], None]] = {}

    def later_check(self, context: object) -> Callable[[], None]:
        return self.checks.setdefault(context, lambda: None)


async def test_a_stream_has_the_check_of_the_call_that_opened_it(echo: Echo) -> None:
    transport, call = Transport(), object()
    listener = PushListener(echo, HERE, 0, Encryption(B, REQUIRED), transport)  # type: ignore[arg-type]
    running = asyncio.create_task(listener.run())
    ticket = replace(listener.admit("a", Lane.COMMIT, A, call, encrypts=True), peer=str(B))
    sock, _ = await as_sender(HERE, listener.port, ticket, Encryption(A, REQUIRED))
    await until(lambda: echo.checks)
    assert echo.checks == [transport.checks[call]]
    sock.close()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def audited(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.name == "rhino.audit"]


async def test_a_ticket_is_good_once(listener: PushListener, echo: Echo, caplog: pytest.LogCaptureFixture) -> None:
    ticket = ticket_of_a(listener)
    sock, _ = await as_sender(HERE, listener.port, ticket, Encryption(A, REQUIRED))
    with pytest.raises(ConnectionError):
        await as_sender(HERE, listener.port, ticket, Encryption(A, REQUIRED))
    assert len(echo.served) == 1
    await until(lambda: audited(caplog))
    (line,) = audited(caplog)
    assert (line["principal"], line["method"], line["outcome"]) == ("", "push", NO_TICKET)
    assert line["peer"].startswith(f"ipv4:{HERE}:")
    sock.close()


async def test_a_ticket_is_good_for_a_few_seconds(
    listener: PushListener, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOKEN_S", 0.05)
    ticket = ticket_of_a(listener)
    monkeypatch.undo()
    await until(lambda: not listener._tickets._unused)
    with pytest.raises(ConnectionError):
        await as_sender(HERE, listener.port, ticket, Encryption(A, REQUIRED))
    assert not echo.served


@pytest.mark.parametrize(
    ("changes", "who"),
    [
        ({}, EVE),
        ({"secret": bytes(32)}, A),
        ({"peer": str(EVE)}, A),
        ({"admission": AdmittedSender("a", Lane.BULK)}, A),
    ],
    ids=["another identity", "another secret", "another receiver", "another lane"],
)
async def test_a_stolen_ticket_is_refused(
    listener: PushListener, echo: Echo, changes: dict[str, Any], who: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    """The receiver notices it by the first message, and answers nothing."""
    thief = replace(ticket_of_a(listener), **changes)
    with pytest.raises(ConnectionError):
        await as_sender(HERE, listener.port, thief, Encryption(who, REQUIRED))
    await until(lambda: echo.statistics.push_alarms)
    assert not echo.served
    assert echo.statistics.push_alarms == {HANDSHAKE: 1}
    (line,) = [record for record in caplog.records if record.message.startswith("push stream ended")]
    assert (vars(line)["peer"], vars(line)["kind"]) == ("a", HANDSHAKE)
    (audit,) = audited(caplog)
    assert (audit["principal"], audit["method"], audit["outcome"]) == (str(A), "push", HANDSHAKE)
    assert audit["names"] == {"worker": "a", "lane": "commit"}
    assert audit["peer"].startswith(f"ipv4:{HERE}:")


async def test_a_token_and_plain_bytes_open_nothing(listener: PushListener, echo: Echo) -> None:
    """Whoever has read the token on the network."""
    sock = await connect(HERE, listener.port, ticket_of_a(listener).token + b"plain bytes of a frame" * 20)
    await ends(sock)
    sock.close()
    assert not echo.served
    assert echo.statistics.push_alarms == {HANDSHAKE: 1}


@pytest.mark.parametrize("hangs_up", [True, False])
@pytest.mark.parametrize("following", [b"", b"half of a handshake"], ids=["token", "half"])
async def test_a_thief_that_does_not_finish_is_told_to_people(
    listener: PushListener,
    echo: Echo,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    following: bytes,
    hangs_up: bool,
) -> None:
    """It has used up the ticket of `a`, which cannot open its stream."""
    monkeypatch.setattr(module, "TOKEN_S", 20.0 if hangs_up else 0.2)
    sock = await connect(HERE, listener.port, ticket_of_a(listener).token + following)
    if hangs_up:
        sock.shutdown(socket.SHUT_WR)
    await ends(sock)
    sock.close()
    await until(lambda: echo.statistics.push_alarms)
    assert not echo.served
    assert echo.statistics.push_alarms == {UNFINISHED: 1}
    (line,) = [record for record in caplog.records if "has used the ticket of the peer" in record.message]
    assert (line.levelname, vars(line)["peer"], vars(line)["kind"]) == ("WARNING", "a", UNFINISHED)
    (audit,) = audited(caplog)
    assert (audit["principal"], audit["method"], audit["outcome"]) == (str(A), "push", UNFINISHED)


async def test_a_receiver_that_knows_the_token_only_gets_nothing() -> None:
    """Somebody who answers at the receiver's address."""
    received = b""

    async def answer_as_receiver(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        hello = await reader.readexactly(module.TOKEN_BYTES + HANDSHAKE_BYTES)
        writer.write(hello[-HANDSHAKE_BYTES:])
        received = await reader.read()
        writer.close()

    server = await asyncio.start_server(answer_as_receiver, HERE, 0)
    port = server.sockets[0].getsockname()[1]
    ticket = replace(Tickets().issue("a", Lane.BULK, str(A), encrypted=True), peer=str(B))
    with pytest.raises(TamperedError) as raised:
        await as_sender(HERE, port, ticket, Encryption(A, REQUIRED))
    assert raised.value.kind == HANDSHAKE
    server.close()
    assert received == b""


async def test_neither_token_nor_secret_is_in_a_log_line() -> None:
    ticket = Tickets().issue("a", Lane.COMMIT, str(A), encrypted=True)
    for shown in (repr(ticket), str(ticket), f"{ticket}"):
        for secret in (ticket.secret, ticket.token):
            assert secret.hex() not in shown
            assert repr(secret) not in shown
    assert Tickets().issue("a", Lane.COMMIT).secret == b""


async def test_one_place_seals_a_direction() -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours)
    connection.thread_sender().send(b"head", memoryview(b"data"))
    with pytest.raises(LocalProtocolError, match="a thread has the sending side"):
        connection.post(b"x")
    with pytest.raises(LocalProtocolError, match="a thread has the sending side"):
        connection.thread_sender()
    assert theirs.recv(100) == b"headdata"
    connection.close()
    theirs.close()


# ---------------------------------------------------------------- both encrypt, or neither


@pytest.mark.parametrize(
    ("sender", "receiver", "agreed"),
    [
        (Encryption(A, REQUIRED), Encryption(B, REQUIRED), True),
        (Encryption(A, OFF), Encryption(B, OFF), True),
        (NOT_ENCRYPTED, NOT_ENCRYPTED, True),
        (Encryption(A, REQUIRED), Encryption(B, OFF), False),
        (Encryption(A, OFF), Encryption(B, REQUIRED), False),
        (NOT_ENCRYPTED, Encryption(B, REQUIRED), False),
    ],
    ids=str,
)
def test_both_settings_decide(sender: Encryption, receiver: Encryption, agreed: bool) -> None:
    for one, other in ((sender, receiver), (receiver, sender)):
        if agreed:
            one.agree("x", encrypts=other.is_on)
        else:
            with pytest.raises(PreconditionError, match=r"'x' are .* give both the same --push-encryption"):
                one.agree("x", encrypts=other.is_on)
