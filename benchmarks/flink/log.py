"""What a Flink job manager's log tells: checkpoints, tasks that ended, failed and run again, with their times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_LINE = re.compile(r"^(\d{13}) [A-Z]+ \S+: (.*)$")
_TASK = re.compile(r"^(.*) \((\d+)/\d+\) \(.*\) switched from (\w+) to (\w+)")
_JOB = re.compile(r"^Job .* switched from state (\w+) to (\w+)")
_CHECKPOINT = re.compile(r"^Completed checkpoint \d+ for job \S+ \((\d+) bytes,")


@dataclass(frozen=True, slots=True)
class Switch:
    """`task`: "" for the job itself."""

    at_ms: int
    task: str
    to: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    at_ms: int  # when it was complete
    state_bytes: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Wall clock in milliseconds since the epoch."""

    seen_ms: int  # a task, or the job, is no longer counted as running
    running_ms: int  # the last task runs again, its state restored
    committed_ms: int  # the first checkpoint after that is complete


def parse(lines: Iterable[str]) -> Iterator[Switch | Checkpoint]:
    """In the order of the log; other lines are left out."""
    for line in lines:
        if (found := _LINE.match(line)) is None:
            continue
        at_ms, text = int(found[1]), found[2]
        if task := _TASK.match(text):
            yield Switch(at_ms, f"{task[1]} {task[2]}", task[4])
        elif job := _JOB.match(text):
            yield Switch(at_ms, "", job[2])
        elif checkpoint := _CHECKPOINT.match(text):
            yield Checkpoint(at_ms, int(checkpoint[1]))


def restart_after(events: Iterable[Switch | Checkpoint], killed_ms: float) -> Restart | None:
    """The first restart that began after `killed_ms`; None while no checkpoint has completed after it."""
    seen_ms = running_ms = 0
    for event in events:
        if event.at_ms < killed_ms:
            continue
        if isinstance(event, Checkpoint):
            if running_ms:
                return Restart(seen_ms, running_ms, event.at_ms)
        elif event.to in ("FAILED", "FAILING", "RESTARTING"):
            seen_ms = seen_ms or event.at_ms
            running_ms = 0  # a restart may fail
        elif seen_ms and event.task and event.to == "RUNNING":
            running_ms = event.at_ms
    return None
