"""Data folders: a daemon takes an empty one or its own, and leaves any other one alone."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from rhino_core import failpoints
from rhino_core.errors import InvalidSettingError, PreconditionError
from rhino_core.folder import MARK, claim, replace_file, subfolder


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_new_folder_is_marked_and_for_its_user_only(umask: int, tmp_path: Path) -> None:
    former = os.umask(umask)
    try:
        claim(tmp_path / "new" / "data", "sidecar")
        subfolder(tmp_path / "new" / "data" / "store")
    finally:
        os.umask(former)
    assert json.loads((tmp_path / "new/data" / MARK).read_text()) == {"kind": "sidecar", "format": 1}
    assert mode(tmp_path / "new/data") == 0o700
    assert mode(tmp_path / "new/data/store") == 0o700
    assert mode(tmp_path / "new/data" / MARK) == 0o600
    claim(tmp_path / "new" / "data", "sidecar")


def test_processes_that_claim_a_folder_at_once_all_get_it(tmp_path: Path) -> None:
    users, rounds = 4, 25
    barrier = Barrier(users, timeout=20)

    def use(number: int) -> None:
        for turn in range(rounds):
            folder = tmp_path / str(turn)
            barrier.wait()
            claim(folder, "local session")
            (folder / f"file {number}").touch()

    with ThreadPoolExecutor(users) as threads:
        list(threads.map(use, range(users)))
    for turn in range(rounds):
        assert {path.name for path in (tmp_path / str(turn)).iterdir()} == {MARK, *(f"file {n}" for n in range(users))}


def test_an_open_folder_is_closed_at_the_next_start(tmp_path: Path) -> None:
    claim(tmp_path, "sidecar")
    tmp_path.chmod(0o755)
    claim(tmp_path, "sidecar")
    assert mode(tmp_path) == 0o700


def test_somebodys_folder_is_refused_and_nothing_is_written_into_it(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    tmp_path.chmod(0o755)
    with pytest.raises(PreconditionError, match=r"is not empty.*no folder of a Rhino sidecar.*thesis\.tex"):
        claim(tmp_path, "sidecar")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    assert mode(tmp_path) == 0o755


def test_a_file_system_of_its_own_and_a_mark_that_was_cut_short_are_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    failpoints.arm({failpoints.VARIABLE: "folder.mark.after=error"})
    try:
        with pytest.raises(InvalidSettingError):
            claim(tmp_path, "sidecar")
    finally:
        failpoints.arm({})
    (tmp_path / MARK).rename(tmp_path / f"{MARK}.new")
    claim(tmp_path, "sidecar")
    assert {MARK, "lost+found"} < {path.name for path in tmp_path.iterdir()}


def test_folders_of_other_daemons_and_newer_versions_are_refused(tmp_path: Path) -> None:
    claim(tmp_path, "manager")
    with pytest.raises(PreconditionError, match="belongs to a Rhino manager, not to a sidecar"):
        claim(tmp_path, "sidecar")
    for text, expected in (
        ('{"kind": "manager", "format": 2}', "has format 2, this version of Rhino knows 1"),
        ("", "cannot be read as the mark"),
        ("[]", "cannot be read as the mark"),
    ):
        (tmp_path / MARK).write_text(text)
        with pytest.raises(PreconditionError, match=expected):
            claim(tmp_path, "manager")


def test_what_cannot_be_a_folder_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/none")):
        with pytest.raises(InvalidSettingError, match=f"data_dir {path}: .*give a folder that can be written"):
            claim(path, "sidecar")


@pytest.mark.parametrize("made", ["link", "dangling", "file"])
def test_a_link_in_place_of_a_subfolder_is_refused(made: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    store = tmp_path / "store"
    if made == "file":
        store.touch()
    else:
        store.symlink_to(tmp_path / ("elsewhere" if made == "link" else "nowhere"))
    with pytest.raises(PreconditionError, match="must be a folder itself, neither a link nor a file"):
        subfolder(store)


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "file", list[bool]()
    fsync = os.fsync

    def sync(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    replace_file(path, b"first")
    assert (path.read_bytes(), mode(path), synced) == (b"first", 0o600, [False, True])
    replace_file(path, b"second", mode=0o640)
    assert (path.read_bytes(), mode(path)) == (b"second", 0o640)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"third")
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"second"]
