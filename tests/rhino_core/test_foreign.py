"""What others may have written is read whole and as it is, or refused with one error."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rhino_core.errors import AccessDeniedError, IntegrityError
from rhino_core.foreign import numbers, read_bytes, read_json, reading, require_closed

STRANGER = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """In a folder of facts."""
    path = tmp_path / "modifications" / "records" / "1"
    path.parent.mkdir(parents=True)
    path.write_text('{"a": 1}')
    path.chmod(0o600)
    return path


def test_an_own_file_is_read(file: Path) -> None:
    assert read_json(file, own=True) == {"a": 1}


@pytest.mark.parametrize("mode", [0o660, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_read_as_an_own_one(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(AccessDeniedError, match=f"its mode {mode:o} lets others write to it: .* chmod go-w {file}"):
        read_bytes(file, own=True)
    assert read_bytes(file) == b'{"a": 1}'


@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_file_below_a_folder_that_others_can_write_is_not_read_as_an_own_one(file: Path, above: int) -> None:
    folder = file.parents[above]
    folder.chmod(0o777)
    with pytest.raises(AccessDeniedError, match=f"can write to {folder}, .* chmod go-w {folder}"):
        read_bytes(file, own=True)


def test_a_sticky_folder_is_open_to_new_names_only(file: Path) -> None:
    file.parents[1].chmod(0o1777)
    require_closed(file.parent)
    file.parents[0].chmod(0o1777)
    with pytest.raises(AccessDeniedError, match=f"can write to {file.parent}"):
        require_closed(file.parent)


@needs_root
@pytest.mark.parametrize("place", [lambda file: file, lambda file: file.parent, lambda file: file.parents[2]])
def test_a_file_or_folder_of_another_user_is_refused(file: Path, place: Callable[[Path], Path]) -> None:
    os.chown(place(file), STRANGER, -1)
    with pytest.raises(AccessDeniedError, match=f"{place(file)} belongs to the Unix user {STRANGER}"):
        read_bytes(file, own=True)


def test_no_link_is_followed(file: Path) -> None:
    link = file.with_name("2")
    link.symlink_to(file)
    for own in (True, False):
        with pytest.raises(IntegrityError, match="2: is a link, and a file is expected"):
            read_bytes(link, own=own)


def test_a_file_that_becomes_a_link_to_code_of_another_user_is_never_taken_for_an_own_one(file: Path) -> None:
    """The name is exchanged again and again while it is read. The reader checks the file that it has opened."""
    foreign, link = file.with_name("foreign"), file.with_name("link")
    foreign.write_bytes(b"foreign")
    foreign.chmod(0o666)
    ended = threading.Event()

    def exchange() -> None:
        while not ended.is_set():
            link.symlink_to(foreign)
            link.replace(file)
            link.write_bytes(b"own")
            link.chmod(0o600)
            link.replace(file)

    other = threading.Thread(target=exchange)
    other.start()
    try:
        found = set()
        for _ in range(2000):
            try:
                found.add(read_bytes(file, own=True))
            except (IntegrityError, AccessDeniedError):
                continue
    finally:
        ended.set()
        other.join()
    assert found <= {b"own", b'{"a": 1}'}


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(IntegrityError, match=f"{name}: is no regular file"):
            read_bytes(tmp_path / name)


def test_a_file_has_a_limit(file: Path) -> None:
    assert read_bytes(file, most_bytes=8) == b'{"a": 1}'
    with pytest.raises(IntegrityError, match="has more than 7 bytes"):
        read_bytes(file, most_bytes=7)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"1" * 10_000, b"null"])
def test_what_is_no_json_object_has_one_error(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(IntegrityError, match=f"{file} is not readable"):
        read_json(file)


@pytest.mark.parametrize("damage", ['int(float("inf"))', "{}['a']", "[][0]", "None.a", "1 + ''", "1 / 0"])
def test_every_damage_has_one_error(damage: str) -> None:
    with pytest.raises(IntegrityError, match="that is not readable"), reading("that"):
        eval(damage)


def test_only_plain_numbers_are_names(tmp_path: Path) -> None:
    for name in ("7", "0", "12", "007", "²", "٣", "1" * 19, ".8.tmp", "x"):
        (tmp_path / name).touch()
    assert numbers(tmp_path) == [0, 7, 12]
    assert numbers(tmp_path / "missing") == []
