"""Access to the objects of an archive: on S3, GCS, Azure, or in a folder."""

from __future__ import annotations

import builtins
import contextlib
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from rhino_core.archive_url import SCHEMES, check_url
from rhino_core.errors import (
    AccessDeniedError,
    InvalidRequestError,
    NoSpaceError,
    PreconditionError,
    RhinoError,
    UnavailableError,
    UnknownError,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

# Until an answer begins, and between its bytes. A pack goes up meanwhile, so a link needs 5 Mbit/s. A silent request is
# not repeated: RETRY_S counts from its beginning.
REQUEST_S = 60.0
ANSWER_S = 3600.0  # of a request with its answer
RETRIES, RETRY_S = 4, 30.0  # of a request that was throttled, cut off, or failed inside the store
REQUESTS = ("put", "get", "list", "delete")  # kinds
PAGE = 1000  # objects in an answer to one request to list

_DELETED_AT_ONCE = {"s3": 1000, "az": 256}  # by one request; one by the others
_CLIENT = ("allow_http", "allow_invalid_certificates", "proxy_url")
# The library has one class for most errors, so their texts decide. A number alone may be a time in them.
_FULL = re.compile(r"status code: 507|<Code>(?:EntityTooLarge|\w*StorageFull|QuotaExceeded)<|os error (?:27|28|122)\)")
_NO_BUCKET = re.compile(r"<Code>(?:NoSuchBucket|ContainerNotFound)<")
_DENIED = re.compile(
    r"status code: 40[13]\b|code: AccessDenied\)|<Code>(?:\w*Token\w*|Authorization\w+)<|os error (?:1|13|30)\)"
    # No credentials were found: in the environment, from the metadata service, in the file of a web identity.
    r"|Missing \w+(?:Key|Token)|/latest/(?:api|meta-data)|token file"
)
_WHY = {
    "TimedOut": "no answer in time",
    "BadScheme": "an http:// endpoint needs AWS_ALLOW_HTTP=true in the environment",
}
_BEYOND = re.compile(r"status code: 416|range was invalid")
# Stores differ in the others. A folder has its unfinished files at `#1`.
_NAME = re.compile(r"(?!(?:.*/)?\.{0,2}(?:/|$))(?!.*#\d+$)[^\x00-\x1f\x7f]+")
_URL = re.compile(r"(\w+://)(?:[^/\s@]*@)?([^/\s?#]*)\S*")


@dataclass(frozen=True, slots=True)
class Object:
    """`changed`: by the clock of the store."""

    name: str
    size_bytes: int
    changed: datetime


class Bucket:
    """The objects below one URL. Their names have parts between slashes, as paths have.

    Errors of every method: UnavailableError if the store does not answer, or has an error of its own. AccessDeniedError
    if it refuses us. NoSpaceError if it is full. PreconditionError if the bucket does not exist. InvalidRequestError
    for a name that not every store can have.

    Credentials come from the environment: those in AWS_ACCESS_KEY_ID and so on are read once. Those of a role (of the
    machine, of a container, of a web identity) are fetched by the library, and again before they end. It reads no
    profile below ~/.aws.

    A folder gets each object by a rename, so none is seen half. A write that died leaves a file `name#1`, which is in
    no listing. The library syncs nothing to the disk: a crash of the machine may lose or tear the newest objects. Each
    object has a checksum, and verify finds a manifest that names a missing pack.
    """

    def __init__(self, url: str) -> None:
        """Raises InvalidRequestError for a URL that nothing serves, and PreconditionError without the library."""
        self.url = check_url(url)
        self.is_folder = "://" not in self.url
        # Of our calls, by kind (REQUESTS). The library's own repetitions are not in them.
        self.requests = Counter[str]()
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
            self._store = _opened(self.url)

    async def put(self, name: str, data: bytes, *, create: bool = False) -> bool:
        """Writes an object. `create`: only if there is none; returns whether there was none.

        The answer to a write may be lost, and the library writes again. Then False is about our own object: the
        caller compares.
        """
        self.requests["put"] += 1
        self.sent_bytes += len(data)
        with self._named("write", _checked(name)):
            try:
                # In one request: requests are paid, and a conditional one cannot come in parts.
                await self._obstore.put_async(
                    self._store, name, data, mode="create" if create else "overwrite", use_multipart=False
                )
            except self._errors.AlreadyExistsError:
                if not create:
                    raise
                return False
        return True

    async def get(self, name: str) -> bytes:
        """Raises UnknownError if there is no such object."""
        self.requests["get"] += 1
        with self._named("read", _checked(name)):
            found = await self._obstore.get_async(self._store, name)
            return self._received(bytes(await found.bytes_async()))

    async def get_range(self, name: str, offset: int, size_bytes: int) -> bytes:
        """Returns fewer bytes if the object ends before. Raises UnknownError if there is no such object."""
        if not size_bytes:
            return b""
        self.requests["get"] += 1
        with self._named("read", _checked(name)):
            try:
                found = await self._obstore.get_range_async(self._store, name, start=offset, length=size_bytes)
            except self._errors.BaseError as error:
                if not _BEYOND.search(str(error)):
                    raise
                return b""
            return self._received(bytes(found))

    def _received(self, data: bytes) -> bytes:
        self.received_bytes += len(data)
        return data

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Object]:
        """The objects below a prefix, in any order. `after`: only those with a later name."""
        with self._named("list", prefix):
            pages = self._obstore.list(self._store, prefix or None, offset=after or None, chunk_size=PAGE)
        size = PAGE
        while size == PAGE:
            self.requests["list"] += 1
            # Without the `yield`: errors of the reader are not the store's.
            with self._named("list", prefix):
                try:
                    # With a default instead, `anext` fails: the library raises this at once, not in a coroutine.
                    page = await anext(pages)
                except StopAsyncIteration:
                    return
            size = len(page)
            for one in page:
                yield Object(one["path"], one["size"], one["last_modified"])

    async def folders(self) -> builtins.list[str]:
        """The first parts of the names that have more than one."""
        self.requests["list"] += 1
        with self._named("list", ""):
            found = await self._obstore.list_with_delimiter_async(self._store)
        return sorted(one.rstrip("/").rpartition("/")[2] for one in found["common_prefixes"])

    async def delete(self, *names: str) -> None:
        """Deletes objects. Missing ones are no error."""
        if not names:
            return
        at_once = _DELETED_AT_ONCE.get(self.url.partition("://")[0], 1)
        self.requests["delete"] += -(-len(names) // at_once)
        others = f" and {len(names) - 1} others" if names[1:] else ""
        with self._named("delete", names[0] + others):
            try:
                await self._obstore.delete_async(self._store, [_checked(name) for name in names])
            except FileNotFoundError as error:
                if _NO_BUCKET.search(str(error)):
                    raise
                # All but S3 end at the first one that is missing.
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        await self._obstore.delete_async(self._store, name)

    @contextlib.contextmanager
    def _named(self, doing: str, name: str) -> Iterator[None]:
        try:
            yield
        except RhinoError:
            raise
        except Exception as error:  # the library's, OSError, ValueError, and panics of Rust, whose class is not public
            # The store's answer in the library's error may have a token, so it does not come along as the cause.
            raise self._of_ours(error, doing, name) from None

    def _of_ours(self, error: Exception, doing: str, name: str) -> RhinoError:
        text = str(error)
        where = f"archive {self.url}: cannot {doing} {name or 'it'}: {_cause(text)}"
        if _FULL.search(text):
            return NoSpaceError(f"{where}; free space there, or raise its quota")
        if _NO_BUCKET.search(text):
            return PreconditionError(f"{where}; create the bucket, or correct the archive's URL")
        if isinstance(error, FileNotFoundError) and doing == "read":
            return UnknownError(f"archive {self.url}: has no {name}")
        denied = (self._errors.PermissionDeniedError, self._errors.UnauthenticatedError)
        if isinstance(error, denied) or _DENIED.search(text):
            return AccessDeniedError(f"{where}; check the credentials in the environment and their rights")
        if isinstance(error, ValueError):
            return InvalidRequestError(f"{where}; use other names")
        if doing == "open" and isinstance(error, self._errors.BaseError):
            return InvalidRequestError(f"{where}; correct the URL or the environment")
        return UnavailableError(f"{where}; see whether the store works and can be reached from here")


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"{name!r} cannot name an object of an archive: no part may be empty or dots, and it may not end with #1"
        )
    return name


def _opened(url: str) -> ObjectStore:
    from obstore.store import LocalStore, from_url

    scheme, separator, _ = url.partition("://")
    if not separator:
        if not os.path.isdir(url):
            raise UnavailableError(f"archive {url}: there is no such folder on this machine: make it, or mount it")
        # Without empty folders, as a store has none.
        return LocalStore(url, mkdir=False, automatic_cleanup=True)
    # Options that are given replace those of the environment, so these come from there.
    client: Any = {key: os.environ.get(f"{SCHEMES[scheme]}_{key.upper()}") for key in _CLIENT}
    client = {key: value for key, value in client.items() if value} | {
        "timeout": timedelta(seconds=ANSWER_S),
        "read_timeout": timedelta(seconds=REQUEST_S),
    }
    return from_url(
        url,
        client_options=client,
        retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)},
    )


def _cause(text: str) -> str:
    """One line. Of an answer only its status, code and message: the rest, like URLs, may have tokens and signatures."""
    head, _, details = text.partition("\n\nDebug source")
    if status := re.search(r"status code: (\d+[^:<]*)", head):
        told = [status[1], *re.findall(r"<(?:Code|Message)>([^<]{1,200})", head)]
        return " ".join(", ".join(told).split())
    head = re.sub(r", max_retries: .*? -", " -", _URL.sub(r"\1\2", head))
    reason = re.search(r'(?:message|error): "([^"\\]{1,100})"', details)
    why = reason[1] if reason else next((why for sign, why in _WHY.items() if sign in details), "")
    return " ".join(head.split())[:250] + (f" ({why})" if why and why not in head else "")


_BUCKETS: dict[str, Bucket] = {}


def bucket(url: str) -> Bucket:
    """The one bucket of this process for a URL: so its requests are counted once. Raises as Bucket does."""
    url = check_url(url)
    if url not in _BUCKETS:
        _BUCKETS[url] = Bucket(url)
    return _BUCKETS[url]


class Used(NamedTuple):
    """Requests of this process since its start, by kind (REQUESTS), and bytes."""

    requests: Mapping[str, int]
    sent_bytes: int
    received_bytes: int


def used() -> Used:
    """By all buckets of `bucket()`."""
    found = _BUCKETS.values()
    requests = {kind: sum(one.requests[kind] for one in found) for kind in REQUESTS}
    return Used(requests, sum(one.sent_bytes for one in found), sum(one.received_bytes for one in found))
