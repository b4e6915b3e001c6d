"""`rhino archive` on archives that are damaged, new, of another version, or not there."""

from __future__ import annotations

import asyncio
import builtins
import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rhino.cli import archive_restore, exit_codes
from rhino.cli.archive import _left
from rhino.cli.main import app
from rhino_archive.bucket import Bucket
from rhino_archive.claims import claim, claimed_by
from rhino_archive.manifest import CheckpointFile
from rhino_core.errors import (
    AlreadyThereError,
    InvalidRequestError,
    NoSpaceError,
    PreconditionError,
    UnavailableError,
    UnknownError,
)
from rhino_model.archives import Archive, ArchivedQuery
from tests import forked
from tests.rhino_archive.support.damages import manifest_of_a_newer_format, pack_missing
from tests.rhino_archive.support.planted import Planted, make
from tests.worker_runtime.support.with_manager import manager, settings_of


def rhino(*arguments: str) -> Result:
    return CliRunner().invoke(app, ("archive", *arguments))


def told(*arguments: str) -> dict[str, Any]:
    result = rhino(*arguments, "--json")
    assert result.exit_code == exit_codes.OK, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make(folder)
    return folder


@pytest.fixture
def archive(made: Path, tmp_path: Path) -> Planted:
    shutil.copytree(made, tmp_path / "archive")
    return Planted(tmp_path / "archive")


def test_a_query_that_has_just_begun_is_in_nobodys_way(archive: Planted) -> None:
    """It has a claim, and no batch yet."""
    asyncio.run(claim(Bucket(str(archive.folder)), "new", "cluster"))
    url = str(archive.folder)
    assert [one["batch_id"] for one in told("list", "--archive", url)["batches"]] == [8, 7]
    queries = told("verify", "--archive", url)["queries"]
    assert {job: (found["batches"], found["problems"]) for job, found in queries.items()} == {
        "job": (2, []),
        "new": (0, []),
    }
    with pytest.raises(UnknownError, match="has no batch of query 'new'"):
        raise rhino("list", "--archive", url, "--job", "new").exception or AssertionError


def test_the_process_ends_with_the_code_of_the_command(archive: Planted) -> None:
    """A thread of obstore aborted one of four processes that ended right after its answer."""
    program = """if True:
        import asyncio, os, sys
        from rhino.cli import main
        from rhino_archive.bucket import Bucket

        for _ in range(30):
            child = os.fork()
            if child == 0:
                asyncio.run(Bucket(sys.argv[1]).get("job/writer"))
                print("text", end="")
                main._leave(3)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    """
    done = forked.run(program, str(archive.folder))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["text3"] * 30, done.stderr


def test_now_waits_until_the_manager_knows_that_the_newest_batch_is_there() -> None:
    """It looks for it anew, because somebody else may have changed the archive."""
    there = ArchivedQuery("job", "", 3, 0, 0, 3, whole=True, age_s=0.0, running=False, error="")
    found = {
        "there": there,
        "looked for": replace(there, whole=False),
        "a later one is logged": replace(there, whole=False, logged_batch_id=4),
        "late": replace(there, whole=False, batch_id=2),
        "of nobody": replace(there, whole=False, job="other"),
    }
    left = {name: bool(_left(Archive("url", "cluster", (one,)), {"job": 3})) for name, one in found.items()}
    assert [name for name, its in left.items() if its] == ["looked for", "late"]


def test_damage_is_named_and_the_exit_code_says_so(archive: Planted) -> None:
    pack = pack_missing(archive)
    result = rhino("verify", "--archive", str(archive.folder))
    assert result.exit_code == exit_codes.FAILED
    assert pack in result.stdout.replace("\n", "")


def test_an_archive_of_a_later_version_is_named(archive: Planted) -> None:
    manifest_of_a_newer_format(archive)
    for command in ("list", "verify"):
        result = rhino(command, "--archive", str(archive.folder))
        assert result.exit_code == exit_codes.FAILED
        assert "has format 2, and this Rhino reads 1: install a later version" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("url", "kind", "text"),
    [
        ("ftp://host/a", InvalidRequestError, "nothing serves ftp://"),
        ("hdfs://host/a", InvalidRequestError, "mount HDFS"),
        ("s3://key:hidden@bucket/a", InvalidRequestError, "belong in the environment"),
        ("/none/such", UnavailableError, "there is no such folder"),
    ],
)
def test_what_is_no_archive_is_refused(url: str, kind: type[Exception], text: str) -> None:
    for command in (
        ("list",),
        ("verify",),
        ("export", "--job", "job", "--to", "x"),
        ("restore", "--job", "job", "--to", "x"),
    ):
        result = rhino(*command, "--archive", url)
        assert isinstance(result.exception, kind), result
        assert text in str(result.exception)
        assert "hidden" not in f"{result.output}{result.exception}"


def test_the_missing_extra_is_named(archive: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.partition(".")[0] == "obstore":
            raise ImportError(name)
        return imported(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    result = rhino("list", "--archive", str(archive.folder))
    assert isinstance(result.exception, PreconditionError)
    assert "pip install 'rhino-state[archive]'" in str(result.exception)


@pytest.mark.parametrize("present", ['{"cluster": "former"}', "damaged"])
async def test_a_claim_is_taken_over_though_it_is_damaged(archive: Planted, tmp_path: Path, present: str) -> None:
    (archive.folder / "job" / "writer").write_text(present)
    settings = replace(settings_of(tmp_path), archive=str(archive.folder))
    async with manager(settings) as address:
        result = await asyncio.to_thread(rhino, "claim", "--job", "job", "--yes", "--manager", address, "--json")
        assert result.exit_code == exit_codes.OK, result.output
        cluster = json.loads(result.stdout)["cluster"]
    assert await claimed_by(Bucket(str(archive.folder)), "job") == cluster


def readable(archive: Planted) -> None:
    """Gives the archived query checkpoint a metadata file as Spark writes it."""
    others = archive.manifest.checkpoint[1:]
    archive.change(checkpoint=(CheckpointFile("metadata", b'{"id": "job"}'), *others))


async def test_a_refused_restore_leaves_the_archive_to_the_other_cluster(archive: Planted, tmp_path: Path) -> None:
    readable(archive)
    settings = replace(settings_of(tmp_path), archive=str(archive.folder))
    to = str(tmp_path / "new")
    wrong = (("--batch", "99", "--to", to), ("--to", str(archive.folder)))
    async with manager(settings) as address:
        call = ("restore", "--job", "job", "--yes", "--manager", address)
        refused = [await asyncio.to_thread(rhino, *call, *arguments) for arguments in wrong]
        assert [type(one.exception) for one in refused] == [UnknownError, AlreadyThereError]
        assert await claimed_by(Bucket(str(archive.folder)), "job") == "cluster"
        done = await asyncio.to_thread(rhino, *call, "--to", to, "--json")
    assert done.exit_code == exit_codes.OK, done.output
    assert json.loads(done.stdout)["batch_id"] == 8
    assert await claimed_by(Bucket(str(archive.folder)), "job") not in (None, "cluster")
    assert (tmp_path / "new" / "metadata").is_file()


async def test_a_manager_without_an_archive_is_named(tmp_path: Path) -> None:
    async with manager(settings_of(tmp_path)) as address:
        for arguments in (("list",), ("prune",), ("claim", "--job", "job"), ("restore", "--job", "job", "--to", "x")):
            result = await asyncio.to_thread(rhino, *arguments, "--manager", address)
            assert isinstance(result.exception, PreconditionError)
            assert str(result.exception) == f"the manager at {address} has no archive: start it with --archive"


def test_an_export_onto_a_full_disk_is_refused(
    archive: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readable(archive)

    async def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archive_restore, "_fetch", full)
    result = rhino("export", "--archive", str(archive.folder), "--job", "job", "--to", str(tmp_path / "new"))
    assert isinstance(result.exception, NoSpaceError)
    assert "No space left on device" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]
