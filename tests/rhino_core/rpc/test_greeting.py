"""A client of the Unix socket: what it takes for a token, and which folders it does not trust."""

from __future__ import annotations

import os
import select
import socket
import threading
from pathlib import Path

import pytest

from rhino_core import foreign
from rhino_core.errors import AccessDeniedError, RemoteProtocolError, UnavailableError
from rhino_core.rpc import greeting

ME = os.geteuid()


def test_an_answer_is_a_token_or_a_reason() -> None:
    token = bytes(range(16))
    assert greeting.token_in(greeting.agreed(token), Path("s")) == token
    with pytest.raises(AccessDeniedError, match="refuses this user: not you"):
        greeting.token_in(greeting.refused("not you"), Path("s"))
    with pytest.raises(AccessDeniedError):
        greeting.token_in(greeting.refused("ä" * 1000), Path("s"))


@pytest.mark.parametrize("answer", [b"", b"\x01", b"\x01" + bytes(15), b"\x01" + bytes(17), b"\x02" * 17, b"\0" * 600])
def test_anything_else_is_no_answer(answer: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="no answer of a sidecar's greeter"):
        greeting.token_in(answer, Path("s"))


def test_without_a_greeter_no_sidecar_answers(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no Rhino sidecar answers"):
        greeting.ask(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(greeting.greeter_path(tmp_path / "s")))
    with pytest.raises(UnavailableError, match="no Rhino sidecar answers"):
        greeting.ask(tmp_path / "s")


@pytest.mark.parametrize("accepted", [True, False])
def test_a_sidecar_that_ends_before_it_answers(tmp_path: Path, accepted: bool) -> None:
    """The kernel resets connections that the greeter has not accepted, and closes the others."""
    with socket.socket(socket.AF_UNIX) as greeter:
        greeter.bind(str(greeting.greeter_path(tmp_path / "s")))
        greeter.listen()

        def end_once_asked() -> None:
            if accepted:
                greeter.accept()[0].close()
            else:
                select.select([greeter], [], [])  # until there is a connection to accept
                greeter.close()

        ending = threading.Thread(target=end_once_asked)
        ending.start()
        try:
            with pytest.raises(UnavailableError, match="is the sidecar running"):
                greeting.ask(tmp_path / "s")
        finally:
            ending.join()


@pytest.mark.parametrize("mode", [0o757, 0o777, 0o1777, 0o775])
@pytest.mark.parametrize("place", ["s", "below/s"])
def test_a_folder_that_others_can_write_to(tmp_path: Path, mode: int, place: str) -> None:
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    path = folder / place
    greeting.require_own(path)
    folder.chmod(mode)
    if mode == 0o775 and ME != 0:
        pytest.skip("only root can give a folder to another group")
    os.chown(folder, -1, 12345 if ME == 0 else -1)
    if mode == 0o1777 and place != "s":
        greeting.require_own(path)  # as below /tmp: nobody else can rename what is below
        return
    with pytest.raises(AccessDeniedError, match=f"can write to {folder}, so they could put their socket at {path}"):
        greeting.require_own(path)


def test_a_private_group_may_write(tmp_path: Path) -> None:
    found = os.stat(tmp_path)
    for gid, is_open in ((found.st_uid, False), (0, False), (found.st_uid + 77, True)):
        fields = [0o40775, *found[1:5], gid, *found[6:10]]
        assert foreign.is_open(os.stat_result(fields), direct=True) is is_open


@pytest.mark.skipif(ME != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("whose", ["folder", "folder/s"])
def test_the_socket_or_the_folder_of_another_user(tmp_path: Path, whose: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/s").touch()
    os.chown(tmp_path / whose, 12345, -1)
    with pytest.raises(AccessDeniedError, match="belongs to the Unix user 12345"):
        greeting.require_own(tmp_path / "folder/s")
