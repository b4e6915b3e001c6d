"""Cancels a handover while it prepares. Its target is stopped meanwhile, so that it cannot become whole before."""

from __future__ import annotations

import os
import signal
from concurrent.futures import Executor, Future

import psutil

from rhino import Handover, HandoverClient
from rhino.testing.cluster import LocalWorker


class Cancellation:
    """`begun`: the handover, once the manager has answered."""

    def __init__(self, client: HandoverClient, begun: Future[Handover], target: LocalWorker, pool: Executor) -> None:
        self._client, self._begun, self._pool = client, begun, pool
        self._target = target
        self._stopped: int | None = None  # pid
        self._sent: Future[object] | None = None

    def send(self) -> None:
        """Stops the target's sidecar and returns at once: the manager may stand at a failpoint."""
        assert self._target.sidecar is not None
        self._stopped = self._target.sidecar.pid
        os.kill(self._stopped, signal.SIGSTOP)
        self._sent = self._pool.submit(lambda: self._client.cancel(self._begun.result().handover_id))

    def let_target_go_on(self) -> None:
        if self._stopped is not None and psutil.pid_exists(self._stopped):
            os.kill(self._stopped, signal.SIGCONT)
        self._stopped = None

    def error(self) -> BaseException | None:
        """Why the manager has refused it. None: it has not, or not yet."""
        return self._sent.exception() if self._sent is not None and self._sent.done() else None
