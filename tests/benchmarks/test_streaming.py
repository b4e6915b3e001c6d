"""The runner of streaming jobs: its comparison, its figures, its arguments, and real queries through a restart."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.workloads.java_random import JavaRandom
from workloads.airline import __main__ as airline
from workloads.keycount import __main__ as keycount
from workloads.keycount.counts import Load, keys
from workloads.mapquery import __main__ as mapquery
from workloads.mapquery.counting import latency
from workloads.nexmark import __main__ as nexmark
from workloads.nexmark.output import Verdict
from workloads.trial.job import Job, Sink
from workloads.trial.timeline import Fault, Timeline
from workloads.trial.whole import Trial, compare

ROOT = Path(__file__).resolve().parents[2]


def job(sink: Sink, answer: str) -> Job:
    def stream(_: object) -> Any:
        raise AssertionError("not started here")

    return Job("j", ("k", "v"), stream, 3, 0, lambda db: answer, sink=sink, key=("k",))


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Batches 0 and 1 are committed; 2 is what a later one has left behind."""
    for batch, rows in enumerate(("(1, 10), (2, 20)", "(1, 11), (3, 30)", "(1, 99)")):
        folder = tmp_path / f"batch={batch}"
        folder.mkdir()
        duckdb.sql(f"select * from (values {rows}) t(k, v)").write_parquet(str(folder / "part.parquet"))
    return tmp_path


def test_of_changed_rows_the_newest_committed_one_counts(output: Path) -> None:
    right = "select * from (values (1, 11), (2, 20), (3, 30))"
    assert compare(job(Sink.CHANGES, right), output, 1) == Verdict(3, 0, 0)
    wrong = "select * from (values (1, 10), (2, 20), (3, 30), (4, 40))"
    assert compare(job(Sink.CHANGES, wrong), output, 1) == Verdict(3, missing=2, extra=1)


def test_of_final_rows_every_committed_one_counts(output: Path) -> None:
    right = "select * from (values (1, 10), (1, 11), (2, 20), (3, 30))"
    assert compare(job(Sink.BATCHES, right), output, 1) == Verdict(4, 0, 0)


def progress(batch: int, start_s: int, *, dropped: int = 0, idle: bool = False) -> dict[str, Any]:
    operator = {"numRowsTotal": 7, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": dropped}
    durations = {"triggerExecution": 900} | ({} if idle else {"addBatch": 800})
    at = f"2026-01-31T12:00:{start_s:02}.000Z"
    return {
        **{"batchId": batch, "timestamp": at, "durationMs": durations},
        **{"numInputRows": 5, "stateOperators": [operator, operator]},
    }


def test_a_batch_that_runs_again_counts_once_and_idle_events_do_not() -> None:
    timeline = Timeline()
    timeline.note([progress(0, 1, dropped=1), progress(1, 2, dropped=3), progress(2, 3, idle=True)])
    timeline.note([progress(1, 4)])
    found = [(b.batch_id, b.started_ms % 60_000, b.state_rows) for b in timeline.ordered()]
    assert found == [(0, 1000, 14), (1, 4000, 14)]
    assert timeline.dropped == 2


@pytest.mark.parametrize(
    ("verdict", "dropped", "right"),
    [((5, 0, 0), 0, True), ((5, 1, 0), 0, False), ((5, 0, 1), 0, False), ((0, 0, 0), 0, False), ((5, 0, 0), 1, False)],
)
def test_what_is_right(verdict: tuple[int, int, int], dropped: int, right: bool) -> None:
    timeline = Timeline()
    timeline.note([progress(0, 1, dropped=dropped)])
    assert Trial("j", "rhino", False, 5, Verdict(*verdict), timeline).right is right


def test_steady_batches_are_warm_and_beside_no_fault() -> None:
    timeline = Timeline()
    timeline.note([progress(number, number) for number in range(10)])
    started = timeline.batches[5].started_ms
    timeline.faults.append(Fault("kill", "x", started + 100, started + 1100))
    assert len(Trial("j", "rhino", True, 5, Verdict(5, 0, 0), timeline).steady_ms()) == 5


def test_latency_is_from_creation_to_the_end_of_the_batch(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.note([progress(0, 1), progress(1, 2)])
    ends = [batch.started_ms + 900 for batch in timeline.ordered()]
    for number, waits in enumerate(([100, 200], [300, 4000])):
        (tmp_path / f"batch={number}").mkdir()
        rows = ", ".join(f"({ends[number] - wait})" for wait in waits)
        duckdb.sql(f"select * from (values {rows}) t(created_ms)").write_parquet(
            str(tmp_path / f"batch={number}" / "a.parquet")
        )
    found = latency(tmp_path, timeline)
    assert (found.p50_ms, round(found.p99_ms), found.max_ms) == (250, 3889, 4000)


def test_keys_are_drawn_after_each_was_there_once() -> None:
    load = Load(domain=50, updates=100, batches=4, virtual_nodes=4)
    dense = keys(load, scattered=False)
    assert dense[:50].tolist() == list(range(50))
    assert dense[50:].tolist() == [JavaRandom(n).next_int(50) for n in range(50, 150)]
    scattered = keys(load, scattered=True)
    assert len(set(scattered.tolist())) == 50
    assert min(scattered) < -(2**60) < 2**60 < max(scattered)
    assert load.sizes == (12, 13, 12, 13, 25, 25, 25, 25)


@pytest.mark.parametrize(
    ("main", "arguments", "said"),
    [
        (nexmark.main, ["q99"], "choose from q1, q2"),
        (nexmark.main, ["q1", "--fault", "flood"], "choose from restart"),
        (nexmark.main, ["q1", "--fault", "kill"], "needs --cluster"),
        (nexmark.main, ["q1", "--cluster", "--provider", "stock", "--fault", "handover"], "needs --provider rhino"),
        (nexmark.main, ["q1", "--rate", "0"], "rate = 0"),
        (nexmark.main, ["q1", "--interval", "-1"], "0 or more"),
        (keycount.main, ["--domain", "0"], "domain = 0"),
        (mapquery.main, ["--seconds", "0"], "seconds = 0"),
        (airline.main, ["--batches", "0"], "1 or more"),
    ],
)
def test_wrong_arguments_exit_with_2(
    main: Callable[[Sequence[str]], int], arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.nightly
def test_queries_through_a_restart_equal_duckdbs_answer(tmp_path: Path) -> None:
    """A join under two aggregations, windows, and a deduplication under a join, on the embedded daemons."""
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "workloads.nexmark", "q4", "nbq5", "q8", "--events", "10000", "--batches", "3"]
    command += ["--fault", "restart", "--dir", str(tmp_path), "--json", str(report)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    trials = {trial["job"]: trial for trial in json.loads(report.read_text())["trials"]}
    assert list(trials) == ["q4", "nbq5", "q8"]
    assert all((t["missing"], t["extra"], t["dropped"]) == (0, 0, 0) for t in trials.values())
    assert trials["nbq5"]["rows"] > 1000
    assert [fault["kind"] for fault in trials["q8"]["faults"]] == ["restart"]
    assert len(trials["q4"]["batches"]) >= 5
    assert list(tmp_path.iterdir()) == [report], "everything else is removed"
