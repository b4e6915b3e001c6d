"""Access to the objects of an archive: on S3, GCS, Azure, or in a folder."""

from __future__ import annotations

import contextlib
import functools
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rhino_core.archive_url import check_url as check_url
from rhino_core.errors import (
    AccessDeniedError,
    InvalidRequestError,
    NoSpaceError,
    PreconditionError,
    UnavailableError,
    UnknownError,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

REQUEST_S = 60.0  # of one request; the largest is a pack
RETRIES, RETRY_S = 4, 30.0  # of a request that was throttled or failed inside the store
_FULL = re.compile(r"No space left|Quota|EntityTooLarge|StorageFull|os error (28|122)")
_DENIED = re.compile(r"\b(401|403)\b|AccessDenied|Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken")


@dataclass(frozen=True, slots=True)
class Object:
    """`changed`: by the clock of the store."""

    name: str
    size_bytes: int
    changed: datetime


class Bucket:
    """The objects below one URL. Names have no slash at their beginning.

    Every method raises UnavailableError if the store does not answer, or with an error of its own,
    AccessDeniedError if it refuses us, and NoSpaceError if it is full. Credentials come from the environment, as for
    other programs of the cloud (AWS_ACCESS_KEY_ID, a role of the machine and so on).
    """

    def __init__(self, url: str) -> None:
        """Raises InvalidRequestError for a URL that nothing serves, and PreconditionError without the library."""
        self.url = check_url(url)
        self.requests = Counter[str]()  # by kind: put, get, list, delete
        self.sent_bytes = self.received_bytes = 0
        try:
            import obstore
            from obstore import exceptions
        except ImportError as error:
            raise PreconditionError(
                "an archive needs the package obstore: pip install 'rhino-state[archive]'"
            ) from error
        self._obstore, self._errors = obstore, exceptions
        with self._named("open", ""):
            self._store: ObjectStore = _opened(url)

    async def put(self, name: str, data: bytes, *, create: bool = False) -> bool:
        """Writes an object. `create`: only if there is none; returns whether there was none."""
        self.requests["put"] += 1
        with self._named("write", name):
            try:
                # In one request: requests are paid, and a conditional one cannot come in parts.
                mode: Any = "create" if create else "overwrite"
                await self._obstore.put_async(self._store, name, data, mode=mode, use_multipart=False)
            except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
                if not create:
                    raise
                return False
        self.sent_bytes += len(data)
        return True

    async def get(self, name: str) -> bytes:
        """Raises UnknownError if there is no such object."""
        self.requests["get"] += 1
        with self._named("read", name):
            found = await self._obstore.get_async(self._store, name)
            return self._received(bytes(await found.bytes_async()))

    async def get_range(self, name: str, offset: int, size_bytes: int) -> bytes:
        """Returns fewer bytes if the object ends before. Raises UnknownError if there is no such object."""
        self.requests["get"] += 1
        with self._named("read", name):
            found = await self._obstore.get_range_async(self._store, name, start=offset, length=size_bytes)
            return self._received(bytes(found))

    def _received(self, data: bytes) -> bytes:
        self.received_bytes += len(data)
        return data

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Object]:
        """The objects below a prefix, in any order. `after`: only those with a later name."""
        with self._named("list", prefix):
            self.requests["list"] += 1
            stream = self._obstore.list(self._store, prefix, offset=after or None)
            while (page := await anext(stream, None)) is not None:
                for one in page:
                    yield Object(one["path"], one["size"], one["last_modified"])

    async def folders(self, prefix: str = "") -> Sequence[str]:
        """The names directly below a prefix that have objects below them."""
        self.requests["list"] += 1
        with self._named("list", prefix):
            found = await self._obstore.list_with_delimiter_async(self._store, prefix or None)
        return sorted(one.rstrip("/").rpartition("/")[2] for one in found["common_prefixes"])

    async def delete(self, *names: str) -> None:
        """Deletes objects. Missing ones are no error."""
        for name in names:
            self.requests["delete"] += 1
            with self._named("delete", name), contextlib.suppress(FileNotFoundError, self._errors.NotFoundError):
                await self._obstore.delete_async(self._store, name)

    @contextlib.contextmanager
    def _named(self, doing: str, name: str) -> Iterator[None]:
        where = f"archive {self.url}: cannot {doing} {name or 'it'}"
        try:
            yield
        except (FileNotFoundError, self._errors.NotFoundError) as error:
            raise UnknownError(f"archive {self.url}: has no {name}") from error
        except (self._errors.PermissionDeniedError, self._errors.UnauthenticatedError, PermissionError) as error:
            raise AccessDeniedError(f"{where}: {_short(error)}; check the credentials and rights") from error
        except (self._errors.UnknownConfigurationKeyError, self._errors.InvalidPathError) as error:
            raise InvalidRequestError(f"{where}: {_short(error)}") from error
        except (self._errors.BaseError, OSError) as error:
            text = _short(error)
            if _FULL.search(str(error)):
                raise NoSpaceError(f"{where}: {text}") from error
            if _DENIED.search(str(error)):
                raise AccessDeniedError(f"{where}: {text}; check the credentials and rights") from error
            raise UnavailableError(f"{where}: {text}") from error


def _opened(url: str) -> ObjectStore:
    from obstore.store import LocalStore, from_url

    if "://" not in url or url.startswith("file://"):
        return LocalStore(url.removeprefix("file://"), mkdir=True)
    retries: Any = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)}
    return from_url(url, client_options={"timeout": timedelta(seconds=REQUEST_S)}, retry_config=retries)


def _short(error: BaseException) -> str:
    """The first line: the others describe the library's own structures."""
    return str(error).partition("\n")[0][:300]


@functools.cache
def bucket(url: str) -> Bucket:
    """The one bucket of this process for a URL: so its requests are counted once."""
    return Bucket(url)
