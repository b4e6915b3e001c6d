"""Schema files that a checkpoint names by full paths: a branch names its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from query_evolution.branches.folder import BranchFolder
from rhino_core.errors import IntegrityError, PreconditionError
from spark_connector import operator_metadata
from spark_connector.operator_metadata import renamed_root
from spark_connector.query_checkpoint import QueryCheckpoint
from tests.query_evolution.structure.described import write_versioned
from tests.spark_connector.support.checkpoint import make

FAMILIES = {"total": "k int -> n long"}
NAME = "transformWithStateExec"


def written(folder: Path, *batches: int, root: str | None = None) -> QueryCheckpoint:
    """Batches 0 to 4 are committed. Metadata was written at these batches."""
    made = make(folder, {"0": [["a"], ["b"]]}, batches=5)
    for batch in batches:
        write_versioned(folder, 0, NAME, FAMILIES, batch=batch, root=root, variables={"total": "ValueState"})
    return made


def branched(source: QueryCheckpoint, target: Path, batch: int = 3) -> Path:
    with BranchFolder(source, target, batch) as made:
        made.fill()
        return made.finish()


def named(checkpoint: Path) -> dict[int, list[str]]:
    found = operator_metadata.versions(checkpoint / "state" / "0")
    return {batch: operator_metadata.schema_paths(operator_metadata.read(path)) for batch, path in found.items()}


def test_a_branch_names_its_own_schema_files(tmp_path: Path) -> None:
    source = written(tmp_path / "q", 0, 2)
    before = {path: path.read_bytes() for path in source.folder.rglob("*") if path.is_file()}
    made = branched(source, tmp_path / "b")
    schemas = made / "state" / "0" / "_stateSchema" / "default"
    assert named(made) == {0: [f"file:{schemas}/0_schema"], 2: [f"file:{schemas}/2_schema"]}
    assert {path.name for path in schemas.iterdir()} == {"0_schema", "2_schema"}
    former = f"{tmp_path}/q/".encode()
    assert not [path for path in made.rglob("*") if path.is_file() and former in path.read_bytes()]
    assert {path: path.read_bytes() for path in source.folder.rglob("*") if path.is_file()} == before


def test_metadata_of_later_batches_stays_behind(tmp_path: Path) -> None:
    """The branch plans these batches itself, perhaps with other schemas."""
    made = branched(written(tmp_path / "q", 0, 4), tmp_path / "b")
    assert [*named(made)] == [0]


def test_a_checkpoint_on_rhino_or_on_a_mounted_file_system_is_named_as_spark_does(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    made = branched(written(tmp_path / "one" / "q", 0, root=f"rhino://file{tmp_path}/one/q"), tmp_path / "b")
    assert named(made)[0] == [f"rhino://file{tmp_path}/b/state/0/_stateSchema/default/0_schema"]
    mounted = written(tmp_path / "ckpt" / "q", 0, root="hdfs://namenode:8020/ckpt/q")
    made = branched(mounted, tmp_path / "ckpt" / "new" / "b")
    assert named(made)[0] == ["hdfs://namenode:8020/ckpt/new/b/state/0/_stateSchema/default/0_schema"]


def test_a_checkpoint_that_was_moved_has_paths_of_its_former_place(tmp_path: Path) -> None:
    source = written(tmp_path / "q", 0, root="file:/former/q")
    write_versioned(source.folder, 0, NAME, FAMILIES, batch=2, variables={"total": "ValueState"})
    path = source.folder / "state" / "0" / "_metadata" / "v2" / "2"
    old = "file:/former/q/state/0/_stateSchema/default/0_schema"
    path.write_text(path.read_text().replace('"stateSchemaFilePaths": [', f'"stateSchemaFilePaths": ["{old}", '))
    schemas = tmp_path / "b" / "state" / "0" / "_stateSchema" / "default"
    assert named(branched(source, tmp_path / "b"))[2] == [f"file:{schemas}/0_schema", f"file:{schemas}/2_schema"]


@pytest.mark.parametrize(
    ("spark", "source", "target", "expected"),
    [
        ("file:/a/q", "/a/q", "/b/c", "file:/b/c"),
        ("rhino://file/a/q", "/a/q", "/b/c", "rhino://file/b/c"),
        ("rhino://hdfs@n:1/a/q", "/mnt/a/q", "/mnt/c", "rhino://hdfs@n:1/c"),
        ("hdfs://n:1/data/ckpt/q", "/mnt/ckpt/q", "/mnt/ckpt/c", "hdfs://n:1/data/ckpt/c"),
        ("file:/data/ckpt/q", "/pod/ckpt/q", "/pod/ckpt/x/../c", "file:/data/ckpt/c"),
    ],
)
def test_a_new_folder_is_named_like_the_former_one(spark: str, source: str, target: str, expected: str) -> None:
    assert renamed_root(spark, Path(source), Path(target)) == expected


def test_a_link_to_the_folder_is_the_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert renamed_root(f"file:{tmp_path}/real", tmp_path / "link", Path("/elsewhere/b")) == "file:/elsewhere/b"


def test_what_spark_would_name_in_an_unknown_way_is_refused(tmp_path: Path) -> None:
    for wrong, target, reason in (
        ("hdfs://n/ckpt/other", "b", "Give it as a folder whose path ends like that"),
        ("hdfs://n/ckpt/q", "../b", "must be a folder below .*, which is hdfs://n/ckpt by the metadata"),
        ("ckpt", "b", "is no full path"),
    ):
        source = written(tmp_path / wrong.partition(":")[0] / reason[:4] / "q", 0, root=wrong)
        before = [*source.folder.parent.iterdir()]
        with pytest.raises(PreconditionError, match=reason):
            BranchFolder(source, source.folder.parent / target, 3)
        assert [*source.folder.parent.iterdir()] == before


def test_a_schema_file_that_is_missing_is_said(tmp_path: Path) -> None:
    source = written(tmp_path / "q", 0)
    (source.folder / "state" / "0" / "_stateSchema" / "default" / "0_schema").unlink()
    with BranchFolder(source, tmp_path / "b", 3) as made, pytest.raises(IntegrityError, match="which is not in"):
        made.fill()
    assert {path.name for path in tmp_path.iterdir()} == {"q"}


@pytest.mark.parametrize("text", ["file:{root}/state/0/elsewhere", json.dumps({"path": "file:{root}/state/1/x"})])
def test_another_file_that_names_the_former_checkpoint_is_refused(tmp_path: Path, text: str) -> None:
    """Such as one of a version of Spark that Rhino does not know."""
    source = written(tmp_path / "q", 0)
    (source.folder / "state" / "0" / "_more").write_text(text.replace("{root}", str(tmp_path / "q")))
    with BranchFolder(source, tmp_path / "b", 3) as made, pytest.raises(PreconditionError, match="_more: names the"):
        made.fill()
    assert {path.name for path in tmp_path.iterdir()} == {"q"}
