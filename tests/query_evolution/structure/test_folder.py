"""The checkpoint of a restructured query."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from query_evolution.branches.folder import BranchFolder
from query_evolution.structure.alignment import Choices
from query_evolution.structure.folder import Restructuring, examine, rearrange
from query_evolution.structure.operators import read_operators
from rhino_core.errors import IntegrityError, PreconditionError
from spark_connector import operator_metadata
from spark_connector.query_checkpoint import QueryCheckpoint
from tests.query_evolution.structure.described import write_checkpoint, write_sketch, write_versioned

COUNT = "stateStoreSave: k long -> count long?"
USERS = "dedupe: user string -> "
TWS = "transformWithStateInPandasExec"
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


def test_schema_files_that_are_named_by_full_paths_move_with_the_operator(tmp_path: Path) -> None:
    """And one that is born has none: Spark writes it with its first batch."""
    families, kinds = {"total": "k int -> n long"}, {"total": "ValueState"}
    write_versioned(tmp_path / "old", 1, TWS, families, batch=1, variables=kinds)
    write_versioned(tmp_path / "old", 1, TWS, families | {"more": "k int -> v long"}, batch=3, variables=kinds)
    source = write_checkpoint(tmp_path / "old", [COUNT])
    commit = source.folder / "commits" / "2"
    commit.write_text(commit.read_text().replace('{"0": ', '{"1": [["1-0-2"], ["1-1-2"]], "0": '))
    sketch = write_sketch(tmp_path / "sketch", [USERS, COUNT])
    write_versioned(sketch, 2, TWS, families, variables=kinds)
    write_versioned(sketch, 3, "symmetricHashJoin", {"left-keyToNumValues": "k long -> value long"})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    plan = examine(source, sketch, None, Choices())
    checkpoint = made(tmp_path, plan)
    new = checkpoint.folder / "state"
    assert files(new / "2") == {"_metadata/v2/1", "_stateSchema/default/1_schema"}
    assert files(new / "3") == {"_metadata/v2/2"}
    (kept,), (born,) = (operator_metadata.versions(new / number).values() for number in ("2", "3"))
    fields = operator_metadata.read(kept)
    assert operator_metadata.schema_paths(fields) == [f"file:{new}/2/_stateSchema/default/1_schema"]
    assert fields["operatorInfo"] == {"operatorId": 2, "operatorName": TWS}
    assert operator_metadata.schema_paths(operator_metadata.read(born)) == []
    assert len(plan.empty(checkpoint.job)) == 4  # two operators with two partitions
    assert {path: path.read_bytes() for path in before} == before
    former = (f"{tmp_path}/old/".encode(), f"{tmp_path}/sketch/".encode())
    texts = [path.read_bytes() for path in checkpoint.folder.rglob("*") if path.is_file()]
    assert not [text for text in texts if any(one in text for one in former)]


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


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
