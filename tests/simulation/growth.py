"""A simulated cluster that runs for long: workers come and go under new names, queries start, end and are forgotten.

The periods of the simulator are 20 to 30 times shorter than those of a real cluster, so a simulated hour is a real day.
`python -m tests.simulation.growth --hours 30` is a month of it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from unittest.mock import patch

from tests.simulation import manager as manager_module
from tests.simulation import sidecar as sidecar_module
from tests.simulation.cluster import Cluster
from tests.simulation.facts import require
from tests.simulation.short_lived import ShortLived
from tests.simulation.sidecar import Sidecar
from tests.simulation.sizes import sizes
from tests.simulation.world import Faults
from worker_runtime.protocol.chain import membership

WORKERS, LASTING = 4, "a"
PAUSE_S = 1.0  # between batches of the query that never ends
WORKER_LIFE_S, QUERY_EVERY_S, TROUBLE_S = (60.0, 200.0), (20.0, 60.0), (5.0, 30.0)
FORGET_AFTER_S = 15.0  # a worker that is gone for good
BEAT_S = 2.0
FACTOR, SLACK = 1.5, 12  # by which a container may be larger in the last third than in the first
GROWS = {  # by design: a fence for every job that was ever forgotten, lest a late writer revives it
    "Groups._fences",
    "Chains.fences",
}


class Soak(Cluster):
    """Without the faults of other seeds, of which some would have to end: crashes and restarts only. The manager and
    one sidecar run all the time: what they remember is not lost by a restart."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, workers=WORKERS)
        self.world.faults = Faults.none()
        self.world.trace = _Tail(maxlen=300)  # type: ignore[assignment]
        self.world.actions_max = 10**9
        self._random = Random(f"soak of seed {seed}")
        self._names = (f"w{number}" for number in itertools.count())
        self._jobs = (f"query{number}" for number in itertools.count())
        self._going: set[str] = set()
        self.came = Counter[str]()
        self.workload.slow_down(PAUSE_S)

    def begin(self) -> None:
        self.start()
        self._new_query()
        self._trouble()
        for name in sorted(self.sidecars.keys() - {LASTING}):
            self.world.after(self._random.uniform(*WORKER_LIFE_S), lambda name=name: self._replace(name))  # type: ignore[misc]

    def _new_query(self) -> None:
        self.came["queries"] += 1
        ShortLived(self, next(self._jobs), PAUSE_S / 2).start(until=float("inf"))
        self.world.after(self._random.uniform(*QUERY_EVERY_S), self._new_query)

    def _trouble(self) -> None:
        """A process ends, and another one takes its place."""
        victim = self._random.choice(sorted(self.sidecars.keys() - {LASTING}))
        if self.sidecars[victim].up and victim not in self._going:
            self.came["restarts"] += 1
            self._random.choice([self.crash, self.restart])(self.sidecars[victim])
        self.world.after(self._random.uniform(*TROUBLE_S), self._trouble)

    # ------------------------------------------------------------ workers come and go

    def _replace(self, name: str) -> None:
        """Another worker comes; this one is drained, then stopped for good."""
        self.came["workers"] += 1
        new = next(self._names)
        self.sidecars[new] = Sidecar(self, new)
        self.sidecars[new].start()
        self.world.after(self._random.uniform(*WORKER_LIFE_S), lambda: self._replace(new))
        self._going.add(name)
        self._drain(name)

    def _drain(self, name: str) -> None:
        manager = self.manager
        groups = [group for group in manager.core.groups.values() if group.member(name)] if manager.up else []
        for group in groups:
            whole = [m.worker.worker_id for m in group.members[1:] if m.whole]
            if group.owner.worker_id == name and whole:
                manager.change(group.group, make_owner=whole[0])
        if not manager.up or not manager.set_draining(name, True) or groups:
            self.world.after(1.0, lambda: self._drain(name))
            return
        sidecar = self.sidecars.pop(name)
        if sidecar.up:
            manager.leave(sidecar)
            sidecar.crash()
        sidecar.process += 1  # whatever would start it again
        self.world.after(FORGET_AFTER_S, lambda: self._forget(name))

    def _forget(self, name: str) -> None:
        if not self.manager.forget_worker(name):
            self.world.after(1.0, lambda: self._forget(name))

    # ------------------------------------------------------------ what grows

    def sizes(self) -> Counter[str]:
        up = [sidecar for sidecar in self.sidecars.values() if sidecar.up]
        workers = [
            machine for sidecar in up for machine in (sidecar.machine, sidecar.catalogue, sidecar.excess.machine)
        ]
        return sizes([*workers, self.manager.core])


class _Tail(deque[Any]):
    """A trace of which the last lines are kept."""


@contextlib.contextmanager
def _rarer() -> Iterator[None]:
    """Frequent events come less often than in short runs."""
    with contextlib.ExitStack() as patches:
        patches.enter_context(patch.object(sidecar_module, "BEAT_S", BEAT_S))
        patches.enter_context(patch.object(manager_module, "LEASE_S", 3 * BEAT_S))
        patches.enter_context(patch.object(membership, "SWEEP_S", 30.0))
        yield


def run(seed: int, seconds: float, *, samples: int = 12, say: Callable[[str], None] = lambda line: None) -> Soak:
    """Raises Violation when a container has grown from the first third of the samples to the last.

    `say` gets a line after each sample.
    """
    soak = Soak(seed)
    seen: list[Counter[str]] = []
    with soak.scaled_periods(), _rarer():
        soak.begin()
        for sample in range(samples):
            soak.world.run_until(seconds * (sample + 1) / samples)
            seen.append(soak.sizes())
            say(f"sample {sample + 1} of {samples}: {seen[-1].total()} items, {dict(soak.came)}")
    third = samples // 3
    for place, (before, end) in _growth(seen[:third], seen[-third:]):
        require(place in GROWS, f"{place}: {before} in the first third, {end} in the last, after {soak.came}")
    return soak


def _growth(first: list[Counter[str]], end: list[Counter[str]]) -> Iterator[tuple[str, tuple[int, int]]]:
    for place in sorted(set().union(*first, *end)):
        before, after = max(one[place] for one in first), max(one[place] for one in end)
        if after > FACTOR * before + SLACK:
            yield place, (before, after)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.growth", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="simulated; one is about a day of a real cluster")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started = time.monotonic()
    soak = run(arguments.seed, arguments.hours * 3600.0, say=lambda line: print(line, flush=True))
    for place, size in soak.sizes().most_common(25):
        print(f"{size:8d} {place}")
    print(f"{dict(soak.came)} in {arguments.hours} h, {time.monotonic() - started:.0f} s: nothing grows")


if __name__ == "__main__":
    main()
