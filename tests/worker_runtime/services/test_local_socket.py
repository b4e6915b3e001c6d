"""The path of the local API's socket: nobody's is taken, nobody else's removed, and its loss is logged."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from rhino_core.errors import AlreadyThereError, InvalidSettingError
from worker_runtime.services import local_socket
from worker_runtime.services.local_socket import LocalSocket


def listen(address: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(address.removeprefix("unix://"))
    made.listen()
    return made


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[LocalSocket, socket.socket]]:
    found: list[socket.socket] = []
    mine = LocalSocket(tmp_path / "folder" / "s")
    mine.bind(lambda address: found.append(listen(address)))
    yield mine, found[0]
    found[0].close()


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def test_the_folder_is_made_and_the_socket_is_for_its_user(listening: tuple[LocalSocket, socket.socket]) -> None:
    mine, _ = listening
    assert connects(mine.path)
    assert mine.is_mine()
    assert stat.S_IMODE(os.lstat(mine.path).st_mode) == 0o600
    assert [path.name for path in mine.path.parent.iterdir()] == ["s"]


def test_a_socket_that_answers_is_refused_and_stays(listening: tuple[LocalSocket, socket.socket]) -> None:
    mine, _ = listening
    with pytest.raises(AlreadyThereError, match=f"answers on {mine.path}"):
        LocalSocket(mine.path).bind(listen)
    assert mine.is_mine()


def test_the_socket_of_a_process_that_has_ended_is_replaced(listening: tuple[LocalSocket, socket.socket]) -> None:
    former, server = listening
    server.close()
    found: list[socket.socket] = []
    mine = LocalSocket(former.path)
    mine.bind(lambda address: found.append(listen(address)))
    assert connects(mine.path)
    former.remove()
    assert connects(mine.path), "the former one has removed its successor's"
    mine.remove()
    assert not mine.path.exists()
    found[0].close()


@pytest.mark.parametrize("name", ["file", "folder", "file/below", "x" * 120])
def test_what_can_be_no_socket_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("not ours")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidSettingError, match="socket = "):
        LocalSocket(tmp_path / name).bind(listen)
    assert (tmp_path / "file").read_text() == "not ours"
    assert (tmp_path / "folder").is_dir()


async def test_a_lost_path_is_logged(
    listening: tuple[LocalSocket, socket.socket], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local_socket, "LOOK_S", 0.01)
    mine, _ = listening
    caplog.set_level(logging.INFO)

    async def until_logged(text: str) -> None:
        async with asyncio.timeout(10):
            while text not in caplog.text:  # noqa: ASYNC110  a log sends no notification
                await asyncio.sleep(0.01)

    watching = asyncio.create_task(mine.watch())
    mine.path.rename(mine.path.with_name("away"))
    await until_logged("executors do not find this sidecar")
    mine.path.with_name("away").rename(mine.path)
    await until_logged("the socket is back")
    watching.cancel()
    assert caplog.text.count("executors do not find") == 1


async def test_nobody_misses_the_socket_of_a_sidecar_that_stops(
    listening: tuple[LocalSocket, socket.socket], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes before the last calls have ended, which may take longer than one check."""
    mine, _ = listening
    checks = asyncio.Semaphore(0)

    async def next_check(seconds: float) -> None:
        checks.release()
        await pause(0)

    pause = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", next_check)
    watching = asyncio.create_task(mine.watch())
    mine.remove()
    for _ in range(3):
        await checks.acquire()
    watching.cancel()
    assert not mine.path.exists()
    assert not caplog.text
