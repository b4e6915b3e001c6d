"""Facts beside a query checkpoint: small files whose names are numbers, each written once and atomically.

A fact may name a larger file, which is written before the fact.
"""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

from rhino_core.errors import PreconditionError


def create_fact(folder: Path, number: int, text: str) -> bool:
    """Writes `folder/number`, and returns whether it is new. It appears with all of its content, and is on disk.

    Raises PreconditionError on a file system without hard links.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{uuid.uuid4()}.tmp"
    with temporary.open("x") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    try:
        (folder / str(number)).hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
        raise PreconditionError(f"{folder}: this file system has no hard links, which Rhino needs here") from error
    finally:
        temporary.unlink()
    return True


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file, also in place of another one. It has all of its content, is on disk, and only this user reads it.

    Its folder is made for this user only if it does not exist.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4()}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
