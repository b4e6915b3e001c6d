"""`python -m benchmarks.report`: runs every benchmark quickly and writes one page about all of them.

The page (OUT/report.html) holds tables and plots and needs no other file; raw JSON and logs lie beside it. Exit code
1: a benchmark failed, or found an output wrong. After an interruption `--resume` goes on with what is left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import registry
from benchmarks.registry import Run
from benchmarks.report.page import Result, page
from workloads.machine import machine

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_CODE = 124


def main(argv: Sequence[str]) -> int:
    arguments = _arguments(argv)
    console = Console(stderr=True)
    facts = machine()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    runs = [run for name in arguments.benchmarks for run in registry.quick_runs(name)]
    left_out = [name for name in arguments.benchmarks if not registry.quick_runs(name)]
    deadline = time.monotonic() + 60 * arguments.minutes
    results = []
    for number, run in enumerate(runs, start=1):
        console.print(f"{number} of {len(runs)}: {_command(run)}", highlight=False)
        done = _done(run, out) if arguments.resume else None
        result = done or _carry_out(run, out, max(deadline - time.monotonic(), 1.0))
        outcome = "done" if result.exit_code == 0 else f"FAILED with code {result.exit_code}: see {out / result.log}"
        console.print(f"  {outcome} after {result.seconds:.0f} s", highlight=False, soft_wrap=True)
        results.append(result)
        # After every run: whoever stops this early has a page.
        (out / "report.html").write_text(page(results, facts, left_out))
    console.print(f"report: {out / 'report.html'}", soft_wrap=True)
    return 1 if any(result.exit_code for result in results) else 0


def _done(run: Run, out: Path) -> Result | None:
    """What a former report has of the very same run, if that went well."""
    outcome = out / f"{run.name}.outcome.json"
    if not outcome.exists():
        return None
    former = json.loads(outcome.read_text())
    if (former["command"], former["exit_code"]) != (_command(run), 0):
        return None
    return _result(run, out, former["seconds"], 0)


def _carry_out(run: Run, out: Path, timeout_s: float) -> Result:
    raw, log, outcome = (out / f"{run.name}{end}" for end in (".json", ".log", ".outcome.json"))
    for path in (raw, outcome):  # of an earlier run: this one may fail
        path.unlink(missing_ok=True)
    command = [sys.executable, "-m", run.module, *run.arguments, "--json", str(raw)]
    paths = [str(ROOT), str(ROOT / "proto"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    started = time.monotonic()
    with log.open("w") as sink:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=sink, stderr=subprocess.STDOUT)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            code = TIMEOUT_CODE
        except BaseException:
            process.terminate()
            process.wait()
            raise
    seconds = time.monotonic() - started
    outcome.write_text(json.dumps({"command": _command(run), "seconds": seconds, "exit_code": code}) + "\n")
    return _result(run, out, seconds, code)


def _result(run: Run, out: Path, seconds: float, code: int) -> Result:
    raw = out / f"{run.name}.json"
    report = json.loads(raw.read_text()) if raw.exists() else None
    return Result(run.name, _command(run), seconds, code, report, raw.name, f"{run.name}.log")


def _command(run: Run) -> str:
    return " ".join(["python -m", run.module, *run.arguments])


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    names = registry.found()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("benchmarks", nargs="*", metavar="NAME", help=f"default: all of {', '.join(names)}")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="folder of the page, JSON and logs")
    parser.add_argument("--resume", action="store_true", help="runs that went well before, in OUT, are not run again")
    parser.add_argument("--minutes", type=float, default=20, help="for all runs together; what is left then fails")
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.benchmarks if name not in names]:
        parser.error(f"benchmark {unknown[0]}: choose from {', '.join(names)}")
    arguments.benchmarks = arguments.benchmarks or names
    return arguments


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the benchmark that runs, as Ctrl-C does
    sys.exit(main(sys.argv[1:]))
