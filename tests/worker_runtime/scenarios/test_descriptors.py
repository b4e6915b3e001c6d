"""A process without a free descriptor goes on, and is as good as before once there are some again."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from rhino_core.descriptors import LogLimit, Reserve, run_until_cancelled
from rhino_core.errors import UnavailableError
from rhino_core.ids import StoreId, Version
from tests.worker_runtime.cluster import Cluster, Process, changelog_bytes
from worker_runtime.statistics import resident_bytes
from worker_runtime.storage.disk.files import Seal, storage_error, verify
from worker_runtime.storage.disk.syncer import _sync

STORE = StoreId("job", 0, 3, "default")
LIMIT = 200


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """In this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


def silent(port: int, count: int) -> list[socket.socket]:
    """Connections that say nothing, as many of them as the other side lets wait."""
    made = []
    for _ in range(count):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", port))
        made.append(sock)
    return made


def push_port(process: Process) -> int:
    """The port that it listens at beside the one of its peer service."""
    assert process.process is not None
    assert process.worker is not None
    inodes = set()
    for link in Path(f"/proc/{process.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(link)[8:-1])
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ports = {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in inodes}
    (port,) = ports - {int(process.worker.peer_address.rpartition(":")[2])}
    return port


@pytest.mark.timeout(120)
async def test_silent_connections_end_no_sidecar(cluster: Cluster) -> None:
    """More of them than it may have open files, at either port; commits work while they are there, or soon after."""
    a = cluster.make("a")
    a.environment = {"TEST_DESCRIPTORS": str(LIMIT)}
    (b,) = await cluster.start("b")
    await a.start()
    assert a.worker is not None
    assert a.process is not None
    async with b.attach() as client:
        await client.commit(STORE, Version(1, "x"), changelog_bytes(1), [])
        ports = push_port(a), int(a.worker.peer_address.rpartition(":")[2])
        strangers = [sock for port in ports for sock in silent(port, 2 * LIMIT)]
        try:
            before = cluster.manager.beats_of["a"]
            await cluster.manager.until(lambda: cluster.manager.beats_of["a"] > before + 20)
        finally:
            for sock in strangers:
                sock.close()
        assert a.process.returncode is None
        reply = await client.commit(STORE, Version(2, "x"), changelog_bytes(2), [Version(1, "x")], timeout_s=30)
        assert reply.copies == 2


@pytest.mark.timeout(60)
async def test_silent_connections_to_the_door_take_few_descriptors(cluster: Cluster) -> None:
    """So that nothing else goes without; and a worker gets in beside them."""
    a, b = cluster.make("a"), cluster.make("b")
    a.environment = {"TEST_DESCRIPTORS": "400"}
    await a.start()
    assert a.process is not None
    folder = Path(f"/proc/{a.process.pid}/fd")
    before = len(list(folder.iterdir()))
    strangers = silent(push_port(a), 1000)
    try:
        await b.start()
        async with b.attach() as client:
            reply = await client.commit(STORE, Version(1, "x"), changelog_bytes(1), [], timeout_s=10)
        assert reply.copies == 2
        assert len(list(folder.iterdir())) < before + 100
    finally:
        for sock in strangers:
            sock.close()


def test_a_process_without_descriptors_tells_its_memory_and_damages_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    status = path.stat()
    seal = Seal(status.st_size, status.st_mtime_ns)
    resident_bytes()
    with no_descriptors():
        now, peak = resident_bytes()
        with pytest.raises(OSError, match="Too many open files") as raised:
            verify(path, seal, crc32c(b"abc"), deep=True)
    assert 0 < now <= peak
    assert raised.value.errno == errno.EMFILE
    assert isinstance(storage_error(raised.value, "doing"), UnavailableError), "the disk is as good as it was"
    assert verify(path, seal, crc32c(b"abc"), deep=True)


async def test_a_sync_waits_for_a_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with `no_descriptors`: a thread of an earlier test may give one back at any time."""
    path = tmp_path / "f"
    path.touch()
    refused, free, open_file = threading.Semaphore(0), threading.Event(), os.open

    def opened(name: Path, *rest: int) -> int:
        if name == path and not free.is_set():
            refused.release()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(name, *rest)

    monkeypatch.setattr(os, "open", opened)
    work = asyncio.get_running_loop().run_in_executor(None, _sync, path)
    for _ in range(3):
        assert await asyncio.to_thread(refused.acquire, timeout=10)
    assert not work.done()
    free.set()
    async with asyncio.timeout(10):
        await work


def test_the_reserve_turns_connections_away() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    reserve = Reserve()
    client = socket.create_connection(listener.getsockname())
    client.settimeout(10)
    with no_descriptors():
        with pytest.raises(OSError, match="Too many open files"):
            listener.accept()
        assert reserve.turn_away(listener)
        assert not reserve.turn_away(listener), "nobody else is waiting"
    assert client.recv(1) == b""
    for each in (listener, client, reserve):
        each.close()


async def test_background_work_goes_on_after_an_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rhino_core.descriptors.PAUSE_S", 0.0)
    errors: list[Exception | None] = [OSError(errno.EMFILE, "too many"), OSError(errno.EIO, "io"), None]

    async def work() -> None:
        if (error := errors.pop(0)) is not None:
            raise error

    await run_until_cancelled("test", work)
    assert not errors
    errors.append(ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        await run_until_cancelled("test", work)


def test_a_repeated_line_is_logged_seldom() -> None:
    now = 0.0
    log_limit = LogLimit(lambda: now, every_s=10)
    assert [log_limit.due(), log_limit.due(), log_limit.due()] == [0, None, None]
    now = 10.0
    assert log_limit.due() == 2


def test_a_daemon_takes_as_many_descriptors_as_it_may_have() -> None:
    code = """
import logging, resource
logging.basicConfig()
from rhino_core.descriptors import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 500))
print(raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["500", "500"]
    assert "few open files are allowed: raise the hard limit" in done.stderr
