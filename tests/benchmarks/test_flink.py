"""The Flink peer without Flink: where it is looked for, what its log tells, and a skip that says why."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.command import main
from benchmarks.flink import __main__ as command
from benchmarks.flink import distribution
from benchmarks.flink.distribution import find_flink, version
from benchmarks.flink.job import statements
from benchmarks.flink.log import Checkpoint, Deployment, Event, Restart, Switch, parse, restart_after
from benchmarks.flink.loss import Recovery, check_spread
from benchmarks.flink.summary import summarise, table
from benchmarks.stateful import Load
from rhino_core.errors import InvalidSettingError, RhinoError

# From job manager logs of Flink 2.3, with ids shortened and lines left out.
_AGGREGATE = "GroupAggregate[5] -> ConstraintEnforcer[6] -> greatest[6]: Writer"
_JOB = "Job insert-into_default_catalog.default_database.greatest (b82d)"
_BEFORE = f"""\
1795319158380 INFO ExecutionGraph: Deploying {_AGGREGATE} (1/6) (attempt #0) with attempt id ee52_f137_0_0 \
and vertex id f137_0 to task-manager-2 @ localhost (dataPort=36381) with allocation id 33ec
1795319178197 INFO ExecutionGraph: Source: building[1] (3/6) (ee52_9658_2_0) switched from RUNNING to FINISHED.
1795319189587 INFO CheckpointCoordinator: Completed checkpoint 29 for job b82d (332073143 bytes, \
checkpointDuration=59 ms, finalizationTime=1 ms).
"""
_RESTART = f"""\
1795319189834 INFO ExecutionGraph: {_AGGREGATE} (3/6) (ee52_f137_2_0) switched from RUNNING to FAILED \
on task-manager-1 @ localhost (dataPort=35895).
org.apache.flink.runtime.io.network.netty.exception.RemoteTransportException: Connection unexpectedly closed
	at java.base/java.lang.Thread.run(Thread.java:840)
1795319189863 INFO JobMaster: 18 tasks will be restarted to recover the failed task ee52_f137_2_0.
1795319189871 INFO ExecutionGraph: {_JOB} switched from state RUNNING to RESTARTING.
1795319190007 INFO ExecutionGraph: Source: updates[2] (3/6) (ee52_e4d3_2_0) switched from CANCELING to CANCELED.
1795319190036 INFO ExecutionGraph: {_JOB} switched from state RESTARTING to RUNNING.
1795319190247 INFO ExecutionGraph: Source: updates[2] (3/6) (ee52_e4d3_2_1) switched from INITIALIZING to RUNNING.
1795319190346 INFO ExecutionGraph: {_AGGREGATE} (3/6) (ee52_f137_2_1) switched from DEPLOYING to INITIALIZING.
1795319190715 INFO ExecutionGraph: {_AGGREGATE} (3/6) (ee52_f137_2_1) switched from INITIALIZING to RUNNING.
"""
# Real but for its time: it came first.
_FINISHED_ONE = """\
1795319190720 INFO ExecutionGraph: Source: building[1] (3/6) (ee52_9658_2_1) switched from INITIALIZING to RUNNING.
"""
_AFTER = """\
1795319191400 INFO CheckpointCoordinator: Completed checkpoint 30 for job b82d (333346707 bytes, \
checkpointDuration=200 ms, finalizationTime=1 ms).
1795319191429 INFO ExecutionGraph: Source: building[1] (3/6) (ee52_9658_2_1) switched from RUNNING to FINISHED.
"""
_SLOT_OF_THE_DEAD = f"""\
1795319128813 INFO ExecutionGraph: {_JOB} switched from state RUNNING to RESTARTING.
1795319128942 INFO ExecutionGraph: {_JOB} switched from state RESTARTING to RUNNING.
1795319129018 INFO ExecutionGraph: Source: building[1] (3/6) (416b_9658_2_1) switched from DEPLOYING to FAILED \
on task-manager-2 @ localhost (dataPort=33003).
1795319129019 INFO ExecutionGraph: {_JOB} switched from state RUNNING to RESTARTING.
1795319129454 INFO ExecutionGraph: {_JOB} switched from state RESTARTING to RUNNING.
1795319130148 INFO ExecutionGraph: {_AGGREGATE} (3/6) (416b_f137_2_2) switched from INITIALIZING to RUNNING.
1795319130296 INFO ExecutionGraph: {_AGGREGATE} (4/6) (416b_f137_3_2) switched from INITIALIZING to RUNNING.
"""
_FAILS_LATER = f"""\
1795319131719 INFO ExecutionGraph: {_AGGREGATE} (4/6) (416b_f137_3_2) switched from RUNNING to FAILED \
on task-manager-0 @ localhost (dataPort=36795).
"""
_KILLED_MS = 1795319189590


def _events(text: str) -> list[Event]:
    return list(parse(text.splitlines()))


def _distribution(home: Path) -> Path:
    (home / "lib").mkdir(parents=True)
    (home / "lib" / "flink-dist-2.3.0.jar").touch()
    return home


def _no_package(name: str) -> None:
    raise importlib.metadata.PackageNotFoundError(name)


def test_a_named_distribution_goes_before_flink_home(tmp_path: Path) -> None:
    named, home = _distribution(tmp_path / "named"), _distribution(tmp_path / "home")
    assert find_flink(named, {"FLINK_HOME": str(home)}) == named / "lib"
    assert find_flink(None, {"FLINK_HOME": str(home)}) == home / "lib"
    assert version(home / "lib") == "2.3.0"


def test_a_folder_without_flink_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match=rf"--flink = '{tmp_path}': there is no lib/flink-dist-.*pip install"):
        find_flink(tmp_path, {})
    with pytest.raises(InvalidSettingError, match="FLINK_HOME = "):
        find_flink(None, {"FLINK_HOME": str(tmp_path)})


def test_without_flink_the_benchmark_says_so_and_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FLINK_HOME", raising=False)
    monkeypatch.setattr(distribution, "distribution", _no_package)
    monkeypatch.setattr(sys, "argv", ["benchmarks.flink", "--json", str(tmp_path / "flink.json")])
    assert main(command._run) == 0
    assert "skipped: there is no Apache Flink here; `pip install apache-flink-libraries`" in capsys.readouterr().err
    assert json.loads((tmp_path / "flink.json").read_text())["flink"][0]["outcome"].startswith("skipped")


def test_the_state_of_the_query_is_as_large_as_the_other_subject_s() -> None:
    load = Load(4_000_000_000)
    building = statements(load)[0]
    assert "'fields.p.length' = '1024'" in building
    assert f"'fields.k.end' = '{load.keys - 1}'" in building
    assert 0.7 < load.keys * 1024 / load.state_bytes < 1.3  # the other subject builds in whole batches


def test_ratios_are_to_rhino_s_time_until_all_tasks_run() -> None:
    rhino = Recovery("rhino", 1_000, 0, 100.0, 500.0, 1500.0)
    flink = Recovery("flink", 1_000, 1_100, 200.0, 2000.0, 2900.0)
    rows = summarise([rhino, flink, rhino, flink])
    assert [(row["subject"], row["runs"], row["ratio"]) for row in rows] == [("flink", 2, 4.0), ("rhino", 2, 1.0)]
    assert table(rows).row_count == 2


def test_the_log_tells_where_a_task_runs_how_it_goes_and_what_a_checkpoint_holds() -> None:
    assert _events(_BEFORE) == [
        Deployment(1795319158380, f"{_AGGREGATE} 1", "task-manager-2"),
        Switch(1795319178197, "Source: building[1] 3", "FINISHED"),
        Checkpoint(1795319189587, 332073143),
    ]
    failed = Switch(1795319189834, f"{_AGGREGATE} 3", "FAILED")
    assert _events(_RESTART)[:2] == [failed, Switch(1795319189871, "", "RESTARTING")]


def test_without_a_restart_or_a_checkpoint_after_it_there_is_no_answer() -> None:
    assert restart_after(_events(_BEFORE), _KILLED_MS - 10) is None
    assert restart_after(_events(_BEFORE + _RESTART), _KILLED_MS) is None


def test_a_restart_lasts_until_the_last_task_runs_and_a_checkpoint_is_complete() -> None:
    expected = Restart(seen_ms=1795319189834, running_ms=1795319190715, committed_ms=1795319191400)
    assert restart_after(_events(_BEFORE + _RESTART + _AFTER), _KILLED_MS) == expected
    late = _BEFORE.replace("1795319189587", "1795319189600")  # that checkpoint had begun before the kill
    assert restart_after(_events(late + _RESTART + _AFTER), _KILLED_MS) == expected


def test_a_task_that_had_finished_does_not_count_as_running_again() -> None:
    found = restart_after(_events(_BEFORE + _RESTART + _FINISHED_ONE + _AFTER), _KILLED_MS)
    assert found is not None
    assert found.running_ms == 1795319190715


def test_a_restart_before_the_kill_is_not_counted() -> None:
    earlier = _events(_SLOT_OF_THE_DEAD + _BEFORE)
    assert restart_after(earlier, _KILLED_MS) is None
    found = restart_after([*earlier, *_events(_RESTART + _AFTER)], _KILLED_MS)
    assert found == Restart(1795319189834, 1795319190715, 1795319191400)


def test_a_restart_that_fails_is_repeated_and_the_whole_time_counts() -> None:
    killed_ms = 1795319128700
    found = restart_after(_events(_SLOT_OF_THE_DEAD + _AFTER), killed_ms)
    assert found == Restart(1795319128813, 1795319130296, 1795319191400)
    assert restart_after(_events(_SLOT_OF_THE_DEAD + _FAILS_LATER + _AFTER), killed_ms) is None


def _placed(places: Sequence[str]) -> list[Event]:
    return [Deployment(1, f"{_AGGREGATE} {n}", place) for n, place in enumerate(places, 1)]


def test_task_managers_with_unequal_shares_are_refused() -> None:
    names = ("task-manager-0", "task-manager-1", "task-manager-2")
    check_spread(_placed(names * 2), names)
    check_spread([*_placed(names[:1] * 6), *_placed(names * 2)], names)  # the newest place counts
    with pytest.raises(RhinoError, match=r"unevenly: {'task-manager-0': 3, 'task-manager-1': 3}"):
        check_spread(_placed(names[:2] * 3), names)
