"""`rhino archive prune` shows what it deletes, asks, and follows the rules of the manager's own keeper."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rhino.cli.main import app
from rhino_archive.bucket import Bucket
from rhino_archive.keeping import UNNAMED
from rhino_archive.manifest import Extent, Manifest, Part, manifest_bytes, pack_name
from rhino_core.errors import InvalidRequestError, RhinoError
from rhino_core.ids import GroupId

PACKS = [f"{number:064x}" for number in range(4)]
DAY_S = 86_400


def prune(folder: Path, *arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(app, ["archive", "prune", "--archive", str(folder), *arguments], input=answer)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Four batches, one a day. Each needs a pack of its own."""
    bucket = Bucket(str(tmp_path))

    async def write() -> None:
        for number, pack in enumerate(PACKS):
            await bucket.put(pack_name("job", pack), b"pack")
            part = Part(Extent(pack, 0, 1), 0, (GroupId("job", 0, 0),), (pack,))
            manifest = Manifest("job", number, 0, 0, "c", "q", "/l", "d", (part,))
            await bucket.put(manifest.name, manifest_bytes(manifest))
            os.utime(tmp_path / manifest.name, (number * DAY_S, number * DAY_S))

    asyncio.run(write())
    return tmp_path


def batches(archive: Path) -> list[int]:
    return sorted(int(path.name.partition("-")[0]) for path in (archive / "job" / "batches").iterdir())


def packs(archive: Path) -> list[str]:
    return sorted(path.name for path in (archive / "job" / "packs").iterdir())


def test_it_shows_what_goes_and_changes_nothing_without_an_answer(archive: Path) -> None:
    result = prune(archive, "--keep", "newest=2")
    assert isinstance(result.exception, InvalidRequestError)
    assert "--yes is missing" in str(result.exception)
    row = next(line.split() for line in result.output.splitlines() if line.startswith("job "))
    assert row[:4] == ["job", "2", "0,", "1"]
    assert (batches(archive), packs(archive)) == ([0, 1, 2, 3], PACKS)


def test_packs_go_a_day_after_their_batches(archive: Path) -> None:
    result = prune(archive, "--keep", "newest=2", "--yes")
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "deleted")
    assert (batches(archive), packs(archive)) == ([2, 3], PACKS)
    noted = json.loads((archive / "job" / UNNAMED).read_text())
    assert noted == dict.fromkeys(PACKS[:2])  # since the time of this note
    (archive / "job" / UNNAMED).write_text(json.dumps(dict.fromkeys(PACKS[:2], 2 * DAY_S * 1000)))
    result = prune(archive, "--keep", "newest=2", "--yes", "--json")
    (found,) = json.loads(result.output)["queries"].values()
    assert (found["batches"], sorted(found["packs"])) == ([], [pack_name("job", pack) for pack in PACKS[:2]])
    assert packs(archive) == PACKS[2:]
    assert prune(archive, "--keep", "newest=2").output.splitlines()[-1] == "nothing is deleted"


def test_the_newest_batch_stays_whatever_is_asked(archive: Path) -> None:
    assert prune(archive, "--keep", "daily=1", "--yes").exit_code == 0
    assert batches(archive) == [3]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--archive needs --keep"),
        (("--keep", "newest"), "batches to keep = 'newest': must be like"),
        (("--keep", "newest=1", "--job", "nobody"), "has no batch of query 'nobody'"),
    ],
)
def test_what_is_wrong_is_named(archive: Path, arguments: tuple[str, ...], said: str) -> None:
    result = prune(archive, *arguments)
    assert isinstance(result.exception, RhinoError)
    assert said in str(result.exception)
    assert batches(archive) == [0, 1, 2, 3]
