"""Runs one benchmark as a process, in any tree of the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.registry import Run

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_CODE = 124
CLEAN_UP_S = 60.0


@dataclass(frozen=True, slots=True)
class Result:
    """One run: its command, its seconds, its exit code, and its report, if it wrote one."""

    command: str
    seconds: float
    exit_code: int
    report: Mapping[str, Any] | None
    log: str  # name of the file


def carry_out(run: Run, out: Path, timeout_s: float, root: Path = ROOT) -> Result:
    """Runs it with the code of `root`. JSON, log and outcome are written to `out`."""
    raw, log, outcome = (out / f"{run.name}{end}" for end in (".json", ".log", ".outcome.json"))
    for path in (raw, outcome):  # of an earlier run: this one may fail
        path.unlink(missing_ok=True)
    command = [sys.executable, "-m", run.module, *run.arguments, "--json", str(raw)]
    started = time.monotonic()
    with log.open("w") as sink:
        process = subprocess.Popen(
            command, cwd=root, env=environment(root), stdout=sink, stderr=subprocess.STDOUT, text=True
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            _end(process)
            code = TIMEOUT_CODE
        except BaseException:
            _end(process)
            raise
    seconds = time.monotonic() - started
    outcome.write_text(json.dumps({"command": command_of(run), "seconds": seconds, "exit_code": code}) + "\n")
    return result(run, out, seconds, code)


def _end(process: subprocess.Popen[str]) -> None:
    """Lets it clean up for a while, then kills it."""
    process.terminate()
    try:
        process.wait(CLEAN_UP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def environment(root: Path) -> dict[str, str]:
    """The environment of a process with the code of `root`."""
    paths = [str(root), str(root / "proto"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def result(run: Run, out: Path, seconds: float, code: int) -> Result:
    raw = out / f"{run.name}.json"
    report = json.loads(raw.read_text()) if raw.exists() else None
    return Result(command_of(run), seconds, code, report, f"{run.name}.log")


def command_of(run: Run) -> str:
    return " ".join(["python -m", run.module, *run.arguments])
