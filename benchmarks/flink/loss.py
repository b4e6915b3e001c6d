"""One kill -9 of a Flink task manager, and when the job ran again."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.flink import log
from benchmarks.flink.cluster import flink_cluster
from benchmarks.flink.job import BUILDING, STATEFUL, submit
from benchmarks.flink.log import Checkpoint, Deployment, Event, Switch
from benchmarks.stateful import PARTITIONS, SETTLED_BATCHES, Load
from rhino.testing.process import Process, kill_pid
from rhino_core.errors import RhinoError

POLL_S = 0.05
STALL_S = 90.0  # without a checkpoint


@dataclass(frozen=True, slots=True)
class Recovery:
    """Milliseconds after kill -9 of a worker, unless said otherwise."""

    subject: str
    state_bytes: int
    held_bytes: int  # of state, as the subject counts it; 0: not known
    seen: float  # Flink: a task failed; Rhino: the driver dropped the executor
    running: float  # all tasks run again, their state restored (Rhino: loaded)
    committed: float  # the next checkpoint (Rhino: batch) is complete


class _Job:
    """Follows the job by its job manager's log."""

    def __init__(self, master: Process, say: Callable[[str], None]) -> None:
        self._master = master
        self._say = say

    def events(self) -> list[Event]:
        return list(log.parse(self._master.text().splitlines()))

    def polls(self, doing: str) -> Iterator[list[Event]]:
        """All events so far, again and again. RhinoError when no checkpoint completes any more."""
        completed, since = -1, time.monotonic()
        while True:
            if not self._master.running:
                raise RhinoError(f"Flink's job manager ended{self._master.tail()}")
            events = self.events()
            checkpoints = checkpoints_of(events)
            if len(checkpoints) > completed:
                completed, since = len(checkpoints), time.monotonic()
            held = checkpoints[-1].state_bytes if checkpoints else 0
            self._say(f"{doing}, checkpoint {completed}, state {held / 1e6:.0f} MB")
            yield events
            if time.monotonic() - since > STALL_S:
                raise RhinoError(f"Flink completed no checkpoint within {STALL_S:g} s{self._master.tail()}")
            time.sleep(POLL_S)

    def wait_until_settled(self) -> int:
        """Every key has a value, and checkpoints followed; bytes of state of the newest."""
        for events in self.polls("building the state"):
            finished = [e for e in events if isinstance(e, Switch) and BUILDING in e.task and e.to == "FINISHED"]
            ended = {event.task: event.at_ms for event in finished}
            if len(ended) < PARTITIONS:
                continue
            settled = [c for c in checkpoints_of(events) if c.at_ms > max(ended.values())]
            if len(settled) > SETTLED_BATCHES:
                return settled[-1].state_bytes
        raise AssertionError("polls do not end")


def checkpoints_of(events: Sequence[Event]) -> list[Checkpoint]:
    return [event for event in events if isinstance(event, Checkpoint)]


def check_spread(events: Sequence[Event], task_managers: Sequence[str]) -> None:
    """RhinoError unless each of them runs as many subtasks with state."""
    places = {e.task: e.task_manager for e in events if isinstance(e, Deployment) and STATEFUL in e.task}
    spread = Counter(places.values())
    if spread != dict.fromkeys(task_managers, PARTITIONS // len(task_managers)):
        raise RhinoError(f"Flink has spread the {STATEFUL} subtasks unevenly: {dict(spread)}")


def kill_task_manager(jars: Path, load: Load, folder: Path, say: Callable[[str], None]) -> Recovery:
    """Builds up the state on a cluster of its own in `folder` and kills one of the task managers."""
    with flink_cluster(folder, jars) as cluster:
        submit(cluster, load)
        job = _Job(cluster.job_manager, say)
        held = job.wait_until_settled()
        os.sync()  # as the other subject's state is on disk
        events = job.events()
        check_spread(events, [worker.name for worker in cluster.task_managers])
        done = len(checkpoints_of(events))
        # Right after a checkpoint, as the other subject's worker is killed right after a batch.
        next(None for events in job.polls("small updates") if len(checkpoints_of(events)) > done)
        at_ms = time.time() * 1000
        kill_pid(cluster.task_managers[-1].pid)
        found = (log.restart_after(events, at_ms) for events in job.polls("recovering"))
        restart = next(restart for restart in found if restart is not None)
    return Recovery(
        subject="flink",
        state_bytes=load.state_bytes,
        held_bytes=held,
        seen=restart.seen_ms - at_ms,
        running=restart.running_ms - at_ms,
        committed=restart.committed_ms - at_ms,
    )
