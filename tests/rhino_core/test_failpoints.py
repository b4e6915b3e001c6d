"""Failpoints: the registry refuses what is not declared, actions are carried out, and those of the journal.

Every declared point is reached: tests/worker_runtime/scenarios/test_failpoints.py kills a sidecar at each of its
points, and tests/handover_manager/service/test_service.py records those of a handover.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rhino_core import failpoints
from rhino_core.epochs import generation_ceiling
from rhino_core.errors import InvalidSettingError, LocalProtocolError
from rhino_core.journal import Journal
from tests import forked

ABOVE = generation_ceiling() - 10**9  # any wall clock of today in milliseconds, and room for what comes
ROOT = Path(__file__).resolve().parents[2]
JOURNAL = [name for name in failpoints.NAMES if name.startswith("journal.")]
USE = f"""
import os, sys
from pathlib import Path
from rhino_core import failpoints
from rhino_core.journal import Journal
failpoints.arm(os.environ)
journal = Journal(Path(sys.argv[1]))
journal.write(dict(a=2, b=2), ["d"])
journal.write(dict(c=2), generation={ABOVE})
"""
Values = dict[str, int | None]
BEFORE: Values = {"a": 1, "b": 1, "c": 1, "d": 1}
STEPS: list[tuple[str, Values]] = [("write", {"a": 2, "b": 2, "d": None}), ("raise_generation", {"c": 2})]


def test_a_name_that_is_not_declared_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match=r"no\.such\.before"):
        failpoints.hit("no.such.before")


def test_a_name_that_is_written_out_is_declared_and_marks_one_place() -> None:
    tops = ("rhino", "rhino_core", "worker_runtime", "handover_manager", "spark_connector", "query_evolution")
    paths = [path for top in tops for path in (ROOT / top).rglob("*.py")]
    sources = [path.read_text() for path in paths if path.name != "failpoints.py"]
    used = [name for source in sources for name in re.findall(r'\bhit\("([^"]+)"\)', source)]
    assert set(used) <= set(failpoints.NAMES)
    assert len(used) == len(set(used))


def test_an_unarmed_process_does_not_look_at_names() -> None:
    code = "from rhino_core import failpoints; failpoints.arm({}); failpoints.hit('no.such')"
    assert subprocess.run([sys.executable, "-c", code], env=_environment(""), timeout=30).returncode == 0


def test_names_that_are_hit_can_be_recorded() -> None:
    with failpoints.recording() as reached:
        failpoints.hit("store.epoch.before")
    failpoints.hit("store.epoch.after")
    assert reached == {"store.epoch.before"}


@pytest.mark.parametrize("value", ["nothing=kill", "store.epoch.before", "store.epoch.before=maim", "store=kill:0"])
def test_what_cannot_be_armed_is_refused(value: str) -> None:
    with pytest.raises(InvalidSettingError, match=failpoints.VARIABLE):
        failpoints.arm({failpoints.VARIABLE: value})


def test_an_unknown_name_ends_the_daemon_at_its_start(tmp_path: Path) -> None:
    command = ("manager", "--data-dir", str(tmp_path), "--bootstrap")
    ended = forked.run(forked.RHINO, *command, env=_environment("no.such=kill"))
    assert ended.returncode == 2
    assert "unknown failpoint 'no.such'" in ended.stderr


def test_error_is_raised_at_the_hit_that_is_named_and_only_there() -> None:
    failpoints.arm({failpoints.VARIABLE: "store.epoch.before=error:2"})
    try:
        failpoints.hit("store.epoch.before")
        with pytest.raises(OSError, match=r"store\.epoch\.before"):
            failpoints.hit("store.epoch.before")
        failpoints.hit("store.epoch.before")
        failpoints.hit("store.epoch.after")
    finally:
        failpoints.arm({})


def test_a_stop_is_announced_and_lasts_until_somebody_lets_it_go_on(tmp_path: Path) -> None:
    Journal(tmp_path, bootstrap=True).close()
    with subprocess.Popen(
        [sys.executable, "-c", USE, str(tmp_path)],
        env=_environment("journal.raise_generation.before=stop,journal.raise_generation.after=stop"),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for when in ("before", "after"):
            assert process.stderr.readline() == f"failpoint journal.raise_generation.{when}\n"
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            os.kill(process.pid, signal.SIGCONT)
        assert process.wait(30) == 0


@pytest.mark.parametrize("name", JOURNAL)
def test_a_journal_cut_at_any_step_has_whole_steps(name: str, tmp_path: Path) -> None:
    first = Journal(tmp_path, bootstrap=True)
    first.write(BEFORE)
    first.close()
    assert forked.run(USE, str(tmp_path), env=_environment(f"{name}=kill")).returncode == -signal.SIGKILL
    expected = dict(BEFORE)
    generation = first.generation
    for step, changes in STEPS:
        if _done(step, name):
            expected.update(changes)
    if _done("generation", name):
        generation += 1
    if _done("raise_generation", name):
        generation = ABOVE
    again = Journal(tmp_path)
    assert dict(again.items()) == {key: value for key, value in expected.items() if value is not None}
    assert again.generation == generation + 1
    again.close()
    assert forked.run(USE, str(tmp_path), env=_environment("")).returncode == 0


def _done(step: str, cut: str) -> bool:
    """Whether `step` has been carried out when the process dies at the point `cut`."""
    order = ["generation", "write", "raise_generation"]
    _, at, when = cut.split(".")
    return order.index(step) < order.index(at) or (step == at and when == "after")


def _environment(armed: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}", failpoints.VARIABLE: armed}
