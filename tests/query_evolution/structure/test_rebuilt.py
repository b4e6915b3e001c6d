"""Rebuilt state is taken only where it is the state after exactly the batch with which the new query begins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from query_evolution.branches.folder import BranchFolder
from query_evolution.structure.alignment import Choices
from query_evolution.structure.folder import Restructuring, examine, rearrange
from query_evolution.structure.operators import read_operators
from query_evolution.structure.rebuilt import FILE, Origin, origin_of
from rhino_core.errors import IntegrityError, PreconditionError
from spark_connector import operator_metadata
from spark_connector.query_checkpoint import QueryCheckpoint
from tests.query_evolution.structure.described import write_checkpoint, write_rebuilt, write_sketch, write_versioned

COUNT = "stateStoreSave: k long -> count long?"
SUM = "stateStoreSave: k long -> sum double?"
USERS = "dedupe: user string -> "
RECENT = "dedupeWithinWatermark: user string -> expiresAtMicros long"
JOIN = {"left-keyToNumValues": "k long -> value long", "right-keyToNumValues": "k long -> value long"}


def made(tmp_path: Path, plan: Restructuring) -> QueryCheckpoint:
    assert plan.rebuilt is not None
    with BranchFolder(plan.source, tmp_path / "new", plan.logged.batch_id) as folder:
        folder.fill()
        described = folder.copy_described(plan.rebuilt.checkpoint)
        rearrange(folder.work, plan, plan.empty(folder.job), described)
        return QueryCheckpoint(folder.finish())


def test_kept_state_is_the_former_querys_and_born_state_is_the_rebuilt_one(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "old", [COUNT, USERS])
    rebuilt = write_rebuilt(tmp_path / "rebuilt", [RECENT, COUNT])
    plan = examine(source, rebuilt.folder, 1, Choices())
    assert [(line.fate.value, line.new.number if line.new else None) for line in plan.alignment.lines] == [
        ("rebuilt", 0),
        ("moved", 1),
        ("dropped", None),
    ]
    checkpoint = made(tmp_path, plan)
    ids = {(v.store.operator, v.version.checkpoint_id) for v in checkpoint.logged().versions}
    assert ids == {(0, "r0-0-1"), (0, "r0-1-1"), (1, "0-0-1"), (1, "0-1-1")}
    links = plan.rebuilt_links(checkpoint.job)
    assert [(link.source.store.job, link.source.store.operator, link.target.operator) for link in links] == [
        ("job-2", 0, 0),
        ("job-2", 0, 0),
    ]
    assert {link.target.job for link in links} == {checkpoint.job}
    assert {link.source.store.job for link in plan.links(checkpoint.job)} == {"job-1"}
    assert plan.empty(checkpoint.job) == []
    names = {path.name for path in checkpoint.folder.iterdir()}
    assert names == {"metadata", "offsets", "commits", "state"}
    assert [o.name for o in read_operators(checkpoint.folder)] == ["dedupeWithinWatermark", "stateStoreSave"]


def test_schema_files_of_rebuilt_operators_are_named_in_the_new_checkpoint(tmp_path: Path) -> None:
    """In the version of the metadata that counts for the batch. Later ones stay away."""
    source = write_checkpoint(tmp_path / "old", [COUNT])
    rebuilt = write_rebuilt(tmp_path / "rebuilt", [COUNT])
    for batch in (0, 3):
        write_versioned(rebuilt.folder, 1, "symmetricHashJoin", JOIN, batch=batch)
    for commit in (rebuilt.folder / "commits").iterdir():
        commit.write_text(commit.read_text().replace('{"0": ', f'{{"1": [["j-0-{commit.name}"], ["j-1-x"]], "0": '))
    plan = examine(source, rebuilt.folder, None, Choices())
    checkpoint = made(tmp_path, plan)
    join = checkpoint.folder / "state" / "1"
    (version,) = operator_metadata.versions(join).items()
    assert version[0] == 0
    assert operator_metadata.schema_paths(operator_metadata.read(version[1])) == [
        f"file:{join}/_stateSchema/default/0_schema"
    ]
    assert (join / "_stateSchema/default/0_schema").is_file()
    texts = [path.read_bytes() for path in checkpoint.folder.rglob("*") if path.is_file()]
    assert not [text for text in texts if f"{rebuilt.folder}/".encode() in text]


def test_an_operator_that_was_changed_is_rebuilt_and_nothing_need_be_kept(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "old", [COUNT])
    rebuilt = write_rebuilt(tmp_path / "rebuilt", [SUM])
    with pytest.raises(PreconditionError, match="--drop 0 gives up its state"):
        examine(source, rebuilt.folder, None, Choices())
    plan = examine(source, rebuilt.folder, None, Choices(drop=frozenset({0})))
    assert [line.fate.value for line in plan.alignment.lines] == ["rebuilt", "dropped"]
    assert {v.version.checkpoint_id for v in made(tmp_path, plan).logged().versions} == {"r0-0-2", "r0-1-2"}


def test_state_after_another_batch_is_refused_and_both_are_named(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "old", [COUNT], batches=5)
    behind = write_rebuilt(tmp_path / "behind", [COUNT, USERS], batches=3)
    with pytest.raises(PreconditionError) as caught:
        examine(source, behind.folder, None, Choices())
    said = str(caught.value)
    assert f'{behind.folder}: stands after batch 2 (offsets {{"offset": 2}})' in said
    assert f'begins after batch 4 of {source.folder} (offsets {{"offset": 4}})' in said
    assert "run rebuild() again, which goes on where it has ended" in said
    assert examine(source, behind.folder, 2, Choices()).logged.batch_id == 2

    late = write_rebuilt(tmp_path / "late", [COUNT, USERS], batches=5, first=2)
    with pytest.raises(PreconditionError, match=r"begins with batch 2, .* may be taken after batch 3 or later"):
        examine(source, late.folder, 2, Choices())
    assert examine(source, late.folder, 3, Choices()).logged.batch_id == 3

    begun = write_rebuilt(tmp_path / "begun", [COUNT, USERS], batches=3, first=3)
    with pytest.raises(
        PreconditionError, match=r"has not run enough batches yet.*after batch 4.*run rebuild\(\) again"
    ):
        examine(source, begun.folder, None, Choices())

    (behind.folder / "commits" / "0").unlink()
    with pytest.raises(PreconditionError, match=r"stands after batch 2 .*choose a batch from 1 to 2 \(--batch\)"):
        examine(source, behind.folder, 0, Choices())


def test_state_of_other_rows_or_of_another_query_is_refused(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "old", [COUNT])
    rebuilt = write_rebuilt(tmp_path / "rebuilt", [COUNT, USERS])
    entry = rebuilt.folder / "offsets" / "2"
    entry.write_text(entry.read_text().replace('{"offset": 2}', '{"offset": 7}'))
    with pytest.raises(PreconditionError, match=r'batch 2 ends at {"offset": 7}, and that of .* at {"offset": 2}'):
        examine(source, rebuilt.folder, None, Choices())
    Origin("job-9", 0, 0).write(rebuilt.folder)
    with pytest.raises(PreconditionError, match=r"was rebuilt for query job-9, and .*old is query job-1"):
        examine(source, rebuilt.folder, None, Choices())


def test_state_in_other_partitions_or_without_an_operator_is_refused(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "old", [COUNT])
    rebuilt = write_rebuilt(tmp_path / "rebuilt", [COUNT, USERS])
    metadata = [rebuilt.folder / "state" / number / "_metadata" / "metadata" for number in ("0", "1")]
    for path in metadata:
        path.write_text(path.read_text().replace('"numPartitions": 2', '"numPartitions": 4'))
    with pytest.raises(PreconditionError, match="has 2 partitions, and the new plan 4"):
        examine(source, rebuilt.folder, None, Choices())
    for path in metadata:
        path.write_text(path.read_text().replace('"numPartitions": 4', '"numPartitions": 2'))
    commit = rebuilt.folder / "commits" / "2"
    fields = json.loads(commit.read_text().partition("\n")[2])
    del fields["stateUniqueIds"]["1"]
    commit.write_text(f"v2\n{json.dumps(fields)}")
    with pytest.raises(IntegrityError, match="batch 2 names no state of operator 1"):
        examine(source, rebuilt.folder, None, Choices())


def test_a_mere_sketch_has_no_origin_and_a_broken_one_is_named(tmp_path: Path) -> None:
    sketch = write_sketch(tmp_path / "sketch", [COUNT])
    assert origin_of(sketch) is None
    Origin("job-1", 4, 5).write(sketch)
    assert origin_of(sketch) == Origin("job-1", 4, 5)
    assert (Origin("job-1", 4, 5).shown, Origin("job-1", 0, 0).shown) == (
        "the rows that the sources still have",
        "batch 0",
    )
    (sketch / FILE).write_text("{")
    with pytest.raises(IntegrityError, match=r"rebuilt is not readable"):
        origin_of(sketch)
