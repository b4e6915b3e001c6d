"""Objects are the same on S3 and in a folder, faults of a store become our errors, and no error has a credential."""

from __future__ import annotations

import asyncio
import builtins
import gc
import os
import re
import resource
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rhino_archive import bucket as module
from rhino_archive.bucket import Bucket, bucket
from rhino_core.archive_url import check_url
from rhino_core.errors import (
    AccessDeniedError,
    InvalidRequestError,
    NoSpaceError,
    PreconditionError,
    RhinoError,
    UnavailableError,
    UnknownError,
)
from tests.rhino_archive.support.faulty import PIECE, Answer, Fault, FaultyProxy, faulty
from tests.rhino_archive.support.stores import BUCKET, SECRETS, fill, s3, use

ODD = ["a/ü x+%41?&=", "a/q'\"<>*", "a\\b", "a:b", "%zz", "~t", "[x]{y}|^`", "a/#x", "a b/c d", "a/1#2x", "日本"]
ATTEMPTS = 3
FRESH = count()

Operation = Callable[[Bucket], Awaitable[object]]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with s3() as found:
        yield found


@pytest.fixture(params=["folder", "s3"])
def archive(request: pytest.FixtureRequest, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    use(address, monkeypatch)
    (tmp_path / "archive").mkdir()
    return Bucket(str(tmp_path / "archive") if request.param == "folder" else f"s3://{BUCKET}/{next(FRESH)}")


@pytest.fixture
async def proxy(address: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FaultyProxy]:
    async with faulty(address) as found:
        use(found.url, monkeypatch)
        monkeypatch.setattr(module, "RETRIES", ATTEMPTS - 1)
        yield found


@pytest.fixture
async def distant(proxy: FaultyProxy) -> Bucket:
    """Behind the proxy. It has an object `there` of 200,000 bytes."""
    found = Bucket(f"s3://{BUCKET}/{next(FRESH)}")
    await found.put("there", bytes(200_000))
    proxy.seen.clear()
    return found


async def names(archive: Bucket, prefix: str = "", after: str = "") -> list[str]:
    return sorted([one.name async for one in archive.list(prefix, after)])


async def listed(archive: Bucket) -> object:
    return await names(archive)


OPERATIONS: dict[str, Operation] = {
    "put": lambda archive: archive.put("other", b"x"),
    "create": lambda archive: archive.put("new", b"x", create=True),
    "get": lambda archive: archive.get("there"),
    "range": lambda archive: archive.get_range("there", 5, 100_000),
    "list": listed,
    "folders": lambda archive: archive.folders(),
    "delete": lambda archive: archive.delete("there", "other"),
}


class TestObjects:
    async def test_what_was_written_is_read(self, archive: Bucket) -> None:
        for data in (b"", b"one", os.urandom(6_000_000)):  # more than a part of the library's multipart uploads
            assert await archive.put("a/b", data)
            assert await archive.get("a/b") == data

    async def test_ranges(self, archive: Bucket) -> None:
        await archive.put("a", b"0123456789")
        for offset, size, wanted in ((0, 10, b"0123456789"), (3, 2, b"34"), (8, 9, b"89"), (4, 0, b"")):
            assert await archive.get_range("a", offset, size) == wanted
        for offset in (10, 11, 5_000):
            assert await archive.get_range("a", offset, 3) == b""

    async def test_a_missing_object(self, archive: Bucket) -> None:
        await archive.put("a/b", b"x")
        for name in ("a/c", "a", "none/at/all"):
            with pytest.raises(UnknownError, match=re.escape(f"archive {archive.url}: has no {name}")):
                await archive.get(name)
            with pytest.raises(UnknownError, match=re.escape(archive.url)):
                await archive.get_range(name, 0, 1)

    async def test_lists(self, archive: Bucket) -> None:
        assert await names(archive) == await names(archive, "a") == await archive.folders() == []
        for name in ("a/1", "a/2", "a/b/3", "ab/4", "c"):
            await archive.put(name, name.encode())
        assert await names(archive) == ["a/1", "a/2", "a/b/3", "ab/4", "c"]
        assert await names(archive, "a") == await names(archive, "a/") == ["a/1", "a/2", "a/b/3"]
        assert await names(archive, "a", after="a/1") == ["a/2", "a/b/3"]
        assert await names(archive, "a", after="a/15") == ["a/2", "a/b/3"]
        assert await archive.folders() == ["a", "ab"]
        assert {one.name: one.size_bytes async for one in archive.list("a")} == {"a/1": 3, "a/2": 3, "a/b/3": 5}

    async def test_times_have_a_zone(self, archive: Bucket) -> None:
        await archive.put("a", b"x")
        (one,) = [one async for one in archive.list("")]
        assert one.changed.utcoffset() == timedelta()
        assert abs(one.changed - datetime.now(UTC)) < timedelta(seconds=10)

    async def test_odd_names(self, archive: Bucket) -> None:
        for name in ODD:
            await archive.put(name, name.encode())
        assert await names(archive) == sorted(ODD)
        for name in ODD:
            assert await archive.get(name) == name.encode()
        await archive.delete(*ODD)
        assert await names(archive) == []

    @pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "a/../b", "a/..", "./a", "a\nb", "a/b#1", "b#12"])
    async def test_names_that_not_every_store_can_have(self, archive: Bucket, name: str) -> None:
        with pytest.raises(InvalidRequestError):
            await archive.put(name, b"x")
        with pytest.raises(InvalidRequestError):
            await archive.get(name)
        with pytest.raises(InvalidRequestError):
            await archive.get_range(name, 0, 1)
        with pytest.raises(InvalidRequestError):
            await archive.delete("fine", name)
        assert await names(archive) == []

    async def test_prefixes_that_no_store_can_have(self, archive: Bucket) -> None:
        with pytest.raises(InvalidRequestError, match="cannot list a//b"):
            await names(archive, "a//b")

    async def test_one_of_many_creates_wins(self, archive: Bucket) -> None:
        won = await asyncio.gather(*(archive.put("a/b", b"%d" % at, create=True) for at in range(20)))
        assert won.count(True) == 1
        assert await archive.get("a/b") == b"%d" % won.index(True)
        assert not await archive.put("a/b", b"later", create=True)
        assert await archive.get("a/b") == b"%d" % won.index(True)
        assert await archive.put("a/b", b"later")
        assert await archive.get("a/b") == b"later"

    async def test_deletes(self, archive: Bucket) -> None:
        for name in ("a/1", "a/2", "b/3", "c"):
            await archive.put(name, b"x")
        await archive.delete()
        await archive.delete("none")
        await archive.delete("a/0", "a/1", "none/at/all", "a/2", "b/4", "b/3")
        assert await names(archive) == ["c"]
        assert await archive.folders() == []

    async def test_counters(self, archive: Bucket) -> None:
        await archive.put("a", b"123")
        await archive.put("a", b"45", create=True)
        await archive.get("a")
        await archive.get_range("a", 1, 5)
        await archive.get_range("a", 9, 5)
        await listed(archive)
        await archive.folders()
        await archive.delete("a", "b")
        deletes = 1 if archive.url.startswith("s3://") else 2
        assert archive.requests == {"put": 2, "get": 3, "list": 2, "delete": deletes}
        assert (archive.sent_bytes, archive.received_bytes) == (5, 5)


class TestMany:
    """2,500 objects."""

    NAMES = tuple(f"p/{at:05d}" for at in range(2_500))

    async def test_in_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "p").mkdir()
        for name in self.NAMES:
            (tmp_path / name).write_bytes(b"x")
        await self._check(Bucket(str(tmp_path)), deletes=2_500)

    async def test_on_s3(self, distant: Bucket, proxy: FaultyProxy) -> None:
        await distant.delete("there")
        fill([f"{distant.url.rpartition('/')[2]}/{name}" for name in self.NAMES])
        distant.requests.clear()
        proxy.seen.clear()
        await self._check(distant, deletes=3)
        assert [one.split()[0] for one in proxy.seen] == ["GET"] * 3 + ["GET"] + ["POST"] * 3 + ["GET"]

    async def _check(self, archive: Bucket, deletes: int) -> None:
        assert await names(archive, "p") == list(self.NAMES)
        assert await names(archive, "p", after=self.NAMES[2_000]) == list(self.NAMES[2_001:])
        await archive.delete(*self.NAMES)
        assert await names(archive) == []
        assert archive.requests == {"list": 5, "delete": deletes}

    async def test_a_list_that_is_broken_off_leaves_nothing(self, archive: Bucket) -> None:
        await asyncio.gather(*(archive.put(f"a/{at}", b"x") for at in range(5)))
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            async for _one in archive.list("a"):
                break
        gc.collect()
        # A bounded pool of connections may stay. Of what an iteration holds, there would be 50.
        assert len(os.listdir("/proc/self/fd")) - before < 10

    async def test_errors_of_the_reader_are_not_the_stores(self, archive: Bucket) -> None:
        await archive.put("a", b"x")
        listing = archive.list("")
        assert (await anext(listing)).name == "a"
        assert isinstance(listing, AsyncGenerator)
        with pytest.raises(OSError, match="of the reader"):
            await listing.athrow(OSError("of the reader"))


class TestFaults:
    @pytest.mark.parametrize("operation", OPERATIONS)
    @pytest.mark.parametrize(
        "fault",
        [Answer.of_s3(500, "InternalError"), Answer.of_s3(503, "SlowDown"), Answer.of_s3(429, "TooMany"), Fault.CUT],
        ids=["500", "503", "429", "cut"],
    )
    async def test_is_repeated(
        self, distant: Bucket, proxy: FaultyProxy, fault: Fault | Answer, operation: str
    ) -> None:
        proxy.faults.append(fault)
        await OPERATIONS[operation](distant)
        assert len(proxy.seen) == 2
        assert sum(distant.requests.values()) == 2  # ours: the other one is that of the fixture

    async def test_a_read_that_is_cut_goes_on(self, distant: Bucket, proxy: FaultyProxy) -> None:
        proxy.faults.extend([Fault.HALF, Fault.LOSE])
        assert await distant.get("there") == bytes(200_000)
        proxy.faults.append(Fault.HALF)
        assert await distant.get_range("there", 100, 100_000) == bytes(100_000)

    async def test_a_list_that_is_cut_is_refused_whole(self, distant: Bucket, proxy: FaultyProxy) -> None:
        proxy.faults.append(Fault.HALF)
        with pytest.raises(UnavailableError, match=re.escape(f"archive {distant.url}: cannot list it")):
            await names(distant)

    async def test_a_slow_link_is_waited_for(
        self, distant: Bucket, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As long as bytes come: a read takes some times as long as a silent store is waited for."""
        monkeypatch.setattr(module, "REQUEST_S", 0.5)
        content = os.urandom(20 * PIECE)  # a second
        await distant.put("large", content)
        patient = Bucket(distant.url)
        proxy.rest = Fault.SLOW
        proxy.seen.clear()
        assert await patient.get("large") == content
        assert await patient.get_range("large", 5, 15 * PIECE) == content[5 : 5 + 15 * PIECE]
        assert len(proxy.seen) == 2

    async def test_after_a_lost_answer_the_own_object_is_there(self, distant: Bucket, proxy: FaultyProxy) -> None:
        proxy.faults.append(Fault.LOSE)
        assert not await distant.put("new", b"own", create=True)
        assert await distant.get("new") == b"own"

    @pytest.mark.parametrize("operation", OPERATIONS)
    async def test_ends_when_it_stays(self, distant: Bucket, proxy: FaultyProxy, operation: str) -> None:
        proxy.rest = Answer.of_s3(503, "SlowDown")
        with pytest.raises(UnavailableError) as found:
            await OPERATIONS[operation](distant)
        assert str(found.value).startswith(f"archive {distant.url}: cannot ")
        assert ": 503 Service Unavailable, SlowDown, told; see whether the store works" in str(found.value)
        assert len(proxy.seen) == ATTEMPTS

    @pytest.mark.parametrize("operation", OPERATIONS)
    async def test_silence_ends(
        self, distant: Bucket, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, operation: str
    ) -> None:
        monkeypatch.setattr(module, "REQUEST_S", 0.3)
        monkeypatch.setattr(module, "RETRY_S", 0.1)
        impatient = Bucket(distant.url)
        proxy.rest = Fault.SILENT
        began = time.monotonic()
        with pytest.raises(UnavailableError, match="no answer in time"):
            await OPERATIONS[operation](impatient)
        assert time.monotonic() - began < 10
        assert len(proxy.seen) <= 1  # on a busy machine, the time may end before the proxy sees it

    async def test_a_cancelled_request_ends(self, distant: Bucket, proxy: FaultyProxy) -> None:
        proxy.faults.append(Fault.SILENT)
        proxy.heard.clear()
        request = asyncio.create_task(distant.get("there"))
        await proxy.heard.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert await distant.get("there") == bytes(200_000)

    async def test_http_is_allowed_by_the_environment(self, distant: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_ALLOW_HTTP")
        with pytest.raises(UnavailableError, match="needs AWS_ALLOW_HTTP=true"):
            await Bucket(distant.url).get("there")

    async def test_nothing_listens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        use("http://127.0.0.1:1", monkeypatch)
        monkeypatch.setattr(module, "RETRIES", 0)
        with pytest.raises(UnavailableError, match=r"cannot read a: .*http://127\.0\.0\.1:1.*\(Connection refused\)"):
            await Bucket(f"s3://{BUCKET}/x").get("a")

    @pytest.mark.parametrize("operation", OPERATIONS)
    @pytest.mark.parametrize("status", [400, 403])
    async def test_expired_credentials(self, distant: Bucket, proxy: FaultyProxy, operation: str, status: int) -> None:
        proxy.rest = Answer.of_s3(status, "ExpiredToken")
        with pytest.raises(AccessDeniedError, match="ExpiredToken, told; check the credentials"):
            await OPERATIONS[operation](distant)
        assert len(proxy.seen) == 1

    async def test_no_credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        use("http://127.0.0.1:1", monkeypatch)
        monkeypatch.setattr(module, "RETRIES", 0)
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(AccessDeniedError, match="check the credentials"):
            Bucket(f"s3://{BUCKET}/x")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
        with pytest.raises(AccessDeniedError, match="check the credentials"):
            await Bucket(f"s3://{BUCKET}/x").get("a")

    @pytest.mark.parametrize(
        "answer",
        [
            Answer.of_s3(507, "XMinioStorageFull"),
            Answer(507),
            Answer.of_s3(400, "EntityTooLarge"),
            Answer.of_s3(403, "QuotaExceeded"),
        ],
        ids=lambda answer: f"{answer.status} {answer.body[27:42]}",
    )
    async def test_a_full_bucket(self, distant: Bucket, proxy: FaultyProxy, answer: Answer) -> None:
        proxy.rest = answer
        with pytest.raises(NoSpaceError, match=f"cannot write a: {answer.status} .*free space"):
            await distant.put("a", b"x")

    async def test_a_full_folder(self, tmp_path: Path) -> None:
        archive = Bucket(str(tmp_path))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        try:
            with pytest.raises(NoSpaceError, match="File too large"):
                await archive.put("a", bytes(2_000_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("operation", OPERATIONS)
    async def test_a_bucket_that_does_not_exist(
        self, address: str, monkeypatch: pytest.MonkeyPatch, operation: str
    ) -> None:
        use(address, monkeypatch)
        with pytest.raises(PreconditionError, match=r"NoSuchBucket.*create the bucket"):
            await OPERATIONS[operation](Bucket("s3://none-such/x"))

    async def test_one_object_of_many_may_not_be_deleted(self, distant: Bucket, proxy: FaultyProxy) -> None:
        name = f"{distant.url.rpartition('/')[2]}/b"
        told = f"<Error><Key>{name}</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        proxy.faults.append(Answer(200, f"<DeleteResult>{told}</DeleteResult>"))
        with pytest.raises(AccessDeniedError, match="cannot delete a and 1 others"):
            await distant.delete("a", "b")

    async def test_a_time_is_no_status(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        archive = Bucket(str(tmp_path))

        async def failed(*_: object, **__: object) -> None:
            raise archive._errors.GenericError("Error performing PUT http://x/403 in 403.1ms - HTTP error: sending")

        monkeypatch.setattr(archive._obstore, "put_async", failed)
        with pytest.raises(UnavailableError):
            await archive.put("a", b"x")


class TestFolder:
    async def test_unfinished_files_are_in_no_listing(self, tmp_path: Path) -> None:
        archive = Bucket(str(tmp_path))
        await archive.put("a/b", b"old")
        (tmp_path / "a/b#1").write_bytes(b"to")
        (tmp_path / "a/c#1").write_bytes(b"to")
        assert await names(archive) == ["a/b"]
        assert await archive.put("a/c", b"new", create=True)
        await archive.put("a/b", b"new")
        assert [await archive.get(name) for name in await names(archive)] == [b"new", b"new"]

    async def test_a_reader_sees_no_half_object(self, tmp_path: Path) -> None:
        archive, seen = Bucket(str(tmp_path)), set[bytes]()
        await archive.put("a", b"0" * 1_000_000)

        async def write() -> None:
            for at in range(40):
                await archive.put("a", b"%d" % (at % 10) * 1_000_000)

        writing = asyncio.create_task(write())
        while not writing.done():
            data = await archive.get("a")
            seen.add(data[:1] if data == data[:1] * 1_000_000 else data)
        await writing
        assert all(len(one) == 1 for one in seen)

    async def test_folders_in_it_are_made(self, tmp_path: Path) -> None:
        await Bucket(f"file://{tmp_path}").put("c/d", b"x")
        assert (tmp_path / "c/d").read_bytes() == b"x"

    def test_it_is_a_file_or_not_there(self, tmp_path: Path) -> None:
        """The folder of a mount that is not there."""
        (tmp_path / "a").write_bytes(b"")
        for name in ("a", "b"):
            with pytest.raises(UnavailableError, match=f"archive {tmp_path}/{name}: there is no such folder"):
                Bucket(str(tmp_path / name))
        assert not (tmp_path / "b").exists()


class TestCredentials:
    @pytest.mark.parametrize("operation", OPERATIONS)
    @pytest.mark.parametrize("status", [400, 403, 404, 500])
    async def test_of_an_answer_are_in_no_error(
        self, distant: Bucket, proxy: FaultyProxy, operation: str, status: int
    ) -> None:
        told = "".join(f"<X>{value}</X>" for value in SECRETS.values())
        proxy.rest = Answer.of_s3(status, "Refused", told)
        if operation == "delete" and status == 404:
            return  # as missing ones are no error
        with pytest.raises(RhinoError) as found:
            await OPERATIONS[operation](distant)
        self._check(found.value, *SECRETS.values())

    @pytest.mark.parametrize("rest", [Answer(403, "no"), Fault.CUT], ids=["refused", "cut"])
    async def test_of_azure_are_in_no_error(
        self, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, rest: Answer | Fault
    ) -> None:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "states")
        monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2026-01-01&sig=signature-of-a-test")
        monkeypatch.setenv("AZURE_ENDPOINT", proxy.url)
        monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
        monkeypatch.setattr(module, "RETRIES", 0)
        proxy.rest = rest
        archive = Bucket("az://container/x")
        for operation in OPERATIONS.values():
            with pytest.raises((AccessDeniedError, UnavailableError)) as found:
                await operation(archive)
            self._check(found.value, "signature-of-a-test")
        assert any("sig=signature-of-a-test" in one for one in proxy.seen)  # it was sent

    async def test_of_urls_are_in_no_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        archive = Bucket(str(tmp_path))

        async def failed(*_: object, **__: object) -> None:
            raise archive._errors.GenericError("Error performing GET https://me:pass@x.y/z?sig=signature in 1s - cut")

        monkeypatch.setattr(archive._obstore, "get_async", failed)
        with pytest.raises(UnavailableError, match=r"GET https://x\.y in 1s - cut") as found:
            await archive.get("a")
        self._check(found.value, "pass", "signature")

    def _check(self, error: BaseException, *secrets: str) -> None:
        """Of the log of a process, too."""
        text = "".join(traceback.format_exception(error))
        assert not [secret for secret in secrets if secret in text]
        assert "\n" not in str(error)
        assert "archive " in str(error)


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "wanted"),
        [
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/a b/c/", "s3://bucket/a b/c"),
            ("gs://bucket/a", "gs://bucket/a"),
            ("az://container/a", "az://container/a"),
            ("/a/b", "/a/b"),
            ("/a@b/c?d#e:f/", "/a@b/c?d#e:f"),
            ("file:///a/b%20c", "/a/b c"),
        ],
    )
    def test_urls(self, url: str, wanted: str) -> None:
        assert check_url(url) == check_url(wanted) == wanted

    @pytest.mark.parametrize(
        ("url", "way"),
        [
            ("hdfs://name/a", "mount HDFS"),
            ("s3a://bucket/a", "write s3://"),
            ("http://host/bucket", "AWS_ENDPOINT_URL"),
            ("https://host/bucket", "AWS_ENDPOINT_URL"),
            ("ftp://host/a", "s3://, gs://, az:// or an absolute path"),
            ("://a", "s3://, gs://, az:// or an absolute path"),
            ("", "absolute path"),
            ("a/b", "absolute path"),
            ("./a", "absolute path"),
            ("file://a/b", "absolute path"),
            ("s3:/bucket", "absolute path"),
            ("/", "plain path"),
            ("//a", "plain path"),
            ("/a//b", "plain path"),
            ("/a/../b", "plain path"),
            ("file:////a", "plain path"),
            ("s3://", "plain path"),
            ("s3:///bucket", "plain path"),
            ("s3://bucket//a", "plain path"),
            ("s3://bucket/./a", "plain path"),
        ],
    )
    def test_refused(self, url: str, way: str) -> None:
        with pytest.raises(InvalidRequestError, match=f"archive {re.escape(repr(url))}.*{re.escape(way)}"):
            check_url(url)
        with pytest.raises(InvalidRequestError, match=re.escape(way)):
            bucket(url)

    @pytest.mark.parametrize(
        "url",
        [
            "s3://key:hidden@bucket/a",
            "s3://key:hid/hidden@bucket/a",
            "s3://key:hidden/a",
            "s3://bucket/a?AWS_SECRET_ACCESS_KEY=hidden",
            "az://container/a?sv=1&sig=hidden",
            "gs://bucket/a#hidden",
            "https://states.blob.core.windows.net/c?sig=hidden",
            "hdfs://me:hidden@name/a",
            "states/c?sig=hidden",
            "file://me:hidden@host/a",
        ],
    )
    def test_credentials_are_refused_and_not_repeated(self, url: str) -> None:
        with pytest.raises(InvalidRequestError, match="belong in the environment") as found:
            check_url(url)
        assert "hid" not in "".join(traceback.format_exception(found.value)).replace(__file__, "")

    def test_azure_needs_an_account(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
        with pytest.raises(InvalidRequestError, match="Account must be specified; correct the URL or the environment"):
            Bucket("az://container/a")

    def test_one_bucket_for_a_url(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        assert bucket(f"{tmp_path}/a") is bucket(f"file://{tmp_path}/a/")
        assert bucket(f"{tmp_path}/a") is not bucket(f"{tmp_path}/b")

    def test_without_the_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        imported = builtins.__import__

        def without(name: str, *more: Any) -> Any:
            if name.partition(".")[0] == "obstore":
                raise ImportError(name)
            return imported(name, *more)

        monkeypatch.setattr(builtins, "__import__", without)
        with pytest.raises(PreconditionError, match=re.escape("pip install 'rhino-state[archive]'")):
            Bucket(str(tmp_path))
