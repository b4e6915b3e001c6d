"""One seed, and many of them on all processors."""

from __future__ import annotations

import functools
import multiprocessing
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from rhino_core.errors import RhinoError
from tests.simulation.cluster import Cluster
from tests.simulation.variety import drawn


@dataclass(frozen=True)
class Outcome:
    """`error`: the invariant that did not hold, or what a machine raised; None when all went well."""

    error: Exception | None
    trace: list[str]


@dataclass(frozen=True)
class Failure:
    seed: int
    factor: int
    error: str

    @property
    def replay(self) -> str:
        return f"python -m tests.simulation --seed {self.seed} --factor {self.factor}"

    @property
    def text(self) -> str:
        return f"seed {self.seed} (factor {self.factor}): {self.error}"


def run(seed: int, *, factor: int = 1, verbose: bool = False) -> Outcome:
    cluster = Cluster(seed, workers=factor + 2, factor=factor, variety=drawn(seed, factor))
    cluster.world.verbose = verbose
    try:
        cluster.run()
    except (AssertionError, RhinoError, LookupError) as error:
        return Outcome(error, cluster.world.trace)
    return Outcome(None, cluster.world.trace)


def failures(seeds: range, *, factor: int, jobs: int) -> Iterator[Failure | None]:
    """The failure of each seed or None, as they end; the pool ends with the iterator, and with this process."""
    attempt = functools.partial(_attempt, factor=factor)
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=end_with_parent) as pool:
        yield from pool.imap_unordered(attempt, seeds, chunksize=8)


def end_with_parent() -> None:
    """A worker of a process that was killed would go on with its seeds otherwise."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, name="end with parent", daemon=True).start()


def _attempt(seed: int, *, factor: int) -> Failure | None:
    error = run(seed, factor=factor).error
    return Failure(seed, factor, f"{type(error).__name__}: {error}") if error is not None else None


def usable_processors() -> int:
    return len(os.sched_getaffinity(0))
