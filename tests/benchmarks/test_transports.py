"""The benchmark of encrypted transports moves the exact bytes; what it measures at this size says nothing."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from benchmarks.transports.subjects import SUBJECTS, parse
from benchmarks.transports.summary import Result, summarise
from rhino_core.errors import InvalidSettingError

pytest.importorskip("cryptography", reason="the extra `bench` has it")

from benchmarks.transports import certificates, grpc_options, tls
from benchmarks.transports.__main__ import make_source, place
from benchmarks.transports.certificates import HOST, Identity
from benchmarks.transports.ends import COMMIT_BYTES
from benchmarks.transports.pairs import Pair
from benchmarks.transports.records import RecordSession, Tickets
from worker_runtime.push.core.records import TamperedError

ROOT = Path(__file__).resolve().parents[2]
SIZE = 5 * 1024 * 1024 + 4097  # more than a part, and no multiple of a piece


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("transports")
    make_source(made, SIZE)
    certificates.make(made / "certificates")
    return made


@pytest.mark.parametrize("subject", list(SUBJECTS))
def test_every_transport_moves_the_exact_bytes(folder: Path, subject: str) -> None:
    whole, part = ((folder / "source" / name).read_bytes() for name in ("whole.sst", "part.sst"))
    with Pair(subject, place(folder, subject)) as pair:
        used = pair.bulk()
        latencies_ms = pair.commits(3)
        received = [path.read_bytes() for path in pair.received()]
    small = bytes(range(256)) * (COMMIT_BYTES // 256)
    assert received == [small, part, whole, small, small, small]
    assert len(latencies_ms) == 3
    assert min(*latencies_ms, used.wall_s, used.sender_cpu_s, used.receiver_cpu_s) > 0
    assert not (folder / subject).exists(), "what was received is removed"


def test_a_small_run_reports_ratios_to_plain_tcp(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.transports", "--bytes", "2000000", "--rounds", "1", "--commits", "5"]
    command += ["--subjects", "plain", "records", "--dir", str(tmp_path), "--json", str(report)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr
    measured = json.loads(report.read_text())
    rows = {(row["load"], row["subject"]): row for row in measured["median"]}
    assert set(rows) == {(load, subject) for load in ("idle", "busy") for subject in ("plain", "records")}
    assert rows["busy", "plain"]["cpu_ratio"] == 1.0
    assert rows["busy", "records"]["mb_per_s"] > 0
    assert list(tmp_path.iterdir()) == [report], "everything else is removed"


# ---------------------------------------------------------------- the encryption is what it claims to be


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket.socketpair()
    for sock in pair:
        sock.settimeout(20)
    yield pair
    for sock in pair:
        sock.close()


def test_a_changed_record_is_refused(sockets: tuple[socket.socket, socket.socket]) -> None:
    tickets = Tickets()
    ticket = tickets.issue()
    accepted: list[RecordSession] = []
    accepting = threading.Thread(target=lambda: accepted.append(RecordSession.accept(sockets[1], tickets)))
    accepting.start()
    sender = RecordSession.connect(sockets[0], ticket)
    accepting.join()
    wire = bytearray(b"".join(sender.seal(b"state")))
    assert b"state" not in wire
    wire[-1] ^= 1
    with pytest.raises(TamperedError):
        accepted[0].open(bytes(wire))


def test_a_wrong_ticket_opens_no_stream(sockets: tuple[socket.socket, socket.socket]) -> None:
    tickets = Tickets()
    ticket = tickets.issue()
    refused: list[BaseException] = []

    def accept() -> None:
        try:
            RecordSession.accept(sockets[1], tickets)
        except Exception as error:
            refused.append(error)
            sockets[1].shutdown(socket.SHUT_RDWR)

    accepting = threading.Thread(target=accept)
    accepting.start()
    with pytest.raises(TamperedError):
        RecordSession.connect(sockets[0], ticket[:-1] + bytes([ticket[-1] ^ 1]))
    sockets[0].shutdown(socket.SHUT_RDWR)
    accepting.join()
    assert [type(error) for error in refused] == [EOFError], "the sender notices it first, and proves nothing"


def test_tls_refuses_a_sender_without_a_certificate(folder: Path, sockets: tuple[socket.socket, socket.socket]) -> None:
    identity = Identity.of(folder / "certificates", "receiver")
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.load_verify_locations(identity.authority)
    refused: list[BaseException] = []

    def accept() -> None:
        try:
            tls.BioSession(sockets[1], tls.context(identity, server=True), server=True)
        except ssl.SSLError as error:
            refused.append(error)

    accepting = threading.Thread(target=accept)
    accepting.start()
    tls.BioSession(sockets[0], stranger, server=False)  # in TLS 1.3 the client ends its handshake first
    accepting.join()
    assert len(refused) == 1


def test_grpc_refuses_a_sender_without_a_certificate(folder: Path) -> None:
    identity = Identity.of(folder / "certificates", "receiver")
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port(f"{HOST}:0", grpc_options.server_credentials(identity))
    server.start()
    stranger = grpc.ssl_channel_credentials(identity.authority.read_bytes())
    known = grpc_options.channel_credentials(Identity.of(folder / "certificates", "sender"))
    codes = []
    for credentials in (stranger, known):
        with grpc.secure_channel(f"{HOST}:{port}", credentials) as channel:
            same = grpc_options.identity_of
            call: Any = channel.unary_unary(f"/{grpc_options.SERVICE}/Nothing", same, same)
            with pytest.raises(grpc.RpcError) as raised:
                call(b"", timeout=20)
            codes.append(raised.value.code())
    server.stop(0)
    assert codes == [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED]


# ---------------------------------------------------------------- the bar

PLAIN = Result("plain", "idle", 0, 1000.0, 0.5, 0.5, 0.5, 1.0, 0.6, 1.2, 500.0)


@pytest.mark.parametrize(
    ("changed", "meets"),
    [
        ({}, True),
        ({"mb_per_s": 810.0, "receiver_cpu_s_per_gb": 1.05, "beside_p99_ms": 2.1}, True),
        ({"mb_per_s": 790.0}, False),
        ({"receiver_cpu_s_per_gb": 1.2}, False),
        ({"idle_p99_ms": 2.1}, False),
        ({"beside_p99_ms": 2.3}, False),
    ],
)
def test_the_bar_has_four_parts(changed: dict[str, float], meets: bool) -> None:
    other = replace(PLAIN, subject="records", **changed)  # type: ignore[arg-type]
    rows = summarise([PLAIN, other])
    assert [row["meets_bar"] for row in rows] == [None, meets], "plain TCP is not encrypted"


def test_ratios_are_medians_of_the_rounds_own_ratios() -> None:
    plain = [replace(PLAIN, round=n, mb_per_s=value) for n, value in enumerate((1000.0, 100.0, 500.0))]
    other = [replace(PLAIN, subject="records", round=n, mb_per_s=value) for n, value in enumerate((900.0, 80.0, 400.0))]
    assert summarise([*plain, *other])[1]["speed_ratio"] == pytest.approx(0.8)


def test_a_subject_names_its_pieces() -> None:
    assert parse("records@128").piece_bytes == 128 * 1024
    assert parse("records").piece_bytes == SUBJECTS["records"].piece_bytes
    for wrong in ("carrier-pigeon", "records@many"):
        with pytest.raises(InvalidSettingError, match=wrong):
            parse(wrong)
