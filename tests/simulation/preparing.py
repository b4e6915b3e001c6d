"""A simulated Prepare: the real core says what to fetch, and what is lost; questions take their time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rhino_core.ids import StoreVersion, Worker
from tests.simulation.facts import require
from worker_runtime.protocol.copies.preparing import Attempt, Known, PrepareState, Survey
from worker_runtime.protocol.copies.pulling import Found

if TYPE_CHECKING:
    from tests.simulation.sidecar import Sidecar

PREPARE_S = 2.0
ROUND_PAUSE_S = 0.1


class Preparing:
    """The Prepare of one version. `then` gets the answer unless the process dies. READY pins the version as `pin`."""

    def __init__(self, sidecar: Sidecar, wanted: StoreVersion, then: Callable[[PrepareState, int], None]) -> None:
        self._me, self._wanted, self._then = sidecar, wanted, then
        self._cluster, self._world = sidecar.cluster, sidecar.world
        self._attempt = Attempt.begun((wanted,), sidecar.catalogue)
        self._deadline = self._world.now + PREPARE_S
        self._survey: Survey | None = None
        self._pin = next(self._world.numbers)
        sidecar.pins[self._pin] = wanted
        self._round()

    def _round(self) -> None:
        me, store = self._me, self._wanted.store
        me.named.add(store.job)
        checked = set[str]()
        while me.up and (unchecked := self._closure() - checked):
            for name in sorted(unchecked):
                if me.up and not me.readable(store, name):
                    self._attempt.dropped(store, (name,))
            checked |= unchecked
        if not me.up:
            return
        if not self._attempt.missing(me.catalogue):
            self._end(PrepareState.READY)
        elif self._world.now >= self._deadline:
            self._end(PrepareState.UNAVAILABLE)
        else:
            self._ask()

    def _closure(self) -> frozenset[str]:
        return self._me.catalogue.store(self._wanted.store).closure(self._wanted.version) or frozenset()

    def _end(self, state: PrepareState) -> None:
        text = f"{self._wanted} on {self._me.name}"
        disks = self._cluster.disks()
        if state is PrepareState.READY:
            opens = self._cluster.opens_on(self._wanted, [self._me.disk])
            require(opens, f"{text} does not open after Prepare")
        else:
            self._me.pins.pop(self._pin, None)
        if state is PrepareState.LOST:
            require(not self._cluster.opens_on(self._wanted, disks.values()), f"{text} is said to be lost")
        self._then(state, self._pin)

    # ------------------------------------------------------------ asking

    def _ask(self) -> None:
        me, self._survey = self._me, Survey((self._wanted,), self._me.worker, self._me.group)
        others = [worker for worker in me.live if worker.worker_id != me.name]
        self._waiting = len(others)
        for worker in others:
            self._later(lambda worker=worker, survey=self._survey: self._ask_held(worker, survey))  # type: ignore[misc]
        if not others:
            self._decide(self._survey)

    def _later(self, action: Callable[[], None]) -> None:
        self._me.later(self._world.delay(), action)

    def _ask_held(self, worker: Worker, survey: Survey) -> None:
        other = self._cluster.network.reach(self._me.name, worker.worker_id)
        if other is None:
            self._no_answer(worker, survey)
            return
        held = other.catalogue.store(self._wanted.store).holds(self._wanted.version)
        self._later(lambda: self._ask_files(worker, survey, held=held))

    def _ask_files(self, worker: Worker, survey: Survey, *, held: bool) -> None:
        other = self._cluster.network.reach(self._me.name, worker.worker_id)
        if other is None:
            self._no_answer(worker, survey)
            return
        survey.add(worker, [self._wanted] if held else [], other.inventory(self._wanted.store.group))
        self._answered(survey)

    def _no_answer(self, worker: Worker, survey: Survey) -> None:
        survey.silent[worker.worker_id] = "out of reach"
        self._answered(survey)

    def _answered(self, survey: Survey) -> None:
        if survey is not self._survey:
            return
        self._waiting -= 1
        if self._waiting == 0 or survey.plans(self._me.catalogue)[0] is not None:
            self._decide(survey)

    # ------------------------------------------------------------ fetching

    def _decide(self, survey: Survey) -> None:
        self._survey = None
        (plan,) = survey.plans(self._me.catalogue)
        if plan is None:
            me = self._me
            connected = me.watch is not None and me.watch.connected
            may_hold = self._cluster.manager.may_hold(me, self._wanted.store.group)
            known = Known(connected, me.live, me.absent, me.world.now < me.settled_at, may_hold)
            state, text = survey.verdict((self._wanted,), known, me.worker)
            self._world.say(f"{me.name}: {state.value}: {text}")
            self._end(state)
            return
        self._world.random.shuffle(plan)
        self._fetch(plan)

    def _fetch(self, left: list[Found]) -> None:
        if not left:
            self._round()
            return
        found = left.pop()
        if self._me.pull_from(found):
            self._later(lambda: self._fetch(left))
        else:
            self._me.later(ROUND_PAUSE_S, self._round)
