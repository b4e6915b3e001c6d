"""The place of a data directory, and the paths that cannot be one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rhino_core.errors import AccessDeniedError, InvalidSettingError, PreconditionError
from rhino_core.rpc.greeting import greeter_path
from spark_connector.local.directory import LocalDirectory, Running, default_data_dir


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"XDG_DATA_HOME": "/data"}, Path("/data/rhino-state/local")),
        ({"XDG_DATA_HOME": "relative"}, Path.home() / ".local/share/rhino-state/local"),
        ({}, Path.home() / ".local/share/rhino-state/local"),
    ],
)
def test_the_default_is_beside_the_users_data(environment: dict[str, str], expected: Path) -> None:
    assert default_data_dir(environment) == expected


def test_a_home_folder_is_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert LocalDirectory("~/state").path == LocalDirectory("state").path == tmp_path / "state"


def test_it_is_closed_to_other_users(tmp_path: Path) -> None:
    directory = LocalDirectory(tmp_path / "a" / "b")
    directory.create()
    directory.create()
    assert directory.path.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_another_user_could_have_prepared_is_refused(tmp_path: Path) -> None:
    """A mark and a link to another file of this user are in it, and the folder is open."""
    directory = LocalDirectory(tmp_path / "state")
    directory.create()
    victim = tmp_path / "thesis.tex"
    victim.write_text("mine")
    (directory.logs / "supervisor.log").symlink_to(victim)
    directory.path.chmod(0o777)
    for use in (directory.create, directory.exists):
        with pytest.raises(AccessDeniedError, match=f"can write to {directory.path}"):
            use()
    directory.path.chmod(0o700)
    directory.create()
    with pytest.raises(OSError, match="symbolic links"):
        directory.open_log("supervisor.log")
    assert victim.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", 12345, -1)
    with pytest.raises(AccessDeniedError, match="state belongs to the Unix user 12345"):
        LocalDirectory(tmp_path / "state").create()


def test_an_empty_folder_is_closed(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    LocalDirectory(tmp_path / "state").create()
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(PreconditionError, match=r"is not empty.*thesis\.tex"):
        LocalDirectory(tmp_path).create()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("mine")
    with pytest.raises(InvalidSettingError, match="give a folder"):
        LocalDirectory(tmp_path / "state").create()


def test_both_sockets_of_the_sidecar_fit_into_the_longest_path(tmp_path: Path) -> None:
    longest = tmp_path / ("x" * (107 - len(os.fsencode(tmp_path / "x/socket.auth")) + 1))
    directory = LocalDirectory(longest)
    directory.create()
    assert len(os.fsencode(greeter_path(directory.socket))) == 107
    with pytest.raises(InvalidSettingError, match="too long"):
        LocalDirectory(f"{longest}x").create()


def test_a_path_that_no_socket_fits_in_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match=r"data_dir = .*too long.*may have 107"):
        LocalDirectory(tmp_path / ("x" * 107)).create()
    assert list(tmp_path.iterdir()) == []


def test_what_runs_is_read_back_and_an_unreadable_record_is_none(tmp_path: Path) -> None:
    directory = LocalDirectory(tmp_path / "state")
    directory.create()
    assert directory.running() is None
    directory.write_running(Running(7, "127.0.0.1:7"))
    assert directory.running() == Running(7, "127.0.0.1:7")
    for text in ("{}", "[]", "", "[" * 100_000, '{"pid": "7", "manager": "m"}'):
        (directory.path / "running.json").write_text(text)
        assert directory.running() is None
