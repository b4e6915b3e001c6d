"""The processes: witnesses with their disks, and managers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rhino_core.errors import ConflictError, InvalidRequestError
from rhino_core.witnesses import events as ev
from rhino_core.witnesses.acceptor import Acceptor, Effect, Reply
from rhino_core.witnesses.contender import Contender, Times
from rhino_core.witnesses.leadership import Identity
from rhino_core.witnesses.messages import Snapshot
from tests.simulation.witness.disk import Disk, fold
from tests.simulation.witness.watch import Watch
from tests.simulation.witness.world import World

CLUSTER = "cluster"
LEASE_S = 1.0
KEPT = 8  # committed records above a snapshot


class Witness:
    """The real acceptor. Answers wait for all writes before them; waiting writes are synced together."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.disk = Disk()
        self.slow_s = 0.0
        self.up = False
        self._world = world
        self._life = 0
        self.start()

    def start(self) -> None:
        if self.up:
            return
        self.up = True
        self._acceptor = Acceptor(self.name, self.disk.stored, kept=KEPT)
        self._waiting: list[tuple[Effect, str]] = []
        self._syncing = False
        self._world.receivers[self.name] = self._receive

    def crash(self) -> None:
        """Some of the unsynced writes are on disk, in their order; the others are lost."""
        if not self.up:
            return
        self.up = False
        self._life += 1
        del self._world.receivers[self.name]
        saves = [effect for effect, _ in self._waiting if not isinstance(effect, Reply)]
        kept = self._world.random.randint(0, len(saves))
        self.disk.write(saves[:kept])
        self._world.say(f"{self.name}: crash, with {kept} of {len(saves)} unsynced writes")

    def _receive(self, message: Any, sender: str) -> None:
        self._waiting += [(effect, sender) for effect in self._acceptor.handle(message, now=self._world.now)]
        self._acceptor.check_invariants()
        while self._waiting and not self._syncing:
            self._next()

    def _next(self) -> None:
        """Sends an answer, or begins a sync of all waiting writes."""
        effect, sender = self._waiting[0]
        if isinstance(effect, Reply):
            del self._waiting[0]
            self._world.send(self.name, sender, effect.answer)
            return
        self._syncing = True
        life, count = self._life, len(self._waiting)
        self._world.later(self._world.random.uniform(0.0005, 0.005 + self.slow_s), lambda: self._synced(life, count))

    def _synced(self, life: int, count: int) -> None:
        if life != self._life:
            return
        done, self._waiting = self._waiting[:count], self._waiting[count:]
        self._syncing = False
        for effect, sender in done:
            if isinstance(effect, Reply):
                self._world.send(self.name, sender, effect.answer)
            else:
                self.disk.write([effect])
        while self._waiting and not self._syncing:
            self._next()


class Manager:
    """The real contender, with a clock of its own. Each start is a new process with a new name."""

    def __init__(self, world: World, watch: Watch, host: str, witnesses: Sequence[str]) -> None:
        self.host = host
        self._world = world
        self._watch = watch
        self._rate = world.random.uniform(0.8, 1.25)
        self._clock_s = world.random.uniform(0.0, 1000.0)
        self._lives = 0
        self._puts = 0
        self.up = False
        self.start(witnesses)

    @property
    def _now(self) -> float:
        return self._clock_s + self._rate * self._world.now

    @property
    def leads(self) -> bool:
        return self.up and self._leading and self._world.now >= self._hangs_until

    def start(self, witnesses: Sequence[str]) -> None:
        if self.up:
            return
        self.up = True
        self._lives += 1
        self.name = f"{self.host}.{self._lives}"
        self._leading = False
        self._generation = 0  # as the elected leader
        self._held: list[ev.Event] = []
        self._hangs_until = 0.0
        self._timer = 0
        self._deadline: float | None = None  # of the timer
        self._keys: dict[int, str] = {}  # of writes without an answer, by number
        self._values: dict[str, bytes] = {}
        self._index = 0  # of the last committed record that it knows
        self._contender = Contender(
            Identity(CLUSTER, self.name),
            witnesses,
            Times(LEASE_S, self._world.random.random),
            first_generation=1 + self._world.random.randrange(3),
            kept=KEPT,
            now=self._now,
        )
        self._world.receivers[self.name] = lambda message, sender: self._handle(message)
        self._handle(ev.Due())

    def crash(self) -> None:
        if self.up:
            self.up = False
            del self._world.receivers[self.name]
            self._world.say(f"{self.name}: crash")

    def hang(self, for_s: float) -> None:
        """As after SIGSTOP: what comes in meanwhile is handled afterwards."""
        name = self.name
        self._hangs_until = self._world.now + for_s
        self._world.say(f"{name}: hangs for {for_s:.2f} s")
        self._world.later(for_s, lambda: self._wake(name))

    def _wake(self, name: str) -> None:
        if not self.up or name != self.name or self._world.now < self._hangs_until:
            return
        held, self._held = self._held, []
        for event in [*held, ev.Due()]:
            self._handle(event)

    def step_clock(self, by_s: float) -> None:
        self._world.say(f"{self.name}: the clock steps by {by_s:.2f} s")
        self._clock_s += by_s
        self._deadline = None
        if self.up:
            self._handle(ev.Due())

    def put(self, witnesses: tuple[str, ...] = ()) -> str:
        """Begins a write, and returns its key. Call it only if it leads."""
        self._puts += 1
        key = f"{self.name}:{self._puts}"
        values = {key: b"1", "newest": key.encode(), f"{self.name}:{self._puts - 3}": None}
        self._keys[self._puts] = key
        try:
            self._handle(ev.Put(self._puts, values, witnesses))
        except (ConflictError, InvalidRequestError):  # another change is under way, or this leader is a former one
            del self._keys[self._puts]
        return key

    def _handle(self, event: ev.Event) -> None:
        if self._world.now < self._hangs_until:
            if not isinstance(event, ev.Due):
                self._held.append(event)
            return
        effects = self._contender.handle(event, now=self._now)
        self._contender.check_invariants()
        for effect in effects:
            self._carry_out(effect)
        self._arm()

    def _arm(self) -> None:
        deadline = self._contender.next_deadline()
        assert deadline is not None
        if deadline == self._deadline:
            return
        self._deadline = deadline
        self._timer += 1
        name, timer = self.name, self._timer
        delay_s = max(deadline - self._now, 0.0) / self._rate + 1e-6
        self._world.later(delay_s, lambda: self._due(name, timer))

    def _due(self, name: str, timer: int) -> None:
        if self.up and (name, timer) == (self.name, self._timer):
            self._deadline = None
            self._handle(ev.Due())

    def _carry_out(self, effect: ev.Effect) -> None:
        match effect:
            case ev.Send(witness, request):
                self._world.send(self.name, witness, request)
            case ev.Elected(generation, last):
                self._world.say(f"{self.name}: elected in {generation} at {last}")
                self._generation = generation
                self._watch.elected(self.name, generation, last)
            case ev.Leads(generation):
                self._world.say(f"{self.name}: leads in {generation}")
                self._leading = True
                self._watch.leads(self.name, self._index, self._values)
            case ev.Stopped(reason):
                self._world.say(f"{self.name}: stopped: {reason}")
                self._leading = False
                self._generation = 0
            case ev.Committed(first, records):
                self._watch.committed(self.name, self._generation, first, records)
                self._values, _ = fold(Snapshot(values=self._values), records)
                self._index = first + len(records) - 1
            case ev.Restored(snapshot):
                self._watch.restored(self.name, snapshot)
                self._values, self._index = dict(snapshot.values), snapshot.last.index
            case ev.PutDone(number):
                self._watch.done(self.name, self._keys.pop(number))
            case ev.PutFailed(number):
                del self._keys[number]
            case ev.JournalEmpty():
                self._world.fail(f"{self.name}: finds an empty journal")
