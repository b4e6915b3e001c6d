"""The files moved away by a rewind: entries of the logs of a query checkpoint, and of the log of a file sink."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlparse

from rhino_core.errors import InvalidRequestError, PreconditionError
from spark_connector.rewind.plan import RewindPlan
from spark_connector.rewind.sink_log import FOLDER, entries_to_move


def local_path(text: str) -> Path:
    """Converts a path or a file: URI. Raises InvalidRequestError, with the way out, for other file systems."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", text)
    if scheme is None:
        return Path(text)
    if scheme[1].lower() != "file":
        raise InvalidRequestError(
            f"{text}: only folders that this machine sees as files can be rewound (a path or a file: URI). Copy "
            f"`metadata`, `offsets` and `commits` from {scheme[1]} into a local folder, run `rhino rewind --dry-run "
            "--json` on that, and move away the files it names in the order it names them"
        )
    return Path(unquote(urlparse(text).path))


def checkpoint_files(folder: Path, plan: RewindPlan) -> list[Path]:
    """Returns the files to move, in order. The hidden checksum of a file, if it exists, comes before the file."""
    names = [
        path for log, number in plan.moves for path in (folder / log / f".{number}.crc", folder / log / str(number))
    ]
    return [path for path in names if path.exists()]


def sink_log_files(output: Path, batch: int) -> list[Path]:
    """Returns the entries for later batches in a file sink's log, with their hidden checksums.

    Raises InvalidRequestError when the folder has no such log, and PreconditionError as `entries_to_move`.
    """
    folder = output / FOLDER
    if not folder.is_dir():
        raise InvalidRequestError(f"{output} is no output folder of a file sink: it has no {FOLDER}")
    names = entries_to_move([path.name for path in folder.iterdir()], batch)
    paths = [path for name in names for path in (folder / f".{name}.crc", folder / name)]
    return [path for path in paths if path.exists()]


def backup_name() -> str:
    """Returns a name for the folder of the moved files."""
    return time.strftime("rhino-rewind-%Y%m%dT%H%M%SZ", time.gmtime())


def move_away(files: Iterable[Path], root: Path, backup: Path) -> None:
    """Renames the files one by one, keeping their paths below `root`.

    Raises PreconditionError when a file cannot be moved. Files moved before stay moved; the command can be repeated.
    """
    for path in files:
        target = backup / path.relative_to(root)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
        except OSError as error:
            raise PreconditionError(f"{path} cannot be moved to {target}: {error}; run the command again") from error
