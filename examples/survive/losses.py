"""The losses of the scene, and the ways back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from rhino.testing.elastic import ElasticCluster
from rhino.testing.process import Process

KINDS = ("worker", "manager", "driver", "notice", "silence")


@dataclass(frozen=True, slots=True)
class Loss:
    """`happens` returns once it has happened, `comes_back` once the process runs again."""

    kind: str  # of KINDS
    name: str
    happens: Callable[[], object]
    comes_back: Callable[[], None]


class Drivers:
    """The driver that runs the query, and a standby since `another`. `start(standby)` starts an application."""

    def __init__(self, start: Callable[[bool], Process]) -> None:
        self._start = start
        self.running = start(False)
        self._standby: Process | None = None

    def ready(self) -> bool:
        """Whether the standby has rehearsed, or waits without."""
        text = "" if self._standby is None else self._standby.text()
        return "rehearsed" in text or "waits without a rehearsal" in text

    def kill(self) -> None:
        assert self._standby is not None
        self.running.kill()
        self.running, self._standby = self._standby, None

    def another(self) -> None:
        self._standby = self._start(True)

    def stop(self) -> None:
        """The standby first: it cannot know why the other one ends."""
        for process in (self._standby, self.running):
            if process is not None:
                process.kill()


def losses(cluster: ElasticCluster, drivers: Drivers) -> list[Loss]:
    """One of each kind, in the order of the scene."""

    def notice() -> None:
        cluster.remove_worker(1)

    def silent() -> None:
        """The node answers nobody, and closes no connection."""
        for pid in cluster.workers[2].pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def silent_node_is_replaced() -> None:
        cluster.kill_worker(2)
        cluster.restart_worker(2)

    return [
        Loss("worker", "kill -9 of a worker", partial(cluster.kill_worker, 0), lambda: cluster.restart_worker(0)),
        Loss("manager", "kill -9 of the leading manager", cluster.kill_manager, cluster.restart_manager),
        Loss("driver", "kill -9 of the driver", drivers.kill, drivers.another),
        Loss("notice", "a worker is decommissioned", notice, lambda: cluster.restart_worker(1)),
        Loss("silence", "a node falls silent", silent, silent_node_is_replaced),
    ]
