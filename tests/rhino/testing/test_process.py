"""Processes of the local cluster: errors name them, and nothing of theirs survives."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rhino.testing.process import ClusterError, Process
from rhino.testing.reaper import Reaper

WITH_GRANDCHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "the-grandchild"])
print("ready", child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    with Reaper() as running:
        yield running


def start(tmp_path: Path, reaper: Reaper, code: str) -> Process:
    return Process("tester", [sys.executable, "-c", code], log_dir=tmp_path, env=dict(os.environ), reaper=reaper)


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_process_that_ends_early_is_named_with_its_log(tmp_path: Path, reaper: Reaper) -> None:
    process = start(tmp_path, reaper, "import sys; print('no such disk', file=sys.stderr); sys.exit(3)")
    with pytest.raises(ClusterError, match=r"tester ended with code 3\n  \| no such disk"):
        process.wait_for_match("ready", timeout_s=30)


def test_a_process_that_is_never_ready_is_named(tmp_path: Path, reaper: Reaper) -> None:
    process = start(tmp_path, reaper, "import time; print('still busy', flush=True); time.sleep(600)")
    process.wait_for_match("busy", timeout_s=30)
    with pytest.raises(ClusterError, match=r"tester: no /ready/ in its output within 0\.1 s\n  \| still busy"):
        process.wait_for_match("ready", timeout_s=0.1)
    process.kill()


HALF_A_LINE = """
import sys, time
print("one\\ntwo", end="", flush=True)
print("log", file=sys.stderr, flush=True)
time.sleep(600)
"""


def test_half_a_line_is_no_line(tmp_path: Path, reaper: Reaper) -> None:
    process = start(tmp_path, reaper, HALF_A_LINE)
    process.wait_for_match("two(?s:.*)log", timeout_s=30)
    assert process.lines() == ["one"]
    process.kill()


def test_kill_ends_the_whole_session(tmp_path: Path, reaper: Reaper) -> None:
    process = start(tmp_path, reaper, WITH_GRANDCHILD)
    grandchild = int(process.wait_for_match(r"ready (\d+)", timeout_s=30)[1])
    assert process.children("the-grandchild") == [grandchild]
    process.kill()
    assert not alive(process.pid)
    assert not alive(grandchild)
    process.kill()


def test_kill_ends_what_an_ended_leader_left_behind(tmp_path: Path, reaper: Reaper) -> None:
    process = start(tmp_path, reaper, WITH_GRANDCHILD)
    grandchild = int(process.wait_for_match(r"ready (\d+)", timeout_s=30)[1])
    os.kill(process.pid, 9)
    process.terminate(timeout_s=5)
    assert not alive(grandchild)


def test_output_of_an_earlier_process_of_that_name_is_not_taken_for_its_own(tmp_path: Path, reaper: Reaper) -> None:
    first = start(tmp_path, reaper, "print('ready 1')")
    first.wait_for_match("ready 1", timeout_s=30)
    first.kill()
    second = start(tmp_path, reaper, "print('ready 2')")
    assert second.wait_for_match(r"ready (\d)", timeout_s=30)[1] == "2"
    second.kill()


def test_the_helper_ends_sessions_of_a_killed_owner(tmp_path: Path) -> None:
    owner_code = f"""
import os, signal, sys
from pathlib import Path
from rhino.testing.process import Process
from rhino.testing.reaper import Reaper
reaper = Reaper()
reaper.remove(Path({str(tmp_path / "sockets")!r}))
process = Process("tester", [sys.executable, "-c", {WITH_GRANDCHILD!r}], log_dir=Path({str(tmp_path)!r}),
                  env=dict(os.environ), reaper=reaper)
print(process.pid, process.wait_for_match(r"ready (\\d+)", timeout_s=30)[1], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    (tmp_path / "sockets" / "127.0.0.11").mkdir(parents=True)
    owner = subprocess.run([sys.executable, "-c", owner_code], capture_output=True, text=True, timeout=60, env=env)
    pids = [int(word) for word in owner.stdout.split()]
    assert len(pids) == 2, owner.stderr
    deadline = time.monotonic() + 30
    while any(alive(p) for p in pids) or (tmp_path / "sockets").exists():
        assert time.monotonic() < deadline, "the sessions or the sockets of the killed owner are still there"
        time.sleep(0.05)
