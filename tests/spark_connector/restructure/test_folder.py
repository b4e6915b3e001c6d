"""The checkpoint of a restructured query."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rhino_core.errors import IntegrityError, PreconditionError
from spark_connector.branch.folder import BranchFolder
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.restructure.alignment import Choices
from spark_connector.restructure.folder import Restructuring, examine, rearrange
from spark_connector.restructure.operators import read_operators
from tests.spark_connector.restructure.described import write_checkpoint, write_sketch

COUNT = "stateStoreSave: k long -> count long?"
USERS = "dedupe: user string -> "
RECENT = "dedupeWithinWatermark: user string -> expiresAtMicros long"


def examined(tmp_path: Path, old: list[str], new: list[str], batch: int | None = None) -> Restructuring:
    source = write_checkpoint(tmp_path / "old", old)
    return examine(source, write_sketch(tmp_path / "sketch", new), batch, Choices())


def made(tmp_path: Path, plan: Restructuring) -> QueryCheckpoint:
    with BranchFolder(plan.source, tmp_path / "new", plan.logged.batch_id) as folder:
        folder.fill()
        rearrange(folder.work, plan, plan.empty(folder.job))
        return QueryCheckpoint(folder.finish())


def test_state_is_named_under_the_new_numbers(tmp_path: Path) -> None:
    plan = examined(tmp_path, [COUNT, USERS], [RECENT, COUNT], 1)
    before = {path: path.read_bytes() for path in (tmp_path / "old").rglob("*") if path.is_file()}
    checkpoint = made(tmp_path, plan)
    assert [(o.number, o.name) for o in read_operators(checkpoint.folder)] == [
        (0, "dedupeWithinWatermark"),
        (1, "stateStoreSave"),
    ]
    assert (checkpoint.batches("commits"), checkpoint.batches("offsets")) == ([1], [0, 1, 2])
    logged = checkpoint.logged()
    links = plan.links(checkpoint.job)
    kept = [v for v in logged.versions if v.store.operator == 1]
    assert [v.version.checkpoint_id for v in kept] == ["0-0-1", "0-1-1"]
    assert [(link.target, link.source.version) for link in links] == kept
    assert {link.source.store for link in links} == {v.store for v in plan.logged.versions if v.store.operator == 0}
    born = [v for v in logged.versions if v.store.operator == 0]
    assert [(v.store.partition, v.version.version) for v in born] == [(0, 2), (1, 2)]
    assert len({v.version.checkpoint_id for v in logged.versions}) == 4
    fields = json.loads((checkpoint.folder / "commits" / "1").read_text().partition("\n")[2])
    assert fields["nextBatchWatermarkMs"] == 7
    assert {path: path.read_bytes() for path in (tmp_path / "old").rglob("*") if path.is_file()} == before
    assert {path.name for path in checkpoint.folder.iterdir()} == {"metadata", "offsets", "commits", "state"}


def test_state_keeps_the_schema_with_which_it_was_written(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "old", [COUNT, USERS])
    sketch = write_sketch(tmp_path / "sketch", [USERS.replace("user", "url"), COUNT])
    plan = examine(source, sketch, None, Choices({1: 0}))
    users, _ = read_operators(made(tmp_path, plan).folder)
    assert users.stores[0].key[0].name == "user"


def test_an_operator_that_is_dropped_leaves_nothing(tmp_path: Path) -> None:
    checkpoint = made(tmp_path, examined(tmp_path, [USERS, COUNT], [COUNT]))
    assert [path.name for path in (checkpoint.folder / "state").iterdir()] == ["0"]
    assert {v.store.operator for v in checkpoint.logged().versions} == {0}


def test_a_plan_without_a_change_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="has the same stateful operators"):
        examined(tmp_path, [COUNT, USERS], [COUNT, USERS])


def test_a_plan_with_other_settings_or_sources_is_refused(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "old", [COUNT])
    sketch = write_sketch(tmp_path / "two", [COUNT, USERS], sources=2)
    with pytest.raises(PreconditionError, match=r"reads 2 sources \(offset log v1\), and the query 1"):
        examine(source, sketch, None, Choices())
    sketch = write_sketch(tmp_path / "sketch", [COUNT, USERS])
    entry = sketch / "offsets" / "0"
    entry.write_text(entry.read_text().replace('stateFormatVersion": "2"', 'stateFormatVersion": "1"'))
    with pytest.raises(PreconditionError, match=r"planned with .*stateFormatVersion = 1, and the query goes on with 2"):
        examine(source, sketch, None, Choices())


def test_a_batch_that_does_not_name_the_state_is_refused(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "old", [COUNT, USERS])
    path = source.folder / "commits" / "2"
    fields = json.loads(path.read_text().partition("\n")[2])
    del fields["stateUniqueIds"]["1"]
    path.write_text(f"v2\n{json.dumps(fields)}")
    with pytest.raises(IntegrityError, match="batch 2 names no state of operator 1"):
        examine(source, write_sketch(tmp_path / "sketch", [USERS, COUNT]), None, Choices())


def test_what_a_crash_of_the_command_has_left_is_in_nobodys_way(tmp_path: Path) -> None:
    plan = examined(tmp_path, [COUNT, USERS], [RECENT, COUNT])
    cut_off = BranchFolder(plan.source, tmp_path / "new", plan.logged.batch_id)
    cut_off.fill()
    rearrange(cut_off.work, plan, plan.empty(cut_off.job))
    assert cut_off.work.name.endswith(cut_off.job)
    checkpoint = made(tmp_path, plan)
    assert checkpoint.job != cut_off.job
    assert cut_off.work.is_dir()
