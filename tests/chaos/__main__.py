"""`python -m tests.chaos --minutes 30 [--seed N] [--folder DIR] [--json FILE]`; exit code 1 for a wrong output."""

from __future__ import annotations

import argparse
import contextlib
import secrets
import sys
import tempfile
from pathlib import Path

from rhino_core.errors import RhinoError
from tests.chaos.run import Chaos, Report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long faults go on (default 30)")
    parser.add_argument("--seed", type=int, default=None, help="of the faults (default: another one each time)")
    parser.add_argument("--folder", type=Path, default=None, help="empty folder for data and logs, kept")
    parser.add_argument("--json", type=Path, default=None, help="where to write the report")
    parser.add_argument("--only", action="append", default=[], metavar="FAULT", help="only this fault; repeatable")
    arguments = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if arguments.seed is None else arguments.seed
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rhino-chaos-")))
        folder.mkdir(parents=True, exist_ok=True)
        print(f"seed {seed}, {arguments.minutes:g} minutes, in {folder}", file=sys.stderr, flush=True)
        chaos = Chaos(folder.resolve(), seed, lambda line: print(line, file=sys.stderr, flush=True), arguments.only)
        try:
            report = chaos.run(arguments.minutes)
        except RhinoError as error:
            print(f"error: {error}\n(--seed {seed}; --folder keeps the logs)", file=sys.stderr)
            return 1
    if arguments.json:
        arguments.json.write_text(report.to_json())
    print(summary(report))
    return 0 if report.equal else 1


def summary(report: Report) -> str:
    faults = ", ".join(f"{n} x {name}" for name, n in sorted(report.faults.items()))
    lines = [f"{report.seconds:g} s of faults: {faults}", f"whole again {report.healed_s:g} s after the last"]
    for name, found in report.verdicts.items():
        batches = report.batches[name]
        lines.append(f"{name}: {batches} batches, {found.rows} rows, {found.missing} missing, {found.extra} extra")
    lines.append(f"queries started again after a failure: {len(report.failures)}")
    return "\n".join(lines + [f"  {line}" for failure in report.failures for line in reasons(failure)])


def reasons(failure: str) -> list[str]:
    """The lines of an error text that say why, at most 20: without the frames of Java's and Python's stack traces."""
    lines = [line for line in failure.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    return [line[:500] for line in (lines if len(lines) <= 20 else [*lines[:5], *lines[-15:]])]


if __name__ == "__main__":
    sys.exit(main())
