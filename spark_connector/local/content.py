"""The content of a data directory, and its deletion. The folder itself stays, with its mark and its locks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spark_connector.local.daemons import end_unused
from spark_connector.local.directory import LocalDirectory


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """The state of one query."""

    job: str  # the query's id, from the file `metadata` of its checkpoint
    files: int
    bytes: int
    changed_s: float  # time of the newest file, in seconds since 1970


@dataclass(frozen=True, slots=True)
class Content:
    """Describes the content of a data directory, and names the processes that use it."""

    data_dir: str
    queries: tuple[StoredQuery, ...]
    other_bytes: int  # journal, index, logs, temporary files of Spark
    manager: str  # "host:port" while the daemons run, else empty
    users: tuple[int, ...]  # pids


def look(data_dir: Path | None) -> Content:
    """Raises PreconditionError for any folder but a data directory of local sessions."""
    directory = LocalDirectory(data_dir)
    if not directory.exists():
        return Content(str(directory.path), (), 0, "", ())
    queries = tuple(_queries(directory.sidecar / "store"))
    total = sum(size for _, size, _ in _files(directory.path))
    running = directory.running() if directory.supervisor.is_held() else None
    users = tuple(directory.users.owners())
    other = total - sum(query.bytes for query in queries)
    return Content(str(directory.path), queries, other, running.manager if running else "", users)


def delete(data_dir: Path | None) -> None:
    """Deletes the state of all queries. Raises PreconditionError, with their pids, while processes use the directory.

    Waits for the end of daemons without users. Raises UnavailableError if they do not end.
    """
    directory = LocalDirectory(data_dir)
    if not directory.exists():
        return
    with end_unused(directory):
        for folder in (directory.sidecar, directory.manager, directory.spark, directory.logs):
            if folder.exists():
                shutil.rmtree(folder)
        directory.clear_running()
        directory.socket.unlink(missing_ok=True)


def _queries(store: Path) -> Iterator[StoredQuery]:
    for folder in sorted(store.iterdir()) if store.is_dir() else ():
        found = list(_files(folder))
        if found:
            yield StoredQuery(folder.name, len(found), sum(size for _, size, _ in found), max(at for _, _, at in found))


def _files(folder: Path) -> Iterator[tuple[Path, int, float]]:
    """Regular files with their bytes and times. Running daemons may delete files meanwhile."""
    for path in folder.rglob("*"):
        try:
            stat = path.lstat()
        except FileNotFoundError:
            continue
        if path.is_file() and not path.is_symlink():
            yield path, stat.st_size, stat.st_mtime
