"""Facts beside a query checkpoint: small files with numbers as names, each written once and atomically.

A fact may name a larger file. This file is written before the fact. Only this user reads and writes facts and their
folders, whatever the umask is: some of them become code.
"""

from __future__ import annotations

import errno
from pathlib import Path

from rhino_core import folder as files
from rhino_core.errors import PreconditionError
from rhino_core.folder import FOLDER_MODE, sync_folder


def create_fact(folder: Path, number: int, text: str) -> bool:
    """Writes `folder/number`, and returns whether it is new. It appears with all of its content, and is on disk.

    Raises PreconditionError on a file system without hard links.
    """
    make_folder(folder)
    with files.written(folder, text.encode()) as temporary:
        try:
            (folder / str(number)).hardlink_to(temporary)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):
                raise
            raise PreconditionError(f"{folder}: this file system has no hard links, which Rhino needs here") from error
    sync_folder(folder)
    return True


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file, also in place of another one. It has all of its content, and is on disk."""
    make_folder(path.parent)
    files.replace_file(path, content)


def make_folder(folder: Path) -> None:
    """Makes a folder of facts, and the folder of all its kinds above it, if they do not exist."""
    if folder.is_dir():
        return
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    for one in (folder.parent, folder):
        one.mkdir(FOLDER_MODE, exist_ok=True)
        sync_folder(one.parent)
