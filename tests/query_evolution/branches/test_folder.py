"""The checkpoint folder of a branch: what it has of the other query's, and what not."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from query_evolution.branches import folder as branch
from query_evolution.branches.folder import BranchFolder
from query_evolution.modify.folder import ModificationFolder
from query_evolution.modify.jars import JarCode, JarFunction
from query_evolution.modify.join import How, Join, StaticTable
from query_evolution.modify.ledger import State
from query_evolution.modify.record import Change, Kind
from rhino_core.errors import AlreadyThereError, PreconditionError
from spark_connector.facts import create_fact
from spark_connector.query_checkpoint import QueryCheckpoint
from tests.spark_connector.support.checkpoint import make

IDS = {"0": [["a"], ["b"]]}


@pytest.fixture
def source(tmp_path: Path) -> QueryCheckpoint:
    """Batches 0 to 4 are committed, and 5 is planned."""
    made = make(tmp_path / "q", IDS, batches=6)
    (made.folder / "commits" / "5").unlink()
    store = made.folder / "state" / "0" / "0"
    for name in ("_metadata/schema", "SSTs/000001-x.sst", "2_id.zip", "2_id.changelog", ".2_id.zip.crc"):
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text(name)
    (made.folder / "state" / "0" / "_metadata").mkdir()
    (made.folder / "state" / "0" / "_metadata" / "metadata").write_text("operators")
    (made.folder / "sources" / "0").mkdir(parents=True)
    (made.folder / "sources" / "0" / "0").write_text("files")
    return made


def branched(source: QueryCheckpoint, target: Path, batch: int) -> QueryCheckpoint:
    with BranchFolder(source, target, batch) as made:
        made.fill()
        assert not (target / "metadata").exists()
        assert made.finish() == target
    assert [path.name for path in target.parent.iterdir() if "rhino-branch" in path.name] == []
    return QueryCheckpoint(target)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_it_is_another_query_at_the_same_batch_with_the_rows_of_the_next_one(
    source: QueryCheckpoint, tmp_path: Path
) -> None:
    before = {name: (source.folder / name).read_bytes() for name in files(source.folder)}
    made = branched(source, tmp_path / "new" / "b", 3)
    assert made.job != source.job
    assert made.job != branched(source, tmp_path / "c", 3).job
    assert (made.batches("commits"), made.batches("offsets")) == ([0, 1, 2, 3], [0, 1, 2, 3, 4])
    versions = made.logged().versions
    assert [v.version for v in versions] == [v.version for v in source.logged(3).versions]
    assert {v.store.job for v in versions} == {made.job}
    assert {name for name in files(made.folder) if name.startswith(("state", "sources"))} == {
        "state/0/_metadata/metadata",
        "state/0/0/_metadata/schema",
        "sources/0/0",
    }
    assert {name: (source.folder / name).read_bytes() for name in files(source.folder)} == before


def test_modifications_in_force_come_along_and_others_do_not(source: QueryCheckpoint, tmp_path: Path) -> None:
    ledger, root = ModificationFolder(source.folder), source.folder / "modifications"
    for target in ("old", "new", "late", "asked"):
        ledger.add(Change(Kind.FILTER, target, condition="true"), "me", dry_run=False)
    for kind in ("outcomes", "bindings", "returns"):
        (root / kind).mkdir()
    for number in (1, 2, 3):
        (root / "outcomes" / str(number)).write_text("{}")
    for batch, number in ((1, 1), (3, 2), (4, 3)):
        (root / "bindings" / str(batch)).write_text(json.dumps({"records": [number], "replaces": []}))
    (root / "returns" / "3").write_text(json.dumps({"from": 3, "reason": "it failed"}))
    made = branched(source, tmp_path / "b", 3)
    views = ModificationFolder(made.folder).read().views()
    assert [(view.record.number, view.state) for view in views] == [(1, State.IN_FORCE), (2, State.RETURNED)]
    newest = branched(source, tmp_path / "c", 4)
    assert [view.record.number for view in ModificationFolder(newest.folder).read().views()] == [1, 2, 3]


def test_tables_of_joins_in_force_come_along(source: QueryCheckpoint, tmp_path: Path) -> None:
    ledger, root = ModificationFolder(source.folder), source.folder / "modifications"
    join = Join(StaticTable("/tables/vip"), {"k": "id"}, How.LEFT_SEMI)
    for target in ("used", "late"):
        ledger.add(Change(Kind.JOIN, target, join=join), "me", dry_run=False)
    for kind in ("outcomes", "bindings", "tables"):
        (root / kind).mkdir()
    for batch, number in ((1, 1), (4, 2)):
        (root / "outcomes" / str(number)).write_text("{}")
        (root / "bindings" / str(batch)).write_text(json.dumps({"records": [number], "replaces": []}))
        (root / "tables" / str(number)).write_bytes(bytes([number, 255]))
    made = branched(source, tmp_path / "b", 3)
    copied = made.folder / "modifications" / "tables"
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == {"1": bytes([1, 255])}
    assert copied.stat().st_mode & 0o777 == 0o700


def test_jars_of_functions_in_force_come_along(source: QueryCheckpoint, tmp_path: Path) -> None:
    ledger, root = ModificationFolder(source.folder), source.folder / "modifications"
    digests = {}
    for number, (target, batch) in enumerate((("used", 1), ("again", 2), ("late", 4)), 1):
        content = b"late" if target == "late" else b"used"
        digests[target] = hashlib.sha256(content).hexdigest()
        function = JarFunction(JarCode("com.acme.Score", digests[target], len(content)), content)
        ledger.keep_jar(function)
        ledger.add(Change(Kind.FUNCTION, target, jar=function.code), "me", dry_run=False)
        for kind in ("outcomes", "bindings"):
            (root / kind).mkdir(exist_ok=True)
        (root / "outcomes" / str(number)).write_text("{}")
        (root / "bindings" / str(batch)).write_text(json.dumps({"records": [number], "replaces": []}))
    made = branched(source, tmp_path / "b", 3)
    copied = made.folder / "modifications" / "jars"
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == {f"{digests['used']}.jar": b"used"}
    modes = [path.stat().st_mode & 0o777 for path in (copied, *copied.iterdir())]
    assert modes == [0o700, 0o600]
    assert [view.record.change.target for view in ModificationFolder(made.folder).read().views()] == ["used", "again"]


@pytest.fixture
def modified(source: QueryCheckpoint) -> Path:
    """A record that is in force."""
    root = source.folder / "modifications"
    ModificationFolder(source.folder).add(Change(Kind.FILTER, "scored", condition="true"), "me", dry_run=False)
    create_fact(root / "outcomes", 1, "{}")
    create_fact(root / "bindings", 1, '{"records": [1], "replaces": []}')
    return root


def test_what_this_user_may_not_read_is_named(
    source: QueryCheckpoint, modified: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path, *, own: bool) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(branch, "read_bytes", denied)
    with pytest.raises(PreconditionError, match="only the user of the query's driver copies its modifications"):
        branched(source, tmp_path / "b", 3)


@pytest.mark.parametrize("kind", ["records", "outcomes", "bindings"])
def test_what_others_could_have_written_does_not_become_this_users(
    source: QueryCheckpoint, modified: Path, tmp_path: Path, kind: str
) -> None:
    (modified / kind / "1").chmod(0o666)
    with pytest.raises(PreconditionError, match=f"{kind}/1: its mode 666 lets others write to it"):
        branched(source, tmp_path / "b", 3)
    assert [path.name for path in tmp_path.iterdir()] == ["q"]


def test_copies_of_modifications_are_for_this_user_only(
    source: QueryCheckpoint, modified: Path, tmp_path: Path
) -> None:
    copied = branched(source, tmp_path / "b", 3).folder / "modifications"
    modes = {path.relative_to(copied).as_posix(): path.stat().st_mode & 0o777 for path in copied.rglob("*")}
    assert modes == {
        **dict.fromkeys(("records", "outcomes", "bindings"), 0o700),
        **dict.fromkeys(("records/1", "outcomes/1", "bindings/1"), 0o600),
    }


@pytest.mark.parametrize("place", ["commits/2", "offsets/2", "sources/0/1", "state/0/_metadata/more", "state/7"])
def test_no_link_in_a_checkpoint_is_followed(source: QueryCheckpoint, tmp_path: Path, place: str) -> None:
    secret = tmp_path / "secret"
    secret.mkdir() if place == "state/7" else secret.write_text("of somebody")
    (source.folder / place).unlink(missing_ok=True)
    (source.folder / place).symlink_to(secret)
    with pytest.raises(PreconditionError, match=f"{place}: is a link"):
        branched(source, tmp_path / "b", 3)


def test_files_and_folders_keep_their_modes(source: QueryCheckpoint, tmp_path: Path) -> None:
    expected = {"": 0o700, "commits": 0o750, "commits/2": 0o600, "state/0": 0o700, "state/0/_metadata/metadata": 0o640}
    for name, mode in expected.items():
        (source.folder / name).chmod(mode)
    made = branched(source, tmp_path / "b", 3)
    assert {name: (made.folder / name).stat().st_mode & 0o777 for name in expected} == expected


def test_a_target_in_use_is_refused(source: QueryCheckpoint, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for target in (source.folder, tmp_path / "file"):
        with pytest.raises(AlreadyThereError, match="is there already"):
            BranchFolder(source, target, 3)
    (tmp_path / "empty").mkdir()
    branched(source, tmp_path / "empty", 3)
    with pytest.raises(PreconditionError, match="within the checkpoint"):
        BranchFolder(source, source.folder / "state" / "b", 3)


def test_a_target_that_appears_meanwhile_is_not_overwritten(source: QueryCheckpoint, tmp_path: Path) -> None:
    target = tmp_path / "b"
    with BranchFolder(source, target, 3) as made:
        made.fill()
        target.mkdir()
        (target / "metadata").write_text("another query")
        with pytest.raises(AlreadyThereError):
            made.finish()
    assert (target / "metadata").read_text() == "another query"
    assert {path.name for path in tmp_path.iterdir()} == {"q", "b"}


def test_a_driver_that_writes_meanwhile_is_waited_for(
    source: QueryCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of files that is compacted meanwhile: the compact entry replaces the others."""
    log, copy = source.folder / "sources" / "0", branch.copy_file

    def compacting(origin: Path, target: Path) -> bool:
        if origin == log / "0" and not (log / "9.compact").exists():
            (log / "9.compact").write_text("all")
            origin.unlink()
        return copy(origin, target)

    monkeypatch.setattr(branch, "copy_file", compacting)
    made = branched(source, tmp_path / "b", 3)
    assert {name for name in files(made.folder) if name.startswith("sources")} == {"sources/0/9.compact"}


def test_a_batch_that_is_purged_meanwhile_is_said(
    source: QueryCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = branch.copy_file

    def purging(origin: Path, target: Path) -> bool:
        if origin.name == "3":
            origin.unlink()
        return copy(origin, target)

    monkeypatch.setattr(branch, "copy_file", purging)
    with BranchFolder(source, tmp_path / "b", 3) as made, pytest.raises(PreconditionError, match="removed meanwhile"):
        made.fill()
    assert {path.name for path in tmp_path.iterdir()} == {"q"}


def test_a_batch_that_is_not_logged_is_named(source: QueryCheckpoint) -> None:
    with pytest.raises(PreconditionError, match="batch 5 is not in the commit log, which has 0 to 4"):
        source.logged(5)
