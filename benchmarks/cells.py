"""Common parts of the benchmarks on gigabytes of state: arguments, room, a cluster per measurement, progress."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from benchmarks.command import folder
from benchmarks.stateful import Load, Place, Running, running
from rhino_core.errors import RhinoError
from workloads.machine import machine

GB = GBIT = 1_000_000_000
DISK_FACTOR = 6  # two copies, the files that a compaction has replaced, changelogs
Say = Callable[[str], None]
Row = dict[str, Any]
Result = TypeVar("Result")


def parser(
    module: str, description: str | None, subjects: Sequence[str], default: Sequence[str]
) -> argparse.ArgumentParser:
    """Options of such a benchmark. `default`: the subjects if none are named."""

    def names(text: str) -> Sequence[str]:
        if unknown := [name for name in text.split(",") if name not in subjects]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r}: expected some of {','.join(subjects)}")
        return text.split(",")

    made = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    choice = f"some of {','.join(subjects)} (default: {','.join(default)})"
    made.add_argument("--sizes", type=_sizes, default=[0.25, 1.0, 4.0], help="GB of state (default: 0.25,1,4)")
    made.add_argument("--subjects", type=names, default=default, help=choice)
    made.add_argument("--rounds", type=_rounds, default=3, help="interleaved; medians are shown (default: 3)")
    made.add_argument("--dir", type=folder, help=f"where to work; needs {DISK_FACTOR} times the largest size")
    made.add_argument("--keep", action="store_true", help="keep data and logs in --dir")
    made.add_argument("--json", type=Path, help="write all results there, after each measurement")
    return made


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number above 0")
    return int(text)


def _sizes(text: str) -> Sequence[float]:
    sizes = [float(part) for part in text.split(",")]
    if min(sizes) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected GB above 0, such as 0.25,1,4")
    return sizes


class Cells(Generic[Result]):
    """Every subject at every size, `--rounds` times, interleaved. Results are dataclasses."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        measure: Callable[[str, Load, Path, Say], Sequence[Result]],
        summarise: Callable[[Sequence[Result]], list[Row]],
        describe: Callable[[Result], str],
    ) -> None:
        """`measure(subject, load, folder, say)` works in `folder`; this is removed afterwards. `describe` is one line.

        One cluster may give several results.
        """
        self._arguments = arguments
        self._measure = measure
        self._summarise = summarise
        self._describe = describe

    def run(self) -> list[Result]:
        """Raises RhinoError when a measurement fails or there is not enough room; the results so far are written."""
        arguments = self._arguments
        _check_room(arguments.dir or Path(tempfile.gettempdir()), max(arguments.sizes))
        report: dict[str, object] = {"command": " ".join(sys.orig_argv[1:]), "machine": machine()}
        console = Console(stderr=True)
        text = TextColumn("{task.description}")
        columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        cells = [(s, size) for _ in range(arguments.rounds) for size in arguments.sizes for s in arguments.subjects]
        results: list[Result] = []
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("", total=len(cells))
            for subject, size in cells:
                title = f"{subject}, {size:g} GB"
                say = _Progress(progress, task, title, console)
                try:
                    found = self._one(subject, size, say)
                except Exception as error:
                    self._write(report | {"failed": {"cell": title, "at": say.last, "reason": str(error)}})
                    raise
                if not found:
                    raise RhinoError(f"{title}: nothing was measured")
                for result in found:
                    console.print(f"  {title}: {self._describe(result)}", highlight=False)
                    results.append(result)
                progress.advance(task)
                report |= {"results": [asdict(r) for r in results], "median": self._summarise(results)}  # type: ignore[call-overload]
                self._write(report)
        return results

    def _write(self, report: dict[str, object]) -> None:
        if self._arguments.json:
            self._arguments.json.write_text(json.dumps(report, indent=2) + "\n")

    def _one(self, subject: str, size: float, say: _Progress) -> Sequence[Result]:
        # Absolute: the JVMs work elsewhere.
        work = Path(tempfile.mkdtemp(prefix="rhino-benchmark-", dir=self._arguments.dir)).resolve()
        try:
            say("starting the cluster")
            return self._measure(subject, Load(round(size * GB)), work / "cluster", say)
        except BaseException as error:  # an interruption too: what was it waiting for?
            say.broken_off(None if isinstance(error, KeyboardInterrupt) else _kept_logs(work))
            raise
        finally:
            if not self._arguments.keep:
                shutil.rmtree(work, ignore_errors=True)


def _kept_logs(work: Path) -> Path | None:
    """Beside the removed folder of the measurement; None: there are none."""
    logs = work / "cluster" / "logs"
    if not logs.is_dir():
        return None
    return Path(shutil.copytree(logs, work.with_name(f"{work.name}-logs")))


@dataclass(slots=True)
class _Progress:
    """Shows the present step of a measurement."""

    progress: Progress
    task: TaskID
    title: str
    console: Console
    last: str = ""

    def __call__(self, text: str) -> None:
        self.last = text
        self.progress.update(self.task, description=f"{self.title}: {text}")

    def broken_off(self, logs: Path | None) -> None:
        kept = f"; logs are in {logs}" if logs else ""
        self.console.print(f"  {self.title}: broken off at: {self.last}{kept}", highlight=False, soft_wrap=True)


@contextmanager
def settled(
    place: Place, load: Load, folder: Path, say: Say, extra: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """The query, built up and steady."""
    with running(folder, load, place, extra=extra or {}, say=say) as run:
        run.wait_until_settled()
        yield run


def place_of(subject: str) -> Place:
    """`subject`: "stock..." is without Rhino, "...cut" in network namespaces."""
    return Place(not subject.startswith("stock"), subject.endswith("cut"))


def _check_room(folder: Path, size: float) -> None:
    need, free = round(size * GB) * DISK_FACTOR, shutil.disk_usage(folder).free
    if free < need:
        raise RhinoError(f"{folder} has {free} bytes free; {need} are needed: use --dir or smaller --sizes")
