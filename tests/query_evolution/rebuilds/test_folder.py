"""The checkpoint in which former rows are replayed, and which batch it begins with. Spark's part is in tests/spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from query_evolution.branches.folder import HiddenFolder
from query_evolution.rebuilds.folder import fill, first_batch, without_watermark
from query_evolution.rebuilds.replay import Replay
from query_evolution.structure.operators import read_operators
from query_evolution.structure.rebuilt import Origin, origin_of
from rhino_core.errors import AlreadyThereError, InvalidRequestError, PreconditionError
from spark_connector import operator_metadata
from spark_connector.query_checkpoint import QueryCheckpoint
from tests.query_evolution.structure.described import write_checkpoint, write_sketch, write_versioned

COUNT = "stateStoreSave: k long -> count long?"
USERS = "dedupe: user string -> "
JOIN = {"left-keyToNumValues": "k long -> value long", "right-keyToNumValues": "k long -> value long"}


def begun(live: QueryCheckpoint, folder: Path, first: int, sketch: Path | None) -> QueryCheckpoint:
    with HiddenFolder(live, folder) as made:
        entry = (live.folder / "offsets" / str(first)).read_bytes()
        empty = fill(made, live, first, sketch, entry)
        assert {version.store.job for version in empty} <= {made.job}
        return QueryCheckpoint(made.finish())


def test_it_begins_with_the_oldest_batch_that_both_logs_have(tmp_path: Path) -> None:
    live = write_checkpoint(tmp_path / "live", [COUNT], batches=5)
    assert first_batch(live, None) == 0
    for name in ("offsets/0", "offsets/1", "commits/0"):
        (live.folder / name).unlink()
    assert first_batch(live, None) == 2
    assert first_batch(live, 4) == 4
    for asked in (1, 5):  # batch 5 is only planned
        with pytest.raises(PreconditionError, match=f"batch {asked} is not in its logs, which have 2 to 4"):
            first_batch(live, asked)
    with pytest.raises(PreconditionError, match="no batch is committed"):
        first_batch(write_checkpoint(tmp_path / "new", [COUNT], batches=0), None)


def test_from_batch_0_spark_describes_everything(tmp_path: Path) -> None:
    live = write_checkpoint(tmp_path / "live", [COUNT], batches=3)
    made = begun(live, tmp_path / "rebuilt", 0, None)
    assert {path.name for path in made.folder.rglob("*")} == {"metadata", "offsets", "commits", "rebuilt"}
    assert origin_of(made.folder) == Origin("job-1", 0, 0)
    assert made.job != live.job


def test_before_a_later_batch_nothing_was_read_and_all_stores_are_empty(tmp_path: Path) -> None:
    live = write_checkpoint(tmp_path / "live", [COUNT], batches=5, sources=2)
    log = live.folder / "sources" / "0" / "3"
    log.parent.mkdir(parents=True)
    log.write_text("v1\nfiles")
    sketch = write_sketch(tmp_path / "sketch", [COUNT, USERS], sources=2)
    write_versioned(sketch, 2, "symmetricHashJoin", JOIN)
    before = {path: path.read_bytes() for path in live.folder.rglob("*") if path.is_file()}
    made = begun(live, tmp_path / "rebuilt", 3, sketch)
    assert (made.batches("offsets"), made.batches("commits")) == ([2], [2])
    version, head, *rows = (made.folder / "offsets" / "2").read_text().split("\n")
    assert (version, rows) == ("v1", ["-", "-"])
    fields = json.loads(head)
    assert (fields["batchWatermarkMs"], fields["batchTimestampMs"]) == (0, 5003)
    assert fields["conf"] == json.loads((live.folder / "offsets" / "3").read_text().split("\n")[1])["conf"]
    stores = {(v.store.operator, v.store.partition, v.version.version) for v in made.logged().versions}
    assert stores == {(operator, partition, 3) for operator in (0, 1, 2) for partition in (0, 1)}
    assert len({v.version.checkpoint_id for v in made.logged().versions}) == 6
    assert '"nextBatchWatermarkMs":0' in (made.folder / "commits" / "2").read_text()
    ((batch, path),) = operator_metadata.versions(made.folder / "state" / "2").items()
    assert (batch, operator_metadata.schema_paths(operator_metadata.read(path))) == (2, [])
    shutil.rmtree(made.folder / "state" / "2")  # the join names no schema file until Spark has run it
    assert [o.name for o in read_operators(made.folder)] == ["stateStoreSave", "dedupe"]
    assert (made.folder / "sources" / "0" / "3").read_text() == "v1\nfiles"
    assert origin_of(made.folder) == Origin("job-1", 3, 4), "windows that were closed by then reach others in batch 4"
    assert {path: path.read_bytes() for path in live.folder.rglob("*") if path.is_file()} == before


def test_a_log_in_which_nothing_cannot_be_said_is_refused(tmp_path: Path) -> None:
    assert without_watermark(b'v1\n{"batchWatermarkMs":9,"conf":{}}\n7\n-\n') == (
        b'v1\n{"batchWatermarkMs":0,"conf":{}}\n7\n-'
    )
    with pytest.raises(PreconditionError, match=r"offset log has version v2.*rebuild from batch 0"):
        without_watermark(b'v2\n{"batchWatermarkMs":9,"conf":{}}\n{}')


def test_a_later_call_goes_on_and_another_folder_is_refused(tmp_path: Path) -> None:
    live = write_checkpoint(tmp_path / "live", [COUNT], batches=5)
    sketch = write_sketch(tmp_path / "sketch", [COUNT, USERS])
    made = begun(live, tmp_path / "rebuilt", 3, sketch)
    replay = Replay(live, made.folder)
    assert replay.next_batch() == 3
    for batch in (3, 4):
        entry = (live.folder / "offsets" / str(batch)).read_text()
        (made.folder / "offsets" / str(batch)).write_text(entry)
        (made.folder / "commits" / str(batch)).write_text("v2\n{}")
    replay = Replay(live, made.folder)  # the entry before the first one has other rows than that of the live query
    assert replay.next_batch() == 5
    replay.check_first(None)
    replay.check_first(3)
    with pytest.raises(InvalidRequestError, match="was begun with batch 3, and not with 4"):
        replay.check_first(4)
    path = made.folder / "offsets" / "4"
    path.write_text(path.read_text().replace('{"offset": 4}', '{"offset": 9}'))
    with pytest.raises(PreconditionError, match=r"batch 4 has other rows.*delete .*rebuilt and rebuild anew"):
        Replay(live, made.folder)
    with pytest.raises(AlreadyThereError, match=r"sketch: is there already, and rebuild\(\) has not made it"):
        Replay(live, sketch)
    other = write_checkpoint(tmp_path / "other", [COUNT], job="job-3")
    with pytest.raises(PreconditionError, match="was rebuilt for query job-1"):
        Replay(other, made.folder)
