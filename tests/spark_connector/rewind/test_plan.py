"""To which batch a query goes back, and what is moved for it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from rhino_core.errors import IntegrityError, InvalidRequestError, PreconditionError, UnknownError
from rhino_core.ids import FileEntry, StoreId, StoreVersion, Version
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.query_logs import CommittedBatch, QueryLogs
from spark_connector.rewind.files import checkpoint_files, local_path, move_away, sink_log_files
from spark_connector.rewind.plan import RewindPlan, StoredFiles, plan_rewind
from spark_connector.rewind.sink_log import entries_to_move

JOB = "job"
PARTITIONS = 2


def store(partition: int, name: str = "default") -> StoreId:
    return StoreId(JOB, 0, partition, name)


def version(batch: int, partition: int, name: str = "default") -> Version:
    return Version(batch + 1, f"id-{batch}-{partition}-{name}")


def changelog(batch: int, partition: int, name: str = "default") -> FileEntry:
    lineage = tuple(version(b, partition, name) for b in range(batch))
    return FileEntry(store(partition, name), f"{version(batch, partition, name)}.changelog", 10, 1, lineage)


def logs(newest: int, *, oldest: int = 0, planned: int | None = None, names: Iterable[str] = ("default",)) -> QueryLogs:
    commits = {
        b: CommittedBatch(b, {(0, p): tuple(version(b, p, n).checkpoint_id for n in names) for p in range(PARTITIONS)})
        for b in range(oldest, newest + 1)
    }
    return QueryLogs(JOB, frozenset(range(oldest, (newest if planned is None else planned) + 1)), commits)


def held(*files: FileEntry, floors: Iterable[StoreVersion] = ()) -> StoredFiles:
    state = StoredFiles()
    state.add(files, floors)
    return state


def all_until(batch: int, names: Iterable[str] = ("default",)) -> list[FileEntry]:
    return [changelog(b, p, n) for b in range(batch + 1) for p in range(PARTITIONS) for n in names]


def after_each_move(plan: RewindPlan, before: QueryLogs) -> Iterable[tuple[set[int], set[int]]]:
    """(offsets, commits) from start to end."""
    offsets, commits = set(before.offsets), set(before.commits)
    yield offsets, commits
    for log, batch in plan.moves:
        (offsets if log == "offsets" else commits).remove(batch)
        yield offsets, commits


def test_the_newest_batch_of_which_every_version_opens() -> None:
    files = [*all_until(5), changelog(6, 0), changelog(8, 0), changelog(8, 1)]
    plan = plan_rewind(logs(8, planned=9), held(*files))
    assert (plan.newest, plan.batch, plan.replayed, plan.recomputed) == (8, 5, 6, 4)
    assert [(p.batch, p.versions) for p in plan.skipped] == [(8, 2), (7, 2), (6, 1)]
    assert plan.skipped[-1].example == f"0/1 version {version(6, 1)}"


def test_what_is_left_is_always_what_spark_writes_and_the_next_batch_stays_planned() -> None:
    """However far the moves have come, at most the newest planned batch lacks its commit."""
    before = logs(8, planned=9)
    plan = plan_rewind(before, held(*all_until(5)))
    states = [(max(o), max(c), sorted(o), sorted(c)) for o, c in after_each_move(plan, before)]
    assert all(offsets - commits in (0, 1) for offsets, commits, _, _ in states)
    assert all(o == list(range(len(o))) and c == list(range(len(c))) for _, _, o, c in states)
    assert states[-1][:2] == (6, 5)


def test_files_of_several_workers_count_together_and_all_stores_of_a_join() -> None:
    names = ("left-keyToNumValues", "right-keyToNumValues")
    files = all_until(3, names)
    state = held(*files[::2])
    state.add(files[1::2], [])
    assert plan_rewind(logs(3, names=names), state).batch == 3
    assert not plan_rewind(logs(3, names=names), state).needed
    without = [f for f in files if f != changelog(3, 1, names[1])]
    assert plan_rewind(logs(3, names=names), held(*without)).batch == 2


def test_a_batch_that_is_held_leaves_everything_as_it_is() -> None:
    plan = plan_rewind(logs(4, planned=5), held(*all_until(4)))
    assert not plan.needed
    assert plan.moves == ()


def test_nothing_is_held() -> None:
    with pytest.raises(PreconditionError, match="no batch from 2 to 6 is complete; start it from a new checkpoint"):
        plan_rewind(logs(6, oldest=2), held(changelog(6, 0)))


def test_a_floor_that_has_gone_past_ends_the_search() -> None:
    floor = StoreVersion(store(1), version(5, 1))
    files = [f for f in all_until(8) if f.version is not None and f.version.version < 5]
    with pytest.raises(PreconditionError, match=r"the floor job/0/1/default@6_.* has gone past batch 4"):
        plan_rewind(logs(8), held(*files, floors=[floor]))
    assert plan_rewind(logs(8), held(*all_until(6), floors=[floor])).batch == 6


def test_a_query_without_state_and_logs_with_a_gap_are_refused() -> None:
    stateless = QueryLogs(JOB, frozenset({0}), {0: CommittedBatch(0, {})})
    with pytest.raises(PreconditionError, match="names no state"):
        plan_rewind(stateless, held())
    with pytest.raises(PreconditionError, match="commit log is empty"):
        plan_rewind(QueryLogs(JOB, frozenset({0}), {}), held())
    whole = logs(8)
    gap = QueryLogs(JOB, whole.offsets - {7}, whole.commits)
    with pytest.raises(PreconditionError, match="lacks batch 7"):
        plan_rewind(gap, held(*all_until(5)))


@pytest.mark.parametrize(
    ("names", "batch", "moved"),
    [
        (["0", "1", "2", "3"], 1, ["3", "2"]),
        (["7", "8", "9.compact", "10", "11", "12", "x", ".12.crc"], 10, ["12", "11"]),
        (["9.compact", "10"], 10, []),
        ([*(str(n) for n in range(9)), "9.compact", "10"], 8, ["10", "9.compact"]),
    ],
)
def test_entries_of_a_file_sink(names: list[str], batch: int, moved: list[str]) -> None:
    assert entries_to_move(names, batch) == moved


def test_a_sink_log_that_spark_could_not_read_afterwards_is_refused() -> None:
    with pytest.raises(PreconditionError, match="lacks batch 0"):
        entries_to_move(["7", "8", "9.compact", "10"], 8)


def write_checkpoint(folder: Path, newest: int) -> QueryCheckpoint:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": JOB}))
    for b in range(newest + 2):
        (folder / "offsets" / str(b)).write_text("v1\n{}")
        (folder / "offsets" / f".{b}.crc").write_text("crc")
    for b in range(newest + 1):
        ids = [[version(b, p).checkpoint_id] for p in range(PARTITIONS)]
        body = json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": ids}})
        (folder / "commits" / str(b)).write_text(f"v2\n{body}")
    return QueryCheckpoint(folder)


def test_a_checkpoint_as_spark_writes_it(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "c", 4)
    found = checkpoint.logs()
    assert found == logs(4, planned=5)
    plan = plan_rewind(found, held(*all_until(2)))
    files = checkpoint_files(checkpoint.folder, plan)
    moved = [path.relative_to(checkpoint.folder).as_posix() for path in files]
    assert moved == ["offsets/.5.crc", "offsets/5", "commits/4", "offsets/.4.crc", "offsets/4", "commits/3"]
    backup = checkpoint.folder / "backup"
    move_away(files, checkpoint.folder, backup)
    assert sorted(path.name for path in (checkpoint.folder / "offsets").glob("[0-9]*")) == ["0", "1", "2", "3"]
    assert checkpoint.logs().commits.keys() == {0, 1, 2}
    assert sorted(path.name for path in (backup / "commits").iterdir()) == ["3", "4"]
    assert not plan_rewind(checkpoint.logs(), held(*all_until(2))).needed


def test_what_is_no_checkpoint_or_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownError, match="no query checkpoint"):
        QueryCheckpoint(tmp_path)
    checkpoint = write_checkpoint(tmp_path / "c", 1)
    (checkpoint.folder / "commits" / "1").write_text("v2\n{")
    with pytest.raises(IntegrityError, match="commits/1 is not readable"):
        checkpoint.logs()
    with pytest.raises(InvalidRequestError, match="it has no _spark_metadata"):
        sink_log_files(tmp_path, 1)


def test_other_file_systems_are_refused_with_the_way_out() -> None:
    assert local_path("file:///a%20b/c") == Path("/a b/c")
    assert local_path("file:/a") == local_path("/a") == Path("/a")
    with pytest.raises(InvalidRequestError, match="--dry-run"):
        local_path("hdfs://namenode/c")
