"""The demo's own parts: arguments, following a query, and the whole of it in small."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from examples.demo import run
from rhino.testing import query_watch
from rhino.testing.query_watch import Batch, QueryWatch, RunError


class FakeQuery:
    """The part of a StreamingQuery that QueryWatch uses."""

    def __init__(self) -> None:
        self.error: str | None = None
        self.recentProgress: list[dict[str, Any]] = []

    @property
    def status(self) -> dict[str, object]:
        return {"message": "Processing new data", "isTriggerActive": True, "isDataAvailable": False}

    def exception(self) -> str | None:
        return self.error


@pytest.fixture
def query() -> FakeQuery:
    return FakeQuery()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "commits").mkdir()
    return tmp_path


def commit(checkpoint: Path, batch: int) -> None:
    (checkpoint / "commits" / str(batch)).touch()
    (checkpoint / "commits" / f".{batch + 1}.crc").touch()


def following(query: FakeQuery, checkpoint: Path, on_poll: Callable[[int], None] = lambda _: None) -> QueryWatch:
    return QueryWatch(query, checkpoint, on_poll=on_poll, check=lambda: None)


def test_a_batch_is_done_when_the_commit_log_says_so(query: FakeQuery, checkpoint: Path) -> None:
    polled: list[int] = []

    def next_batch(committed: int) -> None:
        polled.append(committed)
        commit(checkpoint, committed + 1)

    following(query, checkpoint, next_batch).wait_for_batch(3)
    assert polled == [-1, 0, 1, 2, 3]


def test_a_failed_query_is_an_error_at_once(query: FakeQuery, checkpoint: Path) -> None:
    query.error = "disk on fire"
    with pytest.raises(RunError, match="disk on fire"):
        following(query, checkpoint).wait_for_batch(0)


def test_a_query_that_stands_still_is_an_error(
    query: FakeQuery, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_watch, "STALL_S", 0.05)
    commit(checkpoint, 4)
    with pytest.raises(RunError, match=r"no batch after 4.*Spark: Processing new data, a trigger runs, no new data"):
        following(query, checkpoint).wait_for_batch(5)


def progress(batch: int, started: str, duration: int, dropped: int = 0, *, idle: bool = False) -> dict[str, Any]:
    durations = {"triggerExecution": duration} | ({} if idle else {"addBatch": duration - 1})
    operators = [{"numRowsDroppedByWatermark": dropped}]
    return {"batchId": batch, "timestamp": started, "durationMs": durations, "stateOperators": operators}


def test_batches_come_from_the_progress_events_that_did_something(query: FakeQuery, checkpoint: Path) -> None:
    query.recentProgress = [
        progress(0, "2026-01-31T12:00:00.123Z", 900),
        progress(1, "2026-01-31T12:00:01.123Z", 5, idle=True),
        progress(1, "2026-01-31T12:00:02.000Z", 800, dropped=2),
        progress(2, "2026-01-31T12:00:03.000Z", 700),
    ]
    following_it = following(query, checkpoint)
    assert following_it.batches(1) == [Batch(0, 1_769_860_800_123, 900), Batch(1, 1_769_860_802_000, 800)]
    assert following_it.dropped_rows() == 2


@pytest.mark.parametrize("arguments", [["--events", "3"], ["--workers", "2"], ["--batches", "x"], ["--no-such"]])
def test_wrong_arguments_exit_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        run.parse(arguments)
    assert exit_info.value.code == 2


def test_events_are_one_person_and_three_auctions_each() -> None:
    load = run.parse(["--events", "1000001"]).load
    assert (load.persons, load.auctions, load.events) == (250_001, 750_003, 1_000_004)


@pytest.mark.spark
@pytest.mark.timeout(420)
def test_the_whole_demo_in_small(tmp_path: Path) -> None:
    """Handover, killed worker, comparison: exit code 0, the report, the picture, and nothing left behind."""
    assert run.main(["--events", "60000", "--batches", "20", "--out", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["events"], report["missing"], report["extra"]) == (60_000, 0, 0)
    assert report["rows"] > 40_000
    assert report["recovery"]["source"] == "replica"
    assert report["replicated_bytes"] > 10_000_000
    assert {p.name for p in tmp_path.iterdir()} == {"report.json", "latency.png"}
    assert psutil.Process().children(recursive=True) == []


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_lost_cluster_in_small(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.demo.lost_cluster", "--events", "60000", "--batches", "20"]
    done = subprocess.run([*command, "--out", str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "rows, 0 missing, 0 extra" in done.stdout
    assert not list((tmp_path / "out").iterdir())
