"""Parts of the tests of modify refusals that other tests use as well."""

from __future__ import annotations

import threading

from tests.spark.conftest import wait_for


class Gate:
    """Holds a batch after its output is written, before it is committed."""

    def __init__(self) -> None:
        self.closed, self.held, self.batch = threading.Event(), threading.Event(), -1

    def written(self, batch: int) -> None:
        if not self.closed.is_set():
            return
        self.batch = batch
        self.held.set()
        wait_for(lambda: not self.closed.is_set(), "the gate opens")
