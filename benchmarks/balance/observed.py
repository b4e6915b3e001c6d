"""Batches as reported to the manager, and the balance of the workers over them."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rhino import BatchLoad, HandoverClient
from rhino_core.errors import RhinoError

WINDOW = 4  # batches, as the windows of adaptation
NEWEST, BROKEN = 4, 3  # adaptation acts if so many of the newest windows are above its band
JOIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Heard:
    """The load of a batch, and the wall clock in milliseconds when it was heard of."""

    at_ms: int
    load: BatchLoad


class Listener:
    """Context manager. Collects the load of all batches of a query. An error is raised by `heard`."""

    def __init__(self, manager: str, name: str) -> None:
        self._client = HandoverClient(manager)
        self._name = name
        self._heard: list[Heard] = []
        self._error: RhinoError | None = None
        self._thread = threading.Thread(target=self._listen, name="listener", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()
        self._thread.join(JOIN_S)

    def heard(self) -> tuple[Heard, ...]:
        """The loads reported so far, the oldest first."""
        if self._error is not None:
            raise self._error
        return tuple(self._heard)

    def _listen(self) -> None:
        try:
            for load in self._client.watch_load():
                if load.name == self._name:
                    self._heard.append(Heard(time.time_ns() // 1_000_000, load))
        except RhinoError as error:  # the end of the context also breaks the stream
            self._error = error


@dataclass(frozen=True, slots=True)
class Window:
    """Some batches in a row. `ended_ms`: the time of the report of the last one.

    `max_over_mean`: the task time of the busiest worker over the mean. `least`: the same if the heaviest virtual node
    were alone on its worker, and at least 1: no placement is more balanced, as keys cannot be split.
    """

    first_batch: int
    ended_ms: int
    max_over_mean: float
    least: float = 1.0


def windows(heard: Sequence[Heard], size: int = WINDOW) -> list[Window]:
    """Every `size` batches in a row. These windows overlap."""
    return [_window(heard[end - size : end]) for end in range(size, len(heard) + 1)]


def _window(batches: Sequence[Heard]) -> Window:
    busy, nodes = defaultdict[str, float](float), defaultdict[str, float](float)
    for one in batches:
        for node in one.load.virtual_nodes:
            busy[node.desired_worker] += node.task_s
            nodes[node.virtual_node] += node.task_s
    workers = max(batches[-1].load.workers, len(busy))
    mean = sum(busy.values()) / workers
    ratio, least = (max(busy.values()) / mean, max(nodes.values()) / mean) if mean else (1.0, 1.0)
    return Window(batches[0].load.batch_id, batches[-1].at_ms, ratio, max(least, 1.0))


def balanced_for_good(found: Sequence[Window], limit: float) -> Window | None:
    """The first window within the limit without a later reason for adaptation to act; None: there is none.

    It acts if three of four windows in a row are above the limit. `found`: all windows. They overlap.
    """
    above = [window.max_over_mean > limit for window in found]
    good = None
    for start in range(len(found) - 1, -1, -1):
        if sum(above[start : start + NEWEST * WINDOW : WINDOW]) >= BROKEN:
            break
        if not above[start]:
            good = found[start]
    return good
