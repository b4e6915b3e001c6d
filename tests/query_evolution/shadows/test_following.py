"""How a branch gets the batches of a live query. Spark's part is in tests/spark/test_shadow.py."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from query_evolution.branches.folder import BranchFolder
from query_evolution.shadows.following import Follower, LiveBatch, LiveBatches, check_followed
from query_evolution.shadows.report import Results
from rhino_core.errors import ConflictError, IntegrityError, PreconditionError
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.query_logs import rows_of

HEAD = '{"batchWatermarkMs":%d,"batchTimestampMs":5,"conf":{}}'


def plan(checkpoint: Path, number: int, rows: int | None = None) -> Path:
    path = checkpoint / "offsets" / str(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"v1\n{HEAD % number}\n{rows or number * 10}\n-")
    return path


def commit(checkpoint: Path, number: int) -> Path:
    path = checkpoint / "commits" / str(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("v2\n{}")
    return path


@pytest.fixture
def live(tmp_path: Path) -> QueryCheckpoint:
    """Batches 0 to 2 are committed."""
    folder = tmp_path / "live"
    for number in range(3):
        plan(folder, number)
        commit(folder, number)
    (folder / "state" / "0").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"job-1"}')
    return QueryCheckpoint(folder)


@pytest.fixture
def branch(live: QueryCheckpoint, tmp_path: Path) -> QueryCheckpoint:
    """After batch 1."""
    with BranchFolder(live, tmp_path / "branch", 1) as made:
        made.fill()
        (made.work / "offsets" / "2").unlink()
        (made.work / "state" / "0").mkdir(parents=True)
        return QueryCheckpoint(made.finish())


def test_the_branch_gets_the_entry_of_the_live_query_after_its_commit(
    live: QueryCheckpoint, branch: QueryCheckpoint
) -> None:
    follower = Follower(live, branch)
    assert follower.next_batch() == 2
    found = LiveBatches(live, 2)
    planned, committed = (live.folder / log / "2" for log in ("offsets", "commits"))
    os.utime(planned, (100, 100))
    os.utime(committed, (100, 102.5))
    found.look()
    batch = found.take(2, 0)
    assert batch == LiveBatch(2, planned.read_bytes(), 2.5)
    follower.plan(batch)
    assert (branch.folder / "offsets" / "2").read_bytes() == planned.read_bytes(), "with its watermark and time"
    follower.plan(batch)
    assert follower.next_batch() == 2, "the batch has not run yet"
    commit(branch.folder, 2)
    assert follower.next_batch() == 3
    follower.take_back(2)
    assert follower.next_batch() == 2


def test_a_batch_that_is_only_planned_is_waited_for(live: QueryCheckpoint) -> None:
    found = LiveBatches(live, 3)
    plan(live.folder, 3)
    found.look()
    assert found.take(3, 0) is None
    with found.watched():
        threading.Timer(0.2, commit, (live.folder, 3)).start()
        batch = found.take(3, 30)
    assert batch is not None
    assert batch.number == 3


def test_entries_stay_known_when_spark_has_deleted_them(live: QueryCheckpoint) -> None:
    found = LiveBatches(live, 1)
    found.look()
    for log in ("offsets", "commits"):
        (live.folder / log / "1").unlink()
    batch = found.take(1, 0)
    assert batch is not None
    assert rows_of(batch.entry) == (b"10", b"-")


@pytest.mark.parametrize("logs", [("offsets",), ("commits",), ("offsets", "commits")])
def test_a_deleted_entry_that_was_not_read_is_an_error(live: QueryCheckpoint, logs: tuple[str, ...]) -> None:
    found = LiveBatches(live, 1)
    for log in logs:
        (live.folder / log / "1").unlink()
    with pytest.raises(PreconditionError, match=r"batch 1 is not in its logs any more.*make a new branch"):
        found.look()


def test_an_error_of_the_thread_reaches_the_caller(live: QueryCheckpoint) -> None:
    found = LiveBatches(live, 3)
    with found.watched():
        for number in (3, 4):
            plan(live.folder, number)
        commit(live.folder, 4)
        with pytest.raises(PreconditionError, match="batch 3 is not in its logs"):
            found.take(3, 30)


def test_files_that_the_sources_have_logged_come_along(live: QueryCheckpoint, branch: QueryCheckpoint) -> None:
    follower = Follower(live, branch)
    log = live.folder / "sources" / "0"
    log.mkdir(parents=True)
    (log / "2").write_text("v1\nfile")
    (log / ".2.crc").write_text("crc")
    follower.plan(LiveBatch(2, (live.folder / "offsets" / "2").read_bytes(), 0))
    copied = branch.folder / "sources" / "0"
    assert {path.name: path.read_text() for path in copied.iterdir()} == {"2": "v1\nfile"}


def test_a_branch_with_other_rows_does_not_follow(live: QueryCheckpoint, branch: QueryCheckpoint) -> None:
    follower = Follower(live, branch)
    planned = plan(branch.folder, 2, rows=17)
    with pytest.raises(PreconditionError, match="batch 2 has other rows"):
        follower.plan(LiveBatch(2, (live.folder / "offsets" / "2").read_bytes(), 0))
    with pytest.raises(PreconditionError, match="gone its own way"):
        Follower(live, branch)
    planned.unlink()
    with pytest.raises(PreconditionError, match="both have the id job-1"):
        check_followed(live, live)


def test_a_promoted_branch_follows_nobody(live: QueryCheckpoint, branch: QueryCheckpoint) -> None:
    Results(branch).promote({"batch": 2})
    with pytest.raises(ConflictError, match="rhino promote"):
        Follower(live, branch)
    (branch.folder / "shadow" / "promoted").write_text("{")
    with pytest.raises(IntegrityError, match="not readable"):
        Follower(live, branch)
