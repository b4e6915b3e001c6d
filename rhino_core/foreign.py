"""One reader of files that somebody else may have written. Their parsers have one error.

Nothing here follows a link or waits for a pipe, and too large a file is not read. If the content becomes code, or a
decision of this process, the file is read as an *own* one: no other Unix user can have written it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rhino_core.errors import AccessDeniedError, IntegrityError

MOST_BYTES = 256 * 1024 * 1024
ROOT = 0
DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_WRITERS = stat.S_IWGRP | stat.S_IWOTH


@contextlib.contextmanager
def reading(what: object) -> Iterator[None]:
    """Raises IntegrityError in place of a parser's errors for damaged content. Its message names `what`."""
    try:
        yield
    except DAMAGE as error:
        raise IntegrityError(f"{what} is not readable: {type(error).__name__}: {error}") from error


def read_bytes(path: Path, *, own: bool = False, most_bytes: int = MOST_BYTES) -> bytes:
    """Returns the content of a regular file.

    Raises IntegrityError for a link, for anything but a regular file, and for more than `most_bytes`. `own`: also
    raises AccessDeniedError if another Unix user has written the file, or could. Raises OSError for a missing or
    unreadable file.
    """
    if own:
        require_closed(path.absolute().parent)
    descriptor = _opened(path)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise IntegrityError(f"{path}: is no regular file")
        if own:
            _require_own(path, found)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(most_bytes + 1)
    finally:
        os.close(descriptor)
    if len(content) > most_bytes:
        raise IntegrityError(f"{path}: has more than {most_bytes} bytes")
    return content


def read_text(path: Path, *, own: bool = False) -> str:
    """Raises as `read_bytes`, and IntegrityError unless the content is UTF-8."""
    content = read_bytes(path, own=own)
    with reading(path):
        return content.decode()


def read_json(path: Path, *, own: bool = False) -> dict[str, Any]:
    """Returns a JSON object. Raises as `read_text`, and IntegrityError for anything else."""
    text = read_text(path, own=own)
    with reading(path):
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise TypeError("it is no JSON object")
    return fields


def numbers(folder: Path) -> list[int]:
    """Returns the numbers among the names in the folder, in order. Other names do not count. Empty: no such folder."""
    try:
        return sorted(int(name) for name in os.listdir(folder) if _NUMBER.fullmatch(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def require_closed(folder: Path) -> None:
    """Raises AccessDeniedError if another Unix user than this process's or root can change the content of the folder.

    The folders above must be closed to others as well, or sticky, as /tmp is: nobody else renames their content then.
    """
    real = Path(os.path.realpath(folder))
    for place in (real, *real.parents):
        found = os.stat(place)
        _require_owner(place, found, ROOT)
        if is_open(found, direct=place == real):
            raise AccessDeniedError(
                f"others than the Unix user {os.geteuid()} can write to {place}, so they could replace what is in "
                f"{folder}: look who has written what is there, then run chmod go-w {place}"
            )


def is_open(folder: os.stat_result, *, direct: bool) -> bool:
    """Whether other users can replace the content of the folder. `direct`: the file itself is in it."""
    private = folder.st_gid in (ROOT, folder.st_uid)  # a user's private group has the user's number
    writers = folder.st_mode & (stat.S_IWOTH if private else _WRITERS)
    return bool(writers) and (direct or not folder.st_mode & stat.S_ISVTX)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise IntegrityError(f"{path}: is a link, and a file is expected") from error


def _require_own(path: Path, found: os.stat_result) -> None:
    _require_owner(path, found)
    if found.st_mode & _WRITERS:
        raise AccessDeniedError(
            f"{path}: its mode {stat.S_IMODE(found.st_mode):o} lets others write to it: look at its content, then run "
            f"chmod go-w {path}"
        )


def _require_owner(path: Path, found: os.stat_result, *others: int) -> None:
    if found.st_uid not in (os.geteuid(), *others):
        raise AccessDeniedError(
            f"{path} belongs to the Unix user {found.st_uid}, and this process runs as user {os.geteuid()}: it counts "
            "only for processes of its own user"
        )
