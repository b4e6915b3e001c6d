"""A query checkpoint as a read-only tree of files: in a folder, or in a bucket of an object store."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from rhino_archive.bucket import Bucket
from rhino_core.archive_url import SCHEMES
from rhino_core.errors import IntegrityError, InvalidRequestError, PreconditionError, UnknownError
from rhino_core.foreign import read_bytes
from spark_connector.rewind.files import local_path

T = TypeVar("T")


class File(NamedTuple):
    """`changed_s`: by the wall clock of the store."""

    size_bytes: int
    changed_s: float


class Tree(Protocol):
    """`at_a_time`: how many files are best read at once."""

    location: str
    at_a_time: int

    def files(self) -> dict[str, File]:
        """Lists all files, by their paths below the root. Links and other special files are not among them."""

    def read(self, name: str) -> bytes:
        """Raises IntegrityError for a file that cannot be read, and errors of a store that does not answer."""


def opened(location: str) -> Tree:
    """Returns the tree at a path, a file: URI, or a URL s3://, s3a://, gs:// or az://.

    Raises InvalidRequestError for another location, UnknownError if there is no such folder, and the errors of Bucket.
    """
    scheme, separator, rest = location.partition("://")
    if separator and scheme in ("s3a", *SCHEMES):
        return Objects(f"{scheme.removesuffix('a') if scheme == 's3a' else scheme}://{rest}")
    if re.match(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*:/", location):
        raise InvalidRequestError(
            f"{location}: nothing here reads {scheme.partition(':')[0]}: give a folder, file:, s3://, gs:// or az://; "
            "mount another file system, or copy the checkpoint first"
        )
    return Folder(local_path(location))


class Folder:
    """The files below a folder."""

    at_a_time = 4

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UnknownError(f"{folder}: there is no such folder; give the checkpointLocation of the query")
        self.folder = folder
        self.location = str(folder)

    def files(self) -> dict[str, File]:
        return dict(self._below(str(self.folder), ""))

    def _below(self, folder: str, prefix: str) -> Iterator[tuple[str, File]]:
        try:
            with os.scandir(folder) as found:
                entries = list(found)
        except OSError as error:
            raise PreconditionError(f"{folder} cannot be listed: {error.strerror}; look at its rights") from error
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from self._below(entry.path, f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                state = entry.stat(follow_symlinks=False)
                yield f"{prefix}{entry.name}", File(state.st_size, state.st_mtime)

    def read(self, name: str) -> bytes:
        try:
            path = self.folder / name
            return read_bytes(path, most_bytes=path.lstat().st_size)
        except OSError as error:
            raise IntegrityError(f"cannot be read: {error.strerror}") from error


class Objects:
    """The objects below a URL. A loop in a thread of its own makes the requests, for callers in any thread."""

    at_a_time = 32

    def __init__(self, url: str) -> None:
        self._bucket = Bucket(url)
        self.location = self._bucket.url
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def files(self) -> dict[str, File]:
        async def listed() -> dict[str, File]:
            return {
                found.name: File(found.size_bytes, found.changed.timestamp()) async for found in self._bucket.list("")
            }

        return self._done(listed())

    def read(self, name: str) -> bytes:
        try:
            return self._done(self._bucket.get(name))
        except UnknownError as error:
            raise IntegrityError("was deleted meanwhile") from error

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
