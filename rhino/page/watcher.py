"""Asks the manager again and again in two threads, and keeps the newest document for all browsers."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from rhino.client.handover_client import HandoverClient
from rhino.client.overview import Overview, fetch_overview
from rhino.page.model import Answers, document
from rhino.page.samples import Samples
from rhino_core.errors import RhinoError

TIMEOUT_S = 30.0
AGAIN_S = 1.0
REST = 3  # the manager rests for so many times the duration of a look


def ask(manager: str) -> Answers:
    """Asks as `rhino status`, `rhino handover list`, `rhino why` and `rhino history` do. Raises RhinoErrors."""
    began = time.monotonic()
    overview = fetch_overview(manager, timeout_s=TIMEOUT_S)
    with HandoverClient(manager, timeout_s=TIMEOUT_S) as client:
        handovers, decisions, actions = client.list(), client.decisions(), client.history()
    return Answers(overview, handovers, decisions, actions, _wall_ms(), round(time.monotonic() - began, 3))


class Watcher:
    """`frame`: the newest document as an event of a stream; `number` rises with each one. `start` begins.

    A silent manager is told in the document, beside the figures of its last answer.
    """

    def __init__(self, manager: str, interval_s: float, about: dict[str, Any]) -> None:
        """`about`: facts about this process for the document."""
        self.manager = manager
        self.number = 0
        self.frame = b""
        self.overview: Overview | None = None  # of the last answer
        self._interval_s = interval_s
        self._about = {"manager": manager, **about}
        self._document: dict[str, Any] = {}
        self._samples = Samples()
        self._lock = threading.Lock()  # of the samples
        self._ended = threading.Event()

    def start(self) -> None:
        for work in (self._look, self._follow):
            threading.Thread(target=work, name=f"page {work.__name__}", daemon=True).start()

    def stop(self) -> None:
        """Ends the threads, each after its present call."""
        self._ended.set()

    def show(self, answers: Answers) -> None:
        """Makes the answers the newest document."""
        overview = answers.overview
        lags: dict[str, int] = {job.job: 0 for job in overview.jobs if job.connected}
        for group in overview.groups:
            if group.group.job in lags:
                lags[group.group.job] = max(lags[group.group.job], group.lag_versions)
        with self._lock:
            self._samples.looked(lags, answers.at_ms)
            self._document = document(answers, self._samples)
        self.overview = overview
        self._publish("")

    def _publish(self, problem: str) -> None:
        content = json.dumps({"page": {**self._about, "problem": problem}, **self._document}, separators=(",", ":"))
        self.frame = f"data: {content}\n\n".encode()
        self.number += 1

    def _look(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            try:
                self.show(ask(self.manager))
            except RhinoError as error:
                self._publish(str(error))
            self._ended.wait(max(self._interval_s, REST * (time.monotonic() - began)))

    def _follow(self) -> None:
        while not self._ended.is_set():
            try:
                with HandoverClient(self.manager) as client:
                    for load in client.watch_load():
                        with self._lock:
                            self._samples.logged(load, _wall_ms())
            except RhinoError:  # the other thread reports it
                self._ended.wait(AGAIN_S)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
