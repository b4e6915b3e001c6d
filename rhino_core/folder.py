"""The mark of a data folder, and small files that are replaced as a whole.

The mark protects foreign files, because daemons delete files in their data folder. It is the file `RHINO`: JSON with
the fields `kind` and `format`. A daemon marks an empty folder, and refuses any other folder without its mark.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from rhino_core.errors import InvalidSettingError, PreconditionError
from rhino_core.failpoints import hit

log = logging.getLogger(__name__)
MARK = "RHINO"
FORMAT = 1  # of the folder; increase it with a change that an older Rhino must not touch
FOLDER_MODE = 0o700  # only the Unix user of sidecar and executors may read state
FILE_MODE = 0o600
_NEW = MARK + ".new"  # begins the names of incomplete marks


def claim(folder: Path, kind: str) -> None:
    """Creates the folder if necessary, marks it with this kind and closes it to other users.

    Raises PreconditionError for a foreign folder, and InvalidSettingError if the path cannot be a writable folder.
    """
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        names = {path.name for path in folder.iterdir() if not _is_unused(path.name)}
        # Another process may mark the folder now. Its mark is older than its other files, so look for it last.
        if os.path.lexists(folder / MARK):
            _check(folder, kind)
        else:
            if names:
                raise PreconditionError(
                    f"data_dir {folder}: is not empty, and it is no folder of a Rhino {kind} (there is no file "
                    f"{MARK}); give an empty or new folder. It has {', '.join(sorted(names)[:5])}"
                )
            _mark(folder, kind)
        close_to_others(folder)
    except OSError as error:
        raise InvalidSettingError(f"data_dir {folder}: {error.strerror}; give a folder that can be written") from error


def _is_unused(name: str) -> bool:
    """Whether the name does not make a folder a foreign one: an incomplete mark, or made by a new file system."""
    return name == "lost+found" or name.startswith(_NEW)


def subfolder(folder: Path) -> None:
    """Creates a folder inside a claimed one. Raises PreconditionError for a link, because its target is not Rhino's."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise PreconditionError(
            f"{folder}: must be a folder itself, neither a link nor a file; to keep the data elsewhere, give that "
            "place as data_dir"
        )
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    close_to_others(folder)


def close_to_others(folder: Path) -> None:
    """Sets the mode to 0700, whatever the umask is.

    If another user owns the folder (a mount point), it only logs a warning: the folders inside it are closed anyway.
    """
    if folder.stat().st_mode & 0o777 == FOLDER_MODE:
        return
    try:
        folder.chmod(FOLDER_MODE)
    except PermissionError:
        log.warning("mode not changed: another user owns the folder", extra={"folder": str(folder)})


def _check(folder: Path, kind: str) -> None:
    path = folder / MARK
    mark = None
    if not path.is_symlink():
        with contextlib.suppress(ValueError):
            mark = json.loads(path.read_text())
    if not isinstance(mark, dict) or not isinstance(mark.get("format"), int):
        raise PreconditionError(f"{path}: cannot be read as the mark of a data folder; give a folder of a Rhino {kind}")
    if mark.get("kind") != kind:
        raise PreconditionError(f"data_dir {folder}: belongs to a Rhino {mark.get('kind')}, not to a {kind}")
    if mark["format"] > FORMAT:
        raise PreconditionError(
            f"data_dir {folder}: has format {mark['format']}, this version of Rhino knows {FORMAT}; start a newer "
            "version"
        )


def sync_folder(folder: Path) -> None:
    """Syncs the folder itself: the names in it are then on disk. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes, *, mode: int = FILE_MODE) -> None:
    """Writes a file, also in place of another one. It has all of its content, and is on disk. Raises OSError."""
    with written(path.parent, data, mode=mode) as temporary:
        temporary.replace(path)
    sync_folder(path.parent)


@contextlib.contextmanager
def written(folder: Path, data: bytes, *, mode: int = FILE_MODE) -> Iterator[Path]:
    """Writes a file under a name that nobody can foresee. This name is gone afterwards. Raises OSError."""
    temporary = folder / f".{uuid.uuid4()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with open(os.open(temporary, flags, mode), "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _mark(folder: Path, kind: str) -> None:
    hit("folder.mark.before")
    number, new = tempfile.mkstemp(prefix=_NEW, dir=folder)  # each process has its own
    with open(number, "w") as file:
        os.fchmod(number, FILE_MODE)
        file.write(json.dumps({"kind": kind, "format": FORMAT}) + "\n")
        file.flush()
        os.fsync(number)  # after a power loss an empty mark would prevent the start of the daemon
    os.rename(new, folder / MARK)
    sync_folder(folder)
    hit("folder.mark.after")
