"""Times and sources of the executors' loads of state: Spark's progress metrics lack them, the log of its RocksDB
wrapper has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from rhino.testing import LocalWorker

_LINE = re.compile(r"^(\d{13}) INFO .*?(?:partitionId=(\d+)|Rhino prepared [^/ ]+/\d+/(\d+)/).*$")
_LOADING = re.compile(r"\]: Loading (\d+) with stateStoreCkptId")
_PREPARED = re.compile(r"prepared \S+ at version \d+ in ([\d.]+) ms \(SOURCE_(\w+), (\d+) bytes fetched\)")
_LOOKED = re.compile(r"\]: Loading checkpoint files for version")
_COPIED = re.compile(r"\]: Copied (\d+) files \((\d+) bytes\) from DFS to local")
_OPENED = re.compile(r"\]: Opened DB with conf")
_REPLAYING = re.compile(r"\]: Replaying changelog from version (\d+) -> \S*?(\d+)\D*$")
_LOADED = re.compile(r"\]: Loaded (\d+) with uniqueId")
WARM_UP = "(warming up)"  # no task waits for that load


@dataclass(frozen=True, slots=True)
class StateLoad:
    """A task's load of one version of one partition. Wall clock in milliseconds since the epoch, 0: did not happen."""

    worker_id: str
    partition: int
    version: int
    started_ms: float  # Prepare included
    prepare_ms: float = 0.0
    source: str = ""  # of Prepare: local | replica | remote | empty
    fetched_bytes: int = 0  # from other workers
    copied_ms: float = 0.0  # all files of the snapshot are beside the database; without a snapshot: it is looked for
    copied_bytes: int = 0  # by Spark's file manager; with Rhino these are hard links
    opened_ms: float = 0.0
    replayed: int = 0  # changelogs
    ended_ms: float = 0.0  # they are replayed
    executor: str = ""  # Spark's id of it: a worker may have several, one after the other

    @property
    def real(self) -> bool:
        """False: the version was loaded already."""
        return self.opened_ms > 0

    @property
    def fetch_ms(self) -> float:
        """State fetching of Rhino's table 1: until every file is here."""
        return self.copied_ms - self.started_ms

    @property
    def open_ms(self) -> float:
        """State loading: the database is opened and brought up to date."""
        return self.ended_ms - self.copied_ms


def loads_of(workers: Iterable[LocalWorker]) -> list[StateLoad]:
    """Every finished load of all executors there have been, oldest first."""
    found = [
        replace(load, executor=log.parent.name)
        for worker in workers
        for log in worker.folder.glob("spark/work/app-*/*/stderr")
        for load in parse(worker.worker_id, log.read_text(errors="replace").splitlines())
    ]
    return sorted(found, key=lambda load: load.started_ms)


def parse(worker_id: str, lines: Iterable[str]) -> Iterator[StateLoad]:
    """Loads in an executor's log. Its lines begin with milliseconds since the epoch."""
    open_loads: dict[int, StateLoad] = {}
    prepared: dict[int, StateLoad] = {}
    for line in lines:
        if WARM_UP in line or (head := _LINE.match(line)) is None:
            continue
        at_ms, partition = float(head[1]), int(head[2] or head[3])
        if match := _PREPARED.search(line):
            took = float(match[1])
            prepared[partition] = StateLoad(
                worker_id, partition, 0, at_ms - took, took, match[2].lower(), int(match[3])
            )
        elif match := _LOADING.search(line):
            begun = prepared.pop(partition, None) or StateLoad(worker_id, partition, 0, at_ms)
            open_loads[partition] = replace(begun, version=int(match[1]))
        elif (load := open_loads.get(partition)) is None:
            continue
        elif _LOOKED.search(line):
            open_loads[partition] = replace(load, copied_ms=at_ms)
        elif match := _COPIED.search(line):
            open_loads[partition] = replace(load, copied_ms=at_ms, copied_bytes=int(match[2]))
        elif _OPENED.search(line):
            open_loads[partition] = replace(load, opened_ms=at_ms)
        elif match := _REPLAYING.search(line):
            open_loads[partition] = replace(load, replayed=int(match[2]) - int(match[1]))
        elif _LOADED.search(line):
            yield replace(open_loads.pop(partition), ended_ms=at_ms)


def places(loads: Iterable[StateLoad]) -> dict[int, str]:
    """Worker of the newest version of each partition: it runs there now."""
    return {partition: load.worker_id for partition, load in newest_loads(loads).items()}


def newest_loads(loads: Iterable[StateLoad]) -> dict[int, StateLoad]:
    """The load of the newest version of each partition."""
    newest: dict[int, StateLoad] = {}
    for load in loads:
        before = newest.get(load.partition)
        if before is None or (load.version, load.ended_ms) >= (before.version, before.ended_ms):
            newest[load.partition] = load
    return dict(sorted(newest.items()))


def moved_loads(loads: Iterable[StateLoad], before: Mapping[int, StateLoad], since_ms: float) -> list[StateLoad]:
    """Loads after `since_ms` by other executors than those of `before`, by partition; others are of no concern.

    By executor, not worker: a new one on the same worker has nothing of the former's state.
    """
    return [
        load
        for load in loads
        if load.real
        and load.ended_ms > since_ms
        and load.partition in before
        and load.executor != before[load.partition].executor
    ]
