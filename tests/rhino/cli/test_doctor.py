"""`rhino doctor` on a checkpoint without state. Checkpoints with state are in tests/spark_connector/doctor."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rhino.cli import exit_codes
from rhino.cli.main import app
from rhino_archive.bucket import Bucket
from rhino_core.errors import AlreadyThereError, InvalidRequestError, PreconditionError, RhinoError, UnknownError
from spark_connector.query_checkpoint import PROVIDER_KEY
from tests.rhino_archive.support.stores import BUCKET, s3, use
from tests.spark_connector.support.checkpoint import RHINO, make

pytest.importorskip("obstore")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "q"
    make(folder, {}, batches=4)
    (folder / "state").rmdir()
    for batch in range(4):
        (folder / f"offsets/.{batch}.crc").unlink()
        conf = {"conf": {}, "batchTimestampMs": 1_700_000_000_000 + 30_000 * batch}
        (folder / f"offsets/{batch}").write_text(f'v1\n{json.dumps(conf)}\n{{"offset":{batch}}}')
    age(folder)
    return folder


def age(folder: Path) -> None:
    """The query has stopped some time ago."""
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - 3600,) * 2)


def doctor(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["doctor", "--json", *map(str, arguments)])
    if isinstance(result.exception, RhinoError):
        raise result.exception
    return result.exit_code, json.loads(result.stdout)


def test_a_sound_checkpoint_opens_and_its_cost_is_told(checkpoint: Path) -> None:
    code, found = doctor("--checkpoint", checkpoint)
    assert code == exit_codes.OK
    assert (found["opens"], found["as_it_is"], found["query_id"], found["move"]) == (3, True, "job-1", None)
    cost = found["cost"]
    assert (cost["interval_s"], cost["puts_a_batch"], cost["puts"]) == (30, 2, 2 * 30 * 86400 // 30)
    assert cost["request_dollars"] == pytest.approx(0.864)


def test_damage_is_told_by_name_and_exit_code(checkpoint: Path) -> None:
    (checkpoint / "offsets/3").write_text("v1\n{")
    age(checkpoint)
    code, found = doctor("--checkpoint", f"file:{checkpoint}")
    assert (code, found["opens"], found["as_it_is"]) == (exit_codes.FAILED, 2, False)
    blocking = {finding["file"] for finding in found["findings"] if finding["severity"] == "blocks"}
    assert blocking == {"offsets/3"}


def test_a_repaired_copy_ends_with_the_newest_batch_that_opens(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "commits/3").write_text("v2\n{")
    age(checkpoint)
    target = tmp_path / "copy"
    code, found = doctor("--checkpoint", checkpoint, "--repair-into", target)
    assert (code, found["repaired"]["batch"]) == (exit_codes.REPAIRED, 2)
    assert "batch 3 is computed again with the same rows" in found["repaired"]["consequences"][0]
    assert sorted(path.name for path in (target / "commits").iterdir()) == ["0", "1", "2"]
    assert sorted(path.name for path in (target / "offsets").iterdir()) == ["0", "1", "2", "3"]
    assert doctor("--checkpoint", target)[0] == exit_codes.OK
    with pytest.raises(AlreadyThereError, match="not empty"):
        doctor("--checkpoint", checkpoint, "--repair-into", target)
    with pytest.raises(PreconditionError, match="within the checkpoint"):
        doctor("--checkpoint", checkpoint, "--repair-into", checkpoint / "copy")


def test_a_query_that_may_run_is_not_repaired(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "commits/3").write_text("v2\n{")
    with pytest.raises(PreconditionError, match="may be running"):
        doctor("--checkpoint", checkpoint, "--repair-into", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_gaps_in_the_logs_of_a_query_without_state_are_no_damage(checkpoint: Path) -> None:
    """Asynchronous progress tracking makes them."""
    for batch in (0, 2):
        (checkpoint / f"offsets/{batch}").unlink()
        (checkpoint / f"commits/{batch}").unlink()
    age(checkpoint)
    code, found = doctor("--checkpoint", checkpoint)
    assert (code, found["opens"], found["as_it_is"]) == (exit_codes.OK, 3, True)
    assert [finding["file"] for finding in found["findings"]] == ["commits/2", "offsets/2", "state"]


def test_state_in_rhino_is_not_missed(checkpoint: Path, tmp_path: Path) -> None:
    for batch in range(4):
        path = checkpoint / f"offsets/{batch}"
        path.write_text(path.read_text().replace('"conf": {}', f'"conf": {{"{PROVIDER_KEY}": "{RHINO}"}}'))
        ids = {"stateUniqueIds": {"0": [["an-id"], ["another-id"]]}}
        (checkpoint / f"commits/{batch}").write_text(f"v2\n{json.dumps(ids)}")
    age(checkpoint)
    code, found = doctor("--checkpoint", checkpoint)
    assert (code, found["opens"], found["move"]) == (exit_codes.OK, 3, None)
    assert "the state is in Rhino" in found["findings"][0]["text"]
    with pytest.raises(PreconditionError, match="rewind"):
        doctor("--checkpoint", checkpoint, "--repair-into", tmp_path / "copy")


def test_lost_state_of_stock_spark_is_missed(checkpoint: Path) -> None:
    ids = {"stateUniqueIds": {"0": [["an-id"], ["another-id"]]}}
    (checkpoint / "commits/3").write_text(f"v2\n{json.dumps(ids)}")
    age(checkpoint)
    code, found = doctor("--checkpoint", checkpoint)
    assert (code, found["opens"], found["as_it_is"]) == (exit_codes.FAILED, -1, False)
    lost = {(f["file"], f["partition"], f["batch"]) for f in found["findings"] if f["severity"] == "blocks"}
    assert lost == {("state/0/0/4_an-id.changelog", 0, 3), ("state/0/1/4_another-id.changelog", 1, 3)}


def test_a_lost_id_is_read_from_the_rest_of_its_file(checkpoint: Path, tmp_path: Path) -> None:
    job = "6cdca789-1774-491b-b3fb-39b042eece10"
    (checkpoint / "metadata").write_text(f'{{"id":"{job}')
    age(checkpoint)
    doctor("--checkpoint", checkpoint, "--repair-into", tmp_path / "copy")
    assert json.loads((tmp_path / "copy/metadata").read_text()) == {"id": job}


@pytest.mark.parametrize(
    ("location", "error"), [("/nowhere", UnknownError), ("hdfs://nn/q", InvalidRequestError), ("{empty}", UnknownError)]
)
def test_other_locations_are_refused(location: str, error: type[RhinoError], tmp_path: Path) -> None:
    with pytest.raises(error):
        doctor("--checkpoint", location.format(empty=tmp_path))


def test_a_checkpoint_in_a_bucket_is_examined_and_repaired_into_a_folder(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkpoint / "commits/3").write_text("v2\n{")
    (checkpoint / "state/0/0/_metadata").mkdir(parents=True)
    (checkpoint / "state/0/0/_metadata/schema").write_text("no schema")
    age(checkpoint)
    _, found = doctor("--checkpoint", checkpoint)
    with s3() as address:
        use(address, monkeypatch)
        asyncio.run(put(checkpoint, Bucket(f"s3://{BUCKET}/ckpt/q")))
        code, there = doctor("--checkpoint", f"s3a://{BUCKET}/ckpt/q")
        with pytest.raises(PreconditionError, match="may be running"):  # the objects are new
            doctor("--checkpoint", f"s3://{BUCKET}/ckpt/q", "--repair-into", tmp_path / "copy")
        monkeypatch.setattr("rhino.cli.doctor.LIVE_S", 0)
        repaired = doctor("--checkpoint", f"s3://{BUCKET}/ckpt/q", "--repair-into", tmp_path / "copy")
    assert (code, there["checkpoint"]) == (exit_codes.FAILED, f"s3://{BUCKET}/ckpt/q")
    assert damage(there) == damage(found) == {"commits/3", "state/0/0/_metadata/schema"}
    assert (repaired[0], repaired[1]["repaired"]["batch"]) == (exit_codes.REPAIRED, 2)
    assert not (tmp_path / "copy/state").exists()


async def put(folder: Path, bucket: Bucket) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            await bucket.put(str(path.relative_to(folder)), path.read_bytes())


def damage(found: dict[str, Any]) -> set[str]:
    return {finding["file"] for finding in found["findings"] if finding["severity"] != "note"}


def test_people_read_a_verdict_the_damage_and_a_way_out(checkpoint: Path) -> None:
    (checkpoint / "offsets/3").write_text("")
    age(checkpoint)
    result = CliRunner().invoke(app, ["doctor", "--checkpoint", str(checkpoint), "--quick"])
    assert "DAMAGED: batch 3 does not open; batch 2 does in a repaired copy" in result.stdout
    assert "blocks   offsets/3 (batch 3): is empty" in result.stdout
    assert "--repair-into FOLDER" in result.stdout
