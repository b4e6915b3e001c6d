"""Witnesses without disks and managers, connected by calls: each request is answered at once, unless it is cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from rhino_core.witnesses import events as ev
from rhino_core.witnesses.acceptor import Acceptor, Reply, Stored
from rhino_core.witnesses.contender import Contender, Times
from rhino_core.witnesses.leadership import Identity

LEASE_S = 6.0


class Group:
    """`effects`: those of each manager, without requests. `down`: witnesses without an answer."""

    def __init__(self, witnesses: str = "abc", *, kept: int = 1000) -> None:
        self.named = tuple(witnesses)
        self.kept = kept
        self.witnesses = {name: Acceptor(name, Stored(), kept=kept) for name in witnesses}
        self.down: set[str] = set()
        self.now = 0.0
        self.managers: dict[str, Contender] = {}
        self.effects: dict[str, list[ev.Effect]] = {}

    def start(self, name: str, *, first_generation: int = 0) -> Contender:
        times = Times(LEASE_S, lambda: 0.0)
        me = Identity("cluster", name)
        self.managers[name] = Contender(
            me, self.named, times, first_generation=first_generation, kept=self.kept, now=self.now
        )
        self.effects[name] = []
        return self.managers[name]

    def handle(self, name: str, *events: ev.Event) -> None:
        """Handles the events, and the answers to the requests."""
        waiting = deque(events)
        while waiting:
            for effect in self.managers[name].handle(waiting.popleft(), now=self.now):
                if isinstance(effect, ev.Send):
                    waiting += self._answers(effect)
                else:
                    self.effects[name].append(effect)
            self.managers[name].check_invariants()

    def _answers(self, sent: ev.Send) -> Iterable[ev.Event]:
        if sent.witness in self.down or sent.witness not in self.witnesses:
            return []
        effects = self.witnesses[sent.witness].handle(sent.request, now=self.now)
        self.witnesses[sent.witness].check_invariants()
        return [effect.answer for effect in effects if isinstance(effect, Reply)]

    def wait(self, for_s: float, *names: str) -> None:
        """Lets time pass for these managers, or for all."""
        until = self.now + for_s
        while True:
            due = {name: self.managers[name].next_deadline() for name in names or self.managers}
            name, deadline = min(due.items(), key=lambda one: one[1] or 0.0)
            assert deadline is not None
            if deadline > until:
                break
            self.now = max(self.now, deadline)
            self.handle(name, ev.Due())
        self.now = until

    def took(self, name: str, *kinds: type[ev.Effect]) -> list[ev.Effect]:
        """Effects of these kinds since the last call. The others are forgotten."""
        effects, self.effects[name] = self.effects[name], []
        return [effect for effect in effects if isinstance(effect, kinds)]


def led_group(witnesses: str = "abc", *, kept: int = 1000) -> Group:
    """Manager `m` leads in generation 7."""
    group = Group(witnesses, kept=kept)
    group.start("m", first_generation=7)
    group.wait(2 * LEASE_S)
    assert group.took("m", ev.Leads) == [ev.Leads(7)]
    return group
