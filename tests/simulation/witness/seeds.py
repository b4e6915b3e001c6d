"""One seed: half a minute of faults, and then none."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
from collections.abc import Callable, Iterator
from unittest.mock import patch

from rhino_core.errors import RhinoError
from rhino_core.witnesses import log
from tests.simulation.seeds import Outcome, end_with_parent
from tests.simulation.witness.disk import Disk
from tests.simulation.witness.processes import KEPT, LEASE_S, Manager, Witness
from tests.simulation.witness.watch import Watch
from tests.simulation.witness.world import Faults, World

CHAOS_S = 30 * LEASE_S
PEACE_S = 16 * LEASE_S  # after the faults, until a write returns
MANAGERS = 3


def run(seed: int, *, traced: bool = False) -> Outcome:
    """`Outcome.error`: the invariant that did not hold, or what a core raised."""
    world = World(seed, traced=traced)
    records_max = world.random.choice([1, 2, 256])  # in a message
    try:
        with patch.object(log, "RECORDS_MAX", records_max):
            _Play(world, busy=records_max > 2).run()
    except (AssertionError, RhinoError, LookupError) as error:
        return Outcome(error, world.trace)
    return Outcome(None, world.trace)


class _Play:
    """Each seed has some of the faults, with weights of its own. `busy`: there may be many writes."""

    def __init__(self, world: World, *, busy: bool) -> None:
        self._world = world
        self._random = random = world.random
        self._names = (f"w{number}" for number in itertools.count())
        self._witnesses: dict[str, Witness] = {}
        self._disks: dict[str, Disk] = {}
        self._lost: set[str] = set()
        self._watch = Watch(world, self._disks)
        self._first = tuple(self._new_witness() for _ in range(random.choice([3, 3, 5])))
        self._managers = [Manager(world, self._watch, f"m{number}", self._first) for number in range(MANAGERS)]
        world.faults = Faults(
            lose=random.choice([0.0, 0.02, 0.1]),
            repeat=random.choice([0.0, 0.05, 0.2]),
            late=random.choice([0.0, 0.05, 0.2]),
            late_s=random.choice([0.2, LEASE_S, 4 * LEASE_S]),
        )
        faults: list[Callable[[], None]] = [
            self._crash_witness,
            self._crash_manager,
            self._hang_manager,
            self._cut,
            self._isolate,
            self._slow_disk,
            self._step_clock,
            self._lose_witness,
            self._change_witnesses,
            self._power_cut,
        ]
        self._faults = {do: random.uniform(0.2, 1.0) for do in faults if world.chance(0.6)}
        self._pause_s = random.choice([0.3, 1.0, 3.0]) * LEASE_S
        self._put_s = random.choice([0.02 if busy else 0.2, 0.1, 0.5]) * LEASE_S
        self._chaos = True

    def run(self) -> None:
        world = self._world
        world.later(0.0, self._fault)
        world.later(0.0, self._put)
        world.later(0.0, self._repair)
        world.run(CHAOS_S)
        self._chaos = False
        self._end_faults()
        world.run(CHAOS_S + PEACE_S)
        self._check_peace()

    def _new_witness(self) -> str:
        witness = Witness(self._world, next(self._names))
        self._witnesses[witness.name] = witness
        self._disks[witness.name] = witness.disk
        return witness.name

    # ---------------------------------------------------------------- work

    def _put(self) -> None:
        """All managers that take themselves for the leader write."""
        for manager in self._managers:
            if manager.leads:
                manager.put()
        self._world.later(self._random.expovariate(1 / self._put_s), self._put)

    def _repair(self) -> None:
        """An operator replaces lost witnesses: first a new one comes, then the lost one goes."""
        present = self._watch.witnesses
        lost = [one for one in present if one in self._lost]
        if lost:
            whole = tuple(one for one in present if one not in lost)
            self._change(whole if len(whole) >= 3 else tuple(sorted([*present, self._new_witness()])))
        self._world.later(LEASE_S, self._repair)

    def _change(self, witnesses: tuple[str, ...]) -> None:
        for manager in self._managers:
            if manager.leads:
                manager.put(witnesses)

    # ---------------------------------------------------------------- faults

    def _fault(self) -> None:
        if self._chaos and self._faults:
            (do,) = self._random.choices(list(self._faults), list(self._faults.values()))
            do()
            self._world.later(self._random.expovariate(1 / self._pause_s), self._fault)

    def _while(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        begin()
        self._world.later(self._random.expovariate(1 / LEASE_S), end)

    def _crash_witness(self) -> None:
        witness = self._random.choice([one for name, one in self._witnesses.items() if name not in self._lost])
        self._while(witness.crash, functools.partial(self._start, witness))

    def _start(self, witness: Witness) -> None:
        if witness.name not in self._lost:
            witness.start()

    def _power_cut(self) -> None:
        """All witnesses crash at once."""
        for witness in self._witnesses.values():
            self._while(witness.crash, functools.partial(self._start, witness))

    def _crash_manager(self) -> None:
        manager = self._random.choice(self._managers)
        self._while(manager.crash, lambda: manager.start(self._named()))

    def _named(self) -> tuple[str, ...]:
        """The witnesses of a command line, perhaps an old one."""
        return self._first if self._world.chance(0.3) else self._watch.witnesses or self._first

    def _hang_manager(self) -> None:
        manager = self._random.choice(self._managers)
        if manager.up:
            manager.hang(self._random.expovariate(1 / LEASE_S))

    def _cut(self) -> None:
        """Nothing goes in one direction between a manager and some witnesses."""
        host = self._random.choice(self._managers).host
        witnesses = self._random.sample(list(self._witnesses), self._random.randint(1, 3))
        to_witness = self._world.chance(0.5)
        self._cut_links([(host, one) if to_witness else (one, host) for one in witnesses])

    def _isolate(self) -> None:
        host = self._random.choice([*(manager.host for manager in self._managers), *self._witnesses])
        others = [*(manager.host for manager in self._managers), *self._witnesses]
        self._cut_links([link for other in others for link in ((host, other), (other, host))])

    def _cut_links(self, links: list[tuple[str, str]]) -> None:
        self._world.say(f"cut: {links}")
        cuts = self._world.cuts
        self._while(lambda: cuts.update(links), lambda: cuts.difference_update(links))

    def _slow_disk(self) -> None:
        witness = self._random.choice(list(self._witnesses.values()))
        slow_s = self._random.choice([0.1, 0.5, 2.0]) * LEASE_S
        self._while(lambda: setattr(witness, "slow_s", slow_s), lambda: setattr(witness, "slow_s", 0.0))

    def _step_clock(self) -> None:
        self._random.choice(self._managers).step_clock(self._random.uniform(-2.0, 5.0) * LEASE_S)

    def _lose_witness(self) -> None:
        """A witness is gone for ever: one of the present set at a time."""
        present = self._watch.witnesses
        if present and not self._lost & set(present):
            name = self._random.choice(present)
            self._world.say(f"{name}: lost")
            self._lost.add(name)
            self._witnesses[name].crash()

    def _change_witnesses(self) -> None:
        """Adds a witness, perhaps one with an older journal, or removes one."""
        present = self._watch.witnesses
        if not present or self._lost & set(present):
            return
        if len(present) > 3 and self._world.chance(0.6):
            gone = self._random.choice(present)
            self._change(tuple(one for one in present if one != gone))
            return
        old = [name for name in self._witnesses if name not in self._lost and name not in present]
        name = self._random.choice(old) if old and self._world.chance(0.5) else self._new_witness()
        self._change(tuple(sorted([*present, name])))

    # ---------------------------------------------------------------- the end

    def _end_faults(self) -> None:
        self._world.say("the faults end")
        self._world.faults = Faults()
        self._world.cuts.clear()
        for witness in self._witnesses.values():
            witness.slow_s = 0.0
            self._start(witness)
        for manager in self._managers:  # an operator starts those anew that may look for a former set of witnesses
            if not manager.leads:
                manager.crash()
            manager.start(self._watch.witnesses or self._first)

    def _check_peace(self) -> None:
        """One manager leads, and its write returns. All know the same journal. No log is longer than a bound."""
        world, watch = self._world, self._watch
        leaders = [manager for manager in self._managers if manager.leads]
        if len(leaders) != 1:
            world.fail(f"after the faults these lead: {[one.name for one in leaders]}")
        key = leaders[0].put()
        world.run(world.now + LEASE_S)
        if key not in watch.finished:
            world.fail("a write after the faults has not returned")
        for name in watch.witnesses:
            length = len(self._disks[name].records)
            if length > 4 * KEPT and name not in self._lost:
                world.fail(f"{name} has {length} records on disk")


def failures(seeds: range, *, jobs: int) -> Iterator[tuple[int, str] | None]:
    """The failure of each seed or None, as they end."""
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=end_with_parent) as pool:
        yield from pool.imap_unordered(_attempt, seeds, chunksize=16)


def _attempt(seed: int) -> tuple[int, str] | None:
    error = run(seed).error
    return None if error is None else (seed, f"{type(error).__name__}: {error}")
