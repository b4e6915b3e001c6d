"""Facts from a Flink job manager's log: checkpoints, places of tasks, and the times of their ends, failures and new
starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_LINE = re.compile(r"^(\d{13}) [A-Z]+ \S+: (.*)$")
_TASK = re.compile(r"^(.*) \((\d+)/\d+\) \(.*\) switched from (\w+) to (\w+)")
_DEPLOYMENT = re.compile(r"^Deploying (.*) \((\d+)/\d+\) \(attempt #\d+\) .* to (\S+) @ ")
_JOB = re.compile(r"^Job .* switched from state (\w+) to (\w+)")
_CHECKPOINT = re.compile(r"^Completed checkpoint \d+ for job \S+ \((\d+) bytes,")


@dataclass(frozen=True, slots=True)
class Switch:
    """`task`: "" for the job itself."""

    at_ms: int
    task: str
    to: str


@dataclass(frozen=True, slots=True)
class Deployment:
    at_ms: int
    task: str
    task_manager: str  # its resource id


@dataclass(frozen=True, slots=True)
class Checkpoint:
    at_ms: int  # when it was complete
    state_bytes: int


Event = Switch | Deployment | Checkpoint


@dataclass(frozen=True, slots=True)
class Restart:
    """Wall clock in milliseconds since the epoch."""

    seen_ms: int  # a task, or the job, is no longer counted as running
    running_ms: int  # the last task that had not finished runs again, its state restored
    committed_ms: int  # the first checkpoint after that is complete


def parse(lines: Iterable[str]) -> Iterator[Event]:
    """In the order of the log; other lines are left out."""
    for line in lines:
        if (found := _LINE.match(line)) is None:
            continue
        at_ms, text = int(found[1]), found[2]
        if task := _TASK.match(text):
            yield Switch(at_ms, f"{task[1]} {task[2]}", task[4])
        elif deployment := _DEPLOYMENT.match(text):
            yield Deployment(at_ms, f"{deployment[1]} {deployment[2]}", deployment[3])
        elif job := _JOB.match(text):
            yield Switch(at_ms, "", job[2])
        elif checkpoint := _CHECKPOINT.match(text):
            yield Checkpoint(at_ms, int(checkpoint[1]))


def restart_after(events: Iterable[Event], killed_ms: float) -> Restart | None:
    """The first restart begun after `killed_ms`; None while no checkpoint has completed after it."""
    seen_ms = running_ms = 0
    finished: set[str] = set()  # Flink runs these again as well, with nothing to do
    for event in events:
        if event.at_ms < killed_ms:
            if isinstance(event, Switch) and event.to == "FINISHED":
                finished.add(event.task)
        elif isinstance(event, Checkpoint):
            if running_ms:
                return Restart(seen_ms, running_ms, event.at_ms)
        elif isinstance(event, Switch):
            if event.to in ("FAILED", "FAILING", "RESTARTING"):
                seen_ms = seen_ms or event.at_ms
                running_ms = 0  # a restart may fail
            elif seen_ms and event.to == "RUNNING" and event.task and event.task not in finished:
                running_ms = event.at_ms
    return None
